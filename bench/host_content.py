"""Looking at the content of a large workspace before and after, against ``sha256sum`` of it and ``git status``."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench.turns import Timed, in_turns, seconds, show
from host.workspace import Workspace
from host.workspace.differences import differences
from host.workspace.scan import Scan, take

FILES: Final = 100_000
BYTES: Final = 1_000
CHANGED: Final = 100
ROUNDS: Final = 3


def make_tree(root: Path, files: int) -> None:
    """Write many files, a hundred in each folder, and bring them to the disk."""
    for number in range(files):
        folder = root / f"{number // 10_000:03}" / f"{number // 100 % 100:03}"
        if number % 100 == 0:
            folder.mkdir(parents=True)
        (folder / f"{number}.txt").write_bytes(os.urandom(BYTES // 2).hex().encode())
    os.sync()


class Looks:
    """A workspace that is looked at again and again."""

    def __init__(self, root: Path) -> None:
        """Look for the first time."""
        self._root = root
        self._workspace = Workspace(root)
        self._cache = self._workspace.private / "scan-cache"
        self._turn = 0
        self._before = self._take()

    def _take(self) -> Scan:
        return take(self._workspace, cache=self._cache)

    def first(self) -> float:
        """Look without knowing anything, every file hashed."""
        self._cache.unlink(missing_ok=True)
        return seconds(self._take)

    def again(self) -> float:
        """Look when all is as it was."""
        return seconds(self._take)

    def change(self, _: int = 0) -> float:
        """Look after a few files changed, and compare."""
        self._before = self._take()
        self._turn += 1
        for number in range(CHANGED):
            (self._root / "000" / f"{number % 100:03}" / f"{number % 100 * 100}.txt").write_text(f"{self._turn}\n" * 20)
        found: list[Any] = []
        taken = seconds(lambda: found.extend(differences(self._before, self._take())))
        assert len(found) == CHANGED, len(found)
        return taken

    def compared(self) -> float:
        """Only compare two looks."""
        after = self._take()
        return seconds(lambda: differences(self._before, after))


def _shell(root: Path, script: str, **env: str) -> Timed:
    def run() -> float:
        told = {**os.environ, **env}
        return seconds(
            lambda: subprocess.run(["sh", "-c", script], cwd=root, check=True, stdout=subprocess.DEVNULL, env=told)
        )

    return run


def _git(root: Path, folder: Path) -> dict[str, Timed]:
    if not shutil.which("git"):
        return {}
    env = {"GIT_DIR": str(folder), "GIT_WORK_TREE": str(root), "GIT_CONFIG_GLOBAL": os.devnull}
    _shell(root, "git init -q && echo .klock > $GIT_DIR/info/exclude", **env)()
    first = _shell(root, "rm -f $GIT_DIR/index && git add -A", **env)
    return {
        "git add -A, nothing known yet": first,
        "git status, nothing changed": _shell(root, "git status --porcelain", **env),
    }


def measure(place: Path, files: int = FILES) -> None:
    """Print what a look takes, and what comparing takes."""
    root = place / "content"
    make_tree(root, files)
    looks = Looks(root)
    works: dict[str, Callable[[], float]] = {
        "find | sha256sum": _shell(root, "find . -path ./.klock -prune -o -type f -print0 | xargs -0 sha256sum"),
        "find, with stat of each": _shell(root, "find . -type f -printf '%s %T@ %C@ %i %p\\n'"),
        "first look, everything hashed": looks.first,
        "look, nothing changed": looks.again,
        f"look and differences, {CHANGED} changed": looks.change,
        "differences alone": looks.compared,
        **_git(root, place / "git"),
    }
    print(f"  {files:,} files of {BYTES:,} bytes")
    show(in_turns(works, ROUNDS), base="find | sha256sum")
    size = (root / ".klock" / "scan-cache").stat().st_size
    print(f"  the cache takes {size / files:,.0f} bytes a file", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        measure(Path(temporary))
