"""Runs the benchmarks: ``python -m bench`` all of them, ``python -m bench NAME [ARGUMENTS]`` one.

A benchmark is a module ``bench/bench_NAME.py`` with a ``main()`` that prints its table. One that cannot run
is told at the end and does not stop the others.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

PREFIX = "bench_"


def names() -> list[str]:
    """Return the names of all benchmarks."""
    return sorted(path.stem.removeprefix(PREFIX) for path in Path(__file__).parent.glob(f"{PREFIX}*.py"))


def run(name: str, arguments: Sequence[str] = ()) -> None:
    """Run one benchmark under a heading.

    Args:
        name: without ``bench_``.
        arguments: the benchmark's own, as on a command line.
    """
    module = importlib.import_module(f"bench.{PREFIX}{name}")
    heading = (module.__doc__ or name).partition("\n")[0]
    print(f"\n{name}: {heading}\n{'-' * (len(name) + 2 + len(heading))}", flush=True)
    before = sys.argv
    sys.argv = [f"python -m bench {name}", *arguments]
    try:
        module.main()
    finally:
        sys.argv = before


def run_all() -> int:
    """Run every benchmark and return how many could not run."""
    failed: dict[str, str] = {}
    for name in names():
        try:
            run(name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the others are to be measured all the same
            failed[name] = f"{type(error).__name__}: {error}"
            print(f"did not run: {failed[name]}", flush=True)
    for name, why in failed.items():
        print(f"\n{name} did not run: {why}", file=sys.stderr)
    return len(failed)


def main(arguments: Sequence[str]) -> int:
    """Run what the command line names; return the exit code."""
    known = names()
    if not arguments:
        return 1 if run_all() else 0
    name = arguments[0].removeprefix(PREFIX)
    if name not in known:
        print(f"There is no benchmark {arguments[0]!r}; there are: {', '.join(known)}.", file=sys.stderr)
        return 2
    run(name, arguments[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
