"""Scheduled work: effects that no caller waits for, the threads that make them, and the timer of what is due next.

Such effects are requested by proposals that continued without a command of their own: after a release of leases, a
time-out or a recovery.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from world.error_codes import ErrorCode
from world.pipeline.unit_of_work import Task

__all__ = ["ScheduledWork", "Timer"]

MAX_THREADS: Final = 16
"""Threads that make scheduled effects at the same time."""

THREADS_END_S: Final = 16.0
"""How long closing waits for all of them together, in seconds; ``recover`` continues what is not done then."""

LOOK_AGAIN_MS: Final = 1_000
"""After how many milliseconds the timer runs again what was due and could not be done."""

_LOGGER = logging.getLogger("worldprotocol")


class Timer(Protocol):
    """Timer that runs scheduled work when no caller is active."""

    def schedule(self, due: int | None) -> None:
        """Set when work is due next, in place of any time before: ms since 1970; None is never."""
        ...

    def stop(self) -> None:
        """End the timer; it runs no work any more."""
        ...


class ScheduledWork:
    """The effects that no caller waits for, in one process; safe to use from many threads."""

    __slots__ = ("_notify", "_on_failure", "_perform", "_planned", "_tasks", "_threads", "_timer")

    def __init__(
        self, perform: Callable[[Task], list[Task]], notify: Callable[[], None], on_failure: Callable[[], None]
    ) -> None:
        """Begin without tasks and without a timer.

        Args:
            perform: makes an effect and records its result; returns the effects that follow.
            notify: delivers what was committed to subscribers, after each effect of a thread.
            on_failure: called where a thread failed and left its tasks.
        """
        self._perform = perform
        self._notify = notify
        self._on_failure = on_failure
        self._planned: int | None = None
        self._tasks: list[Task] = []
        self._timer: Timer | None = None
        self._threads: set[threading.Thread] = set()

    @property
    def has_timer(self) -> bool:
        """Whether a timer runs the tasks; otherwise the next caller makes them."""
        return self._timer is not None

    def set_timer(self, timer: Timer) -> None:
        """Set the timer that is rescheduled after each commit."""
        self._timer = timer

    def add(self, tasks: Iterable[Task]) -> None:
        """Add effects to be made."""
        self._tasks += tasks

    def take(self) -> Task | None:
        """Take one effect out to make it; None where none is left."""
        try:
            return self._tasks.pop()
        except IndexError:
            return None

    def run_at_once(self) -> None:
        """Have the timer run now where effects are left."""
        if self._tasks and self._timer is not None:
            self._timer.schedule(0)

    def plan(self, next_due: int | None, now: int) -> None:
        """Reschedule the timer after a commit.

        Args:
            next_due: when the state needs work next, ms since 1970; None is never.
            now: time of the commit. What is due by then was done in it, as far as that was possible.
        """
        self._planned = next_due
        if self._timer is not None:
            later = next_due if next_due is None or next_due > now else now + LOOK_AGAIN_MS
            self._timer.schedule(0 if self._tasks else later)

    def follow(self, next_due: int | None) -> None:
        """Reschedule the timer where commits of other processes changed what is due next, ms since 1970."""
        if self._timer is not None and next_due != self._planned:
            self._planned = next_due
            self._timer.schedule(0 if self._tasks else next_due)

    def start_threads(self) -> None:
        """Start a thread for each effect, as far as ``MAX_THREADS`` allows."""
        while len(self._threads) < MAX_THREADS and (task := self.take()) is not None:
            thread = threading.Thread(target=self._run, args=(task,), name="worldprotocol-carrier", daemon=True)
            self._threads.add(thread)
            thread.start()

    def close(self) -> None:
        """Stop the timer and wait for the threads, up to ``THREADS_END_S``."""
        if self._timer is not None:
            self._timer.stop()
        for thread in list(self._threads):
            thread.join(THREADS_END_S / MAX_THREADS)

    def _run(self, task: Task) -> None:
        """Make an effect and the effects that follow, and then other ones, until none is left."""
        tasks = [task]
        try:
            while tasks:
                tasks += self._perform(tasks.pop(0))
                self._notify()
                if not tasks and (more := self.take()) is not None:
                    tasks.append(more)
        except Exception as error:  # noqa: BLE001 - no caller waits for it; `recover` continues from the journal
            if getattr(error, "code", None) != ErrorCode.LOG_CLOSED:  # this process ends; the next one makes it
                _LOGGER.warning("An execution that went on by itself was broken off: %s", error)
            self.add(tasks)
            self._on_failure()
        finally:
            self._threads.discard(threading.current_thread())
