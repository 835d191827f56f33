"""Seeded simulations of adoptions: migrations, held proposals, refused states and inputs; planted faults are found."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.simulation.planted_adoptions import FOUND_BY, SCRIPTS, Plant
from worldprotocol.simulation import Simulated, SimulationStep, simulate
from worldprotocol.simulation.adoptions.yard import scenario

SEEDS, STEPS = 8, 150
PLANTED_SEEDS = 30


@cache
def simulated(seed: int) -> Simulated:
    """Return what came of a seed; several tests look at it."""
    return simulate(seed, STEPS, scenario)


@pytest.mark.requirement("WP-schema", "WP-lineage", "WP-epoch", "CARD-policy", "CARD-replay", "IC-validate")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_adoptions_holds_and_refused_states_hold(seed: int) -> None:
    assert simulated(seed).violation is None


def test_the_seeds_come_across_everything() -> None:
    said, topics = Counter[str](), Counter[str]()
    for seed in range(SEEDS):
        said.update(simulated(seed).said)
        topics.update(row[4] for row in simulated(seed).image)
    texts = b"".join(str(row).encode() for seed in range(SEEDS) for row in simulated(seed).image)
    assert topics["proposal.held"]
    assert topics["proposal.superseded"]
    assert said["INVALID_INPUT"]
    assert said["DATA_DOES_NOT_FIT"]
    assert b"INVALID_STATE" in texts
    assert b"domain.migrate" in texts
    assert b'"successor"' in texts


@pytest.mark.requirement("WP-schema", "CARD-policy", "IC-validate")
@pytest.mark.parametrize("plant", FOUND_BY, ids=lambda plant: plant.__name__)
@pytest.mark.slow
def test_a_planted_fault_of_adoptions_is_found_within_a_few_seeds(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = SCRIPTS.get(plant, STEPS)
    assert isinstance(steps, int) or simulate(0, steps, scenario).violation is None
    plant(monkeypatch)
    came = (simulate(seed, steps, scenario).violation for seed in range(PLANTED_SEEDS))
    found = next(filter(None, came), None)
    assert found is not None, "it was not found"
    assert found.requirement in FOUND_BY[plant], found


ADD = {"actor": 1, "type": "add", "input": {"to": "a", "by": 5}}


@pytest.mark.requirement("CARD-policy")
@pytest.mark.parametrize("adopts", [True, False])
def test_a_program_with_another_policy_holds_until_it_is_resolved(adopts: bool) -> None:
    steps = [
        SimulationStep("program", 0, {"which": 1, "adopt": False}),
        SimulationStep("submit", 0, ADD),
        SimulationStep("program", 0, {"which": 1 if adopts else 0, "adopt": adopts}),
        SimulationStep("settle", 0, {}),
    ]
    came = simulate(0, steps, scenario)
    assert came.violation is None
    assert came.said[1].endswith("submitted")
    ended = {row[4] for row in came.image} & {"proposal.held", "proposal.completed", "policy.adopted"}
    assert ended == {"proposal.held", "policy.adopted", *(() if adopts else ("proposal.completed",))}
