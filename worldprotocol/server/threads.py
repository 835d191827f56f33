"""Pool of threads for the synchronous calls of realms."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Generic, TypeVar

__all__ = ["Shared", "Threads", "retrieve"]

R = TypeVar("R")


class Threads:
    """Bounded pool of threads.

    Args:
        count: threads at most.
    """

    def __init__(self, count: int) -> None:
        """Create the pool; threads start when they are needed."""
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="worldprotocol-server")
        self.active = 0
        """Calls that tasks wait for."""

    async def run(self, call: Callable[[], R]) -> R:
        """Return the result of a call in a thread, in the context of the task.

        The call ends even where the waiting task is cancelled.
        """
        self.active += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, copy_context().run, call)
        finally:
            self.active -= 1

    async def close(self) -> None:
        """Wait for the running calls, and end the threads."""
        await asyncio.to_thread(self._pool.shutdown, wait=True)


class Shared(Generic[R]):
    """A call in a thread whose result all tasks share that asked before it began; one runs at a time.

    Args:
        threads: the pool.
        call: what is called.
    """

    def __init__(self, threads: Threads, call: Callable[[], R]) -> None:
        self._threads = threads
        self._call = call
        self._running: asyncio.Task[R] | None = None
        self._next: asyncio.Task[R] | None = None

    async def result(self) -> R:
        """Return what a call returns that begins after this moment.

        Raises:
            Exception: what the call raises.
        """
        if self._next is None:
            self._next = asyncio.ensure_future(self._run_after(self._running))
            self._next.add_done_callback(retrieve)
        return await asyncio.shield(self._next)

    async def _run_after(self, running: asyncio.Task[R] | None) -> R:
        if running is not None and not running.done():
            await asyncio.wait([running])
        self._running, self._next = self._next, None
        return await self._threads.run(self._call)


def retrieve(done: asyncio.Future[Any]) -> None:
    """Take the result of a call whose tasks may all be cancelled, so that its error is not reported as lost."""
    if not done.cancelled():
        done.exception()
