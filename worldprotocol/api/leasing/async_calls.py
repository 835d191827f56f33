"""Blocking calls awaited from asyncio without blocking the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

__all__ = ["in_thread", "result_of", "run_to_end", "started", "wait_for_end"]

R = TypeVar("R")


def started(
    call: Callable[[], R],
    start: Callable[[Callable[[], None]], object],
    unclaimed: Callable[[R], object] | None = None,
) -> asyncio.Future[R]:
    """Run a blocking call elsewhere.

    Args:
        call: the call; it runs in a copy of the caller's context.
        start: runs a function in another thread.
        unclaimed: called with the result if the loop was closed meanwhile.

    Returns:
        A future of the running loop; cancelling it does not stop a call that has begun.
    """
    loop, context = asyncio.get_running_loop(), copy_context()
    future: asyncio.Future[R] = loop.create_future()

    def settle(settled: Callable[[], None]) -> None:
        if not future.done():
            settled()

    def run() -> None:
        if future.cancelled():
            return
        try:
            result = context.run(call)
        except BaseException as error:  # noqa: BLE001  # reraised in the caller
            failure = error
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(settle, lambda: future.set_exception(failure))
            return
        try:
            loop.call_soon_threadsafe(settle, lambda: future.set_result(result))
        except RuntimeError:
            if unclaimed is not None:
                unclaimed(result)

    start(run)
    return future


def in_thread(call: Callable[[], R], name: str, *, unclaimed: Callable[[R], object] | None = None) -> asyncio.Future[R]:
    """Run a blocking call in a new thread; see ``started``.

    No thread pool is used, because waiting calls could block the calls they wait for.

    Args:
        call: the call.
        name: name of the thread.
        unclaimed: called with the result if the loop was closed meanwhile.
    """
    return started(call, lambda run: threading.Thread(target=run, name=name, daemon=True).start(), unclaimed)


async def result_of(
    future: Future[R], timeout: float | None, unclaimed: Callable[[R], object] | None = None
) -> R | None:
    """Wait for a future of ``concurrent.futures``, and cancel it at the end; None when the time is over.

    Args:
        future: the future; where it is cancelled otherwise than by the task, the result is None too.
        timeout: seconds; None is unlimited.
        unclaimed: called with the result, in a thread of its own, if the loop was closed meanwhile.

    Raises:
        Exception: the future's error.
    """
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def notify(_: object) -> None:
        try:
            loop.call_soon_threadsafe(done.set)
        except RuntimeError:  # the loop is closed
            if unclaimed is not None and not future.cancelled() and future.exception() is None:
                name = "worldprotocol-unclaimed"
                threading.Thread(target=unclaimed, args=(future.result(),), name=name, daemon=True).start()

    future.add_done_callback(notify)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await done.wait()
        return future.result() if future.done() and not future.cancelled() else None
    finally:
        future.cancel()


async def wait_for_end(future: asyncio.Future[Any]) -> None:
    """Wait until a future is done, even if the task is cancelled; the caller reraises."""
    while not future.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([future])


async def run_to_end(call: Callable[[], object]) -> None:
    """Run a blocking call until it returns, even if the task is cancelled meanwhile."""
    running = in_thread(call, "worldprotocol-release")
    try:
        await asyncio.wait([running])
    except asyncio.CancelledError:
        await wait_for_end(running)
        running.exception()  # retrieved, because the cancellation has priority
        raise
    running.result()
