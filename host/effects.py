"""Effect handlers: their form, their terms and their results.

A handler is a function ``(params, call)``, plain or ``async``. It returns ``EffectResult``, ``EffectFailure``, a list
of patches, or any JSON value; the action decides what the answer means (HC-handlers). ::

    @handler(
        "mail.send",
        time_limit_ms=10_000,
        idempotent=True,
        touches=[("MUTATES", "URL:https://mail.example/*")],
    )
    def send(params: Mapping[str, Any], call: EffectCallInfo) -> Answer:
        receipt = post(params["to"], params["text"], key=call.idempotency_key)
        return EffectResult({"receipt": receipt})

An effect whose process ended before its result was recorded may have happened. Where that would be repeated in vain, a
handler can find it out: ``look_up`` of its options is called with the ``DoubtfulEffect`` before a person is asked.

With ``input`` a handler receives its parameters validated and as that type; its terms and touches may then depend on
them (``host.effect_input``, ``host.effect_resources``).

The operator chooses the handlers: a registry (``host.effect_registry``) is filled by hand, from references
(``host.loading``), or from the entry points of installed packages.
Source: design section 8; HC-handlers, HC-journal.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict, TypeVar, Unpack, overload

from host.effect_call import DoubtfulEffect, EffectCallInfo
from host.effect_input import EFFECT_INVALID_INPUT, EffectInput
from host.effect_resources import (
    Predicate,
    Touch,
    Touches,
    TouchesOf,
    resources_of,
    source_of,
    touch_faults,
)
from world.code.keyword_options import check_names
from world.core.effects.effect_types import EffectType
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.patch import Patch
from world.model.secrets.literal import named_literals
from world.model.short_repr import fields_repr
from world.state.ports import EffectTerms

if TYPE_CHECKING:
    from host.isolation.child_process import Isolation

__all__ = [
    "DEFAULT_BACKOFF_MS",
    "DEFAULT_TIME_LIMIT_MS",
    "EFFECT_INVALID_INPUT",
    "MAX_RETRIES",
    "MAX_TIME_LIMIT_MS",
    "Answer",
    "EffectFailure",
    "EffectFunction",
    "EffectHandler",
    "EffectOptions",
    "EffectResult",
    "HandlerOptions",
    "LookUp",
    "Predicate",
    "Touch",
    "handler",
]

DEFAULT_TIME_LIMIT_MS: Final = 30_000
"""Time limit of a handler that declares none, in milliseconds."""

MAX_TIME_LIMIT_MS: Final = 7 * 24 * 3_600_000 + 60_000
"""Longest time limit of a handler, in milliseconds: a week, and a minute to finish."""

DEFAULT_BACKOFF_MS: Final = 1_000
"""Wait before the first retry, in milliseconds; every further wait is twice as long."""

MAX_RETRIES: Final = 100
"""Highest number of retries of a handler."""

MAX_BACKOFF_MS: Final = 24 * 3_600_000
"""Longest first wait before a retry, in milliseconds."""

MAX_TYPE_CHARS: Final = 512
"""Characters in an effect's name."""


@dataclass(frozen=True, slots=True)
class EffectResult:
    """Result of a successful effect.

    Args:
        value: JSON that a Python action receives from its ``yield``.
        patches: changes of the data that a declarative flow applies; the state's spec and the approved scope
            apply to them as to all others.
    """

    value: Any = None
    patches: Sequence[Patch] = ()

    __repr__ = fields_repr


@dataclass(frozen=True, slots=True)
class EffectFailure:
    """Result of a failed effect; becomes an error value that the action may catch.

    Args:
        code: a stable identifier, which becomes the error's code.
        message: one sentence for people.
        context: JSON facts for programs.
        retryable: whether a repetition may help and is harmless; only then the effect is retried.
    """

    code: str
    message: str
    context: Mapping[str, Any] | None = None
    retryable: bool = False

    __repr__ = fields_repr


Answer = (
    EffectResult | EffectFailure | Sequence[Patch] | Mapping[str, Any] | Sequence[Any] | str | int | float | bool | None
)
"""Every type that a handler may return; all but the first three are values."""


EffectFunction = Callable[[Any, EffectCallInfo], Any]
"""A handler's function; an ``async`` one returns the answer when awaited."""

LookUp = Callable[[DoubtfulEffect], EffectResult | Awaitable[EffectResult | None] | None]
"""Returns the result of an effect that may have happened; None where it cannot be found out."""

I = TypeVar("I")  # noqa: E741 - the input of a declared effect
O = TypeVar("O")  # noqa: E741 - its output
TypedAnswer: TypeAlias = O | EffectResult | EffectFailure | Awaitable[O | EffectResult | EffectFailure]
"""What the handler of a declared effect may return: its output, or one of the classes for success and failure."""


@dataclass(frozen=True, slots=True)
class EffectHandler:
    """A function that runs effects of one type, with its terms; callable like the function itself.

    Args:
        type: the effect's name.
        function: runs it.
        terms: time limit, idempotence and retries that do not depend on the parameters.
        touches: the external resources that it touches, for manifests and for people.
        input: type of its parameters; None accepts any.
        idempotent_for: whether it is idempotent with given parameters; None to use ``terms``.
        time_limit_for: its time limit with given parameters, in milliseconds; None to use ``terms``.
        isolation: ``thread`` runs it in a thread of the engine's process; ``process`` in a process that the
            operating system confines to the declaration (``host.isolation``).
        declared: the declaration with the type of its results; None accepts any.
        look_up: finds out what became of an effect in doubt; None where only a person can.

    Raises:
        RefusedError: ``INVALID_HANDLER`` that names the handler and its fault.
    """

    type: str
    function: EffectFunction
    terms: EffectTerms
    touches: Touches = ()
    input: EffectInput | None = None
    idempotent_for: Callable[[Any], bool] | None = None
    time_limit_for: Callable[[Any], int] | None = None
    isolation: Isolation = "thread"
    declared: EffectType[Any, Any, Any] | None = None
    look_up: LookUp | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.type, str) or not 0 < len(self.type) <= MAX_TYPE_CHARS:
            raise self._invalid(f"its effect's name must be a text of 1 to {MAX_TYPE_CHARS} characters")
        if not _accepts(self.function, 2):
            raise self._invalid("it must be a function of two arguments, (params, call)")
        if self.look_up is not None and not _accepts(self.look_up, 1):
            raise self._invalid("its look_up must be a function of one argument, the effect")
        if self.look_up is not None and self.isolation == "process":
            raise self._invalid("with isolation='process' it cannot have a look_up, which runs in this process")
        terms = self.terms
        if not _is_between(terms.time_limit_ms, 1, MAX_TIME_LIMIT_MS):
            allowed = f"1 to {MAX_TIME_LIMIT_MS} milliseconds, not {terms.time_limit_ms!r}"
            raise self._invalid(f"its time limit must be {allowed}")
        if not _is_between(terms.retries, 0, MAX_RETRIES):
            raise self._invalid(f"its retries must be 0 to {MAX_RETRIES}, not {terms.retries!r}")
        if not _is_between(terms.backoff_ms, 1, MAX_BACKOFF_MS):
            raise self._invalid(f"its backoff must be 1 to {MAX_BACKOFF_MS} milliseconds, not {terms.backoff_ms!r}")
        if self.isolation not in ("thread", "process"):
            raise self._invalid(f"its isolation must be 'thread' or 'process', not {self.isolation!r}")
        if self.isolation == "process" and "<" in getattr(self.function, "__qualname__", "<"):
            raise self._invalid("with isolation='process' it must be a function at the top level of a module")
        fault = touch_faults(self.touches)
        if fault is not None:
            raise self._invalid(fault)

    def __call__(self, params: Mapping[str, Any], call: EffectCallInfo) -> Any:
        """Validate the parameters and call the function, without time limit and without reading its answer.

        For invalid parameters the answer is ``EffectFailure`` with ``EFFECT_INVALID_INPUT``.
        """
        try:
            typed = self.read_params(params)
            self._resources(params, typed)
        except RefusedError as refused:
            return EffectFailure(refused.code, refused.message, refused.details)
        if self.isolation == "process":
            from host.isolation.effects import perform  # imported late: only effects that start a process need it

            return perform(self.type, self.function, params, call)
        return self.function(typed, call)

    def terms_for(self, params: Mapping[str, Any]) -> EffectTerms:
        """Return the terms of an effect with given parameters.

        Where they cannot be determined, because the parameters are faulty or a function raises, ``terms`` applies.
        """
        if self.idempotent_for is None and self.time_limit_for is None:
            return self.terms
        terms = self.terms
        try:
            typed = self.read_params(params)
            idempotent = terms.idempotent if self.idempotent_for is None else self.idempotent_for(typed) is True
            limit = terms.time_limit_ms if self.time_limit_for is None else self.time_limit_for(typed)
        except Exception:  # noqa: BLE001 - foreign code; the fault is reported when the effect runs
            return terms
        if not _is_between(limit, 1, MAX_TIME_LIMIT_MS):
            limit = terms.time_limit_ms
        return replace(terms, time_limit_ms=limit, idempotent=idempotent)

    def triples(self, params: Mapping[str, Any]) -> list[tuple[Predicate, str]]:
        """Return what an effect touches with given parameters: pairs of predicate and resource.

        The resources are texts that need not be in canonical form.

        Raises:
            RefusedError: ``EFFECT_INVALID_INPUT`` with all faults of the parameters, ``EFFECT_INVALID_TOUCHES``.
        """
        return self._resources(params, self.read_params(params) if self.input is not None else params)

    def touches_files(self, params: Mapping[str, Any]) -> bool:
        """Return whether an effect with given parameters needs the workspace: it touches FILE, or a process runs it."""
        if self.isolation == "process":
            return True
        if not self.touches:
            return False
        try:
            return any(str(resource).startswith("FILE:") for _, resource in self.triples(params))
        except Exception:  # noqa: BLE001 - foreign code; the fault is reported when the effect runs
            return False

    def literal_secrets(self, params: Mapping[str, Any]) -> list[str]:
        """Return the paths of literals in fields that are secret by name or by the input's type."""
        paths = [*named_literals(params), *(() if self.input is None else self.input.literals(params))]
        return list(dict.fromkeys(paths))

    @property
    def source(self) -> str:
        """Where the function is defined, as ``module:qualname``, for people."""
        return source_of(self.function)

    def read_params(self, params: Mapping[str, Any]) -> Any:
        """Validate the parameters and return them as the function receives them.

        Raises:
            RefusedError: ``EFFECT_INVALID_INPUT``.
        """
        return params if self.input is None else self.input.read(params)

    def _resources(self, params: Mapping[str, Any], typed: Any) -> list[tuple[Predicate, str]]:
        of_type = self.input
        as_json = (lambda: params) if of_type is None else (lambda: of_type.to_json(typed))
        return resources_of(self.type, self.touches, typed, as_json)

    def _invalid(self, why: str) -> RefusedError:
        return RefusedError(
            ErrorCode.INVALID_HANDLER,
            f"The handler of effect {self.type!r} cannot be used: {why}.",
            effect=str(self.type),
        )


def _is_between(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _accepts(function: Any, count: int) -> bool:
    """Return whether a function can be called with a number of arguments."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # functions of extension modules may have no signature
        return True
    return True


class EffectOptions(TypedDict, total=False):
    """Options of ``handler`` and ``external``; a function receives the parameters in the form that the handler does.

    Args:
        input: the type of its parameters: a pydantic model, a TypedDict or any type that pydantic can check. The
            handler receives them as that type; others are the error value ``EFFECT_INVALID_INPUT``.
        touches: the resources that it touches, as pairs of predicate and resource, template or function; or one
            function that returns such pairs.
        idempotent: whether a repetition of an effect with the same idempotency key is harmless, or a function that
            returns it. An effect that may have happened before a crash is repeated only then; otherwise a person
            decides. False by default.
        time_limit_ms: time after which an effect is abandoned, in milliseconds, or a function that returns it.
        retries: how often an effect is repeated after a failure that may be temporary; 0 by default.
        backoff_ms: wait before the first retry, in milliseconds; it doubles with each.
        look_up: function ``(effect) -> EffectResult | None``, plain or ``async``, which finds out what became of an
            effect in doubt (``host.effect_call.DoubtfulEffect``), such as by asking the other side for its idempotency
            key. It is called once in each recovery, outside of the log's lock, within the time limit, and may touch
            what the effect may touch. A result is recorded, and the execution continues with it; None leaves the
            effect in doubt, and a person decides.
    """

    input: Any
    touches: Iterable[Touch] | TouchesOf
    idempotent: bool | Callable[[Any], bool]
    time_limit_ms: int | Callable[[Any], int]
    retries: int
    backoff_ms: int
    look_up: LookUp | None


class HandlerOptions(EffectOptions, total=False):
    """Options of ``handler``: those of ``EffectOptions``, and a further one.

    Args:
        isolation: ``process`` for untrusted code: a process of its own, which needs a workspace. It receives
            the plain facts of ``call``, and may not return patches.
    """

    isolation: Isolation


@overload
def handler(  # noqa: D418 - every function is documented
    effect_type: str, /, **options: Unpack[HandlerOptions]
) -> Callable[[EffectFunction], EffectHandler]:
    """Convert a function to a handler of a type of effect without declared types."""


@overload
def handler(  # noqa: D418
    effect_type: EffectType[Any, I, O], /, **options: Unpack[HandlerOptions]
) -> Callable[[Callable[[I, EffectCallInfo], TypedAnswer[O]]], EffectHandler]:
    """Convert a function to a handler of a declared type of effect: of its input, and returning its output."""


def handler(
    effect_type: str | EffectType[Any, Any, Any], /, **options: Unpack[HandlerOptions]
) -> Callable[[Any], EffectHandler]:
    """Convert the decorated function to a handler, to be added to a registry.

    Args:
        effect_type: the effect's name, such as ``http.get``, or its declaration, which has the type of its input.
        **options: see ``HandlerOptions``.

    Raises:
        RefusedError: ``INVALID_HANDLER``, by the decorator.
        TypeError: an option that does not exist.
    """
    check_names(options, HandlerOptions)
    time_limit = options.get("time_limit_ms", DEFAULT_TIME_LIMIT_MS)
    idempotent = options.get("idempotent", False)
    touches = options.get("touches", ())
    declared = effect_type if isinstance(effect_type, EffectType) else None
    name = effect_type.type if isinstance(effect_type, EffectType) else effect_type
    if callable(name):
        rendered = f"@handler takes the type of an effect first; write @handler(type) above {name!r:.80}."
        raise RefusedError(ErrorCode.INVALID_HANDLER, rendered)
    input_type = options.get("input") if declared is None else declared.input
    terms = EffectTerms(
        DEFAULT_TIME_LIMIT_MS if callable(time_limit) else time_limit,
        False if callable(idempotent) else idempotent,
        retries=options.get("retries", 0),
        backoff_ms=options.get("backoff_ms", DEFAULT_BACKOFF_MS),
        looks_up=options.get("look_up") is not None,
    )
    return lambda function: EffectHandler(
        name,
        function,
        terms,
        touches if callable(touches) else tuple(touches),
        input=None if input_type is None else EffectInput(name, input_type),
        idempotent_for=idempotent if callable(idempotent) else None,
        time_limit_for=time_limit if callable(time_limit) else None,
        isolation=options.get("isolation", "thread"),
        declared=declared,
        look_up=options.get("look_up"),
    )
