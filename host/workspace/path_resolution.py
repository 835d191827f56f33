"""Resolution of paths: from a workspace's root to the folder of the last name by handles, and by links."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable
from typing import Final

from host.workspace.names import name_of
from host.workspace.safe import link_target, open_folder, sync_folder
from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["MAX_LINKS", "locate", "resolve_path"]

MAX_LINKS: Final = 40
"""Symbolic links on one path, as in the Linux kernel."""
_EMPTY: Final = frozenset({b"", b"."})


def locate(
    root: int, relative: bytes, *, make: bool, follow: bool, is_private: Callable[[bytes], bool]
) -> tuple[int, bytes]:
    """Return a new handle of the folder of a path's last name, and that name (``b"."`` for the root).

    One folder is open at a time: for ``..``, the earlier names are resolved again from the root.

    Args:
        root: an open directory; the caller closes it.
        relative: a path below it.
        make: whether missing folders are created.
        follow: whether a symbolic link as the last name is followed; earlier links always are.
        is_private: whether a name at the root belongs to the engine.

    Raises:
        RefusedError: ``LINK_OUT_OF_WORKSPACE``, ``OUTSIDE_WORKSPACE``, ``PRIVATE_PATH``.
        OSError: a folder is missing, is not a folder, or may not be searched.
    """
    pending = deque(_names(relative))
    done: list[bytes] = []
    links = 0
    folder = os.dup(root)
    try:
        while pending:
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name_of(relative))
            name = pending.popleft()
            if name == b"..":
                if not done:
                    raise _out(relative, by_link=links > 0)
                pending.extendleft(reversed(done[:-1]))
                done.clear()
                folder = _replace_handle(folder, os.dup(root))
                continue
            if not done and is_private(name):
                raise _private(relative)
            last = not pending
            target = link_target(name, folder) if follow or not last else None
            if target is not None:
                links += 1
                if target.startswith(b"/"):
                    raise _out(relative, by_link=True)
                pending.extendleft(reversed(_names(target)))
            elif last:
                return folder, name
            else:
                below = _step(name, folder, make=make)
                if below is None:  # replaced since the link was read: try again, a limited number of times
                    links += 1
                    pending.appendleft(name)
                    continue
                folder = _replace_handle(folder, below)
                done.append(name)
        return _replace_handle(folder, os.dup(root)), b"."
    except BaseException:
        os.close(folder)
        raise


def _step(name: bytes, folder: int, *, make: bool) -> int | None:
    """Open a folder, or return None if it was replaced meanwhile."""
    try:
        return open_folder(name, folder)
    except FileNotFoundError:
        if not make:
            raise
    except NotADirectoryError:
        if link_target(name, folder) is None:
            raise
        return None
    try:
        os.mkdir(name, dir_fd=folder)
        sync_folder(folder)
    except FileExistsError:
        return None
    return _step(name, folder, make=False)


def resolve_path(named: bytes, below: bytes, *, follow: bool) -> bytes:
    """Resolve an absolute path: links as far as they exist, other names literally.

    Args:
        named: the path, with links, ``.``, ``..`` and empty names.
        below: a folder's real path with a final slash; paths below it are resolved from there.
        follow: whether a symbolic link as the last name is followed.
    """
    done = b""
    if named.startswith(below) and b"/../" not in named and not named.endswith(b"/.."):
        done, named = below.rstrip(b"/"), named[len(below) :]
    pending = deque(name for name in named.split(b"/") if name not in _EMPTY)
    links = 0
    while pending:
        name = pending.popleft()
        if name == b"..":
            done = done[: done.rfind(b"/")] if done else done
            continue
        path = done + b"/" + name
        target = _link(path) if (pending or follow) and links < MAX_LINKS else None
        if target is None:
            done = path
            continue
        links += 1
        done = b"" if target.startswith(b"/") else done
        pending.extendleft(reversed([part for part in target.split(b"/") if part not in _EMPTY]))
    return done or b"/"


def _link(path: bytes) -> bytes | None:
    try:
        return os.readlink(path)
    except (OSError, ValueError):
        return None


def _names(path: bytes) -> list[bytes]:
    if b"\0" in path:
        raise RefusedError(
            ErrorCode.OUTSIDE_WORKSPACE, f"{path!r} contains a NUL byte, which no file name has.", path=name_of(path)
        )
    return [name for name in path.split(b"/") if name not in _EMPTY]


def _replace_handle(old: int, new: int) -> int:
    os.close(old)
    return new


def _private(relative: bytes) -> RefusedError:
    shown = name_of(relative)
    return RefusedError(ErrorCode.PRIVATE_PATH, f"{shown} belongs to the engine; choose another path.", path=shown)


def _out(relative: bytes, *, by_link: bool) -> RefusedError:
    shown = name_of(relative)
    if by_link:
        return RefusedError(
            ErrorCode.LINK_OUT_OF_WORKSPACE,
            f"{shown} goes through a symbolic link that is absolute or leads out of the workspace; only links "
            "inside it are followed, so make the link relative or name the file itself.",
            path=shown,
        )
    return RefusedError(
        ErrorCode.OUTSIDE_WORKSPACE, f"{shown} leads out of the workspace; name a path inside it.", path=shown
    )
