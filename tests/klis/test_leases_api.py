"""Leases for Python callers: holding, waiting, dying, losing, and the asynchronous twin."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.shop import shop
from tests.support.patience import PATIENCE_S
from world.audit.verify import verify
from world.clock import ManualClock
from world.errors import RefusedError
from world.klis.settings import KlisSettings
from world.limits import Limits
from worldprotocol import Realm

FILE = "FILE:/src/a.py"
SETTINGS = KlisSettings(backoff_ms=1, max_backoff_ms=4)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Realm]:
    with Realm.create(tmp_path / "w.db", domain=shop, limits=Limits(klis=SETTINGS)) as world:
        world.leases.desk.register_agent("old", by="test", priority=1)
        world.leases.desk.register_agent("young", by="test", priority=2)
        yield world


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[tuple[Realm, ManualClock]]:
    """Return a realm whose time stands still."""
    clock = ManualClock(1_000_000)
    with Realm.create(tmp_path / "w.db", domain=shop, clock=clock, limits=Limits(klis=SETTINGS)) as world:
        yield world, clock


def queued(world: Realm) -> int:
    return len(world.realm().klis.requests)


def until_queued(world: Realm, number: int = 1) -> None:
    """Wait until requests stand in the queue, by following the log."""
    follower = world.log.follow(0, poll_ms=5, topics=["verdict.given"])
    while queued(world) < number:
        next(follower)


@pytest.mark.requirement("KP-4a", "KP-5a")
def test_what_is_held_is_given_back_at_the_end_of_the_block(world: Realm) -> None:
    with world.leases.acquire(agent="old", resource=FILE) as held:
        assert held.is_active
        held.check()
        assert [lease.session.agent_id for lease in world.realm().klis.leases.values()] == ["old"]
    assert not world.realm().klis.leases
    assert not held.is_active


def test_each_grant_has_a_larger_fencing_token(world: Realm) -> None:
    tokens = []
    for _ in range(3):
        with world.leases.acquire(agent="old", resources=[FILE, "FILE:/b"]) as held:
            assert held.token == max(held.tokens)
            tokens.append(held.token)
    assert tokens == sorted(set(tokens))


def test_leases_are_given_back_when_the_block_fails(world: Realm) -> None:
    with pytest.raises(ZeroDivisionError), world.leases.acquire(agent="old", resource=FILE):
        _ = 1 / 0
    assert not world.realm().klis.leases


@pytest.mark.requirement("KP-3a", "KP-5b")
def test_a_younger_agent_dies_and_is_told_when_to_come_back(world: Realm) -> None:
    with world.leases.acquire(agent="old", resource=FILE), pytest.raises(RefusedError) as refused:
        world.leases.acquire(agent="young", resource=FILE, timeout=PATIENCE_S)
    assert refused.value.code == "DIED"
    assert refused.value.details["retry_after_ms"] == 1
    assert refused.value.details["conflicts"][0]["holder"] == "old"


def test_who_dies_may_ask_again_until_it_is_free(world: Realm) -> None:
    holder = world.leases.acquire(agent="old", resource=FILE)
    got = []

    def ask() -> None:
        with world.leases.acquire(agent="young", resource=FILE, retry=True, timeout=PATIENCE_S) as held:
            got.append(held.token)

    asking = threading.Thread(target=ask)
    asking.start()
    follower = world.log.follow(0, poll_ms=5, topics=["verdict.given"])
    while world.realm().klis.verdicts["Die"] < 3:
        next(follower)
    holder.release()
    asking.join(PATIENCE_S)
    assert got


@pytest.mark.requirement("KP-3a")
def test_an_older_agent_waits_until_the_younger_one_is_done(world: Realm) -> None:
    holder = world.leases.acquire(agent="young", resource=FILE)
    got = []
    waiting = threading.Thread(
        target=lambda: got.append(world.leases.acquire(agent="old", resource=FILE, timeout=PATIENCE_S).token)
    )
    waiting.start()
    until_queued(world)
    holder.release()
    waiting.join(PATIENCE_S)
    assert got
    assert got[0] > holder.token
    assert not queued(world)


def test_who_waited_long_enough_is_told_and_leaves_the_queue(world: Realm) -> None:
    with world.leases.acquire(agent="young", resource=FILE), pytest.raises(RefusedError) as refused:
        world.leases.acquire(agent="old", resource=FILE, timeout=0.05)
    assert refused.value.code == "WAIT_TIMED_OUT"
    assert not queued(world)


def test_who_does_not_want_to_wait_never_stands_in_the_queue(world: Realm) -> None:
    with world.leases.acquire(agent="young", resource=FILE), pytest.raises(RefusedError) as refused:
        world.leases.acquire(agent="old", resource=FILE, timeout=0)
    assert refused.value.code == "WAIT_TIMED_OUT"
    assert [event.queued for _, event in world.events() if event.TOPIC == "verdict.given"] == [False, False]


@pytest.mark.requirement("KP-4b")
def test_a_holder_sees_that_its_lease_was_revoked(world: Realm) -> None:
    with world.leases.acquire(agent="old", resource=FILE) as held:
        world.leases.desk.revoke(held.lease_ids, by="operator", reason="needed elsewhere")
        assert not held.is_active
        with pytest.raises(RefusedError) as refused:
            held.check()
    assert refused.value.code == "LEASE_LOST"


@pytest.mark.requirement("KP-4c")
def test_a_holder_sees_that_its_lease_expired_before_anybody_records_it(frozen: tuple[Realm, ManualClock]) -> None:
    world, clock = frozen
    held = world.leases.acquire(agent="ann", resource=FILE, ttl_ms=1_000)
    clock.advance(1_000)
    held.check()
    clock.advance(1)
    with pytest.raises(RefusedError) as refused:
        held.check()
    assert refused.value.code == "LEASE_LOST"
    with pytest.raises(RefusedError) as refused:
        held.heartbeat()
    assert refused.value.code == "LEASE_LOST"
    held.release()


@pytest.mark.requirement("KP-4b")
def test_a_heartbeat_lets_the_lease_live_on(frozen: tuple[Realm, ManualClock]) -> None:
    world, clock = frozen
    held = world.leases.acquire(agent="ann", resource=FILE, ttl_ms=1_000)
    for _ in range(3):
        clock.advance(900)
        held.heartbeat()
    held.check()


def test_a_held_lease_is_kept_alive_by_itself(frozen: tuple[Realm, ManualClock]) -> None:
    world, _ = frozen  # so that it cannot expire, however late a heartbeat is
    with world.leases.acquire(agent="ann", resource=FILE, ttl_ms=300):
        follower = world.log.follow(world.log.head().size, poll_ms=5, topics=["lease.renewed"])
        assert [next(follower).topic for _ in range(4)] == ["lease.renewed"] * 4


def test_many_threads_hold_one_resource_one_at_a_time(world: Realm) -> None:
    inside, most, done = [], [], []

    def work(number: int) -> None:
        for _ in range(5):
            with world.leases.acquire(agent=f"a{number}", resource=FILE, retry=True, timeout=PATIENCE_S):
                inside.append(number)
                most.append(len(inside))
                inside.remove(number)
            done.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(done) == 30
    assert max(most) == 1
    assert verify(world.log).ok


def test_what_is_wanted_is_said_in_one_of_two_ways(world: Realm) -> None:
    manifest = {
        "ver": "1.0",
        "session_id": "s",
        "agent_id": "old",
        "scope": [{"predicate": "CONSUMES", "resource": FILE}],
    }
    with world.leases.acquire(manifest=manifest, by="old") as held:
        assert (held.agent, held.session) == ("old", "s")
    for wrong in ({}, {"agent": "old"}, {"manifest": manifest, "agent": "old"}):
        with pytest.raises(RefusedError) as refused:
            world.leases.acquire(**wrong)
        assert refused.value.code == "INVALID_VALUE"


@pytest.mark.parametrize(
    "wrong",
    [
        *(
            {"agent": "old", "resource": FILE, "timeout": timeout}
            for timeout in ("x", "5", -1, -math.inf, math.nan, True)
        ),
        *({"manifest": manifest} for manifest in ([1], "{}", b"{}", 7)),
        {"agent": "old", "resources": 7},
        {"agent": "old", "resources": None},
    ],
    ids=repr,
)
def test_what_makes_no_sense_is_refused_with_a_sentence(world: Realm, wrong: dict[str, Any]) -> None:
    with pytest.raises(RefusedError) as refused:
        world.leases.acquire(**wrong)
    assert refused.value.code == "INVALID_VALUE"
    assert refused.value.message.endswith(".")
    assert not world.realm().klis.leases


def test_a_text_is_one_resource_and_not_its_letters(world: Realm) -> None:
    with world.leases.acquire(agent="old", resources=FILE) as held:
        assert [lease.resource for lease in held.verdict.leases] == [FILE]


@pytest.mark.parametrize("endless", [math.inf, 1e300, 10**400], ids=["infinity", "1e300", "10 to the 400"])
def test_who_waits_without_end_waits_until_it_is_free(world: Realm, endless: float) -> None:
    holder = world.leases.acquire(agent="young", resource=FILE)
    got = []
    waiting = threading.Thread(
        target=lambda: got.append(world.leases.acquire(agent="old", resource=FILE, timeout=endless))
    )
    waiting.start()
    until_queued(world)
    assert [request.deadline for request in world.realm().klis.requests.values()] == [None]
    holder.release()
    waiting.join(PATIENCE_S)
    assert got[0].is_active


@pytest.mark.requirement("KP-3a", "KP-5b")
def test_who_dies_is_told_of_the_older_holder_and_not_of_a_younger_one(world: Realm) -> None:
    world.leases.desk.register_agent("youngest", by="test", priority=3)
    with (
        world.leases.acquire(agent="youngest", resource="FILE:/a"),
        world.leases.acquire(agent="old", resource="FILE:/b"),
        pytest.raises(RefusedError) as refused,
    ):
        world.leases.acquire(agent="young", resources=["FILE:/a", "FILE:/b"])
    assert [one["holder"] for one in refused.value.details["conflicts"]] == ["youngest", "old"]
    assert refused.value.message.startswith("'old' holds MUTATES on FILE:/b and is older, so 'young' must not wait;")


@pytest.mark.requirement("KP-3a", "KP-5b")
def test_who_dies_behind_the_queue_is_told_who_waits_before_it(world: Realm) -> None:
    desk = world.leases.desk
    desk.register_agent("youngest", by="test", priority=3)
    wanted = {"ver": "1.0", "session_id": "s", "agent_id": "old", "scope": [{"predicate": "MUTATES", "resource": FILE}]}
    with world.leases.acquire(agent="youngest", resource=FILE):
        assert desk.request(wanted, by="old", queue=True).status == "Wait"
        with pytest.raises(RefusedError) as refused:
            world.leases.acquire(agent="young", resource=FILE)
    assert refused.value.message.startswith(f"'old' waits before it for MUTATES on {FILE}, so 'young' must not wait;")


@pytest.mark.requirement("KP-3a", "KP-5b")
def test_who_dies_of_another_session_of_its_own_is_told_so(world: Realm) -> None:
    with world.leases.acquire(agent="old", resource=FILE), pytest.raises(RefusedError) as refused:
        world.leases.acquire(agent="old", resource=FILE)
    assert refused.value.message.startswith(f"'old' holds MUTATES on {FILE} in another session, so 'old' must not")


@pytest.mark.requirement("KP-5b")
def test_who_dies_of_one_that_is_not_spelt_out_is_told_nothing_wrong(tmp_path: Path) -> None:
    limits = Limits(klis=KlisSettings(max_named_conflicts=1))
    with Realm.create(tmp_path / "w.db", domain=shop, limits=limits) as world:
        for priority, agent in enumerate(("old", "young", "youngest")):
            world.leases.desk.register_agent(agent, by="test", priority=priority)
        world.leases.acquire(agent="youngest", resource="FILE:/a")
        world.leases.acquire(agent="old", resource="FILE:/b")
        with pytest.raises(RefusedError) as refused:
            world.leases.acquire(agent="young", resources=["FILE:/a", "FILE:/b"])
    assert refused.value.message.startswith(
        "'youngest' holds MUTATES on FILE:/a, and another conflicting agent that is not listed here is older, so "
        "'young' must"
    )


def test_a_realm_open_for_looking_gives_no_leases(world: Realm, tmp_path: Path) -> None:
    with Realm.open_read_only(tmp_path / "w.db") as looking, pytest.raises(RefusedError) as refused:
        _ = looking.leases
    assert refused.value.code == "LOG_READ_ONLY"


def test_async_code_holds_and_gives_back(world: Realm) -> None:
    async def main() -> None:
        async with world.leases.hold_async(agent="old", resource=FILE, timeout=PATIENCE_S) as held:
            assert held.is_active
        assert not world.realm().klis.leases

    asyncio.run(main())


def test_a_cancelled_wait_withdraws_its_request(world: Realm) -> None:
    holder = world.leases.acquire(agent="young", resource=FILE)

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(world.leases.acquire_async(agent="old", resource=FILE))
            await asyncio.to_thread(until_queued, world)
            task.cancel()
        assert task.cancelled()

    asyncio.run(main())
    assert not queued(world)
    assert list(world.realm().klis.leases) == list(holder.lease_ids)


def test_a_cancelled_block_gives_back_what_it_holds(world: Realm) -> None:
    async def main() -> None:
        inside = asyncio.Event()

        async def hold() -> None:
            async with world.leases.hold_async(agent="old", resource=FILE):
                inside.set()
                await asyncio.Event().wait()

        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(hold())
            await inside.wait()
            task.cancel()
        assert task.cancelled()

    asyncio.run(main())
    assert not world.realm().klis.leases


@pytest.mark.slow
def test_however_many_wait_the_holder_can_give_back_and_each_has_its_turn(world: Realm) -> None:
    number, tokens = 40, []
    world.leases.desk.register_agent("holder", by="test", priority=1_000)
    for one in range(number):
        world.leases.desk.register_agent(f"w{one}", by="test", priority=100 - one)

    async def work(agent: str) -> None:
        async with world.leases.hold_async(agent=agent, resource=FILE, retry=True, timeout=PATIENCE_S) as held:
            tokens.append(held.token)
            assert [lease.session.agent_id for lease in world.realm().klis.leases.values()] == [agent]

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))  # the smallest pool there is
        async with (
            asyncio.timeout(PATIENCE_S),
            asyncio.TaskGroup() as tasks,
            world.leases.hold_async(agent="holder", resource=FILE),
        ):
            for one in range(number):
                tasks.create_task(work(f"w{one}"))
                await asyncio.to_thread(until_queued, world, one + 1)

    asyncio.run(main())
    assert len(tokens) == number
    assert tokens == sorted(set(tokens))
    assert not world.realm().klis.leases
    assert not queued(world)


def test_a_wait_that_is_cancelled_again_and_again_still_leaves_nothing_behind(world: Realm) -> None:
    holder = world.leases.acquire(agent="young", resource=FILE)

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(world.leases.acquire_async(agent="old", resource=FILE))
            await asyncio.to_thread(until_queued, world)
            holder.release()  # the grant and the cancelling meet
            while not task.done():
                task.cancel()
                await asyncio.sleep(0)
        assert task.cancelled()

    asyncio.run(main())
    assert not world.realm().klis.leases
    assert not queued(world)


def test_leases_that_come_when_the_loop_is_closed_are_given_back(world: Realm) -> None:
    holder = world.leases.acquire(agent="young", resource=FILE)
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # a task that is never woken again is what this is about
    waiting = loop.create_task(world.leases.acquire_async(agent="old", resource=FILE))
    loop.run_until_complete(asyncio.wait_for(loop.run_in_executor(None, until_queued, world), 60))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    holder.release()
    ended = world.log.follow(0, poll_ms=5, topics=["lease.released"])
    assert [next(ended).topic for _ in range(2)] == ["lease.released"] * 2
    assert not world.realm().klis.leases
    assert not waiting.done()


def test_another_process_sees_the_release_by_looking_at_the_log(tmp_path: Path, world: Realm) -> None:
    holder = world.leases.acquire(agent="young", resource=FILE)
    with Realm.open(tmp_path / "w.db", domain=shop) as other:
        got = []
        waiting = threading.Thread(
            target=lambda: got.append(other.leases.acquire(agent="old", resource=FILE, timeout=PATIENCE_S))
        )
        waiting.start()
        until_queued(world)
        holder.release()
        waiting.join(PATIENCE_S)
        assert got[0].is_active
        got[0].release()
