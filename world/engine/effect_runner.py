"""Performing one effect, between commits: not before its time, and only as long as it is needed (fencing).

The log decides, and not what this process remembers: leases may have been revoked, or the execution cancelled or
adopted, by another process. Source: design sections 5 and 8; HC-journal.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from world.clock import Clock
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.writer_events import WriterClosed
from world.model.snapshot import EffectAnswer, ErrorValue
from world.pipeline.driver import advance
from world.pipeline.effects.doubts import record_looked_up
from world.pipeline.execute import fulfil
from world.pipeline.execution_state import why_effect_over
from world.pipeline.preparation.prepared import Prepared, take_up
from world.pipeline.unit_of_work import Task, UnitOfWork
from world.state.ports import Executor, Performed
from world.state.realm_view import RealmView
from world.state.writer_epoch import closed_log

__all__ = ["EffectRecorder", "make_effect"]

STILL_WANTED_S: Final = 0.25
"""How often it is looked whether an effect that waits is still wanted, in seconds."""

Peek = Callable[[Callable[[RealmView], Any]], Any]


def make_effect(task: Task, executor: Executor, peek: Peek, clock: Clock, closing: threading.Event) -> Performed | None:
    """Perform an effect and return its result; one that is not needed any more is not begun.

    An effect in doubt is looked up in place of that; None is returned where it is not known what became of it.

    Args:
        task: the effect; its request is in the log.
        executor: makes it.
        peek: asks the realm as it is now.
        clock: for an effect that is made again after a while.
        closing: set when this process ends.

    Raises:
        RefusedError: ``LOG_CLOSED`` while it waited; then the next process performs it. ``LOG_FENCED`` where the log
            was closed to writers before it began, so that its result could not be recorded.
    """
    if task.looks_up:
        return _look_up(task, executor, peek)
    wait_ms = max(0, task.not_before - clock.now_ms()) if task.not_before else 0
    begins = time.monotonic() + wait_ms / 1000
    over = _why_over(task, peek)
    while over is None and (left := begins - time.monotonic()) > 0:
        if closing.wait(min(left, STILL_WANTED_S)):
            raise RefusedError(ErrorCode.LOG_CLOSED, "The realm was closed while an effect waited to be made again.")
        over = _why_over(task, peek)
    closed: WriterClosed | None = peek(lambda realm: realm.writer.closed)
    if closed is not None:
        raise closed_log(closed)
    if over is not None:
        asked = task.requirement
        return Performed(EffectAnswer(error=ErrorValue.at(*over, asked.action_id, asked.node_path, task.order.now)))
    call = replace(task.call, why_over=lambda: _why_over(task, peek))
    return executor.perform(task.order, task.requirement, call)


def _look_up(task: Task, executor: Executor, peek: Peek) -> Performed | None:
    """Find out what became of an effect in doubt; None where that is not known, or it is not in doubt any more."""
    name = task.requirement.id

    def is_doubtful(realm: RealmView) -> bool:
        proposal = realm.proposals.get(task.proposal_id)
        return proposal is not None and name in proposal.in_doubt

    def why_over() -> tuple[str, str] | None:
        return None if peek(is_doubtful) else ("NOT_WANTED", "The effect is not in doubt any more.")

    call = replace(task.call, why_over=why_over)
    return executor.look_up(task.order, task.requirement, call) if why_over() is None else None


def _why_over(task: Task, peek: Peek) -> tuple[str, str] | None:
    """Return why an effect is not wanted any more, by the log as it is now; None while it is."""

    def ask(realm: RealmView) -> tuple[str, str] | None:
        proposal = realm.proposals.get(task.proposal_id)
        under_way = None if proposal is None else proposal.requested.get(task.requirement.id)
        if proposal is None or under_way is None or under_way.attempt != task.attempt:
            return "NOT_WANTED", "Nobody waits for this effect any more."
        return why_effect_over(realm, proposal, task.requirement)

    over: tuple[str, str] | None = peek(ask)
    return over


class EffectRecorder:
    """Takes up the effects that follow from a result, which every unit records first.

    Args:
        task: the effect.
        performed: its result; None where a look-up found none, and there is nothing to record.
    """

    __slots__ = ("is_left", "performed", "prepared", "task", "tasks")

    def __init__(self, task: Task, performed: Performed | None) -> None:
        """Wait to be recorded."""
        self.task = task
        self.performed = performed
        self.prepared: Prepared | None = None  # the step that follows the result
        self.tasks: list[Task] = []
        self.is_left = False  # no thread will take the tasks

    def record(self, work: UnitOfWork) -> None:
        """Record the result, and continue the execution as far as possible; keep the effects that follow."""
        if self.prepared is not None:
            take_up(work, self.prepared)
        assert self.performed is not None
        journal = record_looked_up if self.task.looks_up else fulfil
        advance(work, journal(work, self.task, self.performed))
        work.prepared = None
        self.tasks, work.tasks = work.tasks, []  # the thread that made the effect makes the next one

    def __call__(self, work: UnitOfWork) -> None:
        """Hand over what follows, as a command of its own caller."""
        work.tasks += self.tasks
