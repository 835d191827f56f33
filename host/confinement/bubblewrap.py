"""Bubblewrap: its arguments for a command's file tree, and the search for its program.

Bubblewrap makes the namespaces and the tree; a process of this package waits in them, and the launcher joins it there
(`host.confinement.launcher`), so that the command is a child of the supervisor and Landlock and the watcher are put on
as without bubblewrap. Sources are opened by the launcher, which passes them as descriptors: a folder that was replaced
by a link after the tree was described is not mounted.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from itertools import islice
from typing import Final

from host.confinement.tree import MountTree
from host.system_paths import is_below

__all__ = ["MAX_ARGUMENTS", "Step", "program", "steps"]

Step = tuple[str, bytes, tuple[bytes, ...]]
"""What is done, where, and further words: ``words`` are arguments as they are, ``mount`` opens a path and mounts it
with the option that is the one word, ``file`` makes an empty file, ``cover`` covers a file or folder with something
empty."""

MAX_ARGUMENTS: Final = 8_500
"""Most arguments for a tree; bubblewrap accepts 9,000. Further names of undeclared files are omitted."""
_ARGUMENTS: Final = {"mount": 3, "file": 5, "cover": 6}
"""Most arguments of one step."""
_PLACES: Final = ("/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap", "/run/current-system/sw/bin/bwrap")
_MADE_BY_BUBBLEWRAP: Final = (
    b"/proc",
    b"/dev/shm",
    *(b"/dev/" + name for name in (b"pts", b"ptmx", b"fd", b"stdin", b"stdout", b"stderr", b"core")),
)


def program(places: Iterable[str] = _PLACES) -> str | None:
    """Return the path of bubblewrap, or None where no trusted installation exists.

    Only system folders are searched, never the ``PATH``; the program and all folders
    above it must belong to root, and be writable for no other user.

    Args:
        places: absolute paths, in order of preference.
    """
    for place in places:
        real = os.path.realpath(place)
        if os.access(real, os.X_OK) and os.path.isfile(real) and _is_of_root(real):
            return real
    return None


def _is_of_root(path: str) -> bool:
    while True:
        found = os.lstat(path)
        if found.st_uid != 0 or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return False
        if path == "/":
            return True
        path = os.path.dirname(path)


def steps(tree: MountTree) -> list[Step]:
    """Return the steps that create a tree with bubblewrap, in order.

    Args:
        tree: the tree of the command.
    """
    first = [b"--unshare-pid", b"--unshare-ipc", b"--unshare-uts", *([] if tree.network else [b"--unshare-net"])]
    found: list[Step] = [("words", b"", (*first, b"--as-pid-1", b"--cap-drop", b"ALL", b"--chdir", b"/"))]
    found.append(("words", b"", (b"--dev", b"/dev", b"--perms", b"1777", b"--tmpfs", b"/dev/shm", b"--proc", b"/proc")))
    found += [("words", b"", (b"--dir", path)) for path in tree.folders]
    found += [_mount(path, changes) for path, changes in tree.mounts]
    found += [("words", b"", (b"--symlink", text, path)) for path, text in tree.links if not _is_there(path, tree)]
    covers: list[Step] = [("cover", path, ()) for path in tree.covers]
    room = (MAX_ARGUMENTS - _arguments(found) - _arguments(covers)) // _ARGUMENTS["file"]
    shown = (path for path in tree.files if not _is_there(path, tree))
    found += [("file", path, ()) for path in islice(shown, max(0, room))]
    found += covers
    found.append(("words", b"", (b"--remount-ro", b"/dev", b"--remount-ro", b"/")))
    return found


def _mount(path: bytes, changes: bool) -> Step:
    if path.startswith(b"/dev/"):
        return "words", b"", (b"--dev-bind-try", path, path)
    return "mount", path, (b"--bind-fd" if changes else b"--ro-bind-fd",)


def _arguments(found: Iterable[Step]) -> int:
    return sum(_ARGUMENTS.get(kind, len(words)) for kind, _, words in found)


def _is_there(path: bytes, tree: MountTree) -> bool:
    """Whether something else creates a name: a mount, a folder, or bubblewrap itself."""
    there = (*_MADE_BY_BUBBLEWRAP, *(mount for mount, _ in tree.mounts))
    return path in tree.folders or any(is_below(path, place) for place in there)
