"""Blocking calls awaited from asyncio without blocking the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

__all__ = ["in_thread", "run_to_end", "wait_for_end"]

R = TypeVar("R")


def in_thread(call: Callable[[], R], name: str, *, unclaimed: Callable[[R], object] | None = None) -> asyncio.Future[R]:
    """Run a blocking call in a new thread.

    No thread pool is used, because waiting calls could block the calls they wait for.

    Args:
        call: the call; it runs in a copy of the caller's context.
        name: name of the thread.
        unclaimed: called with the result if the loop was closed meanwhile.

    Returns:
        A future of the running loop; cancelling it does not stop the call.
    """
    loop, context = asyncio.get_running_loop(), copy_context()
    future: asyncio.Future[R] = loop.create_future()

    def settle(settled: Callable[[], None]) -> None:
        if not future.done():
            settled()

    def run() -> None:
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

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


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
