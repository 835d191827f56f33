"""What the audit hook costs each file operation: with no hook, without a session, in another's, in one's own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench.turns import Timed, in_turns
from host.observation import Operations, Watch
from host.observation.audit import Interception
from host.workspace import Workspace
from world.klis.observation import Declaration
from world.klis.triple import read_triple

STATES: Final = ("no hook", "no session", "another thread's session", "in a session")
REPEATS: Final = {"no hook": 2_000, "no session": 2_000, "another thread's session": 2_000, "in a session": 500}
ROUNDS: Final = 15


def operations_on(folder: Path) -> dict[str, Callable[[], Any]]:
    """Return the measured operations; none of them leaves a trace."""
    name, other = str(folder / "a.txt"), str(folder / "b.txt")

    def descriptor() -> None:
        os.close(os.open(name, os.O_RDONLY))

    def to_write() -> None:
        os.close(os.open(name, os.O_WRONLY))

    def read() -> None:
        with open(name, encoding="utf-8") as file:
            file.read()

    def rename() -> None:
        os.rename(name, other)
        os.rename(other, name)

    return {
        "os.open to read, close": descriptor,
        "os.open to write, close": to_write,
        "open(), read(), close": read,
        "os.listdir of 10 names": lambda: os.listdir(folder),
        "os.rename, there and back": rename,
        "os.stat, which has no event": lambda: os.stat(name),
    }


def serve(root: str, hooked: bool) -> None:
    """Answer questions on stdin, each a state and an operation, with the microseconds that one takes."""
    works = operations_on(Path(root) / "src")
    wanted = [("MUTATES", "FILE:/src/*"), ("DELETES", "FILE:/src/*"), ("RENAMES", "FILE:/src/*")]
    triples = [read_triple(predicate, resource) for predicate, resource in wanted]
    workspace = Workspace(root)

    def session() -> Interception:
        return Interception(Watch(Declaration("bench", "s", triples)), Operations(workspace))

    if hooked:
        with session():
            pass
    for line in sys.stdin:
        state, operation = line.rstrip("\n").split("\t")
        work, repeats = works[operation], REPEATS[state]
        if state == "in a session":
            with session():
                taken = _each_us(work, repeats)
        elif state == "another thread's session":
            with _elsewhere(session):
                taken = _each_us(work, repeats)
        else:
            taken = _each_us(work, repeats)
        print(taken, flush=True)


def _each_us(work: Callable[[], Any], repeats: int) -> float:
    work()
    begin = time.perf_counter_ns()
    for _ in range(repeats):
        work()
    return (time.perf_counter_ns() - begin) / repeats / 1e3


class _elsewhere:  # noqa: N801 - a context manager
    """A thread that is in a session, and waits, for as long as this is entered."""

    def __init__(self, session: Callable[[], Interception]) -> None:
        self._session = session
        self._is_there, self._may_go = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._stay)

    def _stay(self) -> None:
        with self._session():
            self._is_there.set()
            self._may_go.wait()

    def __enter__(self) -> None:
        self._thread.start()
        self._is_there.wait()

    def __exit__(self, *_: object) -> None:
        self._may_go.set()
        self._thread.join()


class _Process:
    """A process that measures on demand; a hook once put in stays for its life, so there are two."""

    def __init__(self, root: Path, hooked: bool) -> None:
        arguments = [sys.executable, "-m", "bench.host_hook", str(root), "hooked" if hooked else "bare"]
        self._process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, state: str, operation: str) -> float:
        """Return the seconds that one operation takes in a state."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{state}\t{operation}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline()) / 1e6

    def close(self) -> None:
        """End it."""
        self._process.communicate()


def measure(place: Path) -> None:
    """Print the cost of each operation in each state."""
    root = place / "hook"
    (root / "src").mkdir(parents=True)
    for letter in "acdefghijk":
        (root / "src" / f"{letter}.txt").write_text("something\n")
    bare, hooked = _Process(root, False), _Process(root, True)

    def asking(state: str, operation: str) -> Timed:
        process = bare if state == STATES[0] else hooked
        return lambda: process.ask(state, operation)

    try:
        print(f"  {'microseconds':<32}" + "".join(f"{state:>26}" for state in STATES))
        for operation in operations_on(root / "src"):
            found = in_turns({state: asking(state, operation) for state in STATES}, ROUNDS)
            base = found[STATES[0]]
            cells = "".join(f"{taken * 1e6:>15.2f} ({taken / base:>7.2f})" for taken in found.values())
            print(f"  {operation:<32}{cells}", flush=True)
    finally:
        bare.close()
        hooked.close()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        serve(sys.argv[1], sys.argv[2] == "hooked")
    else:
        with tempfile.TemporaryDirectory() as folder:
            measure(Path(folder))
