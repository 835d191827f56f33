"""Which projections there are, and which of them answers (intent specification 7.1).

Projections are asked one after the other until one selects an intent: higher ``priority`` first, equal ones
in the order of their ids (UTF-16 code units), whatever order they were registered in. A projection is asked
only about source events whose kind is among its ``sources`` and which its ``accepts`` takes. So who answers
depends on the request and on which projections there are, and on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, cast

from projections.contract import (
    ROUTER,
    Accepts,
    Projection,
    ProjectionRequest,
    ask,
    check_projection_id,
    check_sources,
)
from projections.purity.calling import IMPURE, MUTATION, guarded_call
from projections.results import (
    Answer,
    NoIntent,
    ProjectionResult,
    Select,
    raised_as_refusal,
    read_result,
)
from world.code.time_limit import TimeLimit
from world.errors import RefusedError
from world.model.canonical_json import utf16_key
from world.model.source import SourceEvent, SourceKind

__all__ = [
    "InvocationMode",
    "Once",
    "ProjectionRegistry",
    "Registered",
    "Routed",
    "UnsafeUnguarded",
]


@dataclass(frozen=True, slots=True)
class Registered:
    """A projection and when it is asked; itself a projection."""

    projection: Projection
    projection_id: str
    sources: frozenset[SourceKind] | None
    accepts: Accepts | None
    priority: int

    def project(self, req: ProjectionRequest) -> Answer:
        """Return what the projection answers."""
        return self.projection.project(req)


class InvocationMode(Protocol):
    """How projections are asked: once under guard, twice (``projections.purity.guard``), or unguarded."""

    @property
    def time_limit(self) -> TimeLimit:
        """The limit of each call."""
        ...

    def accepts(self, asked: Registered, source: SourceEvent) -> bool:
        """Tell whether a projection wants to be asked about an event."""
        ...

    def project(self, asked: Registered, req: ProjectionRequest) -> ProjectionResult:
        """Return a projection's result."""
        ...


class Once:
    """Asks each projection once, under guard; what a registry does unless it is told otherwise.

    Args:
        time_limit: for each call.
    """

    def __init__(self, time_limit: TimeLimit | None = None) -> None:
        """Ask without a limit, or with one."""
        self.time_limit = time_limit or TimeLimit()

    def accepts(self, asked: Registered, source: SourceEvent) -> bool:
        """Tell whether a projection wants to be asked about an event.

        Raises:
            RefusedError: ``PROJECTION_IMPURE``, ``PROJECTION_FAILED``, ``PROJECTION_TIMED_OUT``,
                ``INVALID_PROJECTION_RESULT``.
        """
        accepts = asked.accepts
        if accepts is None:
            return True
        answer = guarded_call(asked.projection_id, lambda: accepts(source), self.time_limit, but=frozenset({MUTATION}))
        return read_acceptance(asked.projection_id, answer)

    def project(self, asked: Registered, req: ProjectionRequest) -> ProjectionResult:
        """Return a projection's result; see ``ask`` for what is refused."""
        return ask(asked, req, time_limit=self.time_limit)


class UnsafeUnguarded:
    """Asks each projection once, without any guard: what it reaches outside of its request is not found.

    Args:
        time_limit: for each call.
    """

    def __init__(self, time_limit: TimeLimit | None = None) -> None:
        """Ask without a limit, or with one."""
        self.time_limit = time_limit or TimeLimit()

    def accepts(self, asked: Registered, source: SourceEvent) -> bool:
        """Tell whether a projection wants to be asked about an event.

        Raises:
            RefusedError: ``PROJECTION_FAILED``, ``PROJECTION_TIMED_OUT``, ``INVALID_PROJECTION_RESULT``.
        """
        if asked.accepts is None:
            return True
        accepts, limited = asked.accepts, self.time_limit.run
        answer = raised_as_refusal(asked.projection_id, lambda: limited(lambda: accepts(source)))
        return read_acceptance(asked.projection_id, answer)

    def project(self, asked: Registered, req: ProjectionRequest) -> ProjectionResult:
        """Return a projection's result.

        Raises:
            RefusedError: ``PROJECTION_FAILED``, ``PROJECTION_TIMED_OUT``, ``INVALID_PROJECTION_RESULT``.
        """
        answer = raised_as_refusal(asked.projection_id, lambda: self.time_limit.run(lambda: asked.project(req)))
        return read_result(asked.projection_id, answer)


def read_acceptance(projection_id: str, answer: Any) -> bool:
    """Return the answer of ``accepts``.

    Raises:
        RefusedError: ``INVALID_PROJECTION_RESULT`` for anything but True and False.
    """
    if not isinstance(answer, bool):
        raise RefusedError(
            "INVALID_PROJECTION_RESULT",
            f"The projection {projection_id!r} must accept a source event with True or False, not with "
            f"{type(answer).__name__}.",
            projection=projection_id,
        )
    return answer


@dataclass(frozen=True, slots=True)
class Routed:
    """What came of asking the projections.

    Args:
        projection_id: the one that selected the intent; None where none did.
        considered: those that were asked, in order; the one that answered is the last.
        result: the intent, or nothing with the reasons of all who gave one.
    """

    projection_id: str | None
    considered: tuple[str, ...]
    result: ProjectionResult

    @property
    def recorded_as(self) -> str:
        """The projectionId of the record: who answered, the only one asked, or the router for all of them."""
        if self.projection_id is not None:
            return self.projection_id
        return self.considered[0] if len(self.considered) == 1 else ROUTER


class ProjectionRegistry:
    """The projections at hand; safe to route from many threads, once it is filled."""

    def __init__(self, projections: Iterable[Projection] = (), *, asking: InvocationMode | None = None) -> None:
        """Register projections.

        Args:
            projections: in any order.
            asking: how they are asked; None is ``Once()``, under guard. ``projections.guard.Guard()`` asks twice,
                ``UnsafeUnguarded()`` has no guard.

        Raises:
            RefusedError: see ``add``.
        """
        self.asking: InvocationMode = asking or Once()
        self._known: dict[str, Registered] = {}
        for projection in projections:
            self.add(projection)

    def add(
        self,
        projection: Projection,
        *,
        sources: Iterable[SourceKind] | None = None,
        accepts: Accepts | None = None,
        priority: int | None = None,
    ) -> Registered:
        """Register one projection; what is not given here is the projection's own choice.

        Args:
            projection: has a ``projection_id`` of its own and ``project``.
            sources: the kinds of source events it is asked about.
            accepts: which of those.
            priority: the higher it is, the earlier it is asked.

        Raises:
            RefusedError: ``DUPLICATE_PROJECTION`` for an id that is taken; ``INVALID_PROJECTION`` for what is no
                projection.
        """
        entry = registered(projection, sources, accepts, priority)
        if entry.projection_id in self._known:
            raise RefusedError(
                "DUPLICATE_PROJECTION",
                f"Two projections are called {entry.projection_id!r}; an id names one of them for good.",
                projection=entry.projection_id,
            )
        everyone = [*self._known.values(), entry]
        everyone.sort(key=lambda known: (-known.priority, utf16_key(known.projection_id)))
        self._known = {known.projection_id: known for known in everyone}
        return entry

    def __iter__(self) -> Iterator[Registered]:
        """Yield the projections in the order in which they are asked."""
        return iter(tuple(self._known.values()))

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, projection_id: object) -> bool:
        return projection_id in self._known

    @property
    def projection_ids(self) -> tuple[str, ...]:
        """The ids of the registered projections, in the order in which they are asked."""
        return tuple(self._known)

    def route(self, req: ProjectionRequest) -> Routed:
        """Ask the projections until one selects an intent.

        Raises:
            RefusedError: what asking refuses; no projection behind the one at fault was asked.
        """
        return self._route(self._known.values(), req, self.asking)

    def route_among(
        self, projection_ids: Iterable[str], req: ProjectionRequest, *, asking: InvocationMode | None = None
    ) -> Routed:
        """Ask these projections only, in this order; for rechecks.

        Args:
            projection_ids: those that are asked.
            req: what they are asked.
            asking: how they are asked; None is as the registry asks.

        Raises:
            RefusedError: ``UNKNOWN_PROJECTION``, and what ``route`` refuses.
        """
        wanted = tuple(projection_ids)
        missing = [name for name in wanted if name not in self._known]
        if missing:
            raise RefusedError(
                "UNKNOWN_PROJECTION",
                f"There is no projection {missing[0]!r} at hand.",
                projection=missing[0],
                known=list(self._known),
            )
        return self._route((self._known[name] for name in wanted), req, asking or self.asking)

    def _route(self, entries: Iterable[Registered], req: ProjectionRequest, asking: InvocationMode) -> Routed:
        silent: list[tuple[str, NoIntent]] = []
        for entry in entries:
            if entry.sources is not None and req.source.kind not in entry.sources:
                continue
            try:
                if not asking.accepts(entry, req.source):
                    continue
                result = asking.project(entry, req)
            except RefusedError as refused:
                if refused.code != IMPURE:
                    raise
                considered = [*(name for name, _ in silent), entry.projection_id]
                raise RefusedError(refused.code, refused.message, **refused.details, considered=considered) from None
            if isinstance(result, Select):
                asked = (*(name for name, _ in silent), entry.projection_id)
                return Routed(entry.projection_id, asked, result)
            silent.append((entry.projection_id, result))
        return Routed(None, tuple(name for name, _ in silent), _joined(silent, req.source.kind))


def _joined(silent: list[tuple[str, NoIntent]], kind: SourceKind) -> NoIntent:
    """Return the one nothing that several of them come to."""
    if not silent:
        return NoIntent(f"no projection takes this event of kind {kind}")
    if len(silent) == 1:
        return silent[0][1]
    reasons = [f"{name}: {nothing.reason}" for name, nothing in silent if nothing.reason is not None]
    return NoIntent("; ".join(reasons) or None)


def registered(
    projection: Any,
    sources: Iterable[SourceKind] | None = None,
    accepts: Accepts | None = None,
    priority: int | None = None,
) -> Registered:
    """Return a projection with when it is asked: what is given here, otherwise what it says itself.

    Raises:
        RefusedError: ``INVALID_PROJECTION`` for what is no projection.
    """
    if isinstance(projection, Registered):
        projection = projection.projection
    if isinstance(projection, type) or not callable(getattr(projection, "project", None)):
        raise RefusedError(
            "INVALID_PROJECTION",
            f"{repr(projection)[:80]} is no projection: it needs a projection_id and project(request). Mark "
            "a function with @projection(id), and give an object in place of its class.",
        )
    name = getattr(projection, "projection_id", None)
    check_projection_id(name)
    name = cast(str, name)
    wanted = getattr(projection, "sources", None) if sources is None else sources
    chosen = getattr(projection, "priority", 0) if priority is None else priority
    if isinstance(chosen, bool) or not isinstance(chosen, int):
        raise RefusedError("INVALID_PROJECTION", f"The priority of projection {name!r} is no integer.", projection=name)
    return Registered(
        projection=projection,
        projection_id=name,
        sources=None if wanted is None else check_sources(name, wanted),
        accepts=getattr(projection, "accepts", None) if accepts is None else accepts,
        priority=chosen,
    )
