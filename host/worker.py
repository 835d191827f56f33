"""Foreign code under a time limit: runs in a thread that is abandoned when the time is over.

Python cannot end a thread. A handler that hangs keeps its thread, but no caller waits for it: its late answer is
dropped, and as a daemon thread it does not keep the process alive. An ``async`` handler is also cancelled.
Abandoned threads are counted; when too many of them are still running, no work is started.
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
"""Interval at which running work is checked for cancellation, in seconds."""

STOPS_S: Final = 1.0
"""Grace period of abandoned work before the caller continues, in seconds."""

MAX_ABANDONED: Final = 64
"""Number of abandoned threads still running at which no more are started."""


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
    """The time limit was reached; the work may still be running, and its outcome is unknown."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The work was cancelled; it may still be running, and its outcome is unknown.

    Args:
        code: the reason, for programs.
        message: the reason, for people.
    """

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class NotStarted:
    """The work was not started.

    Args:
        reason: for people.
    """

    reason: str


class WorkerThreads:
    """Runs work in threads, each within a time limit.

    Args:
        max_abandoned: number of abandoned threads still running at which nothing is started.
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
        """Run work and wait until it ends, its time is over, or it is cancelled.

        Args:
            name: of the thread, for debuggers.
            work: returns a result, or an awaitable of one; it runs with the caller's context variables.
            read: converts that result; it runs in the thread too, because reading foreign objects runs foreign code.
            time_limit_ms: milliseconds.
            around: creates a context manager that surrounds the work in its thread, including what it awaits.
            why_over: called at intervals while the work runs: returns why it is cancelled, as code and sentence.
            give_up: called when the work is abandoned. The caller then waits a moment for the work to end, so that its
                last changes are complete before they are undone.
        """
        if self.still_running() >= self._max_abandoned:
            return NotStarted(f"{self._max_abandoned} handlers that exceeded their time limit are still running")
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
        finally:  # also when the wait itself is interrupted
            if ended is None:
                give_up()
                self._abandon(job, thread)
        if ended is None:
            thread.join(STOPS_S)
        return ended or (TimedOut() if over is None else GivenUp(*over))

    def still_running(self) -> int:
        """Return how many abandoned threads are still running."""
        with self._lock:
            self._abandoned = [thread for thread in self._abandoned if thread.is_alive()]
            return len(self._abandoned)

    def _abandon(self, job: _Job, thread: threading.Thread) -> None:
        job.cancel()
        with self._lock:
            self._abandoned.append(thread)


class _Job:
    """One unit of work, shared by the waiting thread and the thread that runs it."""

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
        """Run the work in its thread; an exception is passed to the waiting thread, never raised here."""
        try:
            with self._around():
                value = self._work()
                if isawaitable(value):
                    value = self._awaited(value)
                value = self._read(value)
        except BaseException as error:  # noqa: BLE001 - passed to the thread that waits
            self._ended.put(Finished(error=error))
        else:
            self._ended.put(Finished(value))

    def wait(self, seconds: float) -> Finished | None:
        """Return the end, or None when it does not come within the time."""
        try:
            return self._ended.get(timeout=seconds)
        except Empty:
            return None

    def cancel(self) -> None:
        """Cancel the work, if it is awaitable."""
        self._cancelled = True
        if self._cancel_task is not None:
            with contextlib.suppress(RuntimeError):  # its event loop has already ended
                self._cancel_task()

    def _awaited(self, awaitable: Awaitable[Any]) -> Any:
        import asyncio  # imported late: only async handlers need it

        async def main() -> Any:
            task = asyncio.ensure_future(awaitable)
            loop = asyncio.get_running_loop()
            self._cancel_task = lambda: loop.call_soon_threadsafe(task.cancel)
            if self._cancelled:  # cancelled before the task existed
                task.cancel()
            return await task

        return asyncio.run(main())
