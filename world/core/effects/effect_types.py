"""Effects that actions request: untyped by ``effect``, and typed by a declaration with input and output.

A declaration is made once and called like a function::

    charge = EffectType("bank.charge", input=Charge, output=Receipt)


    @shop.action("pay", version="1")
    def pay(ctx: ActionContext[Shop], input: Pay) -> ActionSteps:
        receipt = yield from charge(amount=input.amount)  # a Receipt, for type checkers too
        return [set_("paid", receipt.number)]

``yield from`` has the output's type whatever else the action yields. In an action with one type of output,
``ActionSteps[Receipt]`` gives ``yield`` the same type. Handlers are declared by it too: ``@handler(charge)``.
Source: HC-handlers; design section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypeVar

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes, read_json
from world.model.immutable_json import FrozenDict, freeze
from world.model.short_repr import one_line

__all__ = ["EffectCall", "EffectType", "effect"]

P = ParamSpec("P")
I = TypeVar("I")  # noqa: E741 - the input
O = TypeVar("O", default=Any)  # noqa: E741 - the output


@dataclass(frozen=True, slots=True)
class EffectCall(Generic[O]):
    """An effect that a generator requests.

    Args:
        type: the effect's name.
        args: its arguments, frozen JSON.
        declared: the declaration that it was made by; None for one without types.
    """

    type: str
    args: FrozenDict
    declared: EffectType[Any, Any, O] | None = field(default=None, compare=False, repr=False)

    def __iter__(self) -> Generator[EffectCall[O], Any, O]:
        """Request the effect, and return its result: ``result = yield from call``."""
        result: O = yield self
        return result

    def read(self, value: Any) -> Any:
        """Return a recorded result as the action receives it.

        Raises:
            RefusedError: ``EFFECT_INVALID_RESULT`` where it does not fit the declared output.
        """
        return value if self.declared is None else self.declared.read(value)


def effect(type: str, /, **args: Any) -> EffectCall:  # noqa: A002 - the specification's word
    """Return an effect to yield.

    Args:
        type: the effect's name, such as ``http.post``.
        **args: JSON.

    Raises:
        RefusedError: ``NOT_CANONICAL`` for arguments that are no JSON.
    """
    return EffectCall(type, freeze(args))


class EffectType(Generic[P, I, O]):
    """A type of effect with the types of its input and output; calling it returns an effect to yield."""

    __slots__ = ("input", "output", "type")

    def __init__(self, type: str, *, input: Callable[P, I], output: type[O]) -> None:  # noqa: A002
        """Declare a type of effect.

        Args:
            type: the effect's name, such as ``mail.send``.
            input: the class of its parameters, a pydantic model or a dataclass; its arguments are those of a call.
            output: the type of its result: a model, a TypedDict or any type that pydantic can check.
        """
        self.type = type
        self.input = input
        self.output = output

    def __repr__(self) -> str:
        return one_line(f"EffectType({self.type!r})")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> EffectCall[O]:
        """Return an effect to yield; the arguments are those of the input's class.

        Raises:
            pydantic.ValidationError: for invalid arguments.
            RefusedError: ``NOT_CANONICAL`` for an input that is no JSON.
        """
        given = self.input(*args, **kwargs)
        params = read_json(_adapter(self.input).dump_json(given, by_alias=True))
        return EffectCall(self.type, freeze(params), self)

    def read(self, value: Any) -> O:
        """Return a recorded result as an instance of the output.

        Raises:
            RefusedError: ``EFFECT_INVALID_RESULT``.
        """
        try:
            read: O = _adapter(self.output).validate_json(canonical_bytes(value))
        except ValidationError as invalid:
            faults = "; ".join(
                f"{'.'.join(map(str, fault['loc'])) or 'result'}: {fault['msg']}" for fault in invalid.errors()
            )
            raise RefusedError(
                ErrorCode.EFFECT_INVALID_RESULT, f"The result of {self.type} does not fit its output: {faults}."
            ) from None
        return read

    def recorded(self, value: Any) -> Any:
        """Return the JSON of a result that a handler returned.

        Raises:
            RefusedError: ``EFFECT_INVALID_RESULT``.
        """
        adapter = _adapter(self.output)
        try:
            return read_json(adapter.dump_json(adapter.validate_python(value), by_alias=True))
        except ValidationError as invalid:
            first = invalid.errors()[0]["msg"]
            raise RefusedError(
                ErrorCode.EFFECT_INVALID_RESULT, f"The result of {self.type} does not fit its output: {first}."
            ) from None


_adapters: dict[int, tuple[Any, TypeAdapter[Any]]] = {}


def _adapter(of: Any) -> TypeAdapter[Any]:
    """Return what reads and writes values of a type, made once; the type is kept, so that its id stays its own."""
    known = _adapters.get(id(of))
    if known is None:
        known = _adapters[id(of)] = of, TypeAdapter(of)
    return known[1]
