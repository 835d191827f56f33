"""Governed proposals per second, durable: SQLite FULL, one process, one pure action.

Usage: ``python -m bench pipeline [--proposals N] [--past N ...] [--folder DIR]``. One at a time against the bare driver
committing the same bytes once each on the same file system, and 64 callers at once; ``--past`` first fills the log
with so many proposals, which must not make it slower; several numbers measure a log as it grows. To reach: 0.6 of the
bare driver, 2,500 per second with 64.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench.realms import BenchRealm
from world.pipeline.submit import Submission

CALLERS = 64
EVENTS_OF_A_PROPOSAL = 6
ROUNDS = 3


def rate(count: int, work: Callable[[], object]) -> float:
    """Return how many a second ``work`` does when it does ``count``."""
    begin = time.perf_counter()
    work()
    return count / (time.perf_counter() - begin)


def bytes_of_a_proposal(realm: BenchRealm) -> list[bytes]:
    """Return the states of the events of one proposal."""
    before = realm.log.head().size
    realm.protocol.submit(Submission(realm.intent(0)))
    return [event.state for event in realm.log.read(before)]


def raw(path: Path, states: list[bytes], commits: int) -> None:
    """Commit the same bytes with the bare driver, one proposal's events in each commit."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE IF NOT EXISTS event (id INTEGER PRIMARY KEY, state BLOB)")
    for _ in range(commits):
        database.execute("BEGIN IMMEDIATE")
        database.executemany("INSERT INTO event (state) VALUES (?)", [(state,) for state in states])
        database.execute("COMMIT")
    database.close()


def one_at_a_time(realm: BenchRealm, count: int) -> None:
    """Submit and wait, again and again."""
    for number in range(count):
        realm.protocol.submit(Submission(realm.intent(number)))


def many_at_once(realm: BenchRealm, count: int) -> None:
    """Submit from many threads, which share commits."""

    def work(thread: int) -> None:
        for number in range(count // CALLERS):
            realm.protocol.submit(Submission(realm.intent(thread + number)))

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def middle(values: list[float]) -> float:
    """Return the median."""
    return sorted(values)[len(values) // 2]


def measure(place: Path, proposals: int, past: int) -> None:
    """Fill the log with a past as long as wanted, and print the rates."""
    address = str(place / "world.db")
    begin = time.perf_counter()
    filling = BenchRealm(address, durability="normal")
    filling.grow(EVENTS_OF_A_PROPOSAL * past)
    filling.close()
    taken = time.perf_counter() - begin
    realm = BenchRealm(address)
    states = bytes_of_a_proposal(realm)
    bare, single, shared = [], [], []
    for _ in range(ROUNDS):  # they take turns, so that a slow moment of the disk hits each of them
        bare.append(rate(proposals, lambda: raw(place / "raw.db", states, proposals)))
        single.append(rate(proposals, lambda: one_at_a_time(realm, proposals)))
        shared.append(rate(4 * proposals, lambda: many_at_once(realm, 4 * proposals)))
    realm.close()
    size_mb = Path(address).stat().st_size >> 20
    print(f"{past:,} past proposals, filled in {taken:.0f} s, {size_mb:,} MB; {sum(map(len, states)):,} bytes each")
    several = {
        "bare sqlite3, one commit each": bare,
        "governed, one at a time": single,
        f"governed, {CALLERS} callers at once": shared,
    }
    for name, rates in several.items():
        print(f"  {name:<34}{middle(rates):>8,.0f}/s   ratio {middle(rates) / middle(bare):5.2f}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--proposals", type=int, default=512, help="in each round")
    parser.add_argument("--past", type=int, nargs="*", default=[0], help="proposals in the log before; several grow it")
    parser.add_argument("--folder", help="where to measure; a temporary folder unless told otherwise")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as place:
        for past in sorted(given.past):
            measure(Path(place), given.proposals, past)


if __name__ == "__main__":
    main()
