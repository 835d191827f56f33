"""Resolution of file names through opened folders, as the kernel resolves them, not by absolute text.

A name starts at an open folder, or at a root; every link on the way is followed there. This supports names
whose absolute form exceeds the kernel's limit, folders that are not accessible from above,
and processes with another file tree. Only ENOENT and ENOTDIR count as absence: a name
that cannot be resolved for another reason is unknown, and the caller must refuse the operation.
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
"""Working directory of this process, in place of a descriptor (AT_FDCWD)."""

_OPENAT2: Final = 437  # one number on every architecture
_NO_MAGICLINKS, _NO_SYMLINKS, _IN_ROOT = 0x02, 0x04, 0x10
_FOLDER: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_ENTRY: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_LINKS: Final = 40
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR})
_PROC: Final = b"/proc"


class UnknowableError(Exception):
    """A name cannot be resolved; ``errno`` is the reason."""

    def __init__(self, error: int) -> None:
        """Store the errno."""
        super().__init__(error, os.strerror(error))
        self.errno = error


class _AbsentError(Exception):
    """A folder of the path does not exist."""

    def __init__(self, path: bytes) -> None:
        super().__init__(path)
        self.path = path


@dataclass(frozen=True, slots=True)
class Named:
    """Result of a resolution.

    Args:
        path: absolute, without links in its folders, and without a link as its last name where that was followed.
        mode: ``st_mode`` of the file; None where it does not exist.
        link: the path of the first link that was followed as the last name; None where none was.
    """

    path: bytes
    mode: int | None
    link: bytes | None = None

    @property
    def is_there(self) -> bool:
        """Whether a file with this name exists."""
        return self.mode is not None

    @property
    def is_folder(self) -> bool:
        """Whether a directory with this name exists."""
        return self.mode is not None and stat.S_ISDIR(self.mode)


@dataclass(frozen=True, slots=True)
class View:
    """A file tree as seen by one process.

    Args:
        root: a descriptor of its root folder.
        itself: returns the target of ``/proc/self`` and of ``/proc/thread-self`` for that process.
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
    """Resolve a name.

    Args:
        view: the file tree.
        name: as passed to the kernel, not empty.
        start: the descriptor of the folder of a relative name.
        follow: whether a link in the last name is followed; with a final slash it always is.

    Returns:
        None for a file without a name: a pipe, a socket, memory, a deleted file.

    Raises:
        UnknowableError: it cannot be resolved for a reason other than absence.
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
    """Return the location of an open file; None for a file without a name: a pipe, a socket, a deleted file.

    Raises:
        UnknowableError: its path is too long, or the descriptor is not open (EBADF).
    """
    try:
        status = os.fstat(descriptor)
    except OSError as error:
        raise UnknowableError(error.errno or errno.EBADF) from None
    path = opened(descriptor)
    return Named(path, status.st_mode) if path.startswith(b"/") and status.st_nlink else None


def opened(descriptor: int) -> bytes:
    """Return the path of an open file or folder, as the kernel reports it.

    Raises:
        UnknowableError: it is too long.
    """
    try:
        return os.readlink(b"/proc/self/fd/%d" % descriptor)
    except OSError as error:
        raise UnknowableError(error.errno or errno.EACCES) from None


def _entry(view: View, above: int, path: bytes, last: bytes, *, follow: bool) -> Named | bytes | None:
    """Return an entry of a folder, or the text of a link that must be followed."""
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
    """Return the target of a link in a process's folder: the kernel opens the file itself, independent of the text."""
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
    """Yield an open folder, or the working directory."""
    handle = os.open(b".", _FOLDER) if folder == HERE else os.open(b".", _FOLDER, dir_fd=folder)
    try:
        yield handle, opened(handle)
    finally:
        os.close(handle)


@contextmanager
def _folder(view: View, name: bytes, start: int) -> Iterator[tuple[int, bytes]]:
    """Yield a descriptor of the folder of a name, and its path.

    Raises:
        _AbsentError: it does not exist.
        OSError: it cannot be opened.
    """
    handle = _at_once(view, name, start)
    path = None if handle is None else opened(handle)
    if handle is None or path == _PROC or (path or b"").startswith(_PROC + b"/"):  # /proc/self is this process
        if handle is not None:
            os.close(handle)
        handle = _step_by_step(view, name, start)
        path = None
    try:
        yield handle, opened(handle) if path is None else path
    finally:
        os.close(handle)


def _at_once(view: View, name: bytes, start: int) -> int | None:
    """Resolve the whole name by the kernel; None where it would follow a link that differs for that process."""
    absolute = name.startswith(b"/")
    resolve = _NO_MAGICLINKS | (_IN_ROOT if absolute else 0 if view.is_ours else _NO_SYMLINKS)
    how = struct.pack("=QQQ", _FOLDER, 0, resolve)
    try:
        return system_call(_OPENAT2, view.root if absolute else start, ctypes.c_char_p(name), ctypes.c_char_p(how), 24)
    except OSError:  # the slower resolution determines the reason
        return None


def _step_by_step(view: View, name: bytes, start: int) -> int:
    """Open a folder one name at a time."""
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
            else:  # the kernel itself follows a link of /proc; no other link can have appeared meanwhile
                within = 0 if path.startswith(_PROC + b"/") else os.O_NOFOLLOW
                at = _replaced(at, os.open(last, _FOLDER | within, dir_fd=at))
    except BaseException:
        os.close(at)
        raise
    return at


def _replaced(old: int, new: int) -> int:
    os.close(old)
    return new
