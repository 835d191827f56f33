"""Effects: who makes them, what they are told, and what they may answer.

A handler is a function ``(params, call)``, plain or ``async``. It answers ``Done``, ``Failed``, a list of
patches, or any JSON value, and decides nothing: what its answer means is the action's business
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

Which handlers there are is the operator's choice: a registry is filled by hand, from references
(``host.loading``), or from the entry points of installed packages.
Source: design section 8; HC-handlers, HC-journal.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from world.errors import Refused
from world.patch import Patch
from world.ports import EffectTerms
from world.snapshot import SnapshotView

__all__ = [
    "DEFAULT_TIME_LIMIT_MS",
    "MAX_TIME_LIMIT_MS",
    "Answer",
    "Done",
    "EffectCallInfo",
    "EffectFunction",
    "EffectHandler",
    "EffectRegistry",
    "Failed",
    "Predicate",
    "Touch",
    "handler",
    "idempotency_key",
]

DEFAULT_TIME_LIMIT_MS: Final = 30_000
"""How long a handler may take when it says nothing else, in milliseconds."""

MAX_TIME_LIMIT_MS: Final = 7 * 24 * 3_600_000
"""The longest time limit a handler may ask for, in milliseconds; a wait for people is no effect."""

MAX_TYPE_CHARS: Final = 512
"""Characters in an effect's name."""

Predicate = Literal["PROVIDES", "CONSUMES", "MUTATES", "DELETES", "RENAMES", "DEPENDS_ON"]
Touch = tuple[Predicate, str]
"""What an effect does to what outside: a predicate and a resource such as ``URL:https://mail.example/*``."""

_RESOURCE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*:.+")


@dataclass(frozen=True, slots=True)
class Done:
    """The effect was made.

    Args:
        value: JSON that a Python action receives from its ``yield``.
        patches: changes of the data that a declarative flow takes over; they obey the state's spec and the
            approved scope like all others.
    """

    value: Any = None
    patches: Sequence[Patch] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """The effect failed; becomes an error value that the action may catch.

    Args:
        code: a stable identifier, which becomes the error's code.
        message: one sentence for people.
        context: JSON facts for programs.
    """

    code: str
    message: str
    context: Mapping[str, Any] | None = None


Answer = Done | Failed | Sequence[Patch] | Mapping[str, Any] | Sequence[Any] | str | int | float | bool | None
"""Everything that a handler may answer; all but the first three is a value."""


def idempotency_key(intent_id: str, requirement_id: str) -> str:
    """Return the text by which the outside can tell a repeated effect from a new one (HC-journal).

    Args:
        intent_id: the attempt at the intent, the same through the whole execution.
        requirement_id: the effect's place in it, 64 hex digits.
    """
    return f"{intent_id}:{requirement_id}"


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
    """

    effect_type: str
    idempotency_key: str
    intent_id: str
    proposal_id: str
    now: int
    time_limit_ms: int
    look: Callable[[], SnapshotView] = field(repr=False, compare=False)

    @property
    def view(self) -> SnapshotView:
        """The state in which the action asks for the effect, its patches so far applied; read-only."""
        return self.look()


EffectFunction = Callable[[Mapping[str, Any], EffectCallInfo], Any]
"""A handler's function; an ``async`` one gives the answer when awaited."""


@dataclass(frozen=True, slots=True)
class EffectHandler:
    """A function that makes effects of one type, with what it promises; callable like the function itself.

    Args:
        type: the effect's name.
        function: makes it.
        terms: time limit and idempotence.
        touches: what it touches outside, for manifests and for people.

    Raises:
        Refused: ``INVALID_HANDLER`` that names the handler and what is wrong with it.
    """

    type: str
    function: EffectFunction
    terms: EffectTerms
    touches: tuple[Touch, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.type, str) or not 0 < len(self.type) <= MAX_TYPE_CHARS:
            raise self._invalid(f"its effect's name must be a text of 1 to {MAX_TYPE_CHARS} characters")
        if not _takes_two(self.function):
            raise self._invalid("it must be a function of two arguments, (params, call)")
        limit = self.terms.time_limit_ms
        if isinstance(limit, bool) or not isinstance(limit, int) or not 0 < limit <= MAX_TIME_LIMIT_MS:
            raise self._invalid(f"its time limit must be 1 to {MAX_TIME_LIMIT_MS} milliseconds, not {limit!r}")
        for touch in self.touches:
            if not _is_touch(touch):
                raise self._invalid(f'what it touches must be pairs like ("MUTATES", "FILE:/a"), not {touch!r}')

    def __call__(self, params: Mapping[str, Any], call: EffectCallInfo) -> Any:
        """Call the function, without time limit and without reading its answer."""
        return self.function(params, call)

    @property
    def source(self) -> str:
        """Where the function stands, as ``module:qualname``, for people."""
        inner = inspect.unwrap(self.function)
        named = inner if hasattr(inner, "__qualname__") else type(inner)
        return f"{named.__module__}:{named.__qualname__}"

    def to_wire(self) -> dict[str, Any]:
        """Return what is known of the handler, as JSON."""
        return {
            "type": self.type,
            "source": self.source,
            "timeLimitMs": self.terms.time_limit_ms,
            "idempotent": self.terms.idempotent,
            "touches": [{"predicate": predicate, "resource": resource} for predicate, resource in self.touches],
        }

    def _invalid(self, why: str) -> Refused:
        return Refused(
            "INVALID_HANDLER",
            f"The handler of effect {self.type!r} cannot be used: {why}.",
            effect=str(self.type),
        )


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


def _is_touch(touch: Any) -> bool:
    return (
        isinstance(touch, tuple)
        and len(touch) == 2
        and touch[0] in get_args(Predicate)
        and isinstance(touch[1], str)
        and _RESOURCE.fullmatch(touch[1]) is not None
    )


def handler(
    effect_type: str,
    /,
    *,
    time_limit_ms: int = DEFAULT_TIME_LIMIT_MS,
    idempotent: bool = False,
    touches: Iterable[Touch] = (),
) -> Callable[[EffectFunction], EffectHandler]:
    """Make a handler of the decorated function; it is used once it stands in a registry.

    Args:
        effect_type: the effect's name, such as ``http.get``.
        time_limit_ms: after which an effect is given up, in milliseconds.
        idempotent: whether making an effect again with the same idempotency key does no harm. An effect
            that may have happened before a crash is made again only then; otherwise it waits for a person.
        touches: what it touches outside, as pairs of predicate and resource.

    Raises:
        Refused: ``INVALID_HANDLER``, by the decorator.
    """
    terms = EffectTerms(time_limit_ms, idempotent)
    touched = tuple(touches)
    return lambda function: EffectHandler(effect_type, function, terms, touched)


class EffectRegistry:
    """The handlers a host works with, one for each type of effect.

    Args:
        handlers: to begin with.

    Raises:
        Refused: ``DUPLICATE_HANDLER`` as ``add`` does.
    """

    def __init__(self, handlers: Iterable[EffectHandler] = ()) -> None:
        """Start with these handlers."""
        self._handlers: dict[str, EffectHandler] = {}
        for given in handlers:
            self.add(given)

    def add(self, given: EffectHandler) -> None:
        """Add a handler.

        Raises:
            Refused: ``DUPLICATE_HANDLER`` where its type has another one: which of the two makes an effect
                must not depend on the order in which packages are found.
        """
        known = self._handlers.setdefault(given.type, given)
        if known is not given:
            raise Refused(
                "DUPLICATE_HANDLER",
                f"Effect {given.type!r} has two handlers, {known.source} and {given.source}; leave one out.",
                effect=given.type,
            )

    def handler(
        self,
        effect_type: str,
        /,
        *,
        time_limit_ms: int = DEFAULT_TIME_LIMIT_MS,
        idempotent: bool = False,
        touches: Iterable[Touch] = (),
    ) -> Callable[[EffectFunction], EffectHandler]:
        """Make a handler of the decorated function and add it; see ``host.effects.handler``."""
        make = handler(effect_type, time_limit_ms=time_limit_ms, idempotent=idempotent, touches=touches)

        def register(function: EffectFunction) -> EffectHandler:
            made = make(function)
            self.add(made)
            return made

        return register

    def find(self, effect_type: str) -> EffectHandler | None:
        """Return the handler of a type of effect, or None."""
        return self._handlers.get(effect_type)

    def terms(self, effect_type: str) -> EffectTerms:
        """Return what is promised for a type of effect; the defaults where nobody handles it."""
        found = self._handlers.get(effect_type)
        return found.terms if found else EffectTerms(DEFAULT_TIME_LIMIT_MS, idempotent=False)

    def __iter__(self) -> Iterator[EffectHandler]:
        return iter(sorted(self._handlers.values(), key=lambda given: given.type))

    def __len__(self) -> int:
        return len(self._handlers)

    def __contains__(self, effect_type: object) -> bool:
        return effect_type in self._handlers

    def to_wire(self) -> list[dict[str, Any]]:
        """Return what is known of every handler, by type, as JSON."""
        return [given.to_wire() for given in self]
