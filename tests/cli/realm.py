"""Runs ``worldctl``, or another program of this project, as a process of its own in a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.forked import run

ROOT = Path(__file__).resolve().parents[2]
COUNTER = Path(__file__).resolve().parent / "counter.py"
COMMAND = [sys.executable, "-m", "worldprotocol"]
FOUND = [
    "init", "--domain", f"{COUNTER}:counter", "--policy", f"{COUNTER}:house", "--effects", f"{COUNTER}:handlers",
    "--projection", f"{COUNTER}:orders",
]  # fmt: skip


def environment() -> dict[str, str]:
    """Return this process's environment with nothing in it that the command line reads."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WORLD_", "WORLDCTL_"))}
    return kept | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}


@dataclass(frozen=True)
class Said:
    """What a run said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The JSON lines on stdout."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class CliRealm:
    """A folder in which ``worldctl`` runs, or the program that is named (``python -m PROGRAM``)."""

    folder: Path
    program: str = "worldprotocol"

    def __call__(self, *arguments: str, given: str | bytes = b"", code: int = 0, **variables: str) -> Said:
        """Run ``worldctl`` and check its exit code; no run may show a traceback."""
        typed = given.encode() if isinstance(given, str) else given
        ended, out, err = run(list(arguments), self.folder, environment() | variables, typed, program=self.program)
        said = Said(ended, out.decode(), err.decode())
        assert "Traceback" not in said.err, said.err
        assert said.code == code, (said.code, said.out, said.err)
        return said

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start ``worldctl`` with pipes to it."""
        return subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=self.folder,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def founded(folder: Path, kind: type[CliRealm] = CliRealm) -> CliRealm:
    """Return a realm with ann (auto-approved), bot (bound by the house policy) and kid (who asks ann)."""
    realm = kind(folder)
    realm(*FOUND)
    realm("actor", "add", "ann", "--kind", "human", "--auto-approve", "--name", "Ann")
    realm("actor", "add", "bot", "--kind", "agent", "--policy", "house")
    realm("actor", "add", "kid", "--kind", "human", "--ask", "ann", "--timeout-ms", "86400000")
    return realm


def sale(actor: str, item: str = "tea", count: int = 1) -> str:
    """Return a line of ``submit --intents``."""
    return json.dumps({"actor": actor, "type": "sell", "input": {"item": item, "count": count}}) + "\n"
