"""The project that agents work in: names of its files as resources, and which files belong to the engine."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.api.config import SETTINGS_OF_AGENTS

__all__ = ["Place", "Project"]

_GIT: Final = ".git"


@dataclass(frozen=True, slots=True)
class Place:
    """A file or folder that a tool names.

    Args:
        path: inside of the project its path from the root, such as ``/src/a.py``; else its absolute path.
        is_inside: whether it is inside of the project.
        is_guarded: whether it belongs to the engine, to git, or to the settings of an agent.
        exists: whether there is a file or folder.
    """

    path: str
    is_inside: bool
    is_guarded: bool
    exists: bool


class Project:
    """The folder that ``FILE:`` resources name, and the files that agents must not change.

    Args:
        root: the folder.
        guarded: files and folders of the engine: the log, its configuration, the policies.
    """

    def __init__(self, root: str | Path, guarded: Iterable[str | Path] = ()) -> None:
        """Resolve links once."""
        self.root = Path(root).resolve()
        home = Path.home()
        own = [base / name for base in (self.root, home) for name in SETTINGS_OF_AGENTS]
        named = [Path(os.path.abspath(path)) for path in (*own, *guarded)]
        real = {*named, *map(_real, named)}
        self._guarded = frozenset(map(_key, real))
        self._above = frozenset(_key(folder) for path in real if os.path.lexists(path) for folder in path.parents)
        self._names = {str(path) for path in named} | {*SETTINGS_OF_AGENTS}
        self._names |= {path.name for path in named if path.suffix}

    def place(self, name: str, cwd: str) -> Place:
        """Return the place that a name in a folder denotes; links are followed.

        Names that differ in case or in their form of Unicode alone count as guarded, too: some file systems take them
        for the same file.

        Args:
            name: as the tool names it, relative or absolute.
            cwd: the working directory of the tool.

        Raises:
            RefusedError: ``INVALID_VALUE`` for a name that no file can have.
        """
        path = self._absolute(name, cwd)
        real = _real(path)
        is_guarded = any(not self._guarded.isdisjoint(_above(one)) or self._is_in_git(one) for one in {path, real})
        exists = os.path.lexists(real)
        if real == self.root or self.root in real.parents:
            inside = real.relative_to(self.root).as_posix()
            return Place("/" if inside == "." else f"/{inside}", True, is_guarded, exists)
        return Place(str(real), False, is_guarded, exists)

    def is_above_guarded(self, name: str, cwd: str) -> bool:
        """Return whether a name denotes a folder with guarded files; the arguments are those of ``place``.

        Raises:
            RefusedError: as ``place``.
        """
        path = self._absolute(name, cwd)
        return not self._above.isdisjoint({_key(path), _key(_real(path))})

    def absolute(self, cwd: str) -> str:
        """Return a working directory as an absolute path, without following links.

        Raises:
            RefusedError: as ``place``.
        """
        return str(self._absolute(".", cwd))

    def _absolute(self, name: str, cwd: str) -> Path:
        joined = os.path.join(self.root, os.path.expanduser(cwd or "."), os.path.expanduser(name) or ".")
        try:
            os.fsencode(joined)
        except ValueError:
            joined = "\0"
        if "\0" in joined:
            raise RefusedError(ErrorCode.INVALID_VALUE, f"No file can have the name {name!a:.200}; block the call.")
        return Path(os.path.normpath(joined))

    def _is_in_git(self, path: Path) -> bool:
        within = path.parts[len(self.root.parts) :] if self.root in (path, *path.parents) else ()
        return any(part.casefold() == _GIT for part in within)

    def names_guarded(self, text: str) -> bool:
        """Return whether a text, such as a program, names a guarded file: by its path or, in the project, by its name.

        It is a hint for people and policies; a program can name a file in other ways.
        """
        return any(name in text for name in self._names)


def _above(path: Path) -> set[str]:
    """Return the keys of a path and of all folders above it."""
    return {_key(path), *map(_key, path.parents)}


def _key(path: Path) -> str:
    return unicodedata.normalize("NFC", str(path)).casefold()


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a circle of links
        return path
