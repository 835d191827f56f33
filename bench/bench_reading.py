"""Reading the newest world and its branches beside leases that are held, compared with none held.

Usage: ``python -m bench reading [--held N ...] [--seconds S]``. Data, snapshot, the event that sealed the head,
branches and a blame are read by the process that holds the leases. To reach: at most 1.5 times the CPU time of none.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.realms import shelf
from world.log import Durability
from worldprotocol import Realm

HELD = (10_000,)
SECONDS = 1.0
ROUNDS = 5
BUDGET = 1.5
TTL_MS = 86_400_000
AT_A_TIME = 10_000
"""Leases that one manifest asks for, as many as the settings allow."""

READINGS: dict[str, Callable[[Realm], Any]] = {
    "data": lambda world: world.data(),
    "snapshot": lambda world: world.snapshot(),
    "sealed": lambda world: world.sealed(),
    "branches": lambda world: world.branches(),
    "blame": lambda world: world.blame("counters.c0"),
}


def founded(path: Path, held: int) -> Realm:
    """Return a realm with one sealed world besides the genesis, in which so many leases are held."""
    durability: Durability = "normal"
    world = Realm.create(str(path), domain=shelf(), durability=durability)
    world.register("ann", "agent", binding={"kind": "auto_approve"})
    done = world.act("ann", "counter.raise", {"counter": "c0", "by": 1})
    if done.status != "completed":
        raise SystemExit(f"The proposal ended as {done.status}.")
    for first in range(0, held, AT_A_TIME):
        numbers = range(first, min(first + AT_A_TIME, held))
        scope = [{"predicate": "MUTATES", "resource": f"FILE:/held/{number}"} for number in numbers]
        manifest = {"ver": "1.0", "agent_id": "holder", "session_id": "s", "scope": scope}
        world.leases.desk.request(manifest, by="holder", ttl_ms=TTL_MS)
    return world


def taken_us(reading: Callable[[Realm], Any], worlds: list[Realm], seconds: float) -> list[float]:
    """Return the least CPU time that a reading of each world takes, in microseconds; the worlds take turns."""
    best = [float("inf")] * len(worlds)
    for _ in range(ROUNDS):
        for place, world in enumerate(worlds):
            begin, count = time.process_time(), 0
            while count == 0 or time.process_time() - begin < seconds / ROUNDS / len(worlds):
                reading(world)
                count += 1
            best[place] = min(best[place], (time.process_time() - begin) / count * 1e6)
    return best


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--held", type=int, nargs="+", default=HELD, help="how many leases are held")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="CPU time for each kind of reading")
    told = parser.parse_args()
    counts = (0, *told.held)
    with tempfile.TemporaryDirectory() as folder:
        worlds = [founded(Path(folder, f"{held}.db"), held) for held in counts]
        try:
            for name, reading in READINGS.items():
                bare, *loaded = taken_us(reading, worlds, told.seconds)
                for held, taken in zip(told.held, loaded, strict=True):
                    words = f"{bare:>9.1f} us with none held {taken:>9.1f} us with {held:,}"
                    print(f"{name:<10} {words}   ratio {taken / bare:5.2f}   budget {BUDGET}", flush=True)
        finally:
            for world in worlds:
                world.close()


if __name__ == "__main__":
    main()
