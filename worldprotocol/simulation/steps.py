"""Steps of a simulation: plain data, drawn in advance, so that scripts can be reduced.

A step names what it acts on by numbers: the ``which``-th of what there is to act on when its turn comes. So each step
can be done whatever was left out before it; where there is nothing to act on, it does nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.record import WireForm
from worldprotocol.simulation.adoptions.program_steps import draw_program
from worldprotocol.simulation.calls.call_steps import CALL_KINDS, has_calls
from worldprotocol.simulation.external.claim_steps import EXTERNAL_KINDS, has_external_effects
from worldprotocol.simulation.outside import WEATHER
from worldprotocol.simulation.scenario import Scenario
from worldprotocol.simulation.storage import FAULTS

__all__ = ["LOST_WAKES", "WORKERS", "SimulationStep", "draw_steps", "read_script", "script_of"]

WORKERS: Final = 3
"""Processes that act on one log."""

LOST_WAKES: Final = "lost_wakes"
"""The fault of a process that frees something and does not wake what died of it."""

MANY: Final = 1 << 16
FORMAT: Final = 1

_BAD: Final = ("action", "actor", "input", "base", "branch", "key", "unbound", "scope")
_CHOICES: Final = (
    "approve",
    "approve",
    "approve",
    "reject",
    "narrow",
    "abstain",
    "ask",
    "escalate",
    "reply",
    "delegate",
)
_PREDICATES: Final = ("MUTATES", "MUTATES", "CONSUMES", "PROVIDES", "DELETES", "DEPENDS_ON", "RENAMES")
_TIMES: Final = (1, 100, 700, 2_000, 8_000, 8_000, 25_000, 70_000)


@dataclass(frozen=True, slots=True)
class SimulationStep(WireForm):
    """One step.

    Args:
        do: what is done, one of ``KINDS``.
        by: the number of the worker that does it.
        rendered: all other members, JSON.
    """

    do: str
    by: int
    rendered: Mapping[str, Any] = field(default_factory=dict)
    WIRE: ClassVar = "do by *rendered"


Drawing = Callable[[Random, Scenario], Mapping[str, Any]]


def _which(chance: Random) -> int:
    return chance.randrange(MANY)


def _drawn(chance: Random, scenario: Scenario) -> dict[str, Any]:
    try:
        drawn = scenario.draw(chance)
    except Exception as error:
        why = f"The scenario's draw raised {type(error).__name__}: {error}."
        raise RefusedError(ErrorCode.INVALID_SIMULATION, why) from error
    rendered: dict[str, Any] = {"actor": _which(chance), "type": drawn.type, "input": drawn.input}
    return rendered if drawn.scope is None else {**rendered, "scope": list(drawn.scope)}


def _submit(chance: Random, scenario: Scenario) -> Mapping[str, Any]:
    rendered = _drawn(chance, scenario)
    place = chance.random()
    if place < 0.1:
        rendered["branch"] = _which(chance)
    elif place < 0.14:
        rendered["fork"] = _which(chance)
    if chance.random() < 0.3:
        rendered["key"] = "one at a time"
    return rendered


def _batch(chance: Random, scenario: Scenario) -> Mapping[str, Any]:
    return {"intents": [_drawn(chance, scenario) for _ in range(chance.randint(2, 5))], "twice": chance.random() < 0.3}


def _bad(chance: Random, scenario: Scenario) -> Mapping[str, Any]:
    return {**_drawn(chance, scenario), "wrong": chance.choice(_BAD)}


def _decide(chance: Random, scenario: Scenario) -> Mapping[str, Any]:
    place = chance.random()
    of = "any" if place < 0.1 else "waiting"
    return {"of": of, "which": _which(chance), "actor": _which(chance), "choice": chance.choice(_CHOICES)}


def _fly(chance: Random, scenario: Scenario) -> Mapping[str, Any]:
    weather = chance.choice(WEATHER) if chance.random() < scenario.bad_weather else "fair"
    return {"which": _which(chance), "weather": weather, "record": chance.random() < 0.8}


def _lease(chance: Random, scenario: Scenario) -> Mapping[str, Any]:
    count = chance.choice((1, 1, 1, 2, 3))
    scope = [[chance.choice(_PREDICATES), chance.choice(scenario.resources)] for _ in range(count)]
    ttl = chance.choice((None, 1_000, 60_000, 600_000))
    return {
        "actor": _which(chance),
        "session": chance.randrange(2),
        "scope": scope,
        "ttl": ttl,
        "queue": chance.random() < 0.8,
        "wait": chance.choice((None, None, 3_000, 300_000)),
    }


def _one(chance: Random, scenario: Scenario) -> Mapping[str, Any]:
    return {"which": _which(chance)}


def _own(chance: Random, scenario: Scenario) -> Mapping[str, Any]:
    return {"which": _which(chance), "stranger": chance.random() < 0.1}


def _time(chance: Random, scenario: Scenario) -> Mapping[str, Any]:
    return {"ms": chance.choice(_TIMES)}


def _jump(chance: Random, scenario: Scenario) -> Mapping[str, Any]:
    return {"off_ms": chance.choice((0, 0, -90_000, -3_000, -3_600_000, 2_000, 40_000))}


def _crash(chance: Random, scenario: Scenario) -> Mapping[str, Any]:
    return {"known": chance.random() < 0.6}


def _branch(chance: Random, scenario: Scenario) -> Mapping[str, Any]:
    return {"which": _which(chance), "name": f"line-{chance.randrange(6)}"}


def _bind(chance: Random, scenario: Scenario) -> Mapping[str, Any]:
    return {"actor": _which(chance), "which": _which(chance)}


def _fault(chance: Random, scenario: Scenario) -> Mapping[str, Any]:
    return {"fault": chance.choice((*FAULTS, LOST_WAKES))}


def _shadow(chance: Random, scenario: Scenario) -> Mapping[str, Any]:
    return {"which": _which(chance), "actors": [_which(chance) for _ in range(chance.choice((0, 0, 1, 3)))]}


def _nothing(chance: Random, scenario: Scenario) -> Mapping[str, Any]:
    return {}


KINDS: Final[Mapping[str, tuple[int, Drawing]]] = {
    "submit": (30, _submit),
    "batch": (4, _batch),
    "again": (3, _one),
    "bad": (4, _bad),
    "receive": (4, _drawn),
    "decide": (14, _decide),
    "fly": (30, _fly),
    "time": (9, _time),
    "jump": (2, _jump),
    "crash": (3, _crash),
    "fault": (4, _fault),
    "settle": (6, _nothing),
    "resolve": (4, _one),
    "cancel": (2, _one),
    "branch": (1, _branch),
    "switch": (1, _one),
    "lease": (12, _lease),
    "beat": (4, _own),
    "release": (6, _own),
    "revoke": (1, _one),
    "withdraw": (3, _one),
    "bind": (1, _bind),
    "policy": (1, _one),
    "shadow": (1, _shadow),
    "adopt": (2, _one),
    "program": (3, draw_program),
    **EXTERNAL_KINDS,
    **CALL_KINDS,
}
"""How often each kind of step is drawn, and how it is drawn."""

SWARM: Final = (0.2, 0.5, 1, 1, 2, 4)
"""By how much a seed draws a kind of step more or less often: what is rare with most seeds is common with some."""


def draw_steps(seed: int, count: int, scenario: Scenario) -> list[SimulationStep]:
    """Return the first steps of a seed; equal seeds give equal steps.

    Args:
        seed: any whole number.
        count: how many.
        scenario: its ``draw`` is used.

    Raises:
        RefusedError: ``INVALID_SIMULATION`` where its ``draw`` raises.
    """
    chance = Random(seed)
    kinds = [kind for kind in KINDS if kind != "program" or scenario.programs]
    kinds = [kind for kind in kinds if kind not in EXTERNAL_KINDS or has_external_effects(scenario)]
    kinds = [kind for kind in kinds if kind not in CALL_KINDS or has_calls(scenario)]
    weights = [KINDS[kind][0] * chance.choice(SWARM) for kind in kinds]
    steps = []
    for _ in range(count):
        kind = chance.choices(kinds, weights)[0]
        steps.append(SimulationStep(kind, chance.randrange(WORKERS), KINDS[kind][1](chance, scenario)))
    return steps


def script_of(steps: Iterable[SimulationStep], *, seed: int, scenario: str) -> str:
    """Return steps as a file that ``read_script`` reads: JSON, a step on each line.

    Args:
        steps: the steps.
        seed: of the ids.
        scenario: the reference that the command takes.
    """
    lines = ",\n".join(f"  {json.dumps(step.to_wire())}" for step in steps)
    head = json.dumps({"format": FORMAT, "scenario": scenario, "seed": seed})
    return f'{head[:-1]}, "steps": [\n{lines}\n]}}\n'


def read_script(path: Path) -> tuple[list[SimulationStep], int, str]:
    """Return the steps of a file, the seed and the reference of the scenario.

    Raises:
        RefusedError: ``INVALID_SCRIPT``.
    """
    try:
        rendered = json.loads(path.read_text())
        if rendered["format"] != FORMAT:
            raise ValueError(f"it has format {rendered['format']}, this is {FORMAT}")
        steps = []
        for wire in rendered["steps"]:
            rest = {name: value for name, value in wire.items() if name not in ("do", "by")}
            if wire["do"] not in KINDS or not 0 <= wire["by"] < WORKERS:
                raise ValueError(f"there is no step {wire['do']!r} by worker {wire['by']}")
            steps.append(SimulationStep(wire["do"], wire["by"], rest))
        return steps, int(rendered["seed"]), str(rendered["scenario"])
    except OSError as error:
        raise RefusedError(ErrorCode.INVALID_SCRIPT, f"The script {path} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RefusedError(ErrorCode.INVALID_SCRIPT, f"{path} is no script of a simulation: {error}.") from None
