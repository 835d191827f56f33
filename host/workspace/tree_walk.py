"""Going down a tree of any depth with few folders open, and never into what was put in a folder's place."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import Final

from host.workspace.safe import entries, exists, open_folder

__all__ = ["Trail", "remove_all"]

_KEPT: Final = 32
"""How many directories of a trail stay open; what is above is opened again when it is needed."""


class Trail:
    """The folders from a start down to where a walk stands, few of them open at a time.

    A folder that must be opened again is reached by its names from the start, and refused when another one stands
    there by now (FileNotFoundError): a walk never strays into what was put in its place.
    """

    def __init__(self, start: int) -> None:
        """Begin at an open directory, which stays the caller's."""
        self._start = start
        self._names: list[bytes] = []
        self._known: list[tuple[int, int]] = []
        self._open: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._names)

    def push(self, name: bytes) -> os.stat_result:
        """Go down into a folder of the one at the end; return its stat."""
        folder = open_folder(name, self.end())
        seen = os.fstat(folder)
        self._names.append(name)
        self._known.append((seen.st_dev, seen.st_ino))
        self._keep(len(self._names), folder)
        return seen

    def pop(self) -> bytes:
        """Go up one; return the name that was left."""
        folder = self._open.pop(len(self._names), None)
        if folder is not None:
            os.close(folder)
        self._known.pop()
        return self._names.pop()

    def end(self) -> int:
        """Return the folder at the end, which stays the trail's."""
        depth = len(self._names)
        if depth and depth not in self._open:
            self._open_again()
        return self._open[depth] if depth else self._start

    def close(self) -> None:
        """Close what is open."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _open_again(self) -> None:
        self.close()
        for depth, (name, known) in enumerate(zip(self._names, self._known, strict=True), 1):
            folder = open_folder(name, self._open[depth - 1] if depth > 1 else self._start)
            seen = os.fstat(folder)
            if (seen.st_dev, seen.st_ino) != known:
                os.close(folder)
                raise FileNotFoundError(errno.ENOENT, "Another folder was put in its place", os.fsdecode(name))
            self._keep(depth, folder)

    def _keep(self, depth: int, folder: int) -> None:
        self._open[depth] = folder
        old = self._open.pop(depth - _KEPT, None)
        if old is not None:
            os.close(old)

    def __enter__(self) -> Trail:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def remove_all(name: bytes, folder: int) -> None:
    """Remove an entry of an open directory with everything below it, bottom up; no link is followed.

    Args:
        name: in the folder; FileNotFoundError where it is missing.
        folder: an open directory.
    """
    if not _is_folder(name, folder):
        os.unlink(name, dir_fd=folder)
        return
    with Trail(folder) as trail:
        trail.push(name)
        waiting = [_names(trail)]
        while waiting:
            if waiting[-1]:
                if _goes_down(waiting[-1].pop(), trail):
                    waiting.append(_names(trail))
            else:
                waiting.pop()
                left = trail.pop()
                os.rmdir(left, dir_fd=trail.end())


def _names(trail: Trail) -> list[bytes]:
    return [entry.name for entry in entries(trail.end())]


def _is_folder(name: bytes, folder: int) -> bool:
    there = exists(name, folder)
    return there is not None and stat.S_ISDIR(there.st_mode)


def _goes_down(name: bytes, trail: Trail) -> bool:
    """Go down into a folder; remove everything else, whatever somebody makes of it meanwhile."""
    if _is_folder(name, trail.end()):
        with contextlib.suppress(NotADirectoryError, FileNotFoundError):
            trail.push(name)
            return True
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=trail.end())
    return False
