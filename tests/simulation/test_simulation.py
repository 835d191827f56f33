"""Seeded simulations of the whole engine: what they must be, and that they find what is planted."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random

import pytest

import world.pipeline.branches
from tests.plugins.forms import scaled
from tests.simulation.planted import FOUND_BY, SCENARIOS, SCRIPTS, Plant
from world.errors import RefusedError
from world.klis.predicate import Predicate, compatible
from world.model.canonical_json import canonical_bytes
from world.read_models.index_sql.queries import execution_order
from worldprotocol.simulation import (
    DrawnIntent,
    Simulated,
    Simulation,
    SimulationStep,
    draw_steps,
    read_script,
    run_seeds,
    script_of,
    shrink,
    simulate,
)
from worldprotocol.simulation import model_leases as leases
from worldprotocol.simulation.calls.call_steps import CALL_KINDS
from worldprotocol.simulation.depot import scenario
from worldprotocol.simulation.external.claim_steps import EXTERNAL_KINDS
from worldprotocol.simulation.model_log import canonical
from worldprotocol.simulation.model_worlds import within
from worldprotocol.simulation.scenario import DEPOT, load_scenario
from worldprotocol.simulation.steps import KINDS
from worldprotocol.simulation.storage import FAULTS

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 8
STEPS = 180

PLANTED_SEEDS, PLANTED_STEPS = 12, 150


@cache
def simulated(seed: int) -> Simulated:
    """Return what came of a seed; several tests look at it."""
    return simulate(seed, STEPS, scenario)


IMAGE = f"""
from hashlib import sha256
from worldprotocol.simulation import simulate
from worldprotocol.simulation.depot import scenario
print(sha256(repr(simulate(5, {STEPS}, scenario).image).encode()).hexdigest())
"""


@pytest.mark.requirement(
    "CARD-log", "CARD-replay", "WP-fsm", "WP-decision", "WP-exec", "WP-epoch", "WP-lineage", "WP-exkey", "WP-hash",
    "WP-world", "WP-base", "HC-journal", "HC-compute", "HC-context", "KM-2.2", "KP-2a", "KP-3a", "KP-3b", "KP-3c",
    "KP-3d", "KP-4a", "KP-4b", "KP-4c", "KP-5a", "INT-6.1.2", "INT-13.5",
)  # fmt: skip
@pytest.mark.cases_in_ci(4)
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.slow
def test_whatever_happens_everything_holds(seed: int) -> None:
    came = simulated(seed)
    assert came.violation is None, f"{came.violation}; again: worldctl simulate --seed {seed} --steps {STEPS}"
    assert came.steps == STEPS


@pytest.mark.slow
def test_every_kind_of_step_comes_up_and_finds_something_to_act_on() -> None:
    done = set()
    for seed in range(SEEDS):
        steps = draw_steps(seed, STEPS, scenario)
        said = simulated(seed).said
        done |= {step.do for step, words in zip(steps, said, strict=True) if words != "nothing to act on"}
    elsewhere = {"program", *EXTERNAL_KINDS, *CALL_KINDS}  # the depot has one program, no worker outside, and no agent
    assert done == KINDS.keys() - elsewhere


@pytest.mark.requirement("CARD-replay", "CARD-tests")
@pytest.mark.slow
def test_a_seed_gives_the_same_bytes_in_every_process() -> None:
    images = {sha256(repr(simulated(5).image).encode()).hexdigest()}
    environment = {**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-c", IMAGE], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    images.add(run.stdout.strip())
    assert len(images) == 1


def test_other_seeds_give_other_logs_and_fewer_steps_the_beginning_of_more() -> None:
    assert simulate(1, 20, scenario).image != simulate(2, 20, scenario).image
    assert draw_steps(3, 50, scenario) == draw_steps(3, 100, scenario)[:50]


@pytest.mark.parametrize("plant", FOUND_BY, ids=lambda plant: plant.__name__)
@pytest.mark.slow
def test_a_planted_fault_is_found_within_a_few_seeds(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    where, steps = SCENARIOS.get(plant, scenario), SCRIPTS.get(plant, PLANTED_STEPS)
    if not isinstance(steps, int):
        assert simulate(0, steps, where).violation is None
    plant(monkeypatch)
    came = (simulate(seed, steps, where).violation for seed in range(PLANTED_SEEDS))
    found = next(filter(None, came), None)
    assert found is not None, "it was not found"
    assert found.requirement in FOUND_BY[plant], found


def _first_that_fails() -> tuple[int, list[SimulationStep], Simulated]:
    for seed in range(PLANTED_SEEDS):
        steps = draw_steps(seed, PLANTED_STEPS, scenario)
        came = simulate(seed, steps, scenario)
        if came.violation is not None:
            return seed, steps, came
    raise AssertionError("no seed fails")


NAMED_AND_ADOPTED = [
    SimulationStep("submit", 0, {"actor": 0, "type": "name", "input": {"name": "north"}}),
    SimulationStep("adopt", 0, {"which": 1}),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_worker_that_meets_a_fault_while_it_starts_starts_again(fault: str) -> None:
    steps = [
        SimulationStep("submit", 2, {"actor": 0, "type": "pay", "input": {"to": "a", "amount": 3}}),
        SimulationStep("fault", 1, {"fault": fault}),
        SimulationStep("fly", 2, {"which": 0, "weather": "dies_after", "record": True}),
    ]
    came = simulate(0, steps, scenario)
    assert came.violation is None
    assert came.said[2].endswith("died after an effect")


@pytest.mark.requirement("HC-journal")
def test_a_failure_whose_acknowledgement_was_lost_counts_once() -> None:
    steps = [
        SimulationStep("submit", 0, {"actor": 0, "type": "pay", "input": {"to": "a", "amount": 3}}),
        SimulationStep("fault", 0, {"fault": "committed"}),
        SimulationStep("fly", 0, {"which": 0, "weather": "fails", "record": True}),
        SimulationStep("settle", 0, {}),
    ]
    came = simulate(0, steps, scenario)
    assert came.violation is None
    assert came.said[2] == "COMMIT_UNKNOWN"
    topics = [row[4] for row in came.image]
    assert topics.count("effect.retried") == 1
    assert topics.count("effect.fulfilled") == 1


ADDED = {"actor": 0, "type": "add", "input": {"to": "a", "by": 1}}
BEHIND = (SimulationStep("branch", 0, {"which": 0, "name": "line"}), SimulationStep("submit", 0, {**ADDED, "fork": 0}))
"""Steps that begin a branch at genesis, which has no name."""


@pytest.mark.requirement("WP-schema", "WP-base")
@pytest.mark.parametrize("behind", BEHIND, ids=lambda step: step.do)
def test_no_branch_begins_at_a_world_that_does_not_obey_the_schema_in_force(
    behind: SimulationStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [
        *NAMED_AND_ADOPTED,
        behind,
        SimulationStep("submit", 0, {**ADDED, "fork": 1}),
        SimulationStep("submit", 1, ADDED),
    ]
    came = simulate(0, steps, scenario)
    assert came.violation is None
    assert came.said[2] == "DATA_DOES_NOT_FIT"
    assert came.said[3].endswith("completed")
    assert came.said[4] == "SCHEMA_MISMATCH"
    monkeypatch.setattr(world.pipeline.branches, "misfit", lambda *_: None)
    found = simulate(0, steps, scenario).violation
    assert found is not None
    assert (found.step, found.requirement) == (3, "WP-schema")


@pytest.mark.slow
def test_a_script_that_fails_is_cut_to_what_it_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plant = next(one for one in FOUND_BY if one.__name__ == "patches_are_not_held_to_their_scope")
    plant(monkeypatch)
    seed, steps, found = _first_that_fails()
    few, again = shrink(seed, steps, scenario, found)
    assert again.violation is not None
    assert again.violation.requirement == "INT-13.5"
    assert len(few) <= 2
    path = tmp_path / "script.json"
    path.write_text(script_of(few, seed=seed, scenario=DEPOT))
    read, of_seed, reference = read_script(path)
    assert (read, of_seed) == (few, seed)
    assert simulate(seed, read, load_scenario(reference)).violation == again.violation


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2}', '{"format": 1, "seed": 1, "scenario": "", "steps": [1]}'])
def test_what_is_no_script_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(text)
    with pytest.raises(RefusedError, match="no script"):
        read_script(path)
    with pytest.raises(RefusedError, match="cannot be read"):
        read_script(tmp_path / "none.json")


@pytest.mark.slow
def test_many_seeds_end_with_the_first_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [ran.violation for ran in run_seeds(range(3), 30, DEPOT, processes=1)] == [None] * 3
    next(iter(FOUND_BY))(monkeypatch)
    ran = list(run_seeds(range(scaled(40, ci=10)), 150, DEPOT, processes=1))
    assert [one.violation is None for one in ran] == [True] * (len(ran) - 1) + [False]


@pytest.mark.slow
def test_many_seeds_run_in_several_processes() -> None:
    told: list[tuple[int, int]] = []
    ran = list(run_seeds(range(4), 20, DEPOT, processes=2, progress=lambda *at: told.append(at)))
    assert sorted(one.seed for one in ran) == [0, 1, 2, 3]
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.slow
def test_a_run_leaves_nothing_in_memory() -> None:
    left = []
    for _ in range(3):
        simulate(5, 300, scenario)
        left.append(len(gc.get_objects()))
    assert left[-1] - left[0] < 1_000  # it was 4,500 with each run


def test_a_scenario_that_is_none_is_refused() -> None:
    with pytest.raises(RefusedError, match="should be a Scenario"):
        load_scenario("worldprotocol.simulation.depot:depot")


def _raises(_chance: Random) -> DrawnIntent:
    raise ZeroDivisionError("nothing is wished")


def test_a_scenario_that_cannot_be_simulated_is_refused() -> None:
    with pytest.raises(RefusedError, match="needs an actor") as nobody:
        replace(scenario, actors=())
    with pytest.raises(RefusedError, match="spare names other, which policies does not hold"):
        replace(scenario, spare=("other",))
    with pytest.raises(RefusedError, match="draw raised ZeroDivisionError: nothing is wished") as raised:
        simulate(0, 10, replace(scenario, draw=_raises))
    assert nobody.value.code == raised.value.code == "INVALID_SIMULATION"


@pytest.mark.slow
def test_a_loaded_realm_has_its_proposals_in_the_order_of_a_folded_one() -> None:
    simulation = Simulation(6, scenario)
    turned = 0
    for step in draw_steps(6, STEPS, scenario):
        simulation.do(step)
        archive = simulation.workers[0].world.archive
        in_turn = execution_order(archive.rows("open_proposals"))
        loaded = list(archive.load_realm().proposals)
        turned += in_turn != loaded
        assert loaded == list(archive.fold_realm().proposals) == list(simulation.model.open)
    assert turned > 0
    simulation.close()


def test_a_step_that_finds_nothing_does_nothing() -> None:
    simulation = Simulation(0, scenario)
    before = simulation.model.log.size
    for kind in ("fly", "decide", "resolve", "cancel", "beat", "release", "revoke", "withdraw", "again"):
        told = {"which": 3, "of": "waiting", "stranger": False}
        assert simulation.do(SimulationStep(kind, 0, told)) == "nothing to act on"
    assert simulation.model.log.size == before
    simulation.close()


@pytest.mark.requirement("KP-2a", "KP-2b")
def test_the_model_and_the_engine_agree_on_what_may_stand_side_by_side() -> None:
    for one in Predicate:
        for other in Predicate:
            apart = leases._clash((one.value, "FILE:/a"), (other.value, "FILE:/a"))
            assert apart is not compatible(one, other)


def test_the_model_makes_the_same_canonical_text() -> None:
    chance = Random(0)
    values: list[object] = [1e21, 0.25, 1e-7, "é\u2028", {"b": 1, "a": [None, True]}, 2**53 - 1, "a\\.b", -0.0]
    values += [{chance.choice("abé\U0001f600"): chance.random()} for _ in range(50)]
    for value in values:
        assert canonical(value) == canonical_bytes(value)


def test_the_model_reads_patterns_as_they_are_described() -> None:
    assert within(["data.a.*"], "a.b.c")
    assert within(["a"], "a.b")
    assert within(["a.*.c"], "a.b.c")
    assert not within(["data.a.*"], "a")
    assert not within(["a.*.c"], "a.b.d")
    assert not within([], "a")


def test_a_policy_that_shadows_already_may_be_told_to_again_though_it_alone_judges_now() -> None:
    script = [
        SimulationStep("shadow", 2, {"actors": [], "which": 29813}),
        SimulationStep("bind", 1, {"actor": 8827, "which": 30495}),
        SimulationStep("shadow", 2, {"actors": [], "which": 5817}),
    ]
    done = simulate(138, script, scenario)
    assert done.violation is None
    assert done.said[2] == done.said[0]
