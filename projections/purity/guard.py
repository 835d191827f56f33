"""Guard that calls each projection twice, watched and on copies.

Each run gets fresh copies of its input. Different answers mean that something other than the request decided. During a
run its thread is watched (``world.code.run_watch``). The first impure operation ends the run and is reported,
even if the projection catches the exception. Every call of a projection is watched once
(``projections.purity.guarded_call``); this module adds the second run and the copies.

Importing a module on first use is allowed. So are the reads of modules during their import, except for network,
processes and threads.

The guard finds mistakes; it is not a sandbox. It does not detect functions written in C that are called from C alone
(``functools.partial(time.time)()``), native libraries that read a clock, work of threads that already run, and
differences between processes (the order of a set of strings). The two runs find many of these, and a recheck in another
process finds others. Source: INT-9.2, INT-11; INV-P1..P5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from projections.contract import Projection, ProjectionRequest
from projections.purity.guarded_call import MUTATION, guarded_call, impure
from projections.registry import Registered, read_acceptance, registered
from projections.results import ProjectionResult, read_result
from world.code.impurities import Impurity
from world.code.time_limit import TimeLimit
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.canonical_json import canonical_bytes, canonical_text
from world.model.immutable_json import freeze, thaw
from world.model.snapshot import SnapshotView
from world.model.source import SourceEvent

__all__ = ["Guard", "guarded"]

R = TypeVar("R")


class Guard:
    """Invocation mode that calls every projection twice under guard, on copies.

    Args:
        time_limit: for each run.
    """

    def __init__(self, time_limit: TimeLimit | None = None) -> None:
        """Create a guard with or without a time limit."""
        self.time_limit = time_limit or TimeLimit()

    def accepts(self, asked: Registered, source: SourceEvent) -> bool:
        """Return whether a projection accepts a source event.

        Raises:
            RefusedError: ``PROJECTION_IMPURE``, ``PROJECTION_NOT_DETERMINISTIC``, and the errors of
                ``Once.accepts``.
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
                ``PROJECTION_NOT_DETERMINISTIC`` with both answers; and the errors of ``projections.ask``.
        """
        pristine = canonical_bytes(thaw(req.to_wire()))

        def once() -> ProjectionResult:
            copy = _copied(req)
            answer = guarded_call(asked.projection_id, lambda: asked.project(copy), self.time_limit)
            _refuse_changed(asked.projection_id, pristine, copy.to_wire)
            return read_result(asked.projection_id, answer)

        return _twice(asked.projection_id, once, once, _result_text)


def guarded(projection: Projection, req: ProjectionRequest) -> ProjectionResult:
    """Call one projection under guard; see ``Guard.project``.

    Raises:
        RefusedError: ``INVALID_PROJECTION`` for an object that is not a projection, and the errors of
            ``Guard.project``.
    """
    return Guard().project(registered(projection), req)


def _twice(projection_id: str, first: Callable[[], R], second: Callable[[], R], text_of: Callable[[R], str]) -> R:
    """Return the answer of two runs that agree."""
    answer = first()
    try:
        again = text_of(second())
    except RefusedError as refused:
        if refused.code == "PROJECTION_IMPURE":
            raise
        again = f"an error: {refused.message.rstrip('.')}"
    if text_of(answer) != again:
        raise RefusedError(
            ErrorCode.PROJECTION_NOT_DETERMINISTIC,
            f"The projection {projection_id!r} answered the same request with {text_of(answer)[:200]} and then "
            f"with {again[:200]}. It depends on more than its request, such as a value kept between calls; correct it.",
            projection=projection_id,
            first=text_of(answer),
            second=again,
        )
    return answer


def _result_text(result: ProjectionResult) -> str:
    return canonical_text(result.to_wire())


def _copied(req: ProjectionRequest) -> ProjectionRequest:
    """Return a request that shares no mutable object with this one."""
    view = SnapshotView(freeze(thaw(req.snapshot.data)), freeze(thaw(req.snapshot.computed)))
    actor = ActorRef.read(thaw(req.actor.to_wire()))
    return ProjectionRequest(req.schema_hash, view, actor, _copied_source(req.source))


def _copied_source(source: SourceEvent) -> SourceEvent:
    return SourceEvent.read(thaw(source.to_wire()))


def _refuse_changed(projection_id: str, pristine: bytes, wire: Callable[[], Any]) -> None:
    """Raise where a projection changed frozen values; ``thaw`` ignores cached texts."""
    try:
        unchanged = canonical_bytes(thaw(wire())) == pristine
    except Exception:  # noqa: BLE001  # the changed value may be missing or not JSON
        unchanged = False
    if not unchanged:
        raise impure(projection_id, Impurity(MUTATION, "what it was given"), "")
