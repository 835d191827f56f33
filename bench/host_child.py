"""What a confined command pays for each file that it opens: plain, Landlock, the watcher, the whole of it, strace."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from bench.turns import Timed, in_turns, seconds
from host.confinement import ALLOW, Confinement, Runtime, SystemCallRequest, Verdict, rules_for, start
from host.confinement.calls import Decide
from host.confinement.landlock import Rules
from host.observation import Operations, Watch
from host.observation.system_calls import operations_of
from host.workspace import Workspace
from world.klis.observation import Declaration
from world.klis.triple import read_triple

OPENS: Final = 2_000
ROUNDS: Final = 7
LOOP: Final = 'i=0; while [ "$i" -lt {opens} ]; do : < src/a.txt; i=$((i+1)); done'


class Ground:
    """A workspace with one file, and what was declared of it."""

    def __init__(self, place: Path) -> None:
        """Make it."""
        self.root = place / "child"
        (self.root / "src").mkdir(parents=True)
        (self.root / "src" / "a.txt").write_text("something\n")
        self.workspace = Workspace(self.root)
        triple = read_triple("CONSUMES", "FILE:/src/*")
        self.declaration = Declaration("bench", "s", [triple])
        self.private = place / "private"
        self.private.mkdir()

    def rules(self) -> Rules:
        """Return the Landlock rules of the declaration."""
        runtime = Runtime.standard(command="/bin/sh", private=[str(self.private)], read=[])
        return rules_for(self.declaration.triples, self.workspace, runtime)

    def judge(self) -> Decide:
        """Return what governs a command in a run: every call is mapped, judged and remembered."""
        watch = Watch(self.declaration)
        operations = Operations(self.workspace, confined=True)

        def decide(call: SystemCallRequest) -> Verdict:
            watch.check(operations_of(operations, call), depth="child")
            return ALLOW

        return decide

    def started(self, opens: int, rules: Rules | None, decide: Decide | None) -> float:
        """Run the loop by the engine's own start, and return its seconds."""
        argv = ["sh", "-c", LOOP.format(opens=opens)]

        def work() -> None:
            confinement = Confinement(rules, decide)
            with start(argv, cwd=self.root, env=dict(os.environ), confinement=confinement) as command:
                if command.wait() != 0:
                    raise SystemExit("the loop failed")

        return seconds(work)

    def spawned(self, opens: int, *before: str) -> float:
        """Run the loop as a plain process, and return its seconds."""
        argv = [*before, "sh", "-c", LOOP.format(opens=opens)]
        return seconds(lambda: subprocess.run(argv, cwd=self.root, check=True, stderr=subprocess.DEVNULL))


def measure(place: Path, opens: int = OPENS) -> None:
    """Print the microseconds for each opened file."""
    ground = Ground(place)
    rules = ground.rules()
    strace = ["strace", "-f", "-o", os.devnull]

    def works(count: int) -> dict[str, Timed]:
        found: dict[str, Timed] = {
            "plain": lambda: ground.spawned(count),
            "Landlock alone": lambda: ground.started(count, rules, None),
            "watcher alone, that allows everything": lambda: ground.started(count, None, lambda _: ALLOW),
            "Landlock, watcher, judged (worldctl run)": lambda: ground.started(count, rules, ground.judge()),
        }
        if shutil.which("strace"):
            found["strace -f"] = lambda: ground.spawned(count, *strace)
            found["strace -f -e trace=%file"] = lambda: ground.spawned(count, *strace, "-e", "trace=%file")
        return found

    loops = {f"{name} loop": work for name, work in works(opens).items()}
    none = {f"{name} none": work for name, work in works(0).items()}
    found = in_turns(loops | none, ROUNDS)
    base = found["plain loop"] - found["plain none"]
    print(f"  a shell that opens one file {opens:,} times; the shell's own start and end are taken off")
    for name in works(0):
        taken = found[f"{name} loop"] - found[f"{name} none"]
        print(f"  {name:<44}{taken / opens * 1e6:>10.2f} us an open   ratio {taken / base:>7.2f}", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder))
