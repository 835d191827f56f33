"""Asking projections without trusting them: twice, under watch, on copies (INT-9.2, INT-11; INV-P1..P5).

Each run gets fresh copies of everything; in the second one the members of the snapshot stand in the opposite
order. Different answers mean that something other than the request decided. While a run goes on, its thread
is watched (``projections.purity.run_watch``). The first thing that a pure step does not do ends the run, and is told
whether or not the projection lets the end happen. One watched run is what every call of a projection is
(``projections.purity.calling``); the second run and the copies are what this module adds.

Importing a module on first use is no impurity. What modules read while they are being imported is let be, as
long as it is no network, process or thread.

This finds honest mistakes; it is no sandbox. It does not see functions written in C that are called by C
alone (``functools.partial(time.time)()``), native libraries with a clock of their own, work handed to threads
that already run, nor what differs between processes only (the order of a set of texts). The two runs tell
many of these, and a recheck in another process tells the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from projections.contract import Projection, ProjectionRequest
from projections.purity.calling import MUTATION, guarded_call, impure
from projections.purity.source_checks import Impurity
from projections.registry import Registered, read_acceptance, registered
from projections.results import ProjectionResult, read_result
from world.code.time_limit import TimeLimit
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.canonical_json import canonical_bytes, canonical_text
from world.model.immutable_json import freeze, thaw
from world.model.snapshot import SnapshotView
from world.model.source import SourceEvent

__all__ = ["Guard", "guarded"]

R = TypeVar("R")


class Guard:
    """Asks every projection twice under guard, on copies; a ``registry.Asking`` for tests and paranoid realms.

    Args:
        time_limit: for each run.
    """

    def __init__(self, time_limit: TimeLimit | None = None) -> None:
        """Ask without a limit, or with one."""
        self.time_limit = time_limit or TimeLimit()

    def accepts(self, asked: Registered, source: SourceEvent) -> bool:
        """Tell whether a projection wants to be asked about an event.

        Raises:
            RefusedError: ``PROJECTION_IMPURE``, ``PROJECTION_NOT_DETERMINISTIC``, and what ``Once.accepts``
                refuses.
        """
        accepts = asked.accepts
        if accepts is None:
            return True
        pristine = canonical_bytes(thaw(source.to_wire()))

        def once() -> bool:
            copy = _copied_source(source)
            answer = guarded_call(asked.projection_id, lambda: accepts(copy), self.time_limit)
            _refuse_changed(asked.projection_id, pristine, copy.to_wire)
            return read_acceptance(asked.projection_id, answer)

        return _twice(asked.projection_id, once, once, repr)

    def project(self, asked: Projection, req: ProjectionRequest) -> ProjectionResult:
        """Return a projection's result.

        Raises:
            RefusedError: ``PROJECTION_IMPURE`` with ``kind``, ``attempt`` and ``where``;
                ``PROJECTION_NOT_DETERMINISTIC`` with both answers; and what ``projections.ask`` refuses.
        """
        pristine = canonical_bytes(thaw(req.to_wire()))

        def once() -> ProjectionResult:
            copy = _copied(req)
            answer = guarded_call(asked.projection_id, lambda: asked.project(copy), self.time_limit)
            _refuse_changed(asked.projection_id, pristine, copy.to_wire)
            return read_result(asked.projection_id, answer)

        return _twice(asked.projection_id, once, once, _told)


def guarded(projection: Projection, req: ProjectionRequest) -> ProjectionResult:
    """Ask one projection under guard; see ``Guard.project``.

    Raises:
        RefusedError: ``INVALID_PROJECTION`` for what is no projection, and what ``Guard.project`` refuses.
    """
    return Guard().project(registered(projection), req)


def _twice(projection_id: str, first: Callable[[], R], second: Callable[[], R], told: Callable[[R], str]) -> R:
    """Return what both runs agree on."""
    answer = first()
    try:
        again = told(second())
    except RefusedError as refused:
        if refused.code == "PROJECTION_IMPURE":
            raise
        again = f"an error: {refused.message.rstrip('.')}"
    if told(answer) != again:
        raise RefusedError(
            "PROJECTION_NOT_DETERMINISTIC",
            f"The projection {projection_id!r} answered the same request with {told(answer)[:200]} and then "
            f"with {again[:200]}. Something other than the request decides, such as a value kept between calls.",
            projection=projection_id,
            first=told(answer),
            second=again,
        )
    return answer


def _told(result: ProjectionResult) -> str:
    return canonical_text(result.to_wire())


def _copied(req: ProjectionRequest) -> ProjectionRequest:
    """Return a request that shares nothing changeable with this one."""
    view = SnapshotView(freeze(thaw(req.snapshot.data)), freeze(thaw(req.snapshot.computed)))
    actor = ActorRef.read(thaw(req.actor.to_wire()))
    return ProjectionRequest(req.schema_hash, view, actor, _copied_source(req.source))


def _copied_source(source: SourceEvent) -> SourceEvent:
    return SourceEvent.read(thaw(source.to_wire()))


def _refuse_changed(projection_id: str, pristine: bytes, wire: Callable[[], Any]) -> None:
    """Refuse a projection that got past the frozen values; ``thaw`` looks at them, not at kept texts."""
    try:
        unchanged = canonical_bytes(thaw(wire())) == pristine
    except Exception:  # noqa: BLE001  # what was put there need not be JSON, nor need it be there any more
        unchanged = False
    if not unchanged:
        raise impure(projection_id, Impurity(MUTATION, "what it was given"), "")
