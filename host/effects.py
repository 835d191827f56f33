"""Effects: who makes them, what they are told, and what they may answer.

A handler is a function ``(params, call)``, plain or ``async``. It answers ``EffectResult``, ``EffectFailure``, a list
of patches, or any JSON value, and decides nothing: what its answer means is the action's business
(HC-handlers). ::

    @handler(
        "mail.send",
        time_limit_ms=10_000,
        idempotent=True,
        touches=[("MUTATES", "URL:https://mail.example/*")],
    )
    def send(params: Mapping[str, Any], call: EffectCallInfo) -> Answer:
        receipt = post(params["to"], params["text"], key=call.idempotency_key)
        return Done({"receipt": receipt})

With ``input`` a handler gets its parameters checked and as that type; what it promises and touches may then depend on
them (``host.effect_input``, ``host.effect_resources``).

Which handlers there are is the operator's choice: a registry is filled by hand, from references
(``host.loading``), or from the entry points of installed packages.
Source: design section 8; HC-handlers, HC-journal.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from host.effect_input import EFFECT_INVALID_INPUT, EffectInput
from host.effect_resources import (
    Predicate,
    Touch,
    Touches,
    TouchesOf,
    resources_of,
    source_of,
    touch_faults,
    touch_to_wire,
)
from world.clock import Clock, SystemClock
from world.errors import RefusedError
from world.model.literal_secrets import named_literals
from world.model.patch import Patch
from world.model.snapshot import SnapshotView
from world.state.ports import EffectTerms

if TYPE_CHECKING:
    from host.confinement import RunningCommand
    from host.isolation import Isolation
    from host.workspace import Workspace

__all__ = [
    "DEFAULT_BACKOFF_MS",
    "DEFAULT_TIME_LIMIT_MS",
    "EFFECT_INVALID_INPUT",
    "MAX_RETRIES",
    "MAX_TIME_LIMIT_MS",
    "Answer",
    "EffectCallInfo",
    "EffectFailure",
    "EffectFunction",
    "EffectHandler",
    "EffectRegistry",
    "EffectResult",
    "Predicate",
    "Touch",
    "WholeRegistry",
    "handler",
    "idempotency_key",
]

DEFAULT_TIME_LIMIT_MS: Final = 30_000
"""How long a handler may take when it says nothing else, in milliseconds."""

MAX_TIME_LIMIT_MS: Final = 7 * 24 * 3_600_000 + 60_000
"""The longest time limit a handler may ask for, in milliseconds: a week, and a minute to come to an end in."""

DEFAULT_BACKOFF_MS: Final = 1_000
"""How long to wait before the first retry, in milliseconds; every further wait is twice as long."""

MAX_RETRIES: Final = 100
"""How often a handler may ask to be tried again."""

MAX_BACKOFF_MS: Final = 24 * 3_600_000
"""The longest first wait before a retry, in milliseconds."""

MAX_TYPE_CHARS: Final = 512
"""Characters in an effect's name."""


@dataclass(frozen=True, slots=True)
class EffectResult:
    """The effect was made.

    Args:
        value: JSON that a Python action receives from its ``yield``.
        patches: changes of the data that a declarative flow takes over; they obey the state's spec and the
            approved scope like all others.
    """

    value: Any = None
    patches: Sequence[Patch] = ()


@dataclass(frozen=True, slots=True)
class EffectFailure:
    """The effect failed; becomes an error value that the action may catch.

    Args:
        code: a stable identifier, which becomes the error's code.
        message: one sentence for people.
        context: JSON facts for programs.
        retryable: whether making the effect again may help and does no harm; only then it is retried.
    """

    code: str
    message: str
    context: Mapping[str, Any] | None = None
    retryable: bool = False


Answer = (
    EffectResult | EffectFailure | Sequence[Patch] | Mapping[str, Any] | Sequence[Any] | str | int | float | bool | None
)
"""Everything that a handler may answer; all but the first three is a value."""


def idempotency_key(intent_id: str, requirement_id: str) -> str:
    """Return the text by which the outside can tell a repeated effect from a new one (HC-journal).

    Args:
        intent_id: the attempt at the intent, the same through the whole execution.
        requirement_id: the effect's place in it, 64 hex digits.
    """
    return f"{intent_id}:{requirement_id}"


def _never() -> bool:
    return False


def _no_leases() -> None:
    return None


def start_unconfined(argv: Sequence[str], *, read: Iterable[str] = (), **more: Any) -> RunningCommand:
    """Start a command as it is; arguments and errors as of ``host.confinement.start``, and ``read`` plays no part."""
    from host.confinement import start  # only effects that start something pay for it

    return start(argv, rules=None, decide=None, unconfined=True, **more)


@dataclass(frozen=True, slots=True)
class EffectCallInfo:
    """What a handler is told besides the effect's parameters.

    Args:
        effect_type: the effect's name, for handlers that make several.
        idempotency_key: the same whenever this effect of this attempt is made again.
        intent_id: the attempt at the intent.
        proposal_id: the approved proposal.
        now: the execution's frozen time, ms since 1970; not the wall clock.
        time_limit_ms: after which the handler is given up and its answer dropped, in milliseconds.
        look: gives ``view``; it is asked only when a handler wants to see the state.
        attempt: 1 when the effect is made for the first time, and one more each time it is made again.
        requested_at: when the effect was first asked for, ms since 1970; 0 where nobody knows.
        fencing_token: grows with every grant of leases; what is outside can refuse a smaller one than it has seen.
        workspace: the folder that agents see as ``FILE:/``, None where there is none.
        scratch: a folder of the engine's own, for what a handler must remember between attempts; may not exist yet.
        clock: tells the engine's time.
        is_cancelled: whether nobody waits for the answer any more.
        check: raises when the leases were lost; to be called immediately before whatever cannot be undone.
        start: starts a command; under watch it is confined to what was declared for the effect's proposal. Its
            arguments and errors are those of ``host.confinement.start``, without rules and who decides.
    """

    effect_type: str
    idempotency_key: str
    intent_id: str
    proposal_id: str
    now: int
    time_limit_ms: int
    look: Callable[[], SnapshotView] = field(repr=False, compare=False)
    attempt: int = 1
    requested_at: int = 0
    fencing_token: int = 0
    workspace: Workspace | None = field(default=None, repr=False, compare=False)
    scratch: Path | None = field(default=None, repr=False, compare=False)
    clock: Clock = field(default_factory=SystemClock, repr=False, compare=False)
    is_cancelled: Callable[[], bool] = field(default=_never, repr=False, compare=False)
    check: Callable[[], None] = field(default=_no_leases, repr=False, compare=False)
    start: Callable[..., RunningCommand] = field(default=start_unconfined, repr=False, compare=False)

    @property
    def view(self) -> SnapshotView:
        """The state in which the action asks for the effect, its patches so far applied; read-only."""
        return self.look()


EffectFunction = Callable[[Any, EffectCallInfo], Any]
"""A handler's function; an ``async`` one gives the answer when awaited."""


@dataclass(frozen=True, slots=True)
class EffectHandler:
    """A function that makes effects of one type, with what it promises; callable like the function itself.

    Args:
        type: the effect's name.
        function: makes it.
        terms: time limit, idempotence and retries, as far as they do not depend on the parameters.
        touches: what it touches outside, for manifests and for people.
        input: what its parameters must be; None takes any.
        idempotent_for: whether it is idempotent with some parameters; None for what ``terms`` say.
        time_limit_for: its time limit with some parameters, in milliseconds; None for what ``terms`` say.
        isolation: ``thread`` runs it in a thread of the engine's process; ``process`` in a process of its own that the
            operating system holds to what was declared (``host.isolation``).

    Raises:
        RefusedError: ``INVALID_HANDLER`` that names the handler and what is wrong with it.
    """

    type: str
    function: EffectFunction
    terms: EffectTerms
    touches: Touches = ()
    input: EffectInput | None = None
    idempotent_for: Callable[[Any], bool] | None = None
    time_limit_for: Callable[[Any], int] | None = None
    isolation: Isolation = "thread"

    def __post_init__(self) -> None:
        if not isinstance(self.type, str) or not 0 < len(self.type) <= MAX_TYPE_CHARS:
            raise self._invalid(f"its effect's name must be a text of 1 to {MAX_TYPE_CHARS} characters")
        if not _takes_two(self.function):
            raise self._invalid("it must be a function of two arguments, (params, call)")
        terms = self.terms
        if not _is_between(terms.time_limit_ms, 1, MAX_TIME_LIMIT_MS):
            told = f"1 to {MAX_TIME_LIMIT_MS} milliseconds, not {terms.time_limit_ms!r}"
            raise self._invalid(f"its time limit must be {told}")
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
        """Check the parameters and call the function, without time limit and without reading its answer.

        Parameters that it does not take are the answer ``EffectFailure`` with ``EFFECT_INVALID_INPUT``.
        """
        try:
            taken = self.taken(params)
            self._resources(params, taken)
        except RefusedError as refused:
            return EffectFailure(refused.code, refused.message, refused.details)
        if self.isolation == "process":
            from host.isolated_effects import perform  # only effects that start something pay for it

            return perform(self.type, self.function, params, call)
        return self.function(taken, call)

    def terms_for(self, params: Mapping[str, Any]) -> EffectTerms:
        """Return what is promised for an effect with some parameters.

        Whatever cannot be told from them, because they are faulty or because a function raises, is as ``terms`` say.
        """
        if self.idempotent_for is None and self.time_limit_for is None:
            return self.terms
        terms = self.terms
        try:
            taken = self.taken(params)
            idempotent = terms.idempotent if self.idempotent_for is None else self.idempotent_for(taken) is True
            limit = terms.time_limit_ms if self.time_limit_for is None else self.time_limit_for(taken)
        except Exception:  # noqa: BLE001 - foreign code, and what it was given is told when the effect is made
            return terms
        if not _is_between(limit, 1, MAX_TIME_LIMIT_MS):
            limit = terms.time_limit_ms
        return EffectTerms(limit, idempotent, retries=terms.retries, backoff_ms=terms.backoff_ms)

    def triples(self, params: Mapping[str, Any]) -> list[tuple[Predicate, str]]:
        """Return what an effect touches with some parameters: pairs of predicate and resource.

        The resources are texts that may not be in canonical form yet.

        Raises:
            RefusedError: ``EFFECT_INVALID_INPUT`` with all faults of the parameters, ``EFFECT_INVALID_TOUCHES``.
        """
        return self._resources(params, self.taken(params) if self.input is not None else params)

    def literal_secrets(self, params: Mapping[str, Any]) -> list[str]:
        """Return the paths of literals in fields that are secret by name or by the input's type."""
        found = [*named_literals(params), *(() if self.input is None else self.input.literals(params))]
        return list(dict.fromkeys(found))

    @property
    def source(self) -> str:
        """Where the function stands, as ``module:qualname``, for people."""
        return source_of(self.function)

    def to_wire(self) -> dict[str, Any]:
        """Return what is known of the handler, as JSON; null is what depends on the parameters."""
        told: dict[str, Any] = {
            "type": self.type,
            "source": self.source,
            "timeLimitMs": None if self.time_limit_for else self.terms.time_limit_ms,
            "idempotent": None if self.idempotent_for else self.terms.idempotent,
            "touches": touch_to_wire(self.touches),
        }
        if self.terms.retries:
            told |= {"retries": self.terms.retries, "backoffMs": self.terms.backoff_ms}
        if self.input is not None:
            told["input"] = self.input.to_wire()
        if self.isolation != "thread":
            told["isolation"] = self.isolation
        return told

    def taken(self, params: Mapping[str, Any]) -> Any:
        """Return the parameters as the function gets them.

        Raises:
            RefusedError: ``EFFECT_INVALID_INPUT``.
        """
        return params if self.input is None else self.input.read(params)

    def _resources(self, params: Mapping[str, Any], taken: Any) -> list[tuple[Predicate, str]]:
        of_type = self.input
        told = (lambda: params) if of_type is None else (lambda: of_type.told(taken))
        return resources_of(self.type, self.touches, taken, told)

    def _invalid(self, why: str) -> RefusedError:
        return RefusedError(
            "INVALID_HANDLER",
            f"The handler of effect {self.type!r} cannot be used: {why}.",
            effect=str(self.type),
        )


def _is_between(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _takes_two(function: Any) -> bool:
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # functions of extension modules may not tell what they take
        return True
    return True


def handler(
    effect_type: str,
    /,
    *,
    input: Any = None,  # noqa: A002 - the specification's word
    touches: Iterable[Touch] | TouchesOf = (),
    idempotent: bool | Callable[[Any], bool] = False,
    time_limit_ms: int | Callable[[Any], int] = DEFAULT_TIME_LIMIT_MS,
    retries: int = 0,
    backoff_ms: int = DEFAULT_BACKOFF_MS,
    isolation: Isolation = "thread",
) -> Callable[[EffectFunction], EffectHandler]:
    """Make a handler of the decorated function; it is used once it stands in a registry.

    Whatever is a function below is given the parameters as the handler gets them.

    Args:
        effect_type: the effect's name, such as ``http.get``.
        input: what its parameters must be: a pydantic model, a TypedDict or any type that pydantic can check. The
            handler gets them as that type; others are the error value ``EFFECT_INVALID_INPUT``.
        touches: what it touches outside, as pairs of predicate and resource, template or function; or one function that
            gives such pairs.
        idempotent: whether making an effect again with the same idempotency key does no harm, or a function that tells.
            An effect that may have happened before a crash is made again only then; otherwise it waits for a person.
        time_limit_ms: after which an effect is given up, in milliseconds, or a function that tells.
        retries: how often an effect is made again that failed in a way that may pass.
        backoff_ms: the wait before the first retry, in milliseconds; it doubles with each.
        isolation: ``process`` for code that is not trusted: a process of its own, which needs a workspace. It is given
            of ``call`` the plain facts, and may not answer patches.

    Raises:
        RefusedError: ``INVALID_HANDLER``, by the decorator.
    """
    terms = EffectTerms(
        DEFAULT_TIME_LIMIT_MS if callable(time_limit_ms) else time_limit_ms,
        False if callable(idempotent) else idempotent,
        retries=retries,
        backoff_ms=backoff_ms,
    )
    touched: Touches = touches if callable(touches) else tuple(touches)
    return lambda function: EffectHandler(
        effect_type,
        function,
        terms,
        touched,
        input=None if input is None else EffectInput(effect_type, input),
        idempotent_for=idempotent if callable(idempotent) else None,
        time_limit_for=time_limit_ms if callable(time_limit_ms) else None,
        isolation=isolation,
    )


class EffectRegistry:
    """The handlers a host works with, one for each type of effect.

    Args:
        handlers: to begin with.
        builtin: handlers that any other of the same type takes the place of.

    Raises:
        RefusedError: ``DUPLICATE_HANDLER`` as ``add`` does.
    """

    def __init__(self, handlers: Iterable[EffectHandler] = (), *, builtin: Iterable[EffectHandler] = ()) -> None:
        """Start with these handlers."""
        self._handlers: dict[str, EffectHandler] = {given.type: given for given in builtin}
        self._replaceable = set(self._handlers)
        for given in handlers:
            self.add(given)

    def add(self, given: EffectHandler) -> None:
        """Add a handler; it takes the place of a built-in one.

        Raises:
            RefusedError: ``DUPLICATE_HANDLER`` where its type has another one: which of the two makes an effect
                must not depend on the order in which packages are found.
        """
        if given.type in self._replaceable:
            self._replaceable.remove(given.type)
            self._handlers[given.type] = given
        known = self._handlers.setdefault(given.type, given)
        if known is not given:
            raise RefusedError(
                "DUPLICATE_HANDLER",
                f"Effect {given.type!r} has two handlers, {known.source} and {given.source}; leave one out.",
                effect=given.type,
            )

    def handler(
        self,
        effect_type: str,
        /,
        *,
        input: Any = None,  # noqa: A002 - the specification's word
        touches: Iterable[Touch] | TouchesOf = (),
        idempotent: bool | Callable[[Any], bool] = False,
        time_limit_ms: int | Callable[[Any], int] = DEFAULT_TIME_LIMIT_MS,
        retries: int = 0,
        backoff_ms: int = DEFAULT_BACKOFF_MS,
        isolation: Isolation = "thread",
    ) -> Callable[[EffectFunction], EffectHandler]:
        """Make a handler of the decorated function and add it; see ``host.effects.handler``."""
        make = handler(
            effect_type,
            input=input,
            touches=touches,
            idempotent=idempotent,
            time_limit_ms=time_limit_ms,
            retries=retries,
            backoff_ms=backoff_ms,
            isolation=isolation,
        )

        def register(function: EffectFunction) -> EffectHandler:
            made = make(function)
            self.add(made)
            return made

        return register

    def find(self, effect_type: str) -> EffectHandler | None:
        """Return the handler of a type of effect, or None."""
        return self._handlers.get(effect_type)

    def terms(self, effect_type: str, params: Mapping[str, Any] | None = None) -> EffectTerms:
        """Return what is promised for a type of effect, and for its parameters where they are given.

        The defaults where nobody handles it.
        """
        found = self._handlers.get(effect_type)
        if found is None:
            return EffectTerms(DEFAULT_TIME_LIMIT_MS, idempotent=False)
        return found.terms if params is None else found.terms_for(params)

    @property
    def builtin(self) -> frozenset[str]:
        """The types of effects whose handlers are built in."""
        return frozenset(self._replaceable)

    def __iter__(self) -> Iterator[EffectHandler]:
        return iter(sorted(self._handlers.values(), key=lambda given: given.type))

    def __len__(self) -> int:
        return len(self._handlers)

    def __contains__(self, effect_type: object) -> bool:
        return effect_type in self._handlers

    def to_wire(self) -> list[dict[str, Any]]:
        """Return what is known of every handler, by type, as JSON."""
        return [given.to_wire() for given in self]


class WholeRegistry(EffectRegistry):
    """All the handlers of a realm: neither built-in ones nor those of installed packages are added to them."""
