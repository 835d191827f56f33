"""Actions in Python: functions and generators over a frozen state.

A function returns patches. A generator yields effects and receives their results::

    @domain.action("order.pay", version="1")
    def pay(ctx: ActionContext, pay: Pay) -> ActionSteps:
        receipt = yield effect("http.post", url=PAYMENTS, body={"order": pay.order})
        return [set_("orders.0.receipt", receipt["id"])]

It may also yield a patch, which the steps after it see. Time, ids and random numbers come from the context
only. At re-entry the generator runs again from its start and is answered from the journal (design section
4, IC-reentry), or continues where it stopped, if it was kept (``world.core.flows.suspended_execution``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Generic, NoReturn, TypeAlias, cast

from pydantic import BaseModel, ValidationError
from typing_extensions import TypeVar

from world.core.effects.effect_types import EffectCall, effect
from world.core.execution import Execution, StopError, Suspended
from world.core.expressions.scope import seeded_fraction
from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes
from world.model.immutable_json import FrozenDict, freeze, thaw
from world.model.patch import Patch
from world.model.snapshot import ErrorValue

__all__ = [
    "ActionContext",
    "ActionFailedError",
    "ActionSteps",
    "EffectCall",
    "EffectFailedError",
    "effect",
    "resume_python",
    "run_python",
]


class EffectFailedError(Exception):
    """Raised in a generator when its effect failed.

    Args:
        error: the error value of the handler or the host.
    """

    def __init__(self, error: ErrorValue) -> None:
        super().__init__(error.message)
        self.error = error
        self.code = error.code
        self.message = error.message


class ActionFailedError(Exception):
    """Raised by an action that fails; its code is the error value's code."""

    def __init__(self, code: str, message: str, context: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.context = context


class ComputedView(Mapping[str, Any]):
    """Computed values, by their short names (``openCount``) and by their full ones
    (``computed.openCount``).
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Any:
        return self._values[name] if name in self._values else self._values[f"computed.{name}"]

    def __iter__(self) -> Iterator[str]:
        return (name.removeprefix("computed.") for name in self._values)

    def __len__(self) -> int:
        return len(self._values)


S = TypeVar("S", bound=BaseModel, default=Any)
"""The model of a domain's state; any where it is not named."""


class ActionContext(Generic[S]):
    """Context of an action; equal in every run of an attempt
    (HC-context).
    """

    __slots__ = ("_execution", "_randoms", "_state")

    def __init__(self, execution: Execution) -> None:
        """Create the context of an execution."""
        self._execution = execution
        self._randoms = 0
        self._state: tuple[FrozenDict, S] | None = None

    @property
    def data(self) -> FrozenDict:
        """The data, frozen, with the patches and effects so far."""
        return self._execution.data

    @property
    def state(self) -> S:
        """The data as a frozen instance of the state's model, made when it is read.

        Raises:
            TypeError: the domain's state is portable data, without a model.
            pydantic.ValidationError: the patches so far left data that does not fit.
        """
        data = self._execution.data
        if self._state is None or self._state[0] is not data:
            self._state = data, self._execution.program.state_of(data)
        return self._state[1]

    @property
    def computed(self) -> Mapping[str, Any]:
        """The computed values of that data."""
        return ComputedView(self._execution.computed)

    @property
    def now(self) -> int:
        """The computation's frozen time, ms since 1970-01-01 UTC."""
        return self._execution.context.now

    @property
    def intent_id(self) -> str:
        """The attempt that is executed."""
        return self._execution.invocation.intent_id

    def new_id(self) -> str:
        """Return the next of this attempt's ids, a UUID."""
        return self._execution.scope.next_id()

    def random(self) -> float:
        """Return the next of this attempt's random numbers, 0 <= x < 1."""
        self._randoms += 1
        return seeded_fraction(self._execution.context.random_seed, self._randoms)

    def fail(self, code: str, message: str, **context: Any) -> NoReturn:
        """End the action with an error value.

        Args:
            code: the error's code.
            message: for people.
            **context: JSON facts that are the same in every run.

        Raises:
            ActionFailedError: always; the engine catches it.
        """
        raise ActionFailedError(code, message, freeze(context) if context else None)


Action = Callable[..., Any]

A = TypeVar("A", default=Any)
"""The type of the results of an action's effects; any where it is not named."""

ActionSteps: TypeAlias = Generator[EffectCall[Any] | Patch | list[Patch], A, list[Patch] | None]
"""Generator of an action: yields effects and patches, and returns patches.

``ActionSteps[Receipt]`` is that of an action whose effects all have the result ``Receipt``.
"""


def run_python(execution: Execution, function: Action, model: type[BaseModel] | None) -> None:
    """Run a Python action in an execution.

    Args:
        execution: the working state; patches and effects go through it.
        function: ``function(ctx)`` or ``function(ctx, input)``.
        model: the input's type, or None where the action takes none.

    Raises:
        StopError: where it ends as pending or with an error value: ``INVALID_INPUT``, the code of ``ctx.fail``,
            ``ACTION_RAISED`` for any other exception, ``ACTION_INVALID_RESULT`` for a result that is no
            patches.
    """
    at = f"actions.{execution.action_id}.python"
    arguments = [] if model is None else [_typed(execution, model)]
    with _Guard(execution, at):
        outcome = function(ActionContext(execution), *arguments)
        if isinstance(outcome, Generator):
            outcome = _drive(execution, outcome, outcome.__next__, at)
    _apply_all(execution, outcome, at)


def resume_python(execution: Execution, suspended: Suspended) -> None:
    """Resume a Python action whose effect has a result in the journal.

    Raises:
        StopError: as ``run_python``.
    """
    at, generator = suspended.at, suspended.generator
    with _Guard(execution, at):
        outcome = _drive(execution, generator, _answer(execution, generator, suspended.asked, at), at)
    _apply_all(execution, outcome, at)


def _typed(execution: Execution, model: type[BaseModel]) -> BaseModel:
    value = execution.invocation.input
    spec = execution.schema.actions[execution.action_id].input
    try:
        if spec is not None and spec.model is not None:
            return model.model_validate_json(canonical_bytes({} if value is None else value))
        return model.model_validate(thaw(value) if value is not None else {})
    except ValidationError as invalid:
        faults = [
            {"path": ".".join(["input", *map(str, fault["loc"])]), "message": fault["msg"]}
            for fault in invalid.errors()
        ]
        shown = "; ".join(f"{fault['path']}: {fault['message']}" for fault in faults)
        rendered = freeze({"faults": faults})
        execution.fail("INVALID_INPUT", f"The input of {execution.action_id!r} does not fit: {shown}.", "", rendered)


class _Guard:
    """Converts exceptions of foreign code into error values, except ``StopError``."""

    def __init__(self, execution: Execution, at: str) -> None:
        self.execution = execution
        self.at = at

    def __enter__(self) -> None:
        """Enter the context."""

    def __exit__(self, _: object, raised: BaseException | None, __: object) -> None:
        if raised is None or isinstance(raised, StopError) or not isinstance(raised, Exception):
            return
        if isinstance(raised, ActionFailedError):
            self.execution.fail(raised.code, raised.message, self.at, raised.context)
        if isinstance(raised, EffectFailedError):
            raise StopError("error", error=raised.error) from None
        if isinstance(raised, RecursionError):
            self.execution.fail("LIMIT_EXCEEDED", "The action calls itself too deep.", self.at)
        shown = f"{type(raised).__name__}: {raised}"[:500]
        self.execution.fail("ACTION_RAISED", f"The action raised {shown}", self.at, {"type": type(raised).__name__})


def _drive(execution: Execution, generator: Generator[Any, Any, Any], step: Callable[[], Any], at: str) -> Any:
    """Run a generator to its end with the results of its effects; return its result."""
    asked: Any = None
    try:
        while True:
            asked = step()
            step = _answer(execution, generator, asked, at)
    except StopIteration as end:
        return end.value
    except StopError as stop:
        if execution.keeps and stop.status == "pending":
            execution.suspended = Suspended(generator, asked, at)
        raise
    finally:
        if execution.suspended is None:
            _close(generator)


def _answer(execution: Execution, generator: Generator[Any, Any, Any], asked: Any, at: str) -> Callable[[], Any]:
    if not isinstance(asked, EffectCall):
        _apply_all(execution, asked, at)
        return generator.__next__
    # Effects of one action are identified by their number: the same call twice is two effects.
    result = execution.effect(asked.type, asked.args, f"{at}[{len(execution.answered)}]")
    error = result.error
    if error is None:
        try:
            value = asked.read(result.value)
        except RefusedError as refused:
            now = execution.context.now
            error = ErrorValue.at(refused.code, refused.message, execution.action_id, at, now)
        else:
            return lambda: generator.send(value)
    failed = EffectFailedError(error)
    return lambda: generator.throw(failed)


def _close(generator: Generator[Any, Any, Any]) -> None:
    """Close a generator; exceptions of its cleanup are ignored."""
    try:
        generator.close()
    except Exception:  # noqa: BLE001 - the end is decided; what an author's cleanup raises changes nothing
        return


def _apply_all(execution: Execution, patches: Any, at: str) -> None:
    if patches is None:
        return
    given = (patches,) if isinstance(patches, Patch) else patches
    if not isinstance(given, (list, tuple)) or not all(isinstance(patch, Patch) for patch in given):
        kind = type(patches).__name__
        message = f"An action returns a list of patches and yields effects or patches, not {kind}."
        execution.fail("ACTION_INVALID_RESULT", message, at)
    for patch in cast("list[Patch]", given):
        execution.apply(patch, at)
