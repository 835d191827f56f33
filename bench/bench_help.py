"""CPU time of ``worldctl --help`` and ``worldctl log``, beside that of a Python that does nothing.

Usage: ``python -m bench help [--runs N] [--events N]``. The commands are started in turns; the median counts. To reach:
0.1 s for the help and 0.35 s for the first events of a log, on a quiet machine.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.realms import BenchRealm

RUNS = 10
EVENTS = 2_000
BUDGETS_MS = {"worldctl --help": 100, "worldctl log --limit 5": 350}


def worldctl() -> Path:
    """Return the command as it is installed for this Python."""
    command = Path(sysconfig.get_path("scripts")) / "worldctl"
    if not command.is_file():
        raise SystemExit(f"There is no {command}: install the project into this environment first (make setup).")
    return command


def taken_ms(command: Sequence[str]) -> float:
    """Return the CPU time of a command from start to end, in ms."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        shown = done.stderr.decode(errors="replace").strip()
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {shown}")
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def measure(log: str, runs: int) -> None:
    """Print the medians of the commands and their ratios to the bare start of Python."""
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "worldctl --help": [str(worldctl()), "--help"],
        "worldctl log --limit 5": [str(worldctl()), "log", "--log", log, "--limit", "5"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(runs + 1):
        for name, command in commands.items():
            taken = taken_ms(command)
            if turn > 0:  # the first start finds cold caches
                times[name].append(taken)
    bare = statistics.median(times["python -c pass"])
    for name, several in times.items():
        taken = statistics.median(several)
        budget = f"   to reach {BUDGETS_MS[name]} ms" if name in BUDGETS_MS else ""
        print(f"{name:<24} {taken:>8.1f} ms   ratio {taken / bare:5.1f}{budget}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="starts of each command")
    parser.add_argument("--events", type=int, default=EVENTS, help="length of the log")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        realm = BenchRealm(str(Path(place) / "world.db"), durability="normal")
        realm.grow(given.events)
        realm.close()
        measure(str(Path(place) / "world.db"), given.runs)


if __name__ == "__main__":
    main()
