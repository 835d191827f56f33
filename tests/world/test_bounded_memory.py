"""Reading a log of any length takes as much memory as reading a short one: ten times the events, in a process each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.judged import record
from bench.realms import BenchRealm

ROOT = Path(__file__).resolve().parents[2]
SHORT = 300
LONG = 3_000
MOST_KB = 6_000
"""What the long log may take beyond the short one: caches of fixed size. Its events as Python values take three times
that, at least."""

COMMANDS = [
    ["replay"], ["verify"], ["export", "again.jsonl"], ["report", "-o", "report.html"], ["log"], ["worlds"],
    ["salvage", "-o", "saved.jsonl"],
]  # fmt: skip

CHILD = """
import contextlib, json, os, sys
from worldprotocol.cli.program import run
for arguments in json.loads(sys.argv[1]):
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        code = run(arguments)
    held = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:"))
    print(code, held, flush=True)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a short and a long log, and a short and a long one for rechecks."""
    folder = tmp_path_factory.mktemp("memory")
    for events in (SHORT, LONG):
        (folder / str(events)).mkdir()
        realm = BenchRealm(str(folder / str(events) / "world.db"), durability="normal")
        realm.grow(events)
        realm.close()
    for name, decisions in (("short", 30), ("long", 300)):
        (folder / name).mkdir()
        record(folder / name, decisions)
        config = 'log = "world.db"\ndomain = "bench.judged:payments"\npolicies = ["bench.judged:house"]\n'
        (folder / name / "world.toml").write_text(config)
    return folder


def held_kb(folder: Path, commands: list[list[str]]) -> list[int]:
    """Return how much memory one process had held at most, after each of some commands."""
    told = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(commands)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MALLOC_ARENA_MAX": "1"},
        stdout=subprocess.PIPE,
        check=True,
    )
    codes, held = zip(*(map(int, line.split()) for line in told.stdout.splitlines()), strict=True)
    assert set(codes) == {0}, told
    return list(held)


@pytest.mark.requirement("CARD-audit", "CARD-replay")
@pytest.mark.slow
def test_reading_ten_times_as_much_takes_no_more_memory(folder: Path) -> None:
    short, long = (held_kb(folder / str(events), COMMANDS) for events in (SHORT, LONG))
    more = {command[0]: one - other for command, one, other in zip(COMMANDS, long, short, strict=True)}
    assert max(more.values()) < MOST_KB, more


@pytest.mark.requirement("CARD-audit", "CARD-replay")
@pytest.mark.slow
def test_rechecking_ten_times_as_much_takes_no_more_memory(folder: Path) -> None:
    short, long = (held_kb(folder / name, [["recheck", "--jobs", "1"]]) for name in ("short", "long"))
    assert long[0] - short[0] < MOST_KB
