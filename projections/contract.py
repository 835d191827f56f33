"""Contract of projections: their request, and how they are called.

A projection is a weak interpreter. From a source event, an actor, and a read-only view of one state, it selects an
intent or none. It decides no policy, changes nothing and reads nothing outside of its request; equal requests give
equal results. Source: intent specification 7.1, 9-11.

A live request equals the request that a recheck reads from the record: numbers have their canonical form, the members
of the payload and of the actor's meta are in canonical order, and the time of occurrence is removed (INT-11.3). Members
of the snapshot keep the order in which they were written, which is not part of the state. A result must not depend on
that order; ``projections.purity.guard`` detects it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, get_args

from msgspec import structs

from projections.purity.guarded_call import MUTATION, guarded_call
from projections.results import Answer, ProjectionResult, read_result
from world.code.time_limit import TimeLimit
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.immutable_json import freeze
from world.model.intent_origin import API_ORIGIN, DIRECT_PREFIX
from world.model.member_types import MAX_ID_LENGTH
from world.model.record import WireForm
from world.model.short_repr import fields_repr
from world.model.snapshot import SnapshotView
from world.model.source import SourceEvent, SourceKind

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
"""Id of the router in records, where no projection or several were called and none selected an intent."""

SOURCE_KINDS: Final[frozenset[SourceKind]] = frozenset(get_args(SourceKind))
"""Every kind of source event."""


Accepts = Callable[[SourceEvent], bool]
"""Predicate that selects the source events of a projection; as pure as the projection itself."""


@dataclass(frozen=True, slots=True)
class ProjectionRequest(WireForm):
    """Immutable input of a projection (INT-7.1, INT-10.1).

    Args:
        schema_hash: the schema in force.
        snapshot: data and computed values; plain values are frozen here.
        actor: the acting actor.
        source: the source event; ``occurred_at`` is removed here (INT-11.3).

    Raises:
        RefusedError: ``NOT_CANONICAL`` for a snapshot that is not JSON.
    """

    schema_hash: str
    snapshot: SnapshotView
    actor: ActorRef
    source: SourceEvent
    WIRE: ClassVar = "schema_hash snapshot actor source"

    __repr__ = fields_repr

    def __post_init__(self) -> None:
        view = SnapshotView(freeze(self.snapshot.data, "$.data"), freeze(self.snapshot.computed, "$.computed"))
        object.__setattr__(self, "snapshot", view)
        object.__setattr__(self, "source", structs.replace(self.source, occurred_at=None))


class Projection(Protocol):
    """Function from a request to an intent or to none (INT-7.1).

    It may also have ``sources`` (kinds of source events), ``accepts(source)`` and ``priority``, which decide when it is
    called; see ``projections.registry``.
    """

    @property
    def projection_id(self) -> str:
        """The name under which it is recorded; it must never change."""
        ...

    def project(self, req: ProjectionRequest, /) -> Answer:
        """Return the intent to select, or none; pure."""
        ...


Function = Callable[[ProjectionRequest], Answer]


@dataclass(frozen=True, slots=True)
class FunctionProjection:
    """A projection made from a function by ``@projection``; callable.

    Args:
        projection_id: its name in records.
        function: the function that is called.
        sources: the kinds of source events that it receives; None is every kind.
        accepts: filter of those events; None is all.
        priority: projections with a higher priority are called first.
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
        """Return the answer of the function."""
        return self.function(req)

    def __call__(self, req: ProjectionRequest) -> ProjectionResult:
        """Return the function's result; see ``ask`` for refusals."""
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
        projection_id: its name in records; must never change its meaning.
        sources: the kinds of source events that it receives; None is every kind.
        accepts: filter of those events; None is all.
        priority: projections with a higher priority are called first; equal ones in the order of their ids.

    Raises:
        RefusedError: ``INVALID_PROJECTION`` for a bad id, unknown kinds, or a function that is a coroutine or
            generator.
    """
    check_projection_id(projection_id)
    kinds = None if sources is None else check_sources(projection_id, sources)

    def mark(function: Function) -> FunctionProjection:
        return FunctionProjection(projection_id, function, kinds, accepts, priority)

    return mark


_NO_TIME_LIMIT: Final = TimeLimit()


def ask(asked: Projection, req: ProjectionRequest, *, time_limit: TimeLimit = _NO_TIME_LIMIT) -> ProjectionResult:
    """Call a projection once, under guard, and read its answer.

    Args:
        asked: the projection.
        req: its input.
        time_limit: limit of the call.

    Raises:
        RefusedError: ``PROJECTION_IMPURE`` when it reads the clock, randomness, the network, files or anything else
            outside of its request, ``PROJECTION_FAILED`` when it raises, ``PROJECTION_TIMED_OUT`` when it exceeds the
            limit, ``INVALID_PROJECTION_RESULT`` when its answer is not a result; each with the id of the projection.
    """
    answer = guarded_call(asked.projection_id, lambda: asked.project(req), time_limit, but=frozenset({MUTATION}))
    return read_result(asked.projection_id, answer)


def check_projection_id(projection_id: Any) -> None:
    """Raise for an invalid projection id.

    Raises:
        RefusedError: ``INVALID_PROJECTION`` for anything other than a printable string of at most ``MAX_ID_LENGTH``
            characters, and for the reserved names of direct production, of intents from the API, and of the router.
    """
    fault = None
    if not isinstance(projection_id, str) or not projection_id.strip() or not projection_id.isprintable():
        fault = "is not a valid id: use a printable string"
    elif len(projection_id) > MAX_ID_LENGTH:
        fault = f"has {len(projection_id)} characters; the limit is {MAX_ID_LENGTH}"
    elif projection_id.startswith(DIRECT_PREFIX):
        fault = f"begins with {DIRECT_PREFIX!r}, which marks intents that no projection produced (SD-1)"
    elif projection_id == API_ORIGIN:
        fault = "is reserved for intents that a caller submits itself"
    elif projection_id == ROUTER:
        fault = "is reserved for the router in records"
    if fault is not None:
        shown = repr(projection_id)[:80]
        raise RefusedError(ErrorCode.INVALID_PROJECTION, f"The projection id {shown} {fault}.", projection=shown)


def check_sources(projection_id: str, sources: Iterable[Any]) -> frozenset[SourceKind]:
    """Return the kinds of source events as a set.

    Raises:
        RefusedError: ``INVALID_PROJECTION`` for an unknown kind, and for a string in place of a collection.
    """
    kinds = frozenset([sources] if isinstance(sources, str) else sources)
    if isinstance(sources, str) or not kinds <= SOURCE_KINDS:
        raise RefusedError(
            ErrorCode.INVALID_PROJECTION,
            f"The projection {projection_id!r} declares sources {', '.join(sorted(map(repr, kinds)))}; "
            f"declare a collection of {', '.join(sorted(SOURCE_KINDS))}.",
            projection=projection_id,
        )
    return kinds


def _refuse_deferred(projection_id: str, function: Any) -> None:
    """Raise for coroutine functions and generators, which run after the call."""
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function) or not callable(function):
        raise RefusedError(
            ErrorCode.INVALID_PROJECTION,
            f"The projection {projection_id!r} must be a plain function of one request, neither async nor a generator.",
            projection=projection_id,
        )
