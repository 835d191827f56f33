"""Who listens is told all that is committed, wherever, once each and in order, and can stop nobody."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from projections.catalog import CatalogProjector
from tests.pipeline.shop import open_shop, shop
from tests.support.patience import PATIENCE_S
from world.events.base import Event
from worldprotocol import Realm
from worldprotocol.api.bridge import Bridge

SELL = {"type": "sell", "input": {"item": "tea", "count": 0}}


@pytest.fixture
def world(log_url: str) -> Iterator[Realm]:
    with open_shop(log_url) as opened:
        yield opened


class Heard:
    """A handler that keeps positions, and can be waited for."""

    def __init__(self) -> None:
        self.positions: list[int] = []
        self.threads: set[str] = set()
        self._more = threading.Condition()

    def __call__(self, position: int, event: Event, schedule: Any) -> None:
        with self._more:
            self.positions.append(position)
            self.threads.add(threading.current_thread().name)
            self._more.notify_all()

    def upto(self, position: int) -> list[int]:
        """Wait until a position was told, and return all that were."""
        with self._more:
            assert self._more.wait_for(lambda: position in self.positions, PATIENCE_S), self.positions
            return list(self.positions)


def leave() -> None:
    sys.exit(3)


def cancel() -> None:
    raise asyncio.CancelledError


@pytest.mark.requirement("WP-events")
@pytest.mark.parametrize("end", [leave, cancel])
def test_a_handler_or_reaction_that_wants_to_exit_disturbs_nobody(world: Realm, end: Callable[[], None]) -> None:
    reacted: list[int] = []

    def leaving(position: int, event: Event, schedule: Any) -> None:
        schedule(end)
        schedule(lambda: reacted.append(position))
        end()

    heard = Heard()
    world.subscribe(leaving)
    world.subscribe(heard)
    before = world.log.head().size
    assert world.act("ann", "sell", SELL["input"]).status == "completed"
    assert heard.positions == reacted == list(range(before + 1, world.log.head().size + 1))


@pytest.mark.requirement("WP-events")
def test_an_interrupt_by_the_operator_goes_on_when_all_were_told_and_what_is_left_is_told_later(
    world: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("world.engine.event_bus.WATCH_S", 0.01)

    def interrupted(position: int, event: Event, schedule: Any) -> None:
        end()
        raise KeyboardInterrupt

    heard = Heard()
    end = world.subscribe(interrupted)
    world.subscribe(heard)
    before = world.log.head().size
    with pytest.raises(KeyboardInterrupt):
        world.act("ann", "sell", SELL["input"])
    size = world.log.head().size
    assert heard.upto(size) == list(range(before + 1, size + 1))
    assert world.act("ann", "sell", SELL["input"]).status == "completed"


@pytest.mark.requirement("WP-events")
def test_a_handler_may_wait_for_another_thread_that_acts(world: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("world.engine.event_bus.TELLING_WAIT_S", 0.05)
    monkeypatch.setattr("world.engine.event_bus.WATCH_S", 0.01)
    answers: list[str] = []
    heard = Heard()

    def asks_another(position: int, event: Event, schedule: Any) -> None:
        if not answers:
            answers.append("asked")
            acting = threading.Thread(
                target=lambda: answers.append(world.act("ann", "sell", SELL["input"]).status), daemon=True
            )
            acting.start()
            acting.join(PATIENCE_S)

    world.subscribe(asks_another)
    world.subscribe(heard)
    before = world.log.head().size
    done: list[str] = []
    outer = threading.Thread(target=lambda: done.append(world.act("ann", "sell", SELL["input"]).status), daemon=True)
    outer.start()
    outer.join(PATIENCE_S)
    assert (answers, done) == (["asked", "completed"], ["completed"])
    size = world.log.head().size
    assert heard.upto(size) == list(range(before + 1, size + 1))


@pytest.mark.requirement("WP-events")
def test_many_threads_are_told_of_in_order_and_never_at_the_same_time(world: Realm) -> None:
    heard, at_once = Heard(), []
    telling = threading.Lock()

    def alone(position: int, event: Event, schedule: Any) -> None:
        at_once.append(telling.acquire(blocking=False))
        telling.release()

    world.subscribe(alone)
    world.subscribe(heard)
    before = world.log.head().size
    threads = [
        threading.Thread(target=lambda: [world.act("ann", "sell", SELL["input"]) for _ in range(5)]) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    size = world.log.head().size
    assert heard.upto(size) == list(range(before + 1, size + 1))
    assert all(at_once)


@pytest.mark.requirement("WP-events")
def test_what_others_commit_is_told_once_and_in_the_order_of_the_log(shared_log_url: str) -> None:
    with open_shop(shared_log_url) as world, Realm.open(shared_log_url, domain=shop) as other:
        heard, theirs = Heard(), Heard()
        before = world.log.head().size
        world.subscribe(heard)
        other.subscribe(theirs)
        other.act("ann", "sell", SELL["input"])
        assert heard.upto(other.log.head().size)[0] == before + 1

        def sell(by: Realm) -> None:
            for _ in range(6):
                by.act("ann", "sell", SELL["input"])

        threads = [threading.Thread(target=sell, args=(by,)) for by in (world, other, world)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        size = world.log.head().size
        for one in (heard, theirs):
            assert one.upto(size) == list(range(before + 1, size + 1))


@pytest.mark.requirement("WP-events")
def test_what_is_committed_here_is_told_and_reacted_to_by_who_committed_it(
    world: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "world.engine.event_bus.WATCH_S", 0.0005
    )  # who watches comes in between wherever that is possible
    heard, reacted = Heard(), []
    world.subscribe(heard)
    world.subscribe(lambda position, event, schedule: schedule(lambda: reacted.append(threading.current_thread().name)))
    for _ in range(20):
        world.act("ann", "sell", SELL["input"])
        assert len(reacted) == len(heard.positions)
    assert {*heard.threads, *reacted} == {threading.current_thread().name}


@pytest.mark.requirement("INT-15.1", "WP-events")
def test_a_bridge_is_told_of_branches_and_heads_of_another_process_as_they_were_then(shared_log_url: str) -> None:
    with open_shop(shared_log_url) as world, Realm.open(shared_log_url, domain=shop) as other:
        bridge = Bridge(world, "ann")
        came = threading.Event()
        seen: list[int] = []

        def watch(view: Any) -> None:
            seen.append(view.data["sold"])
            if len(seen) == 4:
                came.set()

        bridge.subscribe(watch)
        other.create_branch("side")
        for branch, count in (("main", 1), ("side", 5)):
            other.act("ann", "sell", {"item": "tea", "count": count}, branch=branch)
        other.switch_branch("side")
        other.act("ann", "sell", {"item": "tea", "count": 1})
        other.switch_branch("main")
        assert came.wait(PATIENCE_S), seen
        assert seen == [1, 5, 6, 1]


@pytest.mark.requirement("WP-events")
def test_a_handler_added_twice_leaves_by_its_own_ticket(world: Realm) -> None:
    told: list[int] = []

    def handler(position: int, event: Event, schedule: Any) -> None:
        told.append(position)

    first, second = world.subscribe(handler), world.subscribe(handler)
    first()
    first()
    world.act("ann", "sell", SELL["input"])
    assert told
    assert len(told) == len(set(told))
    second()
    world.act("ann", "sell", SELL["input"])
    assert max(told) < world.log.head().size - 1


@pytest.mark.requirement("WP-events")
def test_who_comes_later_or_left_is_not_told(world: Realm) -> None:
    late, left = Heard(), Heard()

    def first(position: int, event: Event, schedule: Any) -> None:
        if not ends:
            leave_now()
            ends.append(world.subscribe(late))

    ends: list[Any] = []
    world.subscribe(first)
    leave_now = world.subscribe(left)
    world.act("ann", "sell", SELL["input"])
    assert (left.positions, late.positions) == ([], [])
    world.act("ann", "sell", SELL["input"])
    assert late.positions


@pytest.mark.requirement("INT-15.1", "WP-events")
def test_what_a_callback_schedules_at_another_bridge_is_done_when_all_were_told(world: Realm) -> None:
    one, other = Bridge(world, "ann"), Bridge(world, "ann")
    order: list[str] = []

    def react(view: Any) -> None:
        if not order:
            order.append("told")
            other.schedule(lambda: order.append(other.dispatch(SELL).status))

    one.subscribe(react)
    other.subscribe(lambda view: order.append("the other"))
    one.dispatch(SELL)
    assert order == ["told", "the other", "the other", "completed"]


def test_what_cannot_be_read_now_is_told_later(shared_log_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_shop(shared_log_url) as world, Realm.open(shared_log_url, domain=shop) as other:
        heard = Heard()
        before = world.log.head().size
        world.subscribe(heard)
        reading = threading.Event()

        def broken(logged: Any) -> Any:
            reading.set()
            raise OSError("the database is away")

        monkeypatch.setattr("world.engine.event_bus._AFTER_ERROR_S", 0.05)
        with monkeypatch.context() as patched:
            patched.setattr("world.engine.event_bus.decoded", broken)
            other.act("ann", "sell", SELL["input"])
            assert reading.wait(PATIENCE_S)
            world.act("ann", "sell", SELL["input"])
            assert heard.positions == []
        size = world.log.head().size
        assert heard.upto(size) == list(range(before + 1, size + 1))


@pytest.mark.requirement("WP-events")
def test_nobody_watches_once_nobody_listens_or_the_world_is_closed(tmp_path: Path) -> None:
    def watching() -> list[threading.Thread]:
        return [one for one in threading.enumerate() if one.name == "worldprotocol-watch" and one not in before]

    before = threading.enumerate()
    with open_shop(f"sqlite:///{tmp_path}/a.db") as world:
        end = world.subscribe(Heard())
        (watch,) = watching()
        end()
        watch.join(PATIENCE_S)
        assert watching() == []
        world.subscribe(Heard())
        assert len(watching()) == 1
    assert watching() == []


@pytest.mark.requirement("INT-15.1", "INT-7.4.1")
def test_a_catalog_is_projected_without_blocking_the_loop(world: Realm) -> None:
    bridge = Bridge(world, "ann", CatalogProjector())
    found = asyncio.run(bridge.project_action_catalog_async(mode="debug", pruning={"policy": "mark_only"}))
    assert found == bridge.project_action_catalog(mode="debug", pruning={"policy": "mark_only"})
    own = world.actions.request("bot", mode="ui")
    assert asyncio.run(bridge.project_action_catalog_async(own)) == world.actions.catalog("bot", mode="ui")
