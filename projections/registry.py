"""Registry of projections and routing of source events.

Projections are called one after the other until one selects an intent: higher ``priority`` first, equal ones in the
order of their ids (UTF-16 code units), independent of the order of registration. A projection receives only source
events whose kind is among its ``sources`` and which its ``accepts`` accepts. The result depends only on the request and
the registered projections. Source: intent specification 7.1.
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
from projections.purity.guarded_call import IMPURE, MUTATION, guarded_call
from projections.results import (
    Answer,
    NoIntent,
    ProjectionResult,
    Select,
    raised_as_refusal,
    read_result,
)
from world.code.time_limit import TimeLimit
from world.error_codes import ErrorCode
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
    """A projection with its sources, filter and priority; itself a projection."""

    projection: Projection
    projection_id: str
    sources: frozenset[SourceKind] | None
    accepts: Accepts | None
    priority: int

    def project(self, req: ProjectionRequest) -> Answer:
        """Return the answer of the projection."""
        return self.projection.project(req)


class InvocationMode(Protocol):
    """How projections are called: guarded once, guarded twice, or unguarded."""

    @property
    def time_limit(self) -> TimeLimit:
        """The limit of each call."""
        ...

    def accepts(self, asked: Registered, source: SourceEvent) -> bool:
        """Return whether a projection accepts a source event."""
        ...

    def project(self, asked: Registered, req: ProjectionRequest) -> ProjectionResult:
        """Return a projection's result."""
        ...


class Once:
    """Invocation mode that calls each projection once, under guard; the default.

    Args:
        time_limit: for each call.
    """

    def __init__(self, time_limit: TimeLimit | None = None) -> None:
        """Create the mode with or without a time limit."""
        self.time_limit = time_limit or TimeLimit()

    def accepts(self, asked: Registered, source: SourceEvent) -> bool:
        """Return whether a projection accepts a source event.

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
        """Return a projection's result; see ``ask`` for refusals."""
        return ask(asked, req, time_limit=self.time_limit)


class UnsafeUnguarded:
    """Invocation mode that calls each projection once, without purity checks.

    Args:
        time_limit: for each call.
    """

    def __init__(self, time_limit: TimeLimit | None = None) -> None:
        """Create the mode with or without a time limit."""
        self.time_limit = time_limit or TimeLimit()

    def accepts(self, asked: Registered, source: SourceEvent) -> bool:
        """Return whether a projection accepts a source event.

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
        RefusedError: ``INVALID_PROJECTION_RESULT`` for anything other than True and False.
    """
    if not isinstance(answer, bool):
        raise RefusedError(
            ErrorCode.INVALID_PROJECTION_RESULT,
            f"The projection {projection_id!r} must return True or False from accepts(), not "
            f"{type(answer).__name__}; correct it.",
            projection=projection_id,
        )
    return answer


@dataclass(frozen=True, slots=True)
class Routed:
    """Result of routing a source event.

    Args:
        projection_id: the projection that selected the intent; None where none did.
        considered: the projections that were called, in order; the one that selected is the last.
        result: the intent, or none with all reasons that were given.
    """

    projection_id: str | None
    considered: tuple[str, ...]
    result: ProjectionResult

    @property
    def recorded_as(self) -> str:
        """The projectionId of the record: the selecting or only one, or the router."""
        if self.projection_id is not None:
            return self.projection_id
        return self.considered[0] if len(self.considered) == 1 else ROUTER


class ProjectionRegistry:
    """Registered projections; routing is thread-safe once all are registered."""

    def __init__(
        self, projections: Iterable[Projection] = (), *, invocation_mode: InvocationMode | None = None
    ) -> None:
        """Register projections.

        Args:
            projections: in any order.
            invocation_mode: how they are called; None is ``Once()``, under guard. ``projections.Guard()`` calls twice,
                ``UnsafeUnguarded()`` has no guard.

        Raises:
            RefusedError: see ``add``.
        """
        self.invocation_mode: InvocationMode = invocation_mode or Once()
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
        """Register one projection; the defaults are the projection's own.

        Args:
            projection: has a ``projection_id`` and ``project``.
            sources: the kinds of source events that it receives.
            accepts: filter of those events.
            priority: projections with a higher priority are called first.

        Raises:
            RefusedError: ``DUPLICATE_PROJECTION`` for an id that is taken; ``INVALID_PROJECTION`` for an object that
                is not a projection.
        """
        entry = registered(projection, sources, accepts, priority)
        if entry.projection_id in self._known:
            raise RefusedError(
                ErrorCode.DUPLICATE_PROJECTION,
                f"Two projections have the id {entry.projection_id!r}; rename one of them.",
                projection=entry.projection_id,
            )
        entries = [*self._known.values(), entry]
        entries.sort(key=lambda known: (-known.priority, utf16_key(known.projection_id)))
        self._known = {known.projection_id: known for known in entries}
        return entry

    def __iter__(self) -> Iterator[Registered]:
        """Yield the projections in the order in which they are called."""
        return iter(tuple(self._known.values()))

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, projection_id: object) -> bool:
        return projection_id in self._known

    @property
    def projection_ids(self) -> tuple[str, ...]:
        """The ids of the registered projections, in the order in which they are called."""
        return tuple(self._known)

    def route(self, req: ProjectionRequest) -> Routed:
        """Call the projections until one selects an intent.

        Raises:
            RefusedError: the errors of a call; no projection after the failing one is called.
        """
        return self._route(self._known.values(), req, self.invocation_mode)

    def route_among(
        self, projection_ids: Iterable[str], req: ProjectionRequest, *, invocation_mode: InvocationMode | None = None
    ) -> Routed:
        """Call only these projections, in this order; for rechecks.

        Args:
            projection_ids: the projections to call.
            req: their input.
            invocation_mode: how they are called; None is the mode of the registry.

        Raises:
            RefusedError: ``UNKNOWN_PROJECTION``, and the errors of ``route``.
        """
        wanted = tuple(projection_ids)
        missing = [name for name in wanted if name not in self._known]
        if missing:
            raise RefusedError(
                ErrorCode.UNKNOWN_PROJECTION,
                f"The projection {missing[0]!r} is not registered; register it.",
                projection=missing[0],
                known=list(self._known),
            )
        return self._route((self._known[name] for name in wanted), req, invocation_mode or self.invocation_mode)

    def _route(self, entries: Iterable[Registered], req: ProjectionRequest, mode: InvocationMode) -> Routed:
        silent: list[tuple[str, NoIntent]] = []
        for entry in entries:
            if entry.sources is not None and req.source.kind not in entry.sources:
                continue
            try:
                if not mode.accepts(entry, req.source):
                    continue
                result = mode.project(entry, req)
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
    """Return the combined result of projections that selected no intent."""
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
    """Return a projection with its options; the defaults are the projection's own.

    Raises:
        RefusedError: ``INVALID_PROJECTION`` for an object that is not a projection.
    """
    if isinstance(projection, Registered):
        projection = projection.projection
    if isinstance(projection, type) or not callable(getattr(projection, "project", None)):
        raise RefusedError(
            ErrorCode.INVALID_PROJECTION,
            f"{repr(projection)[:80]} is not a projection: it needs a projection_id and project(request). Decorate "
            "a function with @projection(id), or pass an instance in place of its class.",
        )
    name = getattr(projection, "projection_id", None)
    check_projection_id(name)
    name = cast(str, name)
    wanted = getattr(projection, "sources", None) if sources is None else sources
    chosen = getattr(projection, "priority", 0) if priority is None else priority
    if isinstance(chosen, bool) or not isinstance(chosen, int):
        raise RefusedError(
            ErrorCode.INVALID_PROJECTION, f"The priority of projection {name!r} is not an integer.", projection=name
        )
    return Registered(
        projection=projection,
        projection_id=name,
        sources=None if wanted is None else check_sources(name, wanted),
        accepts=getattr(projection, "accepts", None) if accepts is None else accepts,
        priority=chosen,
    )
