"""How the log compares with the bare database doing the same work, in one run.

Usage: ``python bench/bench_log.py [--events N] [--postgres URL]``. Numbers depend on the machine; the ratios
are what counts. Writing: one event of about 600 bytes per commit, against the bare driver committing the same
bytes to one table. Reading and verifying: against a plain SELECT of the same rows.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from world.log import Durability, EventLog, GroupCommit, NewEvent, Pending, open_log
from world.log.audit import verify_tree
from world.log.merkle import Frontier

COMMITS = 1_500
STATE = orjson.dumps({"kind": "measured", "text": "x" * 560}, option=orjson.OPT_SORT_KEYS)
SELECT = "SELECT id, stream, version, topic, schema_version, CAST(state AS BLOB), leaf FROM wp_event ORDER BY id"


def rate(count: int, work: Callable[..., Any], *arguments: Any) -> float:
    """Return how many a second ``work`` does when it does ``count``."""
    begin = time.perf_counter()
    work(*arguments)
    return count / (time.perf_counter() - begin)


def report(what: str, value: float, base: float | None = None) -> None:
    """Print a rate and its ratio."""
    ratio = "" if base is None else f"   ratio {value / base:5.2f}"
    print(f"{what:<52} {value:>12,.0f}/s{ratio}", flush=True)


def raw_commits(path: Path, durability: str) -> None:
    """Commit the same bytes with the bare driver."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute(f"PRAGMA synchronous={durability}")
    database.execute("CREATE TABLE IF NOT EXISTS event (id INTEGER PRIMARY KEY, stream TEXT, state BLOB)")
    for number in range(COMMITS):
        database.execute("BEGIN IMMEDIATE")
        database.execute("INSERT INTO event (stream, state) VALUES (?, ?)", (f"stream-{number}", STATE))
        database.execute("COMMIT")
    database.close()


def single_commits(log: EventLog, mark: str) -> None:
    """Append one event per commit, each to a new stream."""
    for number in range(COMMITS):
        with log.write() as transaction:
            transaction.append([NewEvent(f"{mark}-{number}", "bench.measured", 1, STATE, 1)])


def grouped_commits(log: EventLog, threads: int) -> None:
    """Append one event per call from many threads that share commits."""

    def run(batch: list[Pending[NewEvent, int]]) -> None:
        with log.write() as transaction:
            logged = transaction.append([item.command for item in batch])
        for item, event in zip(batch, logged, strict=True):
            item.succeed(event.position)

    group = GroupCommit(run)

    def work(thread: int) -> None:
        for number in range(4 * COMMITS // threads):
            group.submit(NewEvent(f"g{threads}-{thread}-{number}", "bench.measured", 1, STATE, 1))

    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def measure_writing(directory: Path) -> None:
    """Print the rates of writing on SQLite."""
    modes: tuple[Durability, ...] = ("full", "normal")
    for durability in modes:
        # the two take turns, so that a slow moment of the disk hits both
        raws, ours = [], []
        with open_log(str(directory / f"{durability}.db"), create=True, durability=durability) as log:
            for turn in range(3):
                raws.append(rate(COMMITS, raw_commits, directory / f"raw-{durability}.db", durability))
                ours.append(rate(COMMITS, single_commits, log, f"{turn}"))
            raw = sorted(raws)[1]
            report(f"SQLite {durability.upper()}: bare driver, one event a commit", raw)
            report(f"SQLite {durability.upper()}: log, one event a commit", sorted(ours)[1], raw)
            for threads in (16, 64) if durability == "full" else ():
                grouped = rate(4 * COMMITS, grouped_commits, log, threads)
                report(f"SQLite FULL: log, group commit, {threads} threads", grouped, raw)


def measure_reading(directory: Path, events: int) -> None:
    """Print the rates of reading and verifying on SQLite."""
    path = directory / "read.db"
    with open_log(str(path), create=True, durability="normal") as log:
        for start in range(0, events, 1000):
            with log.write() as transaction:
                numbers = range(start, min(events, start + 1000))
                transaction.append(NewEvent(f"s{n % 5000}", "bench.measured", 1, STATE) for n in numbers)
        database = sqlite3.connect(path)
        plain = rate(events, lambda: sum(1 for _ in database.execute(SELECT)))
        decoded = rate(events, lambda: [orjson.loads(row[5]) and None for row in database.execute(SELECT)])
        database.close()
        report("plain SELECT", plain)
        report("plain SELECT + orjson", decoded)
        report("log.read_rows", rate(events, lambda: sum(len(rows) for rows in log.read_rows())), plain)
        report("log.read", rate(events, lambda: sum(1 for _ in log.read())), plain)
        report("verify_tree (ratio to SELECT + orjson)", rate(events, lambda: verify_tree(log)), decoded)
        leaves = [event.leaf for event in log.read()]
        report("Merkle append, leaves", rate(events, lambda: Frontier().extended(leaves)))
        report("proof of inclusion", rate(20, lambda: [log.prove_inclusion(n * 7 + 1) for n in range(20)]))


def measure_postgres(url: str) -> None:
    """Print the rates of writing on PostgreSQL."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as database:
        database.execute("CREATE TABLE IF NOT EXISTS raw_event (id BIGSERIAL PRIMARY KEY, stream TEXT, state TEXT)")
        insert = "INSERT INTO raw_event (stream, state) VALUES (%s, %s)"
        text = STATE.decode()
        raw = rate(COMMITS, lambda: [database.execute(insert, (f"s{n}", text)) for n in range(COMMITS)])
    report("PostgreSQL: bare driver, one insert", raw)
    with open_log(url + "#bench", create=True) as log:
        report(
            "PostgreSQL: log, one event a commit",
            rate(COMMITS, single_commits, log, str(time.time())),
            raw,
        )
        for threads in (16, 64):
            grouped = rate(4 * COMMITS, grouped_commits, log, threads)
            report(f"PostgreSQL: log, group commit, {threads} threads", grouped, raw)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=200_000, help="events to read and verify")
    parser.add_argument("--postgres", help="URL of a PostgreSQL database to measure too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-log-", ignore_cleanup_errors=True) as directory:
        measure_writing(Path(directory))
        measure_reading(Path(directory), arguments.events)
    if arguments.postgres:
        measure_postgres(arguments.postgres)


if __name__ == "__main__":
    main()
