"""What the name of a file leads to, found through opened folders as the kernel finds it, and never by absolute text.

A name starts at a folder that is open, or at a root; every link on the way is followed there. That holds for names
whose absolute form would be longer than the kernel takes, for folders that may be used and not be reached from above,
and for processes that see another tree than this one. Only "there is none" (ENOENT, ENOTDIR) counts as absence: a name
that cannot be looked up for any other reason is unknown, and whoever asked must refuse.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from host.confinement.kernel import system_call

__all__ = ["HERE", "Named", "UnknowableError", "View", "find", "held", "here"]

HERE: Final = -100
"""The working directory of this process, in place of a descriptor (AT_FDCWD)."""

_OPENAT2: Final = 437  # one number on every architecture
_NO_MAGICLINKS, _NO_SYMLINKS, _IN_ROOT = 0x02, 0x04, 0x10
_FOLDER: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_ENTRY: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_LINKS: Final = 40
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR})
_PROC: Final = b"/proc"


class UnknowableError(Exception):
    """A name cannot be looked up, so nothing can be said of it; ``errno`` is why."""

    def __init__(self, error: int) -> None:
        """Keep the errno."""
        super().__init__(error, os.strerror(error))
        self.errno = error


class _AbsentError(Exception):
    """A folder on the way is not there."""

    def __init__(self, path: bytes) -> None:
        super().__init__(path)
        self.path = path


@dataclass(frozen=True, slots=True)
class Named:
    """Where a name leads.

    Args:
        path: absolute, without links in its folders, and without a link as its last name where that was followed.
        mode: ``st_mode`` of what is there; None where nothing is.
        link: the path of the first link that was followed as the last name; None where none was.
    """

    path: bytes
    mode: int | None
    link: bytes | None = None

    @property
    def is_there(self) -> bool:
        """Whether anything has this name."""
        return self.mode is not None

    @property
    def is_folder(self) -> bool:
        """Whether a directory has this name."""
        return self.mode is not None and stat.S_ISDIR(self.mode)


@dataclass(frozen=True, slots=True)
class View:
    """A tree of files as one process sees it.

    Args:
        root: a descriptor of its root folder.
        itself: tells the target of ``/proc/self`` and of ``/proc/thread-self`` for that process.
        is_ours: whether the root is this process's own.
    """

    root: int
    itself: Callable[[bytes], bytes]
    is_ours: bool = True


@contextmanager
def here() -> Iterator[View]:
    """Yield the view of this process."""
    root = os.open(b"/", _FOLDER)
    try:
        yield View(root, lambda _: b"%d" % os.getpid())
    finally:
        os.close(root)


def find(view: View, name: bytes, *, start: int = HERE, follow: bool) -> Named | None:
    """Return where a name leads.

    Args:
        view: whose names are meant.
        name: as it was given to the kernel, not empty.
        start: the descriptor of the folder that a relative name starts at.
        follow: whether a link as the last name stands for what it leads to; a final slash follows always.

    Returns:
        None for a file without a name: a pipe, a socket, memory, a removed file.

    Raises:
        UnknowableError: it cannot be looked up; absence is no such reason.
    """
    links, started, first, rest = 0, start, None, b""
    try:
        while True:
            bare = name.rstrip(b"/")
            head, _, last = bare.rpartition(b"/")
            if last in (b"", b".", b".."):
                rest = b""
                with _folder(view, name, started) as (_, path):
                    return Named(path, stat.S_IFDIR, first)
            absolute, rest = b"/" if name.startswith(b"/") else b"", b"/" + last
            folder = _folder(view, absolute + head, started) if head or absolute else _same(started)
            with folder as (above, path):
                found = _entry(view, above, path, last, follow=follow or bare != name)
                if not isinstance(found, bytes):
                    return found if found is None or first is None else Named(found.path, found.mode, first)
                first = first or path.rstrip(b"/") + b"/" + last
                links += 1
                if links > _MAX_LINKS:
                    raise UnknowableError(errno.ELOOP)
                follow, name = follow or bare != name, found
                if started != start:
                    os.close(started)
                started = os.dup(above)
    except _AbsentError as absent:
        return Named(os.path.normpath(absent.path + rest), None, first)
    except OSError as error:
        raise UnknowableError(error.errno or errno.EACCES) from None
    finally:
        if started != start:
            os.close(started)


def held(descriptor: int) -> Named | None:
    """Return where an open file is; None for what has no name: a pipe, a socket, a removed file.

    Raises:
        UnknowableError: its path is too long to be told, or the descriptor is not open (EBADF).
    """
    try:
        status = os.fstat(descriptor)
    except OSError as error:
        raise UnknowableError(error.errno or errno.EBADF) from None
    path = opened(descriptor)
    return Named(path, status.st_mode) if path.startswith(b"/") and status.st_nlink else None


def opened(descriptor: int) -> bytes:
    """Return the path of an open file or folder, as the kernel tells it.

    Raises:
        UnknowableError: it is too long to be told.
    """
    try:
        return os.readlink(b"/proc/self/fd/%d" % descriptor)
    except OSError as error:
        raise UnknowableError(error.errno or errno.EACCES) from None


def _entry(view: View, above: int, path: bytes, last: bytes, *, follow: bool) -> Named | bytes | None:
    """Return what an entry of a folder is, or the text of a link that is to be followed."""
    whole = path.rstrip(b"/") + b"/" + last
    try:
        entry = os.open(last, _ENTRY, dir_fd=above)
    except OSError as error:
        if error.errno in _ABSENT:
            return Named(whole, None)
        raise
    try:
        mode = os.fstat(entry).st_mode
        if not follow or not stat.S_ISLNK(mode):
            return Named(whole, mode)
        if path == _PROC and last in (b"self", b"thread-self"):
            return view.itself(last)
        if path.startswith(_PROC + b"/"):
            return _jumped(above, whole, last)
        return os.readlink(b"", dir_fd=entry)
    finally:
        os.close(entry)


def _jumped(above: int, whole: bytes, last: bytes) -> Named | None:
    """Return what a link of a process's folder leads to: the kernel jumps to the file, whatever the text says."""
    try:
        target = os.open(last, os.O_PATH | os.O_CLOEXEC, dir_fd=above)
    except OSError as error:
        if error.errno in _ABSENT:
            return Named(whole, None)
        raise
    try:
        return held(target)
    finally:
        os.close(target)


@contextmanager
def _same(folder: int) -> Iterator[tuple[int, bytes]]:
    """Yield a folder that is open already, or the working directory."""
    handle = os.open(b".", _FOLDER) if folder == HERE else os.open(b".", _FOLDER, dir_fd=folder)
    try:
        yield handle, opened(handle)
    finally:
        os.close(handle)


@contextmanager
def _folder(view: View, name: bytes, start: int) -> Iterator[tuple[int, bytes]]:
    """Yield a descriptor of the folder that a name leads to, and its path.

    Raises:
        _AbsentError: there is none.
        OSError: it cannot be opened.
    """
    handle = _at_once(view, name, start)
    path = None if handle is None else opened(handle)
    if handle is None or path == _PROC or (path or b"").startswith(_PROC + b"/"):  # /proc/self led to ourselves
        if handle is not None:
            os.close(handle)
        handle = _step_by_step(view, name, start)
        path = None
    try:
        yield handle, opened(handle) if path is None else path
    finally:
        os.close(handle)


def _at_once(view: View, name: bytes, start: int) -> int | None:
    """Have the kernel walk the whole way; None where it would follow what means something else for that process."""
    absolute = name.startswith(b"/")
    resolve = _NO_MAGICLINKS | (_IN_ROOT if absolute else 0 if view.is_ours else _NO_SYMLINKS)
    how = struct.pack("=QQQ", _FOLDER, 0, resolve)
    try:
        return system_call(_OPENAT2, view.root if absolute else start, ctypes.c_char_p(name), ctypes.c_char_p(how), 24)
    except OSError:  # whatever it is, the slower way finds out
        return None


def _step_by_step(view: View, name: bytes, start: int) -> int:
    """Open a folder name by name."""
    at = os.dup(view.root) if name.startswith(b"/") else os.open(b".", _FOLDER, dir_fd=None if start == HERE else start)
    ahead, links = name.split(b"/")[::-1], 0
    try:
        while ahead:
            last = ahead.pop()
            if last in (b"", b"."):
                continue
            if last == b"..":
                at = _replaced(at, os.open(b"..", _FOLDER, dir_fd=at))
                continue
            path = opened(at)
            found = _entry(view, at, path, last, follow=True)
            if isinstance(found, bytes):
                links += 1
                if links > _MAX_LINKS:
                    raise UnknowableError(errno.ELOOP)
                if found.startswith(b"/"):
                    at = _replaced(at, os.dup(view.root))
                ahead.extend(found.split(b"/")[::-1])
            elif found is None or not found.is_folder:
                raise _AbsentError(b"/".join([path.rstrip(b"/"), last, *ahead[::-1]]))
            else:  # a link of /proc is followed by the kernel itself, and no other has come to be there meanwhile
                within = 0 if path.startswith(_PROC + b"/") else os.O_NOFOLLOW
                at = _replaced(at, os.open(last, _FOLDER | within, dir_fd=at))
    except BaseException:
        os.close(at)
        raise
    return at


def _replaced(old: int, new: int) -> int:
    os.close(old)
    return new
