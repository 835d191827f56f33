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
        first = asyncio.ensure_future(shared.result())
        while not begun:
            await asyncio.sleep(0)
        later = [asyncio.ensure_future(shared.result()) for _ in range(50)]  # the running call is too old for them
        await asyncio.sleep(0)
        later[0].cancel()
        gate.set()
        assert await first == 0
        assert set(await asyncio.gather(*later[1:])) == {1}
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
        results = await asyncio.gather(*(shared.result() for _ in range(5)), return_exceptions=True)
        assert [str(one) for one in results] == ["the log cannot be read"] * 5
        assert await shared.result() == 7
        abandoned = asyncio.ensure_future(shared.result())
        await asyncio.sleep(0)
        abandoned.cancel()
        with pytest.raises(asyncio.CancelledError):
            await abandoned
        assert await shared.result() == 7
        await threads.close()

    asyncio.run(run())
