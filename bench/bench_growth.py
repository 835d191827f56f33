"""What looking costs with many past proposals, with few: CPU time of commands, reads and opening.

Usage: ``python -m bench growth [--short N] [--long N] [--rounds R]``. The log of the long realm begins with the events
of the short one. Each command runs in this process, once before it is measured; its CPU time is the median of the
rounds, in turns on the two logs. tests/growth counts the steps of the database of every command and read. To reach: 1.3
for each.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from bench.realms import BenchRealm, shelf
from worldprotocol import Realm
from worldprotocol.cli.program import run
from worldprotocol.export.jsonl import export_log, import_log

EVENTS_OF_A_PROPOSAL: Final = 8
COMMANDS: Final = (
    *("log --limit 5", "log --limit 5 --reverse", "log --limit 5 --actor ann", "worlds --limit 5", "inbox", "doctor"),
    *("explain {proposal}", "show HEAD", "show {proposal}", "state", "blame last", "trace HEAD", "runs", "waits"),
    *("branch list", "actor list", "policy list", "rights list", "lease list"),
)
"""Commands that look at a bounded part of a realm."""


def grown(folder: Path, proposals: int, beginning: Path | None) -> Path:
    """Return a log with so many past proposals in a folder, which continues another one."""
    folder.mkdir()
    log = folder / "world.db"
    if beginning is not None:
        shutil.copyfile(beginning, log)
    realm = BenchRealm(str(log), durability="normal")
    realm.grow(EVENTS_OF_A_PROPOSAL * proposals)
    realm.close()
    return log


def command(log: Path, words: str) -> Callable[[], None]:
    """Return what runs a command on a log, without its output."""
    with Realm.open_read_only(log) as world:
        proposal = str(world.sealed().created_by)
    arguments = ["--log", str(log), *words.format(proposal=proposal).split()]

    def look() -> None:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            code = run(arguments)
        if code not in (0, 1):
            raise SystemExit(f"{words} ended with {code}.")

    return look


def opened(log: Path) -> None:
    """Open a realm for acting."""
    Realm.open(log, domain=shelf(), on_change="hold").close()


def worlds(log: Path) -> None:
    """Read the five newest worlds."""
    with Realm.open_read_only(log) as world:
        list(world.worlds(5))


def measure(name: str, looks: Sequence[Callable[[], None]], rounds: int) -> None:
    """Print the CPU times of the same on each log, and their ratio."""
    times: list[list[float]] = [[] for _ in looks]
    for number in range(rounds + 1):
        for taken, look in zip(times, looks, strict=True):
            gc.collect()
            begin = time.process_time()
            look()
            if number:
                taken.append(time.process_time() - begin)
    short, long = map(median, times)
    print(f"  {name:<34} {short * 1e3:8.1f} ms {long * 1e3:8.1f} ms   {long / short:6.2f}", flush=True)


def imported(log: Path, folder: Path) -> float:
    """Return the CPU time of an import for each event of a log, in microseconds."""
    file, into = folder / "export.jsonl", folder / "imported.db"
    with Realm.open_read_only(log) as world, file.open("wb") as out:
        export_log(world.log, out)
    begin = time.process_time()
    with file.open("rb") as lines:
        done = import_log(lines, str(into))
    return (time.process_time() - begin) / done.added * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", type=int, default=3_000, help="past proposals of the short log")
    parser.add_argument("--long", type=int, default=100_000, help="past proposals of the long log")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-growth-") as name:
        short = grown(Path(name, "short"), given.short, None)
        long = grown(Path(name, "long"), given.long, short)
        print(f"  {'':<34} {given.short:>8,}    {given.long:>8,}       ratio", flush=True)
        for words in COMMANDS:
            measure(words, [command(log, words) for log in (short, long)], given.rounds)
        for words, look in (("Realm.worlds(5)", worlds), ("opening for acting", opened)):
            measure(words, [partial(look, log) for log in (short, long)], given.rounds)
        each = [imported(log, log.parent) for log in (short, long)]
        print(f"  {'import, for each event':<34} {each[0]:8.1f} us {each[1]:8.1f} us   {each[1] / each[0]:6.2f}")


if __name__ == "__main__":
    main()
