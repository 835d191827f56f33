"""The project that agents work in: names of its files as resources, and which files belong to the engine or are hidden.

Names are resolved component by component as the kernel does it: links before ``..``, 40 links at most. Some tools
shorten ``..`` before; a name that they would read as another file counts as both.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from host.workspace.hidden import HIDDEN, is_hidden
from host.workspace.path_resolution import resolve_path
from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.agents.name_patterns import covers, folded
from worldprotocol.api.config import SETTINGS_OF_AGENTS

__all__ = ["Place", "Project"]

_ANYWHERE: Final = frozenset({".git", *(name for name in SETTINGS_OF_AGENTS if "/" not in name)})
"""Names that belong to git or to the settings of an agent in each folder of a project."""

_OF_OTHERS: Final = frozenset(
    {".git", ".tox", ".venv", "__pycache__", "node_modules", "site-packages", "target", "venv"}
)
"""Folders whose files are no secrets of the project; a search of all files below a folder may read them."""

_SOME: Final = "\ue000"
"""In place of the wildcards of a hidden name: only a wildcard of a pattern matches it."""

MOST_SEARCHED: Final = 200_000
"""Entries of folders that are looked at to find hidden files; more count as if there were one."""


@dataclass(frozen=True, slots=True)
class Place:
    """A file or folder that a tool names.

    Args:
        path: inside of the project its path from the root, such as ``/src/a.py``; else its absolute path.
        is_inside: whether it is inside of the project.
        is_guarded: whether it belongs to the engine, to git, or to the settings of an agent.
        exists: whether there is a file or folder.
        is_hidden: whether a name of its path is one of files with secrets.
    """

    path: str
    is_inside: bool
    is_guarded: bool
    exists: bool
    is_hidden: bool = False


class Project:
    """The folder that ``FILE:`` resources name, and the files that agents must not change or read.

    Args:
        root: the folder.
        guarded: files and folders of the engine: the log, its configuration, the policies.
        hidden: patterns of names of files with secrets (``[workspace] hidden``).
    """

    def __init__(self, root: str | Path, guarded: Iterable[str | Path] = (), hidden: Sequence[str] = HIDDEN) -> None:
        """Resolve links once."""
        self.root = Path(root).resolve()
        self.hidden = tuple(hidden)
        home = Path.home()
        own = [base / name for base in (self.root, home) for name in SETTINGS_OF_AGENTS]
        named = [Path(os.path.abspath(path)) for path in (*own, *guarded)]
        real = {*named, *map(_real, named)}
        self.guarded = tuple(sorted(real))
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
        joined = self._joined(name, cwd)
        path = Path(os.path.normpath(joined))
        real, shortened = _real(joined), _real(path)
        by_tools = Path(os.path.realpath(joined))  # they may follow more links than the kernel
        named = {path, real, shortened, by_tools}
        is_guarded = any(self._is_guarded(one) for one in named)
        hidden = any(self._is_hidden(one) for one in named)
        outside = next((one for one in (real, shortened, by_tools) if not self._has(one)), None)
        if outside is not None:
            return Place(str(outside), False, is_guarded, os.path.lexists(outside), hidden)
        inside = real.relative_to(self.root).as_posix()
        return Place("/" if inside == "." else f"/{inside}", True, is_guarded, os.path.lexists(real), hidden)

    def is_above_guarded(self, name: str, cwd: str) -> bool:
        """Return whether a name denotes a folder with guarded files; the arguments are those of ``place``.

        Raises:
            RefusedError: as ``place``.
        """
        joined = self._joined(name, cwd)
        return not self._above.isdisjoint({_key(Path(os.path.normpath(joined))), _key(_real(joined))})

    def resolve(self, name: str, cwd: str) -> str:
        """Return the absolute path that a name in a folder denotes, without links.

        Arguments and errors are those of ``place``.
        """
        return str(_real(self._joined(name, cwd)))

    def absolute(self, cwd: str) -> str:
        """Return a working directory as an absolute path, without following links.

        Raises:
            RefusedError: as ``place``.
        """
        return os.path.normpath(self._joined(".", cwd))

    def names_guarded(self, text: str) -> bool:
        """Return whether a text, such as a program, names a guarded file: by its path or, in the project, by its name.

        It is a hint for people and policies; a program can name a file in other ways.
        """
        return any(name in text for name in self._names)

    def matches_hidden(self, pattern: str) -> bool:
        """Return whether a name of a pattern of names is hidden, its wildcards taken for letters.

        Args:
            pattern: as ``read_patterns`` returns it.
        """
        return any(is_hidden(part, self.hidden) for part in pattern.split("/") if part.strip("*?"))

    def may_match_hidden(self, pattern: str) -> bool:
        """Return whether a pattern may match a hidden name, also of a file that only the history of git has.

        Args:
            pattern: as for ``matches_hidden``; ``*`` is read as names of folders, too. False for one without letters.
        """
        ends = (pattern.rpartition("/")[2], f"*{pattern.partition('*')[2]}")
        wide = [folded(one) for one in ends if any(map(str.isalnum, one))]
        names = [folded(one).replace("*", _SOME).replace("?", _SOME) for one in self.hidden]
        return self.matches_hidden(pattern) or any(fnmatchcase(name, one) for name in names for one in wide)

    def holds_hidden(self, folder: str, patterns: Sequence[str] = ()) -> bool:
        """Return whether a search below a folder may read a hidden file.

        Args:
            folder: its absolute path.
            patterns: of names that are searched, as ``read_patterns`` returns them; none is all, but those in folders
                of packages.
        """
        if not self.hidden:
            return False
        for entry in _entries(folder, _OF_OTHERS if not patterns else frozenset({".git"})):
            if entry is None:
                return True
            if is_hidden(entry.name, self.hidden) and (not patterns or self._is_searched(Path(entry.path), patterns)):
                return True
        return False

    def _is_searched(self, path: Path, patterns: Sequence[str]) -> bool:
        names = self._below(path)
        return any(covers(one, path.parts[1:] if one[:1] == "/" else names) for one in patterns)

    def _joined(self, name: str, cwd: str) -> str:
        joined = os.path.join(self.root, os.path.expanduser(cwd or "."), os.path.expanduser(name) or ".")
        try:
            os.fsencode(joined)
        except ValueError:
            joined = "\0"
        if "\0" in joined:
            raise RefusedError(ErrorCode.INVALID_VALUE, f"No file can have the name {name!a:.200}; block the call.")
        return joined

    def _has(self, path: Path) -> bool:
        return path == self.root or self.root in path.parents

    def _below(self, path: Path) -> tuple[str, ...]:
        """Return the names of a path below the root; all of them where it is outside."""
        return path.parts[len(self.root.parts) :] if self._has(path) else path.parts[1:]

    def _is_guarded(self, path: Path) -> bool:
        if not self._guarded.isdisjoint({_key(path), *map(_key, path.parents)}):
            return True
        return self._has(path) and any(folded(part) in _ANYWHERE for part in self._below(path))

    def _is_hidden(self, path: Path) -> bool:
        return any(is_hidden(part, self.hidden) for part in self._below(path))


def _entries(folder: str, left_out: frozenset[str]) -> Iterator[os.DirEntry[str] | None]:
    """Yield the files and folders below a folder, whose links are not followed; None where there are too many."""
    pending, left = [folder], MOST_SEARCHED
    while pending:
        try:
            entries = os.scandir(pending.pop())
        except OSError:  # no folder, or one that cannot be read
            continue
        with entries:
            for entry in entries:
                left -= 1
                if left < 0:
                    yield None
                    return
                yield entry
                if entry.name not in left_out and entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)


def _key(path: Path) -> str:
    return folded(str(path))


def _real(path: str | Path) -> Path:
    return Path(os.fsdecode(resolve_path(os.fsencode(path), b"/", follow=True)))
