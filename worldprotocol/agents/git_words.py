"""Commands of git with the state of the repository: foreign and nested repositories, and files that they would replace.

Source of the form of the index: https://git-scm.com/docs/index-format.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from worldprotocol.agents.command_grammars import Parsed
from worldprotocol.agents.project import Project

__all__ = ["checks_out", "enters_nested", "is_foreign", "path_patterns", "pathspecs", "replaces_guarded"]

_OF_PATTERN: Final = frozenset("*?[\\")
_OF_BARE: Final = ("HEAD", "objects", "refs")
_OF_OBJECTS: Final = frozenset(
    {
        "branch",
        "cat-file",
        "log",
        "ls-tree",
        "merge-base",
        "reflog",
        "rev-list",
        "rev-parse",
        "shortlog",
        "show",
        "tag",
        "version",
    }
)
"""Commands that do not look at the working tree."""

_OF_GITLINK: Final = b"\0\0\xe0\0"
"""The mode of a nested repository in an index."""

_WITH_NAMES: Final = (b"\0\0\0\2", b"\0\0\0\3")
"""Versions of an index with whole names, in entries of multiples of eight bytes."""

_AT_MODE, _ALIGNED = 12 + 24, 8  # after the header: the place of a mode in its entry, and multiples of entries

_REPLACING: Final = frozenset(
    {
        "am",
        "apply",
        "checkout",
        "checkout-index",
        "cherry-pick",
        "clean",
        "merge",
        "pull",
        "read-tree",
        "rebase",
        "reset",
        "restore",
        "revert",
        "stash",
        "switch",
    }
)
_HARMLESS_RESETS: Final = frozenset({"--soft", "--mixed", "-N"})
_OF_STASH: Final = frozenset({"list", "show", "clear", "drop"})
MAX_INDEX: Final = 100_000_000
"""Bytes of an index that is read."""


def is_foreign(project: Project, folder: str) -> bool:
    """Return whether git in a folder reads another repository than the project's, whose settings an agent may write.

    Args:
        project: the project.
        folder: the working directory, absolute, links resolved.
    """
    path = Path(folder)
    if path != project.root and project.root not in path.parents:
        return True
    for one in (path, *path.parents):
        is_bare = all(os.path.lexists(one / name) for name in _OF_BARE)
        if one == project.root:
            return is_bare and not os.path.lexists(one / ".git")
        if is_bare or os.path.lexists(one / ".git"):
            return True
    return False


def enters_nested(project: Project, path: tuple[str, ...]) -> bool:
    """Return whether a command of git may run git in a repository below, whose settings an agent may write.

    The index of the repository names them, as submodules or without ``.gitmodules``.

    Args:
        project: the project.
        path: ``git`` and its subcommands.
    """
    if len(path) > 1 and path[1] in _OF_OBJECTS:
        return False
    above = (one for one in (project.root, *project.root.parents) if os.path.lexists(one / ".git"))
    if (root := next(above, None)) is None:
        return False
    index = _index(root)
    if index is None or _is_split(index):
        return True
    is_aligned = index[4:8] in _WITH_NAMES
    at = index.find(_OF_GITLINK)
    while at >= 0:
        if not is_aligned or (at - _AT_MODE) % _ALIGNED == 0:  # else it may be the size of a file
            return True
        at = index.find(_OF_GITLINK, at + 1)
    return False


def pathspecs(text: str) -> Iterator[str]:
    """Yield what may be the name of a file in a word of git: ``REVISION:FILE``, ``:0:FILE``, ``:(glob)FILE``.

    Args:
        text: the word.
    """
    yield text
    rest = text
    while ":" in rest:
        rest = rest.partition(":")[2]
        yield rest.lstrip("/!^")
        if rest.startswith("(") and ")" in rest:
            yield rest.partition(")")[2]


def path_patterns(parsed: Parsed) -> list[str]:
    """Return the words of a command of git that it may read as patterns of names, without their signs for git.

    Args:
        parsed: its words.
    """
    named = [one for role, word in parsed.roles if role in ("rev", "write") for one in pathspecs(word.text)]
    return [one for one in named if one[:1] not in (":", "(") and any(sign in one for sign in _OF_PATTERN)]


def checks_out(parsed: Parsed, exists: bool) -> str:
    """Return what ``git checkout`` does: ``write`` where it only changes the branch, else ``discard``.

    Args:
        parsed: its words.
        exists: whether its only word is also a file.
    """
    if not parsed.options <= {"-b", "-q", "--quiet", "-t", "--track", "--no-track", "--orphan"}:
        return "discard"
    if not parsed.options.isdisjoint({"-b", "--orphan"}):
        return "write" if len(parsed.words) <= 1 else "discard"
    return "write" if len(parsed.words) == 1 and not exists else "discard"


def replaces_guarded(project: Project, path: tuple[str, ...], parsed: Parsed, folder: str) -> bool:
    """Return whether a command of git may replace or remove a guarded file that is in the working tree.

    Args:
        project: the project.
        path: ``git`` and its subcommands.
        parsed: its words.
        folder: its working directory.
    """
    command = path[1] if len(path) > 1 else ""
    if command not in _REPLACING or _OF_STASH.intersection(path[2:]):
        return False
    if command == "reset" and parsed.options and parsed.options <= _HARMLESS_RESETS:
        return False
    if command == "restore" and parsed.options and parsed.options <= {"-S", "--staged", "-q", "--quiet"}:
        return False
    inside = [one for one in project.guarded if project.root in one.parents and os.path.lexists(one)]
    own = [one for one in inside if ".git" not in one.relative_to(project.root).parts]
    if not own:
        return False
    untracked = command == "clean" or not parsed.options.isdisjoint({"-u", "-a", "--include-untracked", "--all"})
    index = _index(project.root)
    tracked = index if index is None or (index[4:8] in (b"", *_WITH_NAMES) and not _is_split(index)) else None
    named = [one for word in parsed.words for one in pathspecs(word.text)]
    return any(
        (untracked or _is_tracked(tracked, one.relative_to(project.root)))
        and (command in ("stash", "clean") or not named or _covers(project, named, one, folder))
        for one in own
    )


def _covers(project: Project, named: list[str], guarded: Path, folder: str) -> bool:
    """Whether a word names a guarded file, a folder above it, a pattern, or a revision: nothing that exists."""
    for one in named:
        real = Path(project.resolve(one, folder))
        if real == guarded or real in guarded.parents or guarded in real.parents or not os.path.lexists(real):
            return True
    return False


def _index(root: Path) -> bytes | None:
    """Return the index of the repository; None where it cannot be read."""
    folder = root / ".git"
    try:
        if folder.is_file():  # a linked worktree
            folder = root / folder.read_text(encoding="utf-8").partition("gitdir:")[2].strip()
        with open(folder / "index", "rb") as index:
            found = index.read(MAX_INDEX + 1)
    except FileNotFoundError:
        return b"" if os.path.lexists(root / ".git") else None
    except (OSError, UnicodeError, ValueError):
        return None
    return found if len(found) <= MAX_INDEX else None


def _is_split(index: bytes) -> bool:
    """Whether an index shares entries with another file."""
    return b"link\0" in index


def _is_tracked(index: bytes | None, relative: Path) -> bool:
    """Whether a file, or one below a folder, is in an index; True where that is not known."""
    if index is None:
        return True
    name = os.fsencode(relative.as_posix())
    return name + b"\0" in index or name + b"/" in index
