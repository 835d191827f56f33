"""The step of a simulation that starts a worker with another program."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from worldprotocol.simulation.scenario import Scenario
from worldprotocol.simulation.worker import SimulatedWorker

if TYPE_CHECKING:
    from worldprotocol.simulation.simulation import Simulation

__all__ = ["draw_program", "run_program"]


def draw_program(chance: Random, scenario: Scenario) -> Mapping[str, Any]:
    """Draw which program a worker runs from now on, and whether it adopts the program's policies."""
    return {"which": chance.randrange(1 << 16), "adopt": chance.random() < 0.2}


def run_program(sim: Simulation, worker: SimulatedWorker, rendered: Mapping[str, Any]) -> str:
    """Start another process in a worker's place, which runs one of the scenario's programs."""
    at = rendered["which"] % (len(sim.scenario.programs) + 1)
    worker = sim.restart(worker, program=at)
    worker.protocol.settle()
    program = sim.scenario.programs[at - 1] if at else None
    if rendered["adopt"] and (program is None or program.domain is None):
        for policy in sim.scenario.policies if program is None else program.policies:
            worker.world.adopt_policy(policy.name)
        return f"{worker.name} runs program {at} and adopts its policies"
    return f"{worker.name} runs program {at}"
