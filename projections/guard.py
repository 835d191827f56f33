"""Asking projections without trusting them: twice, under watch, on copies (INT-9.2, INT-11; INV-P1..P5).

Each run gets fresh copies of everything; in the second one the members of the snapshot stand in the opposite
order. Different answers mean that something other than the request decided. While a run goes on, its thread
is watched (``projections.watch``). The first thing that a pure step does not do ends the run, and is told
whether or not the projection lets the end happen.

Importing a module on first use is no impurity. What modules read while they are being imported is let be, as
long as it is no network, process or thread.

This finds honest mistakes; it is no sandbox. It does not see functions written in C that are called by C
alone (``functools.partial(time.time)()``), native libraries with a clock of their own, work handed to threads
that already run, nor what differs between processes only (the order of a set of texts). The two runs tell
many of these, and a recheck in another process tells the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any, TypeVar

from pydantic import ValidationError

from projections.contract import Projection, ProjectionRequest
from projections.purity import ADVICE, Impurity
from projections.registry import Registered, read_acceptance, registered
from projections.results import ProjectionResult, failed, read_result, timed_out
from projections.watch import place_of, watched
from world.actor import ActorRef
from world.canonical import canonical_bytes, canonical_text
from world.errors import Refused
from world.frozen import freeze, thaw
from world.snapshot import SnapshotView
from world.source import SourceEvent
from world.time_limit import PastTimeLimit, TimeLimit, breakable

__all__ = ["Guard", "guarded"]

R = TypeVar("R")


class Guard:
    """Asks every projection twice under watch; a ``registry.Asking`` for tests and paranoid realms.

    Args:
        time_limit: for each run.
    """

    def __init__(self, time_limit: TimeLimit | None = None) -> None:
        """Ask without a limit, or with one."""
        self._time_limit = time_limit or TimeLimit()

    def accepts(self, asked: Registered, source: SourceEvent) -> bool:
        """Tell whether a projection wants to be asked about an event.

        Raises:
            Refused: ``PROJECTION_IMPURE``, ``PROJECTION_NOT_DETERMINISTIC``, and what ``Directly.accepts``
                refuses.
        """
        accepts = asked.accepts
        if accepts is None:
            return True
        pristine = canonical_bytes(thaw(source.to_wire()))

        def once() -> bool:
            copy = _copied_source(source)
            answer = _watched(asked.projection_id, lambda: accepts(copy), self._time_limit)
            _refuse_changed(asked.projection_id, pristine, copy.to_wire)
            return read_acceptance(asked.projection_id, answer)

        return _twice(asked.projection_id, once, once, repr)

    def project(self, asked: Projection, req: ProjectionRequest) -> ProjectionResult:
        """Return a projection's result.

        Raises:
            Refused: ``PROJECTION_IMPURE`` with ``kind``, ``attempt`` and ``where``;
                ``PROJECTION_NOT_DETERMINISTIC`` with both answers; and what ``projections.ask`` refuses.
        """
        pristine = canonical_bytes(thaw(req.to_wire()))

        def once() -> ProjectionResult:
            copy = _copied(req)
            answer = _watched(asked.projection_id, lambda: asked.project(copy), self._time_limit)
            _refuse_changed(asked.projection_id, pristine, copy.to_wire)
            return read_result(asked.projection_id, answer)

        return _twice(asked.projection_id, once, once, _told)


def guarded(projection: Projection, req: ProjectionRequest) -> ProjectionResult:
    """Ask one projection under guard; see ``Guard.project``.

    Raises:
        Refused: ``INVALID_PROJECTION`` for what is no projection, and what ``Guard.project`` refuses.
    """
    return Guard().project(registered(projection), req)


def _twice(projection_id: str, first: Callable[[], R], second: Callable[[], R], told: Callable[[R], str]) -> R:
    """Return what both runs agree on."""
    answer = first()
    try:
        again = told(second())
    except Refused as refused:
        if refused.code == "PROJECTION_IMPURE":
            raise
        again = f"an error: {refused.message.rstrip('.')}"
    if told(answer) != again:
        raise Refused(
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
        raise _impure(projection_id, Impurity("mutation", "what it was given"), "")


def _impure(projection_id: str, found: Impurity, where: str) -> Refused:
    did = "changes" if found.kind == "mutation" else "uses"
    at = f" at {where}" if where else ""
    return Refused(
        "PROJECTION_IMPURE",
        f"The projection {projection_id!r} {did} {found.what}{at}; {ADVICE[found.kind]}.",
        projection=projection_id,
        kind=found.kind,
        attempt=found.what,
        where=where,
    )


def _watched(projection_id: str, call: Callable[[], Any], time_limit: TimeLimit) -> Any:
    """Return what a call into a projection returns, if nothing impure happened in it and it ended in time."""
    try:
        # Broken off is the projection alone: what stops watching it must run to its end.
        answer, found = time_limit.run(lambda: watched(lambda: breakable(call)), unbroken=True)
    except PastTimeLimit as late:
        raise timed_out(projection_id, late) from None
    except (Exception, SystemExit) as error:
        if not _tried_to_change(error):
            raise failed(projection_id, error) from error
        answer, found = None, (Impurity("mutation", "a frozen value"), place_of(error.__traceback__))
    if found is not None:
        raise _impure(projection_id, *found)
    return answer


def _tried_to_change(error: BaseException) -> bool:
    if isinstance(error, ValidationError):
        return any(fault["type"] in ("frozen_instance", "frozen_field") for fault in error.errors())
    return isinstance(error, FrozenInstanceError)
