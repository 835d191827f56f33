"""What reading the newest world costs: the same with no lease held and with 10,000, counted in calls and in bytes."""

from __future__ import annotations

import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.shop import open_shop
from world.clock import SystemClock, SystemIds
from worldprotocol import Realm

HELD = 10_000
AT_MOST = 1.5

READINGS: dict[str, Callable[[Realm], Any]] = {
    "data": lambda world: world.data(),
    "snapshot": lambda world: world.snapshot(),
    "sealed": lambda world: world.sealed(),
    "branch": lambda world: world.branch(),
    "branches": lambda world: world.branches(),
    "blame": lambda world: world.blame("stock.tea"),
}


def cost(reading: Callable[[Realm], Any], world: Realm) -> tuple[int, int]:
    """Return how many calls a reading makes and how many bytes it holds at most."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    reading(world)  # what is made once is made
    sys.setprofile(count)
    try:
        reading(world)
    finally:
        sys.setprofile(None)
    tracemalloc.start()
    try:
        reading(world)
        return calls, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def hold_leases(world: Realm) -> None:
    """Take many leases that nobody else wants, all with one manifest."""
    scope = [{"predicate": "MUTATES", "resource": f"FILE:/held/{number}"} for number in range(HELD)]
    manifest = {"ver": "1.0", "agent_id": "holder", "session_id": "s", "scope": scope}
    verdict = world.leases.desk.request(manifest, by="holder", ttl_ms=86_400_000)
    assert len(verdict.leases) == HELD


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, tuple[int, int]]]:
    """What every reading costs with none and with many leases, in the writing process and in one that only reads."""
    address = f"sqlite:///{tmp_path_factory.mktemp('costs') / 'w.db'}"
    with open_shop(address, clock=SystemClock(), ids=SystemIds()) as world:
        assert world.act("ann", "sell", {"item": "tea", "count": 1}).status == "completed"
        found: dict[str, dict[str, tuple[int, int]]] = {}
        for held in ("none", "many"):
            if held == "many":
                hold_leases(world)
            with Realm.open_read_only(address) as other:
                for place, one in (("writer", world), ("reader", other)):
                    found[f"{place} {held}"] = {name: cost(reading, one) for name, reading in READINGS.items()}
    return found


@pytest.mark.requirement("KP-5a")
@pytest.mark.parametrize("place", ["writer", "reader"])
@pytest.mark.parametrize("name", READINGS)
def test_reading_costs_the_same_with_no_lease_and_with_ten_thousand(
    costs: dict[str, dict[str, tuple[int, int]]], name: str, place: str
) -> None:
    bare, loaded = costs[f"{place} none"][name], costs[f"{place} many"][name]
    assert 0 < loaded[0] <= AT_MOST * bare[0]
    assert loaded[1] <= AT_MOST * bare[1] + 1_000


def test_what_was_read_is_not_changed_by_what_is_written_later(tmp_path: Path) -> None:
    with open_shop(str(tmp_path / "w.db"), clock=SystemClock(), ids=SystemIds()) as world:
        branch, branches = world.branch(), world.branches()
        before = (branch.head, branch.tip)
        branches.clear()
        assert world.act("ann", "sell", {"item": "tea", "count": 1}).status == "completed"
        assert (branch.head, branch.tip) == before
        with pytest.raises(AttributeError):
            branch.head = "changed by the caller"  # type: ignore[misc]
        assert world.branch().head not in before
        assert [one.name for one in world.branches()] == ["main"]


def test_readers_beside_a_writer_see_whole_worlds(tmp_path: Path) -> None:
    with open_shop(str(tmp_path / "w.db"), clock=SystemClock(), ids=SystemIds()) as world:
        first = world.data()["stock"]["tea"]
        over = threading.Event()
        wrong: list[Any] = []

        def read() -> None:
            last = first
            while not over.is_set():
                snapshot, branch = world.snapshot(), world.branch()
                left = snapshot.data["stock"]["tea"]
                if left > last or branch.head != branch.tip or world.sealed(branch.head).world_id != branch.head:
                    wrong.append((left, last, branch))
                last = left

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        try:
            for _ in range(first):
                assert world.act("ann", "sell", {"item": "tea", "count": 1}).status == "completed"
        finally:
            over.set()
            for reader in readers:
                reader.join()
        assert wrong == []
        assert world.data()["stock"]["tea"] == 0
