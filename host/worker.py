"""Foreign code under a time limit: it runs in a thread of its own, and is given up when the time is over.

Python cannot end a thread. A handler that hangs keeps its thread, but nobody waits for it: its late answer is
dropped, and as a daemon thread it does not keep the process alive. An ``async`` handler is cancelled, too.
The threads given up are counted; when too many of them are still running, nothing more is started.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from inspect import isawaitable
from queue import Empty, SimpleQueue
from typing import Any, Final

__all__ = ["MAX_ABANDONED", "Finished", "GivenUp", "NotStarted", "TimedOut", "WorkerThreads"]

STILL_WANTED_S: Final = 0.25
"""How often it is asked whether work that runs is still wanted, in seconds."""

STOPS_S: Final = 1.0
"""How long work that was given up has to come to an end before anybody builds on it, in seconds."""

MAX_ABANDONED: Final = 64
"""Threads given up and still running, from which on no more are started."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The work ended in time.

    Args:
        value: what it returned.
        error: what it raised, or None.
    """

    value: Any = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The time was over; the work may still be running, and its outcome is unknown."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Nobody wants the work any more; it may still be running, and its outcome is unknown.

    Args:
        code: why, for programs.
        message: why, for people.
    """

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class NotStarted:
    """The work was not begun.

    Args:
        reason: why, for people.
    """

    reason: str


class WorkerThreads:
    """Runs work in threads, each within its time.

    Args:
        max_abandoned: threads given up and still running, from which on nothing is started.
    """

    def __init__(self, max_abandoned: int = MAX_ABANDONED) -> None:
        """Start without any thread."""
        self._max_abandoned = max_abandoned
        self._abandoned: list[threading.Thread] = []
        self._lock = threading.Lock()

    def run(
        self,
        name: str,
        work: Callable[[], Any],
        read: Callable[[Any], Any],
        *,
        time_limit_ms: int,
        around: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext,
        why_over: Callable[[], tuple[str, str] | None] = lambda: None,
        give_up: Callable[[], None] = lambda: None,
    ) -> Finished | TimedOut | GivenUp | NotStarted:
        """Run work and wait for it no longer than its time.

        Args:
            name: of the thread, for debuggers.
            work: returns a result, or something to be awaited for it; context variables are the caller's.
            read: makes of that result what is handed over; reading foreign objects runs foreign code, so it
                takes part in the time.
            time_limit_ms: milliseconds.
            around: makes a context in which the work is done, in its thread, what it awaits included.
            why_over: asked now and then while it runs: why nobody wants it any more, as code and sentence.
            give_up: called when it is given up. What it is just about to do may come to its end then: it has a moment,
                so that whatever it did is there when it is undone.
        """
        if self.still_running() >= self._max_abandoned:
            return NotStarted(f"{self._max_abandoned} handlers that took too long are still running")
        job = _Job(work, read, around)
        thread = threading.Thread(target=contextvars.copy_context().run, args=(job.run,), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            return NotStarted(str(error))
        ended = None
        try:
            over = None
            until = time.monotonic() + time_limit_ms / 1000
            while ended is None and over is None and (left := until - time.monotonic()) > 0:
                ended = job.wait(min(left, STILL_WANTED_S))
                over = why_over() if ended is None else None
        finally:  # also when the waiting itself is interrupted
            if ended is None:
                give_up()
                self._abandon(job, thread)
        if ended is None:
            thread.join(STOPS_S)
        return ended or (TimedOut() if over is None else GivenUp(*over))

    def still_running(self) -> int:
        """Return how many of the threads given up are still running."""
        with self._lock:
            self._abandoned = [thread for thread in self._abandoned if thread.is_alive()]
            return len(self._abandoned)

    def _abandon(self, job: _Job, thread: threading.Thread) -> None:
        job.cancel()
        with self._lock:
            self._abandoned.append(thread)


class _Job:
    """One piece of work, on both sides of its thread."""

    def __init__(
        self, work: Callable[[], Any], read: Callable[[Any], Any], around: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        self._around = around
        self._work = work
        self._read = read
        self._ended: SimpleQueue[Finished] = SimpleQueue()
        self._cancelled = False
        self._cancel_task: Callable[[], Any] | None = None

    def run(self) -> None:
        """Do the work, in its thread; nothing is ever raised there, where nobody could take it."""
        try:
            with self._around():
                value = self._work()
                if isawaitable(value):
                    value = self._awaited(value)
                value = self._read(value)
        except BaseException as error:  # noqa: BLE001 - handed over to the thread that waits
            self._ended.put(Finished(error=error))
        else:
            self._ended.put(Finished(value))

    def wait(self, seconds: float) -> Finished | None:
        """Return the end, or None when it does not come in time."""
        try:
            return self._ended.get(timeout=seconds)
        except Empty:
            return None

    def cancel(self) -> None:
        """Ask the work to end, if it is something that awaits."""
        self._cancelled = True
        if self._cancel_task is not None:
            with contextlib.suppress(RuntimeError):  # its loop has ended meanwhile
                self._cancel_task()

    def _awaited(self, awaitable: Awaitable[Any]) -> Any:
        import asyncio  # only hosts with async handlers pay for it

        async def main() -> Any:
            task = asyncio.ensure_future(awaitable)
            loop = asyncio.get_running_loop()
            self._cancel_task = lambda: loop.call_soon_threadsafe(task.cancel)
            if self._cancelled:  # given up before there was anything to cancel
                task.cancel()
            return await task

        return asyncio.run(main())
