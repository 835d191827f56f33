"""Twins of blocking methods for asyncio, with the signatures of the methods.

A call runs in a bounded pool of threads. A cancelled task drops a call that has not begun; one that has begun
continues, as a command that was submitted stays submitted, and its result is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial, wraps
from itertools import islice
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.short_repr import short_repr
from worldprotocol.api.leasing.async_calls import run_to_end, started

__all__ = ["CallPool", "Twin", "awaited", "iterated"]

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)

POOL_THREADS: Final = 32
"""Calls of one realm that run at the same time; further ones wait for their turn. Waits hold no thread."""

ITEMS_AT_ONCE: Final = 100
"""Items of an iterator that one call fetches."""


class CallPool:
    """The threads in which the calls of one realm run."""

    def __init__(self) -> None:
        """Create a pool without threads; the first calls start them."""
        self._executor = ThreadPoolExecutor(POOL_THREADS, thread_name_prefix="worldprotocol-async")
        self._is_closed = False

    def start(self, call: Callable[[], R], *, unclaimed: Callable[[R], object] | None = None) -> asyncio.Future[R]:
        """Start a call; see ``worldprotocol.api.leasing.async_calls.started``.

        Raises:
            RefusedError: ``LOG_CLOSED`` where the pool is closed.
        """
        if self._is_closed:
            raise RefusedError(ErrorCode.LOG_CLOSED, "The realm was closed; open it again.")
        return started(call, self._executor.submit, unclaimed)

    async def run(self, call: Callable[[], R]) -> R:
        """Return the result of a call, or raise its error."""
        return await self.start(call)

    async def close(self, call: Callable[[], object]) -> None:
        """Run a last call in a thread of its own, and end the threads when all calls have returned.

        Calls that have not begun run too: their callers get the error of what is closed then.
        """
        self._is_closed = True

        def end() -> None:
            try:
                call()
            finally:
                self._executor.shutdown()

        await run_to_end(end)


class Twin(Generic[S_co]):
    """Base of a class with the twins of the methods of another class.

    Args:
        sync: the object whose methods are called.
        pool: threads of the calls.
    """

    def __init__(self, sync: S_co, pool: CallPool) -> None:
        """Create the twin of an object."""
        self._sync = sync
        self._pool = pool

    def __repr__(self) -> str:
        return short_repr(self, repr(self._sync).strip("<>"))

    @property
    def sync(self) -> S_co:
        """The object whose methods block."""
        return self._sync


def awaited(
    method: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[Twin[S], P], Coroutine[Any, Any, R]]:
    """Return the twin of a method: a coroutine function that calls it in a thread."""

    @wraps(method)
    async def twin(self: Twin[S], /, *args: P.args, **kwargs: P.kwargs) -> R:
        call: Callable[..., R] = getattr(self._sync, method.__name__)  # a subclass may have its own
        return await self._pool.run(partial(call, *args, **kwargs))

    return twin


def iterated(
    method: Callable[Concatenate[S, P], Iterator[R]],
) -> Callable[Concatenate[Twin[S], P], AsyncGenerator[R, None]]:
    """Return the twin of a method that yields: an asynchronous generator that fetches several items with each call."""

    @wraps(method)
    async def twin(self: Twin[S], /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[R, None]:
        call: Callable[..., Iterator[R]] = getattr(self._sync, method.__name__)
        items = await self._pool.run(partial(call, *args, **kwargs))
        try:
            while batch := await self._pool.run(lambda: list(islice(items, ITEMS_AT_ONCE))):
                for item in batch:
                    yield item
        finally:
            with suppress(AttributeError, ValueError):  # no generator, or one that a cancelled call still runs
                items.close()  # type: ignore[attr-defined]

    return twin
