"""The report of a long log against a plain SELECT + orjson decode of the same rows, in one run, and its memory.

Usage: ``python -m bench report [--worlds N]``. The page is rendered, too. Memory is what a fresh process holds at most
beyond an open log; it should not grow with the log.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from bench.bench_replay import peak_mb, plain, seconds
from bench.realms import BenchRealm
from world.log import open_log
from world.read_models.archive import Archive
from worldprotocol.report.gathering import Window, gather
from worldprotocol.report.page import render

EVENTS_OF_A_WORLD = 8
"""Events of one proposal of ``bench.realms``, its world's included."""


def report(path: str) -> tuple[float, float]:
    """Make the report of a whole log; return the seconds it takes, and the MB that this takes beyond an open log."""
    with open_log(path, read_only=True) as log:
        before = peak_mb()
        begin = time.perf_counter()
        made = gather(Archive(log), Window(0, log.head().size))
        for piece in render(made):
            assert piece
        return time.perf_counter() - begin, peak_mb() - before


def measure(folder: Path, worlds: int) -> None:
    """Make two logs, of so many worlds and of a tenth, and print ratio and memory for each."""
    for count in (worlds // 10, worlds):
        path = folder / f"{count}.db"
        realm = BenchRealm(str(path), durability="normal")
        realm.grow(EVENTS_OF_A_WORLD * count)
        realm.close()
        bare = seconds(partial(plain, path))
        with ProcessPoolExecutor(1, get_context("spawn")) as fresh:  # one that has held nothing else
            taken, memory = fresh.submit(report, str(path)).result()
        print(f"  {count:>9,} worlds   SELECT + orjson {bare:6.2f} s   report {taken:6.2f} s", end="")
        print(f"   ratio {bare / taken:.2f}   {memory:+.0f} MB", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=100_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        measure(Path(place), given.worlds)


if __name__ == "__main__":
    main()
