"""A governed proposal, durable on SQLite, beside other ways to store as many events of as many bytes.

Usage: ``python -m bench writing [--proposals N] [--rounds R] [--folder DIR]``. ``act`` of a pure action with leases
on, one caller, approved at once and judged by three rules in Python. Beside it: ``Application.save`` of the
``eventsourcing`` library, raw sqlite3 with the same tables and indexes, and a minimal pipeline in Python. CPU time of
the process, in turns. Then 64 callers of one process, commits a second and CPU, beside raw sqlite3 with one commit
each. Last the bytes of a proposal, by table and index. To reach: 1.0 and 1.2 of the library's CPU, 1.5 of the raw
commits a second with 64 callers, 3 KB a proposal.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.written import Library, Pipeline, Tables, governed, propose, states_of_one, three_rules

CALLERS = 64
LEAST_SHARE = 0.01
"""A table is listed with its bytes when it has at least this share of them."""

Work = Callable[[int], object]


def measured(work: Work, numbers: range) -> tuple[float, float]:
    """Return the CPU and the wall time of one of many works, in microseconds."""
    begin, cpu = time.perf_counter(), time.process_time()
    for number in numbers:
        work(number)
    taken, used = time.perf_counter() - begin, time.process_time() - cpu
    return used / len(numbers) * 1e6, taken / len(numbers) * 1e6


def at_once(work: Work, numbers: range, callers: int = CALLERS) -> None:
    """Do works from many threads, which share commits."""

    def several(thread: int) -> None:
        for number in numbers[thread::callers]:
            work(number)

    threads = [threading.Thread(target=several, args=(thread,)) for thread in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def one_caller(place: Path, proposals: int, rounds: int) -> None:
    """Print the CPU time of a proposal and of each reference."""
    template = place / "template.db"
    with governed(str(template), durability="normal") as world:
        for number in range(proposals * (rounds + 1)):
            propose(world, number)
    states = states_of_one(str(template))
    print(f"one caller, {len(states)} events of {sum(map(len, states)):,} bytes")
    plain = governed(str(place / "plain.db"))
    judged = governed(str(place / "judged.db"), policy=three_rules)
    library = Library(place / "library.db", states)
    tables = Tables(place / "tables.db", template, proposals * (rounds + 1))
    least = Pipeline(place / "least.db", states)
    works: dict[str, Work] = {
        "eventsourcing, Application.save": library.save,
        "raw sqlite3, the same tables and indexes": tables.save,
        "canonical JSON, SHA-256, one transaction": least.save,
        "act, approved at once": lambda number: propose(plain, number),
        "act, three rules in Python": lambda number: propose(judged, number),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for turn in range(rounds + 1):
        for name, work in works.items():
            once = measured(work, range(turn * proposals, (turn + 1) * proposals))
            if turn:
                found[name].append(once)
    base = statistics.median(cpu for cpu, _ in found["eventsourcing, Application.save"])
    for name, taken in found.items():
        cpu, wall = (statistics.median(values) for values in zip(*taken, strict=True))
        print(f"  {name:<44} CPU {cpu:>7,.0f} us   wall {wall:>7,.0f} us   ratio to the library {cpu / base:5.2f}")
    for closed in (plain, judged, library, tables, least):
        closed.close()


def many_callers(place: Path, proposals: int, rounds: int) -> None:
    """Print what a proposal takes when many callers share commits."""
    total = proposals * (rounds + 1)
    world = governed(str(place / "shared.db"))
    tables = Tables(place / "one.db", place / "template.db", total)
    ours, raw = [], []
    for turn in range(rounds + 1):
        numbers = range(turn * proposals, (turn + 1) * proposals)
        raw.append(measured(tables.save, numbers))
        begin, cpu = time.perf_counter(), time.process_time()
        at_once(partial(propose, world), numbers)
        taken, used = time.perf_counter() - begin, time.process_time() - cpu
        ours.append((used / proposals * 1e6, taken / proposals * 1e6))
    world.close()
    tables.close()
    print(f"{CALLERS} callers of one process")
    base = statistics.median(wall for _, wall in raw[1:])
    for name, found in (("raw sqlite3, one commit each", raw[1:]), ("act, shared commits", ours[1:])):
        cpu, wall = (statistics.median(values) for values in zip(*found, strict=True))
        rate = 1e6 / wall
        print(f"  {name:<44} CPU {cpu:>7,.0f} us   {rate:>7,.0f}/s   ratio to raw commits {base / wall:5.2f}")


def bytes_each(file: Path, proposals: int) -> tuple[float, dict[str, float]]:
    """Return the bytes of a proposal in a log file, in all and by table and index, largest first."""
    database = sqlite3.connect(file)
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    sizes = database.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC").fetchall()
    database.close()
    return sum(size for _, size in sizes) / proposals, {name: size / proposals for name, size in sizes}


def bytes_of_all(place: Path, proposals: int) -> None:
    """Print where the bytes of a proposal are."""
    file = place / "template.db"
    each, tables = bytes_each(file, proposals)
    text = sum(map(len, states_of_one(str(file))))
    print(f"{each:,.0f} bytes a proposal, of which {text:,} are the canonical text of its events")
    for name, size in tables.items():
        if size >= each * LEAST_SHARE:
            print(f"  {name:<44} {size:>7,.0f}")
    rest = [size for size in tables.values() if size < each * LEAST_SHARE]
    print(f"  {f'{len(rest)} others':<44} {sum(rest):>7,.0f}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--proposals", type=int, default=400, help="in each round")
    parser.add_argument("--rounds", type=int, default=5, help="that are counted, after one that is not")
    parser.add_argument("--folder", help="where to measure; a temporary folder without it")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as place:
        one_caller(Path(place), given.proposals, given.rounds)
        many_callers(Path(place), given.proposals, given.rounds)
        bytes_of_all(Path(place), given.proposals * (given.rounds + 1))


if __name__ == "__main__":
    main()
