"""Calls whose result concurrent requests share: few calls for many requests, and none older than its request."""

from __future__ import annotations

import asyncio
import threading

import pytest

from worldprotocol.server.threads import Shared, Threads

pytestmark = pytest.mark.slow


def test_requests_that_arrive_together_share_a_call_that_began_after_them() -> None:
    begun: list[int] = []
    gate = threading.Event()

    def call() -> int:
        begun.append(len(begun))
        assert gate.wait(60)
        return begun[-1]

    async def run() -> None:
        threads = Threads(4)
        shared = Shared(threads, call)
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(shared.result())
            while not begun:
                await asyncio.sleep(0)
            later = [tasks.create_task(shared.result()) for _ in range(50)]  # the running call is too old for them
            await asyncio.sleep(0)
            later[0].cancel()
            gate.set()
        assert first.result() == 0
        assert {one.result() for one in later[1:]} == {1}
        assert begun == [0, 1]
        assert await shared.result() == 2
        await threads.close()

    asyncio.run(run())


def test_an_error_of_a_shared_call_is_raised_in_every_request_and_the_next_call_is_made() -> None:
    calls: list[int] = []

    def call() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise OSError("the log cannot be read")
        return 7

    async def run() -> None:
        threads = Threads(4)
        shared = Shared(threads, call)

        async def failed() -> None:
            with pytest.raises(OSError, match="the log cannot be read"):
                await shared.result()

        async with asyncio.TaskGroup() as tasks:
            for _ in range(5):
                tasks.create_task(failed())
        assert await shared.result() == 7
        async with asyncio.TaskGroup() as tasks:
            abandoned = tasks.create_task(shared.result())
            await asyncio.sleep(0)
            abandoned.cancel()
        assert abandoned.cancelled()
        assert await shared.result() == 7
        await threads.close()

    asyncio.run(run())
