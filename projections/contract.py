"""What a projection is given and how it is asked (intent specification 7.1, 9-11).

A projection is a weak interpreter. From what happened outside, who acts, and a read-only view of one state,
it selects a command or nothing. It decides no policy, changes nothing and reaches nothing outside of its
request; equal requests give equal results.

What it is given is the same whichever way it came. Numbers have their canonical form, the members of the
payload and of the actor's meta stand in canonical order, and there is no time of occurrence (INT-11.3). So a
result can be performed again from its record. Members of the snapshot keep the order in which they were
written, which is not part of the state. A result must not depend on it; ``projections.purity.guard`` finds out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol, get_args

from projections.purity.calling import MUTATION, guarded_call
from projections.results import Answer, ProjectionResult, read_result
from world.code.time_limit import TimeLimit
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.canonical_json import utf16_key
from world.model.immutable_json import freeze
from world.model.intent_origin import API_ORIGIN, DIRECT_PREFIX
from world.model.snapshot import SnapshotView
from world.model.source import SourceEvent, SourceKind
from world.model.value import MAX_ID_LENGTH

__all__ = [
    "DIRECT_PREFIX",
    "ROUTER",
    "Accepts",
    "FunctionProjection",
    "Projection",
    "ProjectionRequest",
    "ask",
    "projection",
]

ROUTER: Final = "router"
"""Stands in records for the router itself, where several projections or none were asked and none selected."""

SOURCE_KINDS: Final[frozenset[SourceKind]] = frozenset(get_args(SourceKind))
"""Every kind of source event."""


Accepts = Callable[[SourceEvent], bool]
"""Tells whether a projection is to be asked about a source event; as pure as the projection itself."""


@dataclass(frozen=True, slots=True)
class ProjectionRequest:
    """All that a projection sees (INT-7.1, INT-10.1); nothing in it can be changed.

    Args:
        schema_hash: the schema in force.
        snapshot: data and computed values; plain ones are frozen here.
        actor: who acts.
        source: what happened; ``occurred_at`` is taken out here (INT-11.3).

    Raises:
        RefusedError: ``NOT_CANONICAL`` for a snapshot that is no JSON.
    """

    schema_hash: str
    snapshot: SnapshotView
    actor: ActorRef
    source: SourceEvent

    def __post_init__(self) -> None:
        view = SnapshotView(freeze(self.snapshot.data, "$.data"), freeze(self.snapshot.computed, "$.computed"))
        seen = {"payload": in_canonical_order(self.source.payload), "occurred_at": None}
        object.__setattr__(self, "snapshot", view)
        object.__setattr__(self, "source", self.source.model_copy(update=seen))
        if self.actor.meta is not None:
            meta = in_canonical_order(self.actor.meta)
            object.__setattr__(self, "actor", self.actor.model_copy(update={"meta": meta}))

    def to_wire(self) -> dict[str, Any]:
        """Return the request as JSON."""
        return {
            "schemaHash": self.schema_hash,
            "snapshot": self.snapshot.to_wire(),
            "actor": self.actor.to_wire(),
            "source": self.source.to_wire(),
        }


class Projection(Protocol):
    """Maps a request to an intent or to nothing (INT-7.1).

    It may also have ``sources`` (kinds of source events), ``accepts(source)`` and ``priority``, which say
    when it is asked; see ``projections.registry``.
    """

    @property
    def projection_id(self) -> str:
        """The name under which it is recorded; it stays the same for good."""
        ...

    def project(self, req: ProjectionRequest, /) -> Answer:
        """Return the intent to select, or nothing; pure."""
        ...


Function = Callable[[ProjectionRequest], Answer]


@dataclass(frozen=True, slots=True)
class FunctionProjection:
    """A projection made from a function by ``@projection``; calling it asks it.

    Args:
        projection_id: its name in records.
        function: what is asked.
        sources: the kinds of source events it is asked about; None is every kind.
        accepts: which of those; None is all.
        priority: the higher it is, the earlier it is asked.
    """

    projection_id: str
    function: Function
    sources: frozenset[SourceKind] | None = None
    accepts: Accepts | None = None
    priority: int = 0

    def __post_init__(self) -> None:
        check_projection_id(self.projection_id)
        _refuse_deferred(self.projection_id, self.function)

    def project(self, req: ProjectionRequest) -> Answer:
        """Return what the function answers."""
        return self.function(req)

    def __call__(self, req: ProjectionRequest) -> ProjectionResult:
        """Return the function's result; see ``ask`` for what is refused."""
        return ask(self, req)


def projection(
    projection_id: str,
    *,
    sources: Iterable[SourceKind] | None = None,
    accepts: Accepts | None = None,
    priority: int = 0,
) -> Callable[[Function], FunctionProjection]:
    """Make a projection from a function of one request.

    Args:
        projection_id: its name in records; never changes its meaning.
        sources: the kinds of source events it is asked about; None is every kind.
        accepts: which of those; None is all.
        priority: the higher it is, the earlier it is asked; equal ones are asked in the order of their ids.

    Raises:
        RefusedError: ``INVALID_PROJECTION`` for a bad id, unknown kinds, or a function that is a coroutine or
            generator.
    """
    kinds = None if sources is None else check_sources(projection_id, sources)

    def mark(function: Function) -> FunctionProjection:
        return FunctionProjection(projection_id, function, kinds, accepts, priority)

    return mark


_NO_TIME_LIMIT: Final = TimeLimit()


def ask(asked: Projection, req: ProjectionRequest, *, time_limit: TimeLimit = _NO_TIME_LIMIT) -> ProjectionResult:
    """Ask a projection once, under guard, and read its answer.

    Args:
        asked: the projection.
        req: all that it sees.
        time_limit: how long it may take.

    Raises:
        RefusedError: ``PROJECTION_IMPURE`` when it reaches the clock, chance, the network, files or anything else
            outside of its request, ``PROJECTION_FAILED`` when it raises, ``PROJECTION_TIMED_OUT`` when it takes too
            long, ``INVALID_PROJECTION_RESULT`` when its answer is none; all name it.
    """
    answer = guarded_call(asked.projection_id, lambda: asked.project(req), time_limit, but=frozenset({MUTATION}))
    return read_result(asked.projection_id, answer)


def check_projection_id(projection_id: Any) -> None:
    """Refuse an id that no projection may have.

    Raises:
        RefusedError: ``INVALID_PROJECTION`` for anything but a printable text of at most ``MAX_ID_LENGTH``
            characters, and for the names that mark direct production, intents stated outright, and the router.
    """
    fault = None
    if not isinstance(projection_id, str) or not projection_id.strip() or not projection_id.isprintable():
        fault = "is no id: use a printable text"
    elif len(projection_id) > MAX_ID_LENGTH:
        fault = f"has {len(projection_id)} characters; the limit is {MAX_ID_LENGTH}"
    elif projection_id.startswith(DIRECT_PREFIX):
        fault = f"begins with {DIRECT_PREFIX!r}, which marks intents that no projection produced (SD-1)"
    elif projection_id == API_ORIGIN:
        fault = "marks intents that a caller states outright"
    elif projection_id == ROUTER:
        fault = "is the router's own name in records"
    if fault is not None:
        shown = repr(projection_id)[:80]
        raise RefusedError("INVALID_PROJECTION", f"The projection id {shown} {fault}.", projection=shown)


def check_sources(projection_id: str, sources: Iterable[Any]) -> frozenset[SourceKind]:
    """Return the kinds of source events as a set.

    Raises:
        RefusedError: ``INVALID_PROJECTION`` for an unknown kind, and for a bare text.
    """
    kinds = frozenset([sources] if isinstance(sources, str) else sources)
    if isinstance(sources, str) or not kinds <= SOURCE_KINDS:
        raise RefusedError(
            "INVALID_PROJECTION",
            f"The projection {projection_id!r} wants events of kind {', '.join(sorted(map(repr, kinds)))}; "
            f"give a collection out of {', '.join(sorted(SOURCE_KINDS))}.",
            projection=projection_id,
        )
    return kinds


def in_canonical_order(value: Any) -> Any:
    """Return a frozen value whose members stand in the order in which a log gives them back (RFC 8785)."""
    if isinstance(value, dict):
        return freeze({key: in_canonical_order(value[key]) for key in sorted(value, key=utf16_key)})
    if isinstance(value, list):
        return freeze([in_canonical_order(item) for item in value])
    return value


def _refuse_deferred(projection_id: str, function: Any) -> None:
    """Refuse functions that only begin when they are called: what they do later, no request holds."""
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function) or not callable(function):
        raise RefusedError(
            "INVALID_PROJECTION",
            f"The projection {projection_id!r} must be a plain function of one request, neither async nor a generator.",
            projection=projection_id,
        )
