"""Realms of a directory on two PostgreSQL servers: processes on one realm beside as many on eight realms.

Usage: ``python -m bench directory [--seconds S]``. A directory with 16 realms, eight on either server; all
realms are opened by it. Governed proposals of a pure action, decided and executed, by 1, 2, 4 and 8 processes with one
caller each: on one realm, and on eight, of which each process uses its share in turn. Decisions a second, CPU time of
the processes for one decision, and the ratio of the CPU times. Then one of the realms is moved from one server to the
other while eight processes use it: the time in which no writer was open, and the longest time that one of their calls
took. What is to be reached is in docs/performance.md.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path
from typing import Any, Final

from bench.bench_server import WARM, server
from bench.realms import shelf
from bench.written import propose
from worldprotocol.directory.directory import RealmDirectory

REALMS: Final = 16
USED: Final = 8
COUNTS: Final = (1, 2, 4, 8)


def without_password(url: str, name: str) -> str:
    """Return the address of a log on a server, as a directory takes it."""
    return f"{url.replace(':@', '@')}#{name}"


def found(address: Path, urls: Sequence[str]) -> None:
    """Create the directory and its realms."""
    with RealmDirectory.found(address) as directory:
        for number in range(REALMS):
            place = without_password(urls[number % len(urls)], f"realm{number}")
            with directory.create(f"realm{number}", place, domain=shelf()) as realm:
                realm.register("ann", "agent", binding={"kind": "auto_approve"})


def work(address: str, names: list[str], is_over: Callable[[int], bool], barrier: Barrier, done: Any) -> None:
    """Propose on realms in turn until it is over; put how many, the seconds, the CPU time, and the longest call."""
    with RealmDirectory.open(address) as directory:
        realms = [directory.realm(name, domain=shelf()) for name in names]
        for number in range(WARM):
            propose(realms[number % len(realms)], number)
        barrier.wait()
        begin, cpu, number, longest = time.perf_counter(), time.process_time(), 0, 0.0
        while not is_over(number):
            called = time.perf_counter()
            propose(realms[number % len(realms)], number)
            longest = max(longest, time.perf_counter() - called)
            number += 1
        done.put((number, time.perf_counter() - begin, time.process_time() - cpu, longest))
        for realm in realms:
            realm.close()


def timed(address: str, names: list[str], seconds: float, barrier: Barrier, done: Any) -> None:
    """Propose for so many seconds; see ``work``."""
    end: list[float] = []

    def is_over(number: int) -> bool:
        if not end:
            end.append(time.perf_counter() + seconds)
        return time.perf_counter() > end[0]

    work(address, names, is_over, barrier, done)


def until(address: str, names: list[str], stop: Event, barrier: Barrier, done: Any) -> None:
    """Propose until an event is set; see ``work``."""
    work(address, names, lambda number: stop.is_set(), barrier, done)


def shares(count: int, realms: int) -> list[list[str]]:
    """Return the realms of each process."""
    return [[f"realm{number}" for number in range(realms) if number % count == one % realms] for one in range(count)]


def processes(address: str, shared: list[list[str]], seconds: float) -> tuple[float, float]:
    """Run a process for each share; return decisions a second in all, and the CPU time of one in microseconds."""
    context = multiprocessing.get_context("spawn")
    barrier, done = context.Barrier(len(shared)), context.SimpleQueue()
    running = [context.Process(target=timed, args=(address, names, seconds, barrier, done)) for names in shared]
    for process in running:
        process.start()
    results = [done.get() for _ in running]
    for process in running:
        process.join()
    decided = sum(number for number, *_ in results)
    return sum(number / taken for number, taken, *_ in results), sum(one[2] for one in results) / max(1, decided) * 1e6


def measure(address: str, seconds: float) -> None:
    """Print what processes decide on one realm and on eight."""
    base = 0.0
    for count in COUNTS:
        one = processes(address, [["realm0"]] * count, seconds)
        eight = processes(address, shares(count, USED), seconds)
        base = base or one[1]
        print(
            f"  {count} process{'es' if count > 1 else '  '}   one realm {one[0]:>6,.0f}/s  CPU {one[1]:>6,.0f} us"
            f"   {USED} realms {eight[0]:>6,.0f}/s  CPU {eight[1]:>6,.0f} us"
            f"   ratio of CPU {one[1] / eight[1]:5.2f}, to one process {one[1] / base:5.2f} and {eight[1] / base:5.2f}",
            flush=True,
        )


def move(address: str, target: str) -> None:
    """Print what a move takes while eight processes use the realm."""
    context = multiprocessing.get_context("spawn")
    barrier, done, stop = context.Barrier(max(COUNTS) + 1), context.SimpleQueue(), context.Event()
    places = (address, ["realm0"], stop, barrier, done)
    running = [context.Process(target=until, args=places) for _ in range(max(COUNTS))]
    for process in running:
        process.start()
    barrier.wait()
    with RealmDirectory.open(address) as directory:
        begin = time.perf_counter()
        moved = directory.move("realm0", target)
        taken = time.perf_counter() - begin
    time.sleep(1.0)  # the processes go on at the new place
    stop.set()
    results = [done.get() for _ in running]
    for process in running:
        process.join()
    longest = max(one[3] for one in results)
    print(
        f"  move of {moved.head.size:,} events under {len(running)} processes: {taken:.1f} s, {moved.copied:,} events "
        f"copied while closed, no writer open for {moved.closed_ms or 0:,.0f} ms, longest call {longest:.2f} s",
        flush=True,
    )


def main() -> None:
    """Start two servers, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    given = parser.parse_args()
    with server() as first, server() as second, tempfile.TemporaryDirectory() as folder:
        address = os.path.join(folder, "directory.db")
        found(Path(address), (first, second))
        measure(address, given.seconds)
        move(address, without_password(second, "moved"))


if __name__ == "__main__":
    main()
