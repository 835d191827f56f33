"""Runs commands under confinement for the tests, on kernels that can hold them and on those that cannot."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from host.confinement import (
    ALLOW,
    Confinement,
    Decide,
    Deny,
    Rules,
    RunningCommand,
    Runtime,
    SystemCallRequest,
    landlock,
    rules_for,
    start,
    watcher,
)
from host.observation import Operations, RuntimePaths
from host.observation.system_calls import operations_of
from host.workspace import Workspace
from tests.support.patience import PATIENCE_S
from world.errors import RefusedError
from world.klis.observation import Declaration
from world.klis.predicate import Predicate
from world.klis.resources.resource_reading import read_resource
from world.klis.triple import Triple

PYTHON = sys.executable
ENV = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"}


def triples(*told: str) -> list[Triple]:
    """Read triples like ``MUTATES /a.txt`` or ``CONSUMES URL:http://127.0.0.1:80/``."""
    pairs = (line.split(" ", 1) for line in told)
    return [
        Triple(Predicate(predicate), read_resource(f"FILE:{name}" if name.startswith("/") else name))
        for predicate, name in pairs
    ]


def allow(_: SystemCallRequest) -> Any:
    return ALLOW


def holding(workspace: Workspace, declared: list[Triple], temporary: Path) -> Decide:
    """Return what decides by the declaration, as a session does."""
    declaration = Declaration("agent", "session", declared)
    operations = Operations(workspace, runtime=RuntimePaths.standard(write=[temporary]), confined=True)

    def decide(call: SystemCallRequest) -> Any:
        return Deny() if declaration.outside(operations_of(operations, call)) else ALLOW

    return decide


@dataclass
class Ended:
    """What a command left behind."""

    code: int
    out: str
    err: str
    calls: list[SystemCallRequest] = field(default_factory=list)
    rules: Rules | None = None


CONFINEMENT = ("rules", "decide", "tree", "namespaces_by")


class Ground:
    """A workspace, with a folder outside of it, to run commands in."""

    def __init__(self, folder: Path) -> None:
        self.outside = folder / "outside"
        self.root = folder / "work"
        self.temporary = folder / "tmp"
        for made in (self.outside, self.root, self.temporary):
            made.mkdir()
        self.workspace = Workspace(self.root)

    def file(self, name: str, text: str = "before") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def rules(self, *declared: str) -> Rules:
        runtime = Runtime.standard(command=PYTHON, private=[str(self.temporary)])
        return rules_for(triples(*declared), self.workspace, runtime)

    def start(self, argv: Sequence[str | bytes], **given: Any) -> RunningCommand:
        confinement = Confinement(**{name: given.pop(name) for name in CONFINEMENT if name in given})
        options: dict[str, Any] = {"cwd": self.root, "env": ENV, "report": unexpected} | given
        return start(argv, confinement=confinement, **options)

    def run(
        self, argv: Sequence[str | bytes], *declared: str, decide: Decide | str | None = None, **given: Any
    ) -> Ended | None:
        """Run a command to its end under Landlock; None where the kernel has none, after it was refused.

        ``decide="declared"`` has the watcher hold the declaration too; an empty declaration needs none.
        """
        rules = self.rules(*declared)
        calls: list[SystemCallRequest] = []
        options: dict[str, Any] = {"rules": rules, "decide": None} | given
        chosen = holding(self.workspace, triples(*declared), self.temporary) if isinstance(decide, str) else decide
        if chosen is not None:
            options["decide"] = noting(chosen, calls)
        if not can_hold(options["rules"], options["decide"]):
            with pytest.raises(RefusedError) as refused:
                self.start(argv, **options)
            assert refused.value.code == "CONFINEMENT_UNAVAILABLE"
            return None
        with (self.temporary / "out").open("w+b") as out, (self.temporary / "err").open("w+b") as err:
            with self.start(argv, stdin=-3, stdout=out, stderr=err, **options) as command:
                code = command.wait(PATIENCE_S)
            out.seek(0), err.seek(0)
            return Ended(code, out.read().decode(), err.read().decode(), calls, rules)

    def python(self, code: str, *declared: str, **given: Any) -> Ended | None:
        return self.run([PYTHON, "-I", "-S", "-c", code], *declared, **given)

    def shell(self, code: str, *declared: str, **given: Any) -> Ended | None:
        return self.run(["/bin/sh", "-c", code], *declared, **given)


def noting(decide: Decide, calls: list[SystemCallRequest]) -> Decide:
    """Return what decides alike and keeps the calls it was asked about."""

    def noted(call: SystemCallRequest) -> Any:
        calls.append(call)
        return decide(call)

    return noted


def can_hold(rules: Rules | None = None, decide: Decide | None = None) -> bool:
    """Tell whether this kernel has what is asked for."""
    return (rules is None or landlock.available().why_not is None) and (
        decide is None or watcher.available().why_not is None
    )


def unexpected(failure: BaseException) -> None:
    """Fail loudly in the thread that decides."""
    raise failure


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)
