"""CPU time of replay and verification beside that of SELECT + orjson over the same rows, in one run.

Usage: ``python -m bench replay [--events N] [--full]``; ``--full`` measures 1,000,000 events as well. Measured is the
CPU time of the process, so that other load matters little. To reach: replay 0.7 and verification 0.4 of the plain
reading, in bounded memory; and opening the log for reading in less than 0.5 s at any length.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from bench.realms import BenchRealm
from world.audit.replay import replay
from world.audit.verify import verify
from world.log import open_log
from world.log.audit import verify_tree
from worldprotocol import Realm

TURNS = 3
SELECT = "SELECT id, stream, version, topic, schema_version, CAST(state AS BLOB), leaf FROM wp_event ORDER BY id"


def seconds(work: Callable[[], Any]) -> float:
    """Return the CPU time of one call."""
    gc.collect()
    begin = time.process_time()
    work()
    return time.process_time() - begin


def plain(path: Path) -> None:
    """Read and decode every row, and do nothing with it."""
    database = sqlite3.connect(path)
    for row in database.execute(SELECT):
        orjson.loads(row[5])
    database.close()


def read_realm(path: Path) -> None:
    """Open a realm for reading, read its state through the index, and close it."""
    with Realm.open_read_only(path) as realm:
        realm.branches()


def peak_mb() -> float:
    """Return the most memory this process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(path: Path, events: int) -> None:
    """Make a log of so many events and print the ratios."""
    realm = BenchRealm(str(path), durability="normal")
    begin = time.perf_counter()
    realm.grow(events)
    events = realm.log.head().size
    realm.close()
    print(f"{events:,} events, made in {time.perf_counter() - begin:.0f} s; {peak_mb():.0f} MB so far", flush=True)
    with open_log(str(path), read_only=True) as log:
        works: dict[str, Callable[[], Any]] = {
            "SELECT + orjson": lambda: plain(path),
            "open, read the realm": lambda: read_realm(path),
            "replay": lambda: replay(log),
            "tree alone": lambda: verify_tree(log),
            "verify": lambda: verify(log),
        }
        # all take turns, so that a slow moment of the machine hits each of them
        turns: dict[str, list[float]] = {name: [] for name in works}
        memory: dict[str, float] = {}
        for _ in range(TURNS):
            for name, work in works.items():
                turns[name].append(seconds(work))
                memory[name] = peak_mb()
        assert verify(log).ok
    ratios = {
        name: sorted(b / t for b, t in zip(turns["SELECT + orjson"], times, strict=True))
        for name, times in turns.items()
    }
    for name, times in turns.items():
        rate = events / sorted(times)[TURNS // 2]
        taken = sorted(times)[TURNS // 2]
        shown = f"{rate:>12,.0f}/s" if name != "open, read the realm" else f"{taken * 1000:>11,.0f} ms"
        print(f"  {name:<22}{shown:<14}   ratio {ratios[name][TURNS // 2]:5.2f}   peak {memory[name]:6.0f} MB")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--full", action="store_true", help="1,000,000 events as well")
    given = parser.parse_args()
    for events in [given.events, *([1_000_000] if given.full else [])]:
        with tempfile.TemporaryDirectory() as place:
            measure(Path(place) / "world.db", events)


if __name__ == "__main__":
    main()
