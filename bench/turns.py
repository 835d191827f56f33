"""Measuring several works in turns, so that a slow moment of a shared machine hits each of them."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Timed = Callable[[], float]
"""Does the work once and returns how many seconds the measured part of it took."""


def seconds(work: Callable[[], Any]) -> float:
    """Return how many seconds a work takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def in_turns(works: Mapping[str, Timed], rounds: int, *, warm: bool = True) -> dict[str, float]:
    """Return the median seconds of each work.

    Args:
        works: by name.
        rounds: how often each is done.
        warm: do each once before, which finds cold caches and does not count.
    """
    taken: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(-warm, rounds):
        for name, work in works.items():
            found = work()
            if turn >= 0:
                taken[name].append(found)
    return {name: statistics.median(each) for name, each in taken.items()}


def show(found: Mapping[str, float], *, base: str, unit: str = "ms", scale: float = 1e3, each: str = "") -> None:
    """Print what works took and their ratios to one of them.

    Args:
        found: seconds by name.
        base: the name of the one that the others are held against.
        unit: what is printed.
        scale: units in a second.
        each: what the time is per, for people.
    """
    for name, taken in found.items():
        print(f"  {name:<52}{taken * scale:>10,.2f} {unit}{each}   ratio {taken / found[base]:>7.2f}", flush=True)


def command(*argv: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Timed:
    """Return a work that runs a command to its end.

    Raises:
        SystemExit: by the work, when the command fails.
    """
    told: Sequence[str] = [str(one) for one in argv]

    def run() -> float:
        begin = time.perf_counter()
        done = subprocess.run(told, cwd=cwd, env=env, capture_output=True, check=False)
        taken = time.perf_counter() - begin
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(told)} ended with {done.returncode}: {done.stderr.decode(errors='replace')}")
        return taken

    return run
