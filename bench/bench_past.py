"""The snapshot of any past world, the branches at any past event, and building the index of a long log anew.

Usage: ``python -m bench past [--worlds N] [--samples N]``. Worlds are picked evenly over the whole past, and each is
restored and compared with its hash by a reader that remembers nothing, before and after the index was built anew. To
reach: less than 50 ms each.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from bench.bench_replay import peak_mb
from bench.realms import BenchRealm
from world.log import EventLog, open_log
from world.read_models.archive import Archive
from world.read_models.bisect import bisect
from world.read_models.index import WorldIndex
from world.read_models.lineage import heads_at, line

BUDGET_MS = 50.0
EVENTS_OF_A_WORLD = 8
"""Events of one proposal of ``bench.realms``, its world's included."""


def worlds_of(log: EventLog, samples: int) -> list[str]:
    """Return the ids of about so many worlds, evenly spread over the past."""
    rows = Archive(log).rows("worlds", {"most": 1 << 40})
    return [row[0] for row in rows[:: max(1, len(rows) // samples)]]


def restore_ms(log: EventLog, worlds: list[str]) -> list[float]:
    """Return how many milliseconds each world takes, in order."""
    taken = []
    for world_id in worlds:
        archive = Archive(log)
        begin = time.perf_counter()
        archive.checked_state(world_id)
        taken.append((time.perf_counter() - begin) * 1000)
    return sorted(taken)


def heads_ms(log: EventLog, samples: int) -> list[float]:
    """Return how many milliseconds it takes to tell where the branches stood at a past event, in order."""
    taken = []
    for position in range(1, log.head().size, max(1, log.head().size // samples)):
        archive = Archive(log)
        begin = time.perf_counter()
        heads_at(archive, position)
        taken.append((time.perf_counter() - begin) * 1000)
    return sorted(taken)


def search(log: EventLog) -> None:
    """Search the whole line of descent for the first world with something in it, and print the tests and the time."""
    archive = Archive(log)
    begin = time.perf_counter()
    rows = list(line(archive, archive.rows("branches")[0][1]))[::-1]
    wanted = archive.checked_state(rows[len(rows) // 3].world_id)["counters"]["c1"]

    def holds(world_id: str) -> bool:
        return bool(archive.checked_state(world_id)["counters"].get("c1", 0) >= wanted)

    found = bisect([row.world_id for row in rows], holds)
    taken = time.perf_counter() - begin
    print(f"  bisect in a line of {len(rows):,}: {found.tested} tests, {taken:.2f} s", flush=True)


def report(what: str, taken: list[float]) -> None:
    """Print the median and the tail."""
    middle, late = taken[len(taken) // 2], taken[int(len(taken) * 0.99)]
    print(f"  {what:<26} median {middle:6.2f} ms   p99 {late:6.2f} ms   most {taken[-1]:6.2f} ms", flush=True)


def measure(path: Path, worlds: int, samples: int) -> None:
    """Make so many worlds and print the times."""
    realm = BenchRealm(str(path), durability="normal")
    realm.grow(EVENTS_OF_A_WORLD * worlds)
    realm.close()
    with open_log(str(path), read_only=True) as log:
        picked, events = worlds_of(log, samples), log.head().size
        print(f"{worlds:,} worlds, {len(picked)} of them restored; budget {BUDGET_MS:.0f} ms")
        report("as it was recorded", restore_ms(log, picked))
        report("where the branches stood", heads_ms(log, samples))
        search(log)
    begin = time.perf_counter()
    with open_log(str(path), durability="normal", view=WorldIndex()) as log:
        log.rebuild_view()
    taken = time.perf_counter() - begin
    with open_log(str(path), read_only=True) as log:
        report("index built anew", restore_ms(log, picked))
    print(f"  building the index anew: {taken:.1f} s, {events / taken:,.0f} events/s; peak {peak_mb():.0f} MB")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=100_000)
    parser.add_argument("--samples", type=int, default=500)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        measure(Path(place) / "world.db", given.worlds, given.samples)


if __name__ == "__main__":
    main()
