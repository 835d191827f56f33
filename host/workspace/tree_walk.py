"""Walk of a tree of any depth with a limited number of open folders, without entering replaced ones."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import Final

from host.workspace.safe import entries, exists, open_folder

__all__ = ["FolderChain", "remove_all"]

_MAX_OPEN: Final = 32
"""Number of directories of a chain that stay open; others are reopened when needed."""


class FolderChain:
    """The folders from a start down to the current one, with a limited number of open handles.

    A folder that must be reopened is reached by its names from the start, and refused when it was replaced
    (FileNotFoundError): a walk never enters the replacement.
    """

    def __init__(self, start: int) -> None:
        """Begin at an open directory, which the caller closes."""
        self._start = start
        self._names: list[bytes] = []
        self._identities: list[tuple[int, int]] = []
        self._open: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._names)

    def push(self, name: bytes) -> os.stat_result:
        """Enter a subfolder of the current folder; return its status."""
        folder = open_folder(name, self.end())
        seen = os.fstat(folder)
        self._names.append(name)
        self._identities.append((seen.st_dev, seen.st_ino))
        self._keep(len(self._names), folder)
        return seen

    def pop(self) -> bytes:
        """Return to the parent folder; return the name of the folder that was left."""
        folder = self._open.pop(len(self._names), None)
        self._identities.pop()
        name = self._names.pop()
        if folder is not None:
            try:
                self._keep_parent(folder)
            finally:
                os.close(folder)
        return name

    def _keep_parent(self, folder: int) -> None:
        """Open the parent of a folder, which is the current one now, unless the folder was moved elsewhere."""
        depth = len(self._names)
        if not depth or depth in self._open:
            return
        parent = open_folder(b"..", folder)
        seen = os.fstat(parent)
        if (seen.st_dev, seen.st_ino) == self._identities[-1]:
            self._open[depth] = parent
        else:
            os.close(parent)

    def end(self) -> int:
        """Return the handle of the current folder; the chain closes it."""
        depth = len(self._names)
        if depth and depth not in self._open:
            self._open_again()
        return self._open[depth] if depth else self._start

    def close(self) -> None:
        """Close all handles."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _open_again(self) -> None:
        self.close()
        for depth, (name, identity) in enumerate(zip(self._names, self._identities, strict=True), 1):
            folder = open_folder(name, self._open[depth - 1] if depth > 1 else self._start)
            seen = os.fstat(folder)
            if (seen.st_dev, seen.st_ino) != identity:
                os.close(folder)
                raise FileNotFoundError(errno.ENOENT, "The folder was replaced during the walk", os.fsdecode(name))
            self._keep(depth, folder)

    def _keep(self, depth: int, folder: int) -> None:
        self._open[depth] = folder
        old = self._open.pop(depth - _MAX_OPEN, None)
        if old is not None:
            os.close(old)

    def __enter__(self) -> FolderChain:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def remove_all(name: bytes, folder: int) -> None:
    """Delete an entry of an open directory with everything below it, bottom up; no link is followed.

    Args:
        name: in the folder; FileNotFoundError where it is missing.
        folder: an open directory.
    """
    if not _is_folder(name, folder):
        os.unlink(name, dir_fd=folder)
        return
    with FolderChain(folder) as chain:
        chain.push(name)
        pending = [_names(chain)]
        while pending:
            if pending[-1]:
                if _enter_or_remove(pending[-1].pop(), chain):
                    pending.append(_names(chain))
            else:
                pending.pop()
                removed_name = chain.pop()
                os.rmdir(removed_name, dir_fd=chain.end())


def _names(chain: FolderChain) -> list[bytes]:
    return [entry.name for entry in entries(chain.end())]


def _is_folder(name: bytes, folder: int) -> bool:
    status = exists(name, folder)
    return status is not None and stat.S_ISDIR(status.st_mode)


def _enter_or_remove(name: bytes, chain: FolderChain) -> bool:
    """Enter a folder; delete any other entry, even if it is replaced meanwhile."""
    if _is_folder(name, chain.end()):
        with contextlib.suppress(NotADirectoryError, FileNotFoundError):
            chain.push(name)
            return True
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=chain.end())
    return False
