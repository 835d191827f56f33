"""The twin for asyncio of a realm on a server: waits hold no thread, and a cancelled task leaves nothing behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from tests.remote.yards import OVER_HTTP, Yard
from tests.support.patience import PATIENCE_S
from tests.waiting.till import pool_threads
from world.errors import RefusedError
from world.events.lease_events import VerdictGiven
from worldprotocol.api.asynchronous.realm import AsyncRealm, RealmOpening
from worldprotocol.api.realm import Realm

WAITS = 100
"""Waits at once."""

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("yard", OVER_HTTP, indirect=True)]


def opened(yard: Yard, actor: str) -> RealmOpening:
    assert yard.served is not None
    server = yard.served.url if yard.kind == "tcp" else f"unix:{yard.served.socket}"
    return AsyncRealm.connect(server, token=yard.place.tokens[actor], realm="main")


def test_many_tasks_wait_without_threads(yard: Yard) -> None:
    async def run() -> None:
        async with opened(yard, "bot") as bot, opened(yard, "ann") as ann:
            asked = await bot.act("bot", "order.place", {"item": "tea", "number": "w"}, wait=0.05)
            assert asked.status == "evaluating"
            with pytest.raises(RefusedError) as late:
                await bot.wait(asked, 0.05)
            assert late.value.code == "NOT_ENDED_IN_TIME"
            before = pool_threads(bot)
            async with asyncio.TaskGroup() as tasks:
                waits = [tasks.create_task(bot.wait(asked, PATIENCE_S)) for _ in range(WAITS)]
                await asyncio.sleep(0.5)
                assert pool_threads(bot) <= before + 1
                assert not any(one.done() for one in waits)
                done = await ann.decide(asked.proposal_id, "approve", by="ann")
            assert [one.result().status for one in waits] == ["completed"] * WAITS
            assert [one async for one in bot.proposals(status="completed")] == [done]
            assert (await bot.data())["orders"]["w"] == "tea"

    asyncio.run(run())


def test_a_cancelled_task_withdraws_its_request_for_leases(yard: Yard) -> None:
    async def run() -> None:
        async with opened(yard, "kid") as kid, opened(yard, "all") as other:
            async with kid.leases.acquire(agent="kid", resource="FILE:/older"):
                pass
            async with asyncio.TaskGroup() as tasks, other.leases.acquire(agent="all", resource="FILE:/x") as held:
                assert await held.is_active()
                waiting = tasks.create_task(_acquired(kid))
                end = time.monotonic() + PATIENCE_S
                with yard.reading() as log:
                    while not log.realm().klis.requests:
                        assert time.monotonic() < end
                        await asyncio.sleep(0.02)
                    before = pool_threads(kid)
                    waiting.cancel()
                    await asyncio.wait([waiting])
                    assert waiting.cancelled()
                    assert not log.realm().klis.requests
                    assert pool_threads(kid) <= before + 1  # the pool may begin one for the withdrawal
            async with kid.leases.acquire(agent="kid", resource="FILE:/x", timeout=0) as mine:
                assert mine.token > held.token

    async def _acquired(kid: AsyncRealm) -> None:
        await kid.leases.acquire(agent="kid", resource="FILE:/x")

    asyncio.run(run())


def test_a_cancelled_task_withdraws_the_request_that_it_made_after_it_died(yard: Yard) -> None:
    async def run() -> None:
        async with opened(yard, "bot") as bot, opened(yard, "kid") as kid, opened(yard, "all") as other:
            for agent, realm in (("bot", bot), ("kid", kid), ("all", other)):
                async with realm.leases.acquire(agent=agent, resource=f"FILE:/older-{agent}"):
                    pass
            older = await bot.leases.acquire(agent="bot", resource="FILE:/y")
            async with asyncio.TaskGroup() as tasks, other.leases.acquire(agent="all", resource="FILE:/z"):
                waiting = tasks.create_task(_acquired(kid))
                with yard.reading() as log:
                    await _until(lambda: "Die" in [one.status for one in verdicts_on("kid", log)])
                    await older.release()
                    await _until(lambda: bool(log.realm().klis.requests))
                    waiting.cancel()
                    await asyncio.wait([waiting])
                    assert waiting.cancelled()
                    assert not log.realm().klis.requests

    async def _acquired(kid: AsyncRealm) -> None:
        await kid.leases.acquire(agent="kid", resources=["FILE:/y", "FILE:/z"], retry=True)

    async def _until(holds: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < end
            await asyncio.sleep(0.02)

    def verdicts_on(agent: str, log: Realm) -> list[VerdictGiven]:
        given = (event for _, event in log.events() if isinstance(event, VerdictGiven))
        return [one for one in given if one.agent_id == agent]

    asyncio.run(run())


def test_events_are_iterated(yard: Yard) -> None:
    async def run() -> list[str]:
        topics: list[str] = []
        async with opened(yard, "all") as reader, opened(yard, "kid") as kid, reader.subscribe() as events:
            done = await kid.act("kid", "order.place", {"item": "tea", "number": "s"}, wait=True)
            async for _, event in events:
                topics.append(event.TOPIC)
                if event.TOPIC == "proposal.completed":
                    assert event.world_id == done.world_id  # type: ignore[attr-defined]
                    return topics
        raise AssertionError(topics)

    assert asyncio.run(run())[0] == "proposal.submitted"
