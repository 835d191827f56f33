"""Sessions around a small workspace, for the tests of in-process interception."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from host.observation import Operations, RuntimePaths, Watch
from host.observation.audit import Interception
from host.workspace import Workspace
from world.errors import ScopeViolationError
from world.klis.observation import Declaration
from world.klis.triple import read_triple


class Site:
    """A workspace with a few files in it, and a folder beside it.

    Args:
        base: an empty folder.
    """

    def __init__(self, base: Path) -> None:
        self.root = base / "workspace"
        self.elsewhere = base / "elsewhere"
        for folder in (self.root / "etc", self.root / "dir" / "sub", self.elsewhere):
            folder.mkdir(parents=True)
        (self.root / "etc" / "hosts").write_text("old")
        (self.root / "a.txt").write_text("a")
        (self.root / "dir" / "one").write_text("1")
        (self.root / "dir" / "sub" / "two").write_text("2")
        (self.elsewhere / "secret").write_text("secret")
        self.workspace = Workspace(self.root)
        self.watch: Watch

    def session(self, *declared: str, write: tuple[Path, ...] = (), **options: Any) -> Interception:
        """Return a session that declares ``"MUTATES /a.txt"`` and the like."""
        triples = []
        for text in declared:
            predicate, name = text.split(" ", 1)
            resource = f"FILE:{name}" if name.startswith("/") else name
            triples.append(read_triple(predicate, resource))
        declaration = Declaration("agent-1", "session-1", triples)
        self.watch = watch = Watch(declaration, **options)
        runtime = RuntimePaths.standard(write=write)
        return Interception(watch, Operations(self.workspace, runtime=runtime))

    def content(self) -> dict[str, str]:
        """Return everything there is, with modes and times, to see that nothing was changed."""
        found = {}
        for folder in (self.root, self.elsewhere):
            for path in sorted(folder.rglob("*")):
                state = path.lstat()
                text = path.read_text() if path.is_file() else os.readlink(path) if path.is_symlink() else ""
                found[str(path)] = f"{state.st_mode:o} {state.st_mtime_ns} {state.st_nlink} {text}"
        return found

    def observed(self) -> set[str]:
        """Return what was seen and allowed."""
        return {
            f"{one.seen.predicate} {one.seen.resource.text.removeprefix('FILE:')}" for one in self.watch.observations
        }


@contextmanager
def blocked(*told: str) -> Iterator[pytest.ExceptionInfo[ScopeViolationError]]:
    """Expect a violation whose message holds these texts."""
    with pytest.raises(ScopeViolationError) as caught:
        yield caught
    for text in told:
        assert text in str(caught.value)


def outcome(function: Callable[[], Any]) -> str:
    """Return what became of a call: done, or what stopped it."""
    try:
        function()
    except ScopeViolationError as error:
        return error.code
    return "done"
