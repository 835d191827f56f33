"""How long ``worldctl --help`` takes, compared with a Python that does nothing.

Usage: ``python -m bench help [--runs N]``. Both are started in turns; what counts is the median.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path

RUNS = 10
BUDGET_MS = 150.0


def worldctl() -> Path:
    """Return the command as it is installed for this Python."""
    command = Path(sysconfig.get_path("scripts")) / "worldctl"
    if not command.is_file():
        raise SystemExit(f"There is no {command}: install the project into this environment first (make setup).")
    return command


def taken_ms(command: Sequence[str]) -> float:
    """Return how many milliseconds a command takes from start to end."""
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, check=False)
    taken = (time.perf_counter() - begin) * 1000
    if done.returncode != 0:
        shown = done.stderr.decode(errors="replace").strip()
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {shown}")
    return taken


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="starts of each command")
    runs = parser.parse_args().runs
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "worldctl --help": [str(worldctl()), "--help"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(runs + 1):
        for name, command in commands.items():
            taken = taken_ms(command)
            if turn > 0:  # the first start finds cold caches
                times[name].append(taken)
    bare, ours = (statistics.median(taken) for taken in times.values())
    print(f"{'python -c pass':<24} {bare:>8.1f} ms")
    print(f"{'worldctl --help':<24} {ours:>8.1f} ms   ratio {ours / bare:5.2f}   budget {BUDGET_MS:.0f} ms")


if __name__ == "__main__":
    main()
