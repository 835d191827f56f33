"""CPU and wall time of ``worldctl --server ... inbox``, beside ``inbox`` on the file and ``--help``.

Usage: ``python -m bench remote [--runs N] [--proposals N]``. A server of the benchmark's own has a realm in which N
proposals wait for people. The commands are started in turns, in new processes; the medians count, and the number of
modules that each imports. To reach: 150 ms of wall time for the remote command, on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.bench_help import worldctl
from worldprotocol.api.realm import Realm

RUNS = 15
PROPOSALS = 20
BUDGET_MS = 150
COUNT = (
    "import sys; from worldprotocol.cli.program import run; before = set(sys.modules); run(sys.argv[1:]);"
    "print(len(sys.modules), file=sys.stderr)"
)
DOMAIN = """
from bench.realms import shelf
domain = shelf()
"""


def waiting(folder: Path, proposals: int) -> str:
    """Found a realm with proposals that wait for a person; return that person's token."""
    (folder / "shelf.py").write_text(DOMAIN, encoding="utf-8")
    (folder / "world.toml").write_text("log = 'world.db'\ndomain = 'shelf.py:domain'\n", encoding="utf-8")
    with Realm.create(str(folder / "world.db"), domain=str(folder / "shelf.py:domain")) as realm:
        realm.register("ann", "human", binding={"kind": "auto_approve"})
        realm.register("bot", "agent", binding={"kind": "hitl", "ask": ["ann"]})
        realm.access.grant("ann", "reader", by="operator")
        for number in range(proposals):
            realm.act("bot", "counter.raise", {"counter": f"c{number}", "by": 1}, scope=["counters", "last"])
        return realm.access.create_token("ann", by="operator").token


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Run a server and yield its URL."""
    command = [str(worldctl()), "serve", "--json", "--port", "0"]
    process = subprocess.Popen(command, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["listening"][0]
    finally:
        process.terminate()
        process.wait()


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a command."""
    return os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parent.parent)} | more


def taken(command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> tuple[float, float]:
    """Return CPU and wall time of a command from start to end, in ms."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=folder, env=environ, capture_output=True, check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu * 1000, wall * 1000


def measure(folder: Path, url: str, token: str, runs: int) -> None:
    """Print the medians of the commands, their ratios to the local one, and the modules that each imports."""
    environ = environment(WORLDCTL_TOKEN=token)
    commands = {
        "worldctl --help": ["--help"],
        "worldctl inbox --local": ["inbox", "--local"],
        "worldctl inbox --server URL": ["inbox", "--server", url],
        "worldctl inbox --server URL --realm main": ["inbox", "--server", url, "--realm", "main"],
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for turn in range(runs + 1):
        for name, words in commands.items():
            found = taken([str(worldctl()), *words], folder, environ)
            if turn > 0:  # the first start finds cold caches
                times[name].append(found)
    local = statistics.median(cpu for cpu, _ in times["worldctl inbox --local"])
    for name, words in commands.items():
        cpu, wall = (statistics.median(one[at] for one in times[name]) for at in (0, 1))
        counted = subprocess.run(
            [sys.executable, "-c", COUNT, *words], cwd=folder, env=environ, capture_output=True, text=True, check=True
        )
        budget = f"   to reach {BUDGET_MS} ms of wall time" if "--server" in words else ""
        modules = int(counted.stderr.split()[-1])
        print(
            f"{name:<41} CPU {cpu:>7.1f} ms   wall {wall:>7.1f} ms   CPU ratio {cpu / local:4.2f}   {modules} modules"
            f"{budget}"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="starts of each command")
    parser.add_argument("--proposals", type=int, default=PROPOSALS, help="how many wait for people")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        token = waiting(folder, given.proposals)
        with served(folder) as url:
            measure(folder, url, token, given.runs)


if __name__ == "__main__":
    main()
