"""Seeded simulations of a realm in one process and in virtual time.

After every step the log is held to its requirements by a model that shares no code with the engine. The same seed gives
the same log, byte by byte. ``worldctl simulate`` runs them; scenarios of one's own are ``Scenario`` objects::

    from worldprotocol.simulation import DrawnIntent, Player, Scenario, simulate

    scenario = Scenario(domain=shop, actors=(Player("ann", "human", {"kind": "auto_approve"}),), draw=drawn_intents)
    result = simulate(7, 500, scenario)
    assert result.violation is None, result.violation
"""

from worldprotocol.simulation.found import BrokenError
from worldprotocol.simulation.many import Ran, run_seeds
from worldprotocol.simulation.scenario import (
    DEPOT,
    DrawnIntent,
    Edition,
    Expectation,
    Player,
    Scenario,
    SimulatedProgram,
    load_scenario,
)
from worldprotocol.simulation.shrinking import shrink
from worldprotocol.simulation.simulation import InvariantViolation, Simulated, Simulation, simulate
from worldprotocol.simulation.steps import SimulationStep, draw_steps, read_script, script_of

__all__ = [
    "DEPOT",
    "BrokenError",
    "DrawnIntent",
    "Edition",
    "Expectation",
    "InvariantViolation",
    "Player",
    "Ran",
    "Scenario",
    "Simulated",
    "SimulatedProgram",
    "Simulation",
    "SimulationStep",
    "draw_steps",
    "load_scenario",
    "read_script",
    "run_seeds",
    "script_of",
    "shrink",
    "simulate",
]
