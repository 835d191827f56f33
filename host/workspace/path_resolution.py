"""The way from a workspace's root to the folder of a path's last name, over handles; and where a path leads."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable
from typing import Final

from host.workspace.names import name_of
from host.workspace.safe import link_target, open_folder, sync_folder
from world.errors import RefusedError

__all__ = ["MAX_LINKS", "locate", "real_place"]

MAX_LINKS: Final = 40
"""Symbolic links on one path, as in the Linux kernel."""
_EMPTY: Final = frozenset({b"", b"."})


def locate(
    root: int, relative: bytes, *, make: bool, follow: bool, is_private: Callable[[bytes], bool]
) -> tuple[int, bytes]:
    """Return a new handle of the folder of a path's last name, and that name (``b"."`` for the root).

    One folder is held at a time: to go up, the names that led here are walked again from the root.

    Args:
        root: an open directory, which stays the caller's.
        relative: a path below it.
        make: whether missing folders are made.
        follow: whether a symbolic link as the last name is followed; those before it always are.
        is_private: tells of a name at the root whether nobody may go there.

    Raises:
        RefusedError: ``LINK_OUT_OF_WORKSPACE``, ``OUTSIDE_WORKSPACE``, ``PRIVATE_PATH``.
        OSError: a folder is missing, is none, or may not be searched.
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
                folder = _instead(folder, os.dup(root))
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
                if below is None:  # something else has the name since we looked: look again, but not forever
                    links += 1
                    pending.appendleft(name)
                    continue
                folder = _instead(folder, below)
                done.append(name)
        return _instead(folder, os.dup(root)), b"."
    except BaseException:
        os.close(folder)
        raise


def _step(name: bytes, folder: int, *, make: bool) -> int | None:
    """Open a folder to go on from, None when it became something else meanwhile."""
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


def real_place(named: bytes, below: bytes, *, follow: bool) -> bytes:
    """Return where an absolute path leads: links resolved as far as they exist, everything else by its words.

    Args:
        named: the path, with links, ``.``, ``..`` and whatever else.
        below: a folder's real path with a final slash; what is below it is looked at from there on.
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
        place = done + b"/" + name
        target = _link(place) if (pending or follow) and links < MAX_LINKS else None
        if target is None:
            done = place
            continue
        links += 1
        done = b"" if target.startswith(b"/") else done
        pending.extendleft(reversed([part for part in target.split(b"/") if part not in _EMPTY]))
    return done or b"/"


def _link(place: bytes) -> bytes | None:
    try:
        return os.readlink(place)
    except (OSError, ValueError):
        return None


def _names(path: bytes) -> list[bytes]:
    if b"\0" in path:
        raise RefusedError(
            "OUTSIDE_WORKSPACE", f"{path!r} holds a NUL, which stands in no file's name.", path=name_of(path)
        )
    return [name for name in path.split(b"/") if name not in _EMPTY]


def _instead(old: int, new: int) -> int:
    os.close(old)
    return new


def _private(relative: bytes) -> RefusedError:
    shown = name_of(relative)
    return RefusedError("PRIVATE_PATH", f"{shown} belongs to the engine; leave it alone.", path=shown)


def _out(relative: bytes, *, by_link: bool) -> RefusedError:
    shown = name_of(relative)
    if by_link:
        return RefusedError(
            "LINK_OUT_OF_WORKSPACE",
            f"{shown} goes through a symbolic link that is absolute or leads out of the workspace; links are followed "
            "only inside, so make it relative or name the file itself.",
            path=shown,
        )
    return RefusedError("OUTSIDE_WORKSPACE", f"{shown} leads out of the workspace.", path=shown)
