"""In virtual time nothing waits longer than one step while what it needs is free; a timer heals a lost wake-up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.plugins.forms import scaled
from world.klis.refused_requests import RefusedRequests
from world.klis.wait_die import ROOM_BACKOFFS
from world.pipeline.leasing.missed_wakes import WakeCheck
from worldprotocol.simulation import BrokenError, Simulation, SimulationStep, simulate
from worldprotocol.simulation.depot import scenario
from worldprotocol.simulation.scenario import Scenario
from worldprotocol.simulation.steps import LOST_WAKES

pytestmark = pytest.mark.requirement("LIVE-wake")

ANN, CRON = 0, 8
"""An actor, and a younger one; both are approved."""
EFFECT_MS = 6_000


def submits(actor: int, kind: str, **given: Any) -> SimulationStep:
    return SimulationStep("submit", 0, {"actor": actor, "type": kind, "input": given})


HOLDS = submits(ANN, "wire", to="a", amount=1)
"""A proposal whose effect is under way, and holds the whole state."""
ADDS = submits(CRON, "add", to="b", by=1)
"""One that dies of it, and is done at once when it is free."""
FLIES = SimulationStep("fly", 0, {"which": 0, "weather": "fair", "record": True})


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    simulation = Simulation(0, scenario)
    for step in (submits(ANN, "add", to="a", by=1), submits(CRON, "add", to="a", by=1)):
        simulation.do(step)  # their first manifests give them their ages
    yield simulation
    simulation.close()


def ended(simulation: Simulation) -> list[tuple[str, int]]:
    """Return the proposals that ended, with the time, in the order of the log."""
    rows = [(row[4], json.loads(row[7])) for row in simulation.store.image()]
    return [(state["proposalId"], state["at"]) for topic, state in rows if topic == "proposal.completed"]


def verdicts(simulation: Simulation, cause: str) -> list[Any]:
    rows = [json.loads(row[7]) for row in simulation.store.image() if row[4] == "verdict.given"]
    return [state for state in rows if state["cause"] == cause]


def eight_behind_one(simulation: Simulation, behind: SimulationStep = ADDS, *, ms: int = EFFECT_MS) -> list[str]:
    """Begin an effect, let eight proposals die of its leases, and let its time pass; return the eight."""
    simulation.do(HOLDS)
    for _ in range(8):
        assert simulation.do(behind).endswith("evaluating")
    assert len(simulation.model.leases.again) == 8
    simulation.do(SimulationStep("time", 0, {"ms": ms}))
    return list(simulation.model.open)[1:]


def test_the_last_of_eight_behind_one_ends_in_the_step_of_the_release(simulation: Simulation) -> None:
    eight = eight_behind_one(simulation)
    simulation.do(FLIES)
    now = simulation.time.now_ms
    assert ended(simulation)[-9:] == [(ended(simulation)[-9][0], now), *((name, now) for name in eight)]
    assert [state["requestId"] for state in verdicts(simulation, "wake")] == eight
    assert not simulation.model.open


def test_each_of_eight_with_an_effect_begins_in_the_step_in_which_the_one_before_ends(simulation: Simulation) -> None:
    eight = eight_behind_one(simulation, submits(CRON, "pay", to="a", amount=1))
    for name in eight:
        simulation.do(SimulationStep("time", 0, {"ms": 10}))
        simulation.do(FLIES)
        assert [one for one in simulation.model.open if simulation.model.open[one].started is not None] == [name]
    simulation.do(FLIES)
    assert [name for name, _ in ended(simulation)][-8:] == eight


@pytest.mark.requirement("HC-journal")
def test_after_a_doubt_is_resolved_the_queue_drains_at_once(simulation: Simulation) -> None:
    eight = eight_behind_one(simulation)
    simulation.do(SimulationStep("fly", 0, {"which": 0, "weather": "dies_after", "record": True}))
    assert next(iter(simulation.model.open.values())).doubtful
    simulation.do(SimulationStep("time", 0, {"ms": 70_000}))
    simulation.do(SimulationStep("settle", 0, {}))
    assert len(simulation.model.open) == 9
    simulation.do(SimulationStep("resolve", 0, {"which": 0}))
    assert [name for name, _ in ended(simulation)][-8:] == eight
    assert not simulation.model.open


def test_what_is_cancelled_frees_in_the_same_step(simulation: Simulation) -> None:
    eight = eight_behind_one(simulation)
    simulation.do(SimulationStep("fly", 0, {"which": 0, "weather": "dies_after", "record": True}))
    simulation.do(SimulationStep("cancel", 0, {"which": 0}))
    assert [name for name, _ in ended(simulation)][-8:] == eight


def test_a_revocation_frees_in_the_same_step(simulation: Simulation) -> None:
    eight = eight_behind_one(simulation)
    simulation.do(SimulationStep("revoke", 0, {"which": 0}))
    assert [name for name, _ in ended(simulation)][-8:] == eight


def test_a_lost_wake_up_is_healed_by_the_timer(simulation: Simulation) -> None:
    eight = eight_behind_one(simulation, ms=500)
    simulation.do(SimulationStep("fault", 0, {"fault": LOST_WAKES}))
    simulation.do(FLIES)
    assert list(simulation.model.open) == eight
    assert simulation.model.leases.lost == set(eight)
    latest = min(simulation.model.leases.latest[name] for name in eight)
    simulation.do(SimulationStep("time", 0, {"ms": max(1, latest - simulation.time.now_ms)}))
    simulation.do(SimulationStep("settle", 0, {}))
    assert not simulation.model.open
    by_timer = [state["requestId"] for state in verdicts(simulation, "request") if state["requestId"] in eight]
    assert len(by_timer) > len(eight)
    assert not simulation.model.leases.lost


def test_a_wake_up_that_one_process_loses_the_next_unit_of_another_one_makes(simulation: Simulation) -> None:
    eight = eight_behind_one(simulation, ms=500)
    simulation.do(SimulationStep("fault", 0, {"fault": LOST_WAKES}))
    simulation.do(FLIES)
    assert list(simulation.model.open) == eight
    simulation.do(SimulationStep("settle", 1, {}))
    assert [name for name, _ in ended(simulation)][-8:] == eight


def crowded_realm(*, max_waiting: int) -> Scenario:
    """Return the scenario with a small queue."""
    return replace(
        scenario, limits=replace(scenario.limits, klis=replace(scenario.limits.klis, max_waiting=max_waiting))
    )


@pytest.fixture
def crowd() -> Iterator[tuple[Simulation, list[str]]]:
    """Return a simulation of a full queue, and three proposals of an old actor that found it full at one instant."""
    simulation = Simulation(0, crowded_realm(max_waiting=1))
    for step in (submits(ANN, "add", to="a", by=1), submits(CRON, "wire", to="a", amount=1)):
        simulation.do(step)
    simulation.do(lease(ANN, "MUTATES", "FILE:/a/b"))
    simulation.do(lease(CRON, "MUTATES", "FILE:/a/c"))
    simulation.do(lease(ANN, "MUTATES", "FILE:/a/c"))
    assert len(simulation.model.leases.waiting) == 1
    for _ in range(3):
        assert simulation.do(submits(ANN, "add", to="a", by=1)).endswith("evaluating")
    yield simulation, list(simulation.model.leases.again)
    simulation.close()


def lease(actor: int, predicate: str, resource: str) -> SimulationStep:
    given = {"actor": actor, "session": 0, "scope": [[predicate, resource]], "ttl": None, "queue": True, "wait": None}
    return SimulationStep("lease", 0, given)


def test_what_found_the_queue_full_ends_in_the_step_of_the_release(crowd: tuple[Simulation, list[str]]) -> None:
    simulation, three = crowd
    assert len(three) == 3
    simulation.do(FLIES)
    assert [name for name, _ in ended(simulation)][-3:] == three
    assert [state["requestId"] for state in verdicts(simulation, "wake")] == three


def test_what_found_the_queue_full_retries_by_timers_that_differ(crowd: tuple[Simulation, list[str]]) -> None:
    simulation, three = crowd
    now, backoff = simulation.time.now_ms, ROOM_BACKOFFS * scenario.limits.klis.backoff_ms
    for _ in range(60):
        simulation.do(SimulationStep("time", 0, {"ms": backoff // 40}))
        for worker in range(2):  # which ask once for both
            simulation.do(SimulationStep("settle", worker, {}))
    retried = {
        name: [state["at"] for state in verdicts(simulation, "request") if state["requestId"] == name] for name in three
    }
    assert [len(times) for times in retried.values()] == [2, 2, 2]
    seconds = sorted(times[1] - now for times in retried.values())
    assert len(set(seconds)) == 3
    assert backoff <= seconds[0] < seconds[-1] <= backoff * 3 // 2 + backoff // 40


def test_a_lost_wake_up_of_what_found_the_queue_full_is_healed_by_its_timer(
    crowd: tuple[Simulation, list[str]],
) -> None:
    simulation, three = crowd
    backoff = ROOM_BACKOFFS * scenario.limits.klis.backoff_ms
    simulation.do(SimulationStep("fault", 0, {"fault": LOST_WAKES}))
    simulation.do(FLIES)
    assert simulation.model.leases.lost == set(three)
    simulation.do(SimulationStep("time", 0, {"ms": backoff * 3 // 2}))
    simulation.do(SimulationStep("settle", 0, {}))
    assert not simulation.model.open


def test_another_process_keeps_the_timers_of_what_found_the_queue_full(crowd: tuple[Simulation, list[str]]) -> None:
    simulation, three = crowd
    for _ in range(2):
        simulation.crash(simulation.workers[1], known=True)
    assert len([state for state in verdicts(simulation, "request") if state["requestId"] in three]) == 3


@pytest.mark.parametrize("max_waiting", [1, 2])
def test_with_a_small_queue_nothing_waits_for_what_is_free(max_waiting: int) -> None:
    small = crowded_realm(max_waiting=max_waiting)
    for seed in range(scaled(20, ci=2)):
        assert simulate(seed, 150, small).violation is None


@pytest.mark.requirement("CARD-replay")
@pytest.mark.parametrize("reports", [True, False])
def test_a_recheck_has_to_report_the_wake_up_that_was_lost(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch, reports: bool
) -> None:
    eight_behind_one(simulation, ms=500)
    simulation.do(SimulationStep("fault", 0, {"fault": LOST_WAKES}))
    simulation.do(FLIES)
    simulation.do(SimulationStep("time", 0, {"ms": 1}))
    if reports:
        simulation.end()
        return
    monkeypatch.setattr(WakeCheck, "end", lambda _: [])
    with pytest.raises(BrokenError, match="the recheck reports none of") as found:
        simulation.end()
    assert found.value.requirement == "LIVE-wake"


@pytest.mark.requirement("CARD-replay")
def test_a_recheck_has_to_report_no_other(simulation: Simulation) -> None:
    eight_behind_one(simulation, ms=500)
    simulation.do(SimulationStep("fault", 0, {"fault": LOST_WAKES}))
    simulation.do(FLIES)
    simulation.do(SimulationStep("time", 0, {"ms": 1}))
    simulation.model.leases.lapses.clear()
    with pytest.raises(BrokenError, match="whose wake-ups were not lost"):
        simulation.end()


def test_the_model_finds_a_process_that_wakes_nothing(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    eight_behind_one(simulation, ms=500)
    monkeypatch.setattr(RefusedRequests, "free", lambda *_: None)
    with pytest.raises(BrokenError, match="died of what is free") as found:
        simulation.do(FLIES)
    assert found.value.requirement == "LIVE-wake"


def test_timers_of_what_died_at_one_instant_differ(simulation: Simulation) -> None:
    eight = eight_behind_one(simulation, ms=500)
    klis = simulation.workers[0].world.realm().klis
    again = {klis.asks_again_at("cron", name) for name in eight}
    assert len(again) == 8
    assert max(again) - min(again) > 100
