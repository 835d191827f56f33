"""Inputs of docs/scale.md and of the simulation: what is measured, what is assumed, and the costs that follow.

Measured: ``scale_measured.json``, as ``python -m bench cost --record`` writes it. Assumed: ``scale_inputs.toml``.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from bench.scale_model import Failures, Scale, Service
from world.log.group_commit import MAX_BATCH

FOLDER: Final = Path(__file__).parent
MEASURED: Final = FOLDER / "scale_measured.json"
ASSUMED: Final = FOLDER / "scale_inputs.toml"
US: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU time of commits: a part for each commit, and a part for each proposal in it, in seconds."""

    commit_s: float
    proposal_s: float

    def each(self, batch: float) -> float:
        """Return the CPU seconds of one proposal when so many share a commit."""
        return self.proposal_s + self.commit_s / batch


def measured(file: Path = MEASURED) -> dict[str, Any]:
    """Return what was measured."""
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def assumed(file: Path = ASSUMED) -> dict[str, Any]:
    """Return what is assumed."""
    return tomllib.loads(file.read_text(encoding="utf-8"))


def fitted(cpu: dict[str, Any], kind: str) -> Cost:
    """Return the cost that fits the measurements of a pure action by 1, 16 and 64 callers, by least squares.

    The CPU time of a proposal is ``proposal + commit / batch``. Where a proposal of a larger batch costs more, as with
    contention of threads, the whole cost is that of proposals.

    Args:
        cpu: the measurements of a store by name.
        kind: ``engine_us`` or ``database_us``.
    """
    points = [(1 / one["batch"]["median"], one[kind]["median"] * US) for name, one in cpu.items() if "pure" in name]
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    commit = max(0.0, slope)
    return Cost(commit, mean_y - commit * mean_x)


def http_costs(cpu: dict[str, Any]) -> tuple[Cost, Cost]:
    """Return the costs of the engine and of the database for proposals over HTTP.

    What HTTP costs beside the same proposal in process, at the batches of the measurement, is added to each proposal.
    """
    (over,) = (one for name, one in cpu.items() if name.startswith("http"))
    found = []
    for kind in ("engine_us", "database_us"):
        cost = fitted(cpu, kind)
        more = max(0.0, over[kind]["median"] * US - cost.each(over["batch"]["median"]))
        found.append(replace(cost, proposal_s=cost.proposal_s + more))
    return found[0], found[1]


def simulated(found: dict[str, Any], wanted: dict[str, Any]) -> Scale:
    """Return the scale that is simulated, for realms on PostgreSQL whose proposals arrive over HTTP.

    Args:
        found: what is measured.
        wanted: what is assumed.
    """
    given = dict(wanted["simulation"])
    store = found["postgresql"]
    engine, database = http_costs(store["cpu"])
    opening = min(store["reading"], key=lambda one: abs(one["events"] - given["realm_events"]))
    service = Service(
        engine_commit_s=engine.commit_s,
        engine_proposal_s=engine.proposal_s,
        database_commit_s=database.commit_s,
        database_proposal_s=database.proposal_s,
        variation=store["variation"],
        open_s=opening["open_us"]["median"] * US,
        max_batch=MAX_BATCH,
        **{name: given[name] for name in ("round_trips", "round_trip_s", "flush_s", "flush_p99_s", "switch_s")},
    )
    size = ("realms", "servers", "processes", "databases", "database_cores", "rate", "zipf", "seconds")
    return Scale(**{name: given[name] for name in size}, service=service, failures=Failures(**given["failures"]))
