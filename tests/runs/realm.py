"""A small realm with a workspace, for tests of governed runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.golden.garden import garden
from worldprotocol import Realm

__all__ = ["a_workspace", "opened", "text_of"]


def a_workspace(folder: Path) -> Path:
    """Make a workspace with some files in it."""
    root = folder / "w"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("one\n")
    (root / "notes.txt").write_text("notes\n")
    return root


@contextmanager
def opened(folder: Path, **parts: Any) -> Iterator[Realm]:
    """Open the realm beside the workspace, founded on first use."""
    with Realm.open_or_create(folder / "log.db", domain=garden, **{"workspace": folder / "w", **parts}) as world:
        yield world


def text_of(root: Path) -> dict[str, str]:
    """Return the content of every file of a workspace but the engine's own, by name."""
    return {
        str(path.relative_to(root)): path.read_text()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".klock" not in path.parts
    }
