"""``AsyncRealm``: calls run in a bounded pool, waits hold no thread, and a cancelled task leaves nothing behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.pipeline.shop import Bank, house, shop
from tests.support.patience import PATIENCE_S
from tests.waiting.till import CAKE, expecting, open_till, pool_threads, until
from world.errors import RefusedError
from world.klis.settings import KlisSettings
from world.limits import Limits
from world.read_models.decoding import decoded
from worldprotocol import AsyncRealm, Realm, WaitTimeoutError
from worldprotocol.api.asynchronous.leases import AsyncLeaseHandle
from worldprotocol.api.asynchronous.twins import POOL_THREADS

FILE = "FILE:/src/a.py"
NOTHING = {"item": "tea", "count": 0}


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine; of the threads that it started, none of a realm is left at its end."""
    earlier = set(threading.enumerate())  # of realms that other tests dropped, until they are collected
    asyncio.run(main)
    until(lambda: not [one for one in set(threading.enumerate()) - earlier if one.name.startswith("worldprotocol")])


async def refused_as_closed(call: Coroutine[Any, Any, Any]) -> None:
    """Await a call that is refused because its realm is closed."""
    with pytest.raises(RefusedError) as caught:
        await call
    assert caught.value.code == "LOG_CLOSED"


def is_queued(realm: AsyncRealm, number: int) -> bool:
    return len(realm.sync.realm().klis.requests) == number


async def until_waiting(realm: AsyncRealm, number: int = 1) -> None:
    await asyncio.to_thread(until, lambda: realm.archive.expectations.count == number)


def test_a_realm_is_made_used_and_read(log_url: str) -> None:
    async def main() -> None:
        async with AsyncRealm.create(log_url, domain=shop, policies=[house]) as realm:
            await realm.register("ann", "human", binding={"kind": "auto_approve"})
            assert (await realm.act("ann", "sell", CAKE)).status == "completed"
            assert (await realm.data())["sold"] == 1
            assert (await realm.actions.catalog("ann")).actions
            assert await realm.host.stuck() == []
            positions = [position async for position, _ in realm.events()]
            assert positions == list(range(1, realm.log.head().size + 1))
            assert [one.height async for one in realm.worlds(1)] == [1]

    run(main())


def test_a_realm_is_opened_by_awaiting_too(shared_log_url: str) -> None:
    async def main() -> None:
        realm = await AsyncRealm.create(shared_log_url, domain=shop)
        async with realm, AsyncRealm.open_read_only(shared_log_url) as reading:
            assert (realm.is_read_only, reading.is_read_only) == (False, True)
            assert (await reading.branch()).name == "main"
        with pytest.raises(RefusedError) as caught:
            await AsyncRealm.create(shared_log_url, domain=shop)
        assert caught.value.code == "ALREADY_FOUNDED"

    run(main())


def test_more_callers_wait_than_there_are_threads_and_each_gets_its_answer(log_url: str) -> None:
    number = POOL_THREADS + 20

    async def main() -> None:
        async with AsyncRealm(open_till(log_url)) as realm:
            async with asyncio.TaskGroup() as tasks:
                acting = [tasks.create_task(realm.act("kid", "sell", NOTHING, wait=True)) for _ in range(number)]
                await until_waiting(realm, number)
                assert pool_threads(realm) <= POOL_THREADS
                assert expecting(realm.sync) == 1
                for one in await realm.inbox():
                    tasks.create_task(realm.decide(one.proposal_id, "approve", by="ann"))
            assert {one.result().status for one in acting} == {"completed"}
            assert realm.archive.expectations.count == 0

    run(main())


def test_a_wait_whose_time_is_over_raises_and_a_call_returns_the_open_proposal(log_url: str) -> None:
    async def main() -> None:
        async with AsyncRealm(open_till(log_url)) as realm:
            asked = await realm.act("kid", "sell", CAKE, wait=0.01)
            assert asked.status == "evaluating"
            for seconds in (0, 0.01):
                with pytest.raises(WaitTimeoutError) as caught:
                    await realm.wait(asked, seconds)
                assert caught.value.details["proposal_id"] == asked.proposal_id
            assert realm.archive.expectations.count == 0
            with pytest.raises(RefusedError, match="number of seconds"):
                await realm.act("kid", "sell", CAKE, wait=-1)
            with pytest.raises(RefusedError, match="does not exist"):
                await realm.wait("none")
            assert len(await realm.inbox()) == 1

    run(main())


def test_what_a_cancelled_task_submitted_stays_and_its_wait_is_gone(log_url: str) -> None:
    async def main() -> None:
        async with AsyncRealm(open_till(log_url)) as realm:
            async with asyncio.TaskGroup() as tasks:
                acting = tasks.create_task(realm.act("kid", "sell", CAKE, wait=True))
                await until_waiting(realm)
                acting.cancel()
            assert acting.cancelled()
            assert realm.archive.expectations.count == 0
            await asyncio.to_thread(until, lambda: expecting(realm.sync) == 0)
            [asked] = await realm.inbox()
            await realm.decide(asked.proposal_id, "approve", by="ann")
            assert (await realm.wait(asked)).status == "completed"

    run(main())


def test_a_call_that_has_begun_goes_on_and_one_that_has_not_is_dropped(log_url: str) -> None:
    bank = Bank()
    bank.release.clear()

    async def main() -> None:
        async with AsyncRealm(open_till(log_url, effects=[bank.handler()])) as realm:
            async with asyncio.TaskGroup() as tasks:
                begun = tasks.create_task(realm.act("ann", "charge", {"amount": 7}))
                await asyncio.to_thread(bank.started.wait, PATIENCE_S)
                others = [realm._pool.start(partial(bank.release.wait, PATIENCE_S)) for _ in range(POOL_THREADS - 1)]
                dropped = tasks.create_task(realm.act("ann", "sell", CAKE))
                await asyncio.sleep(0)
                begun.cancel()
                dropped.cancel()
            assert begun.cancelled()
            assert dropped.cancelled()
            bank.release.set()
            for other in others:
                await other
            [charging] = await asyncio.to_thread(submitted, realm)
            assert (await realm.wait(charging)).status == "completed"
            assert bank.charged == [7]
            assert (await realm.data())["sold"] == 0

    def submitted(realm: AsyncRealm) -> list[str]:
        return [str(decoded(one).proposal_id) for one in realm.log.read(topics=["proposal.submitted"])]  # type: ignore[attr-defined]

    run(main())


def test_closing_the_realm_ends_waits(log_url: str) -> None:
    async def main() -> None:
        realm = AsyncRealm(open_till(log_url))
        asked = await realm.act("kid", "sell", CAKE)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(refused_as_closed(realm.wait(asked)))
            await until_waiting(realm)
            await realm.close()
        await realm.close()

    run(main())


def test_closing_the_realm_answers_calls_that_have_not_begun(log_url: str) -> None:
    """They were dropped with the pool's queue, and their callers waited forever."""
    release = threading.Event()

    async def main() -> None:
        realm = AsyncRealm(open_till(log_url))
        others = [realm._pool.start(partial(release.wait, PATIENCE_S)) for _ in range(POOL_THREADS)]
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(refused_as_closed(realm.data()))
            tasks.create_task(refused_as_closed(realm.act("ann", "sell", CAKE)))
            await asyncio.sleep(0)
            tasks.create_task(realm.close())
            await asyncio.to_thread(until, lambda: realm._pool._executor._shutdown)
            release.set()
        for other in others:
            await other

    run(main())


def test_a_closed_realm_refuses_every_call(log_url: str) -> None:
    """The pool's ``RuntimeError`` was raised, and not the error of ``Realm``."""

    async def main() -> None:
        async with AsyncRealm(open_till(log_url)) as realm:
            asked = await realm.act("kid", "sell", CAKE)
        calls: list[Callable[[], Any]] = [
            lambda: realm.wait(asked),
            lambda: realm.act("ann", "sell", CAKE),
            lambda: realm.data(),
            lambda: realm.claim_effect(worker="w", wait_s=1),
            lambda: realm.leases.acquire(agent="kid", resource=FILE),
            lambda: anext(realm.subscribe()),
            lambda: anext(realm.events()),
        ]
        for call in calls:
            with pytest.raises(RefusedError) as caught:
                await call()
            assert caught.value.code == "LOG_CLOSED"

    run(main())


def test_two_loops_use_one_realm_and_a_closed_loop_leaves_nothing(log_url: str) -> None:
    realm = AsyncRealm(open_till(log_url))
    asked = asyncio.run(realm.act("kid", "sell", CAKE))
    ended: list[str] = []

    async def wait() -> None:
        ended.append((await realm.wait(asked)).status)

    waiting = threading.Thread(target=lambda: asyncio.run(wait()))
    waiting.start()
    until(lambda: realm.archive.expectations.count == 1)
    asyncio.run(realm.decide(asked.proposal_id, "approve", by="ann"))
    waiting.join(PATIENCE_S)
    assert ended == ["completed"]
    asyncio.run(realm.close())
    until(lambda: expecting(realm.sync) == 0)
    until(lambda: not [one for one in realm._pool._executor._threads if one.is_alive()])


@pytest.mark.slow
def test_a_thousand_tasks_wait_and_half_of_them_are_cancelled(log_url: str) -> None:
    async def main() -> None:
        async with AsyncRealm(open_till(log_url)) as realm:
            asked = await realm.act("kid", "sell", CAKE)
            async with asyncio.TaskGroup() as tasks:
                waiting = [tasks.create_task(realm.wait(asked)) for _ in range(1_000)]
                await until_waiting(realm, 1_000)
                for task in waiting[:500]:
                    task.cancel()
                await asyncio.wait(waiting[:500])
                assert (realm.archive.expectations.count, expecting(realm.sync)) == (500, 1)
                await realm.decide(asked.proposal_id, "approve", by="ann")
            assert {one.result().status for one in waiting[500:]} == {"completed"}
            assert realm.archive.expectations.count == 0

    run(main())


def test_an_opening_that_is_cancelled_leaves_nothing_open(tmp_path: Path) -> None:
    place = tmp_path / "w.db"
    open_till(str(place)).close()

    async def main() -> None:
        async def opening() -> AsyncRealm:
            return await AsyncRealm.open(place, domain=shop)

        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(opening())
            await asyncio.sleep(0)
            task.cancel()
        assert task.cancelled()
        assert [one.path for one in psutil.Process().open_files() if one.path.startswith(str(place))] == []

    run(main())


@pytest.mark.requirement("WP-events")
def test_events_are_iterated_and_the_subscription_ends(shared_log_url: str) -> None:
    async def main() -> None:
        async with AsyncRealm(open_till(shared_log_url)) as realm:
            subscribers = realm.sync._acting.subscribers
            with Realm.open(shared_log_url, domain=shop) as other:
                before = realm.log.head().size
                async with realm.subscribe() as events:
                    await realm.act("ann", "sell", NOTHING)
                    await asyncio.to_thread(other.act, "ann", "sell", NOTHING)
                    size = realm.log.head().size
                    seen = []
                    async for position, _ in events:
                        seen.append(position)
                        if position == size:
                            break
                assert seen == list(range(before + 1, size + 1))
            assert subscribers._subscriptions == ()
            async with asyncio.TaskGroup() as tasks:
                taking = tasks.create_task(anext(realm.subscribe()))
                await asyncio.to_thread(until, lambda: len(subscribers._subscriptions) == 1)
                taking.cancel()

    run(main())


def test_an_iteration_that_is_left_closes_what_it_read(log_url: str) -> None:
    async def main() -> None:
        async with AsyncRealm(open_till(log_url)) as realm:
            async with aclosing(realm.events()) as events:
                assert (await anext(events))[0] == 1
            assert [position async for position, _ in realm.events(2, 4)] == [3, 4]

    run(main())


# Leases


@pytest.mark.slow
def test_more_requests_wait_than_there_are_threads_and_each_has_its_turn(tmp_path: Path) -> None:
    number, tokens = POOL_THREADS + 8, []

    async def main() -> None:
        limits = Limits(klis=KlisSettings(backoff_ms=1, max_backoff_ms=4))
        async with AsyncRealm.create(tmp_path / "w.db", domain=shop, limits=limits) as realm:
            for one, name in enumerate(["holder", *(f"w{one}" for one in range(number))]):
                realm.leases.desk.register_agent(name, by="test", priority=1_000 - one)  # the last one is the oldest

            async def work(agent: str) -> None:
                request = realm.leases.acquire(agent=agent, resource=FILE, retry=True, timeout=PATIENCE_S)
                async with request as held:
                    assert await held.is_active()
                    await held.check()
                    await held.heartbeat()
                    tokens.append(held.token)

            async with asyncio.TaskGroup() as tasks, realm.leases.acquire(agent="holder", resource=FILE):
                for one in range(number):
                    tasks.create_task(work(f"w{one}"))
                    await asyncio.to_thread(until, partial(is_queued, realm, one + 1))
                assert expecting(realm.sync) == 1
                assert pool_threads(realm) <= POOL_THREADS
            assert len(tokens) == number
            assert not (await realm.realm()).klis.leases

    run(main())


def test_a_cancelled_request_is_withdrawn_and_one_whose_time_is_over_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncRealm.create(tmp_path / "w.db", domain=shop) as realm:
            for name, priority in (("young", 3), ("middle", 2), ("old", 1)):
                realm.leases.desk.register_agent(name, by="test", priority=priority)
            held = await realm.leases.acquire(agent="young", resource=FILE)
            async with asyncio.TaskGroup() as tasks:
                waiting = tasks.create_task(acquire(realm, "middle"))
                await asyncio.to_thread(until, lambda: len(realm.sync.realm().klis.requests) == 1)
                task = tasks.create_task(acquire(realm, "old"))
                await asyncio.to_thread(until, lambda: len(realm.sync.realm().klis.requests) == 2)
                task.cancel()
                await asyncio.wait([task])
                assert task.cancelled()
                assert len(realm.sync.realm().klis.requests) == 1
                with pytest.raises(RefusedError) as caught:
                    await realm.leases.acquire(agent="old", resource=FILE, timeout=0.01)
                assert caught.value.code == "WAIT_TIMED_OUT"
                await held.release()
            later = waiting.result()
            assert later.token > held.token
            await later.release()
            assert realm.archive.expectations.count == 0

    async def acquire(realm: AsyncRealm, agent: str) -> AsyncLeaseHandle:
        return await realm.leases.acquire(agent=agent, resource=FILE)

    run(main())
