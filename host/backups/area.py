"""The folder that belongs to the backups: ``.klock/backups/`` of a workspace, reached by directory handles only.

    lock          held exclusively while a backup is taken, closed, pruned or restored
    preparing     held shared while objects are copied ahead of a backup
    known         which content a file had when it was last read, by inode, size and times
    reserve       some room on the disk that a rollback may use when nothing else is left
    objects/ab/   contents of files, named by their SHA-256
    sets/         one file per backup
    restoring/    one file per rollback that has begun and not ended, and what it is about to put in place
    temporary/    files that are being written

Whatever appears there under its own name is complete: it is written elsewhere, brought to the disk and renamed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Final, Self

from host.workspace.root import Workspace
from world.errors import RefusedError

__all__ = ["DIRECTORY", "Area", "explained", "reason"]

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""How directories are opened: a link in a directory's place is an error, never followed."""

_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
_HOME: Final = (".klock", "backups")
_HINTS: Final = {
    errno.ENOSPC: "the disk is full; make room and try again",
    errno.EDQUOT: "the disk quota is used up; make room and try again",
    errno.EFBIG: "a file would be larger than this process may write; raise the limit (ulimit -f)",
    errno.EACCES: "permission is denied; give this user the right to it",
    errno.EPERM: "permission is denied; give this user the right to it",
    errno.EROFS: "the file system is read-only; mount it for writing",
    errno.ENOTDIR: "a file or link stands where a folder belongs; move it away",
    errno.ELOOP: "a link stands where a file or folder belongs; move it away",
    errno.EMFILE: "this process has too many files open; raise the limit (ulimit -n)",
    errno.EIO: "the disk reports an error; check it",
}


def reason(error: OSError) -> str:
    """Return what an error of the operating system means and what to do about it, as a clause."""
    hint = _HINTS.get(error.errno or 0)
    return hint or f"{(error.strerror or type(error).__name__).lower()}"


@contextmanager
def explained(code: str, what: str) -> Iterator[None]:
    """Turn errors of the operating system into a refusal that says what could not be done, why and what helps."""
    try:
        yield
    except OSError as error:
        raise RefusedError(code, f"{what}: {reason(error)}.", errno=error.errno) from error


class Area:
    """The handles of one operation on the folder; a context manager.

    Args:
        workspace: whose backups they are.
        make: whether missing folders are made.

    Raises:
        OSError: the folder is not there, or cannot be reached or made.
    """

    def __init__(self, workspace: Workspace, *, make: bool) -> None:
        self._make = make
        self._handles: dict[str, int] = {}
        self._written = 0
        handle = os.open(b".", DIRECTORY, dir_fd=workspace.fd)
        try:
            for name in _HOME:
                below = self._folder(name, handle)
                os.close(handle)
                handle = below
        except BaseException:
            os.close(handle)
            raise
        self._handles[""] = handle

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for handle in self._handles.values():
            os.close(handle)
        self._handles.clear()

    def _folder(self, name: str, parent: int) -> int:
        try:
            return os.open(name, DIRECTORY, dir_fd=parent)
        except FileNotFoundError:
            if not self._make:
                raise
        try:
            os.mkdir(name, _FOLDER_MODE, dir_fd=parent)
            os.fsync(parent)
        except FileExistsError:
            pass  # another process was quicker
        return os.open(name, DIRECTORY, dir_fd=parent)

    def handle(self, place: str = "") -> int:
        """Return the handle of a folder below; it stays this object's."""
        found = self._handles.get(place)
        if found is None:
            above, _, name = place.rpartition("/")
            found = self._handles[place] = self._folder(name, self.handle(above))
        return found

    def names(self, place: str) -> list[str]:
        """Return the sorted names in a folder; none where it is missing."""
        try:
            return sorted(os.listdir(self.handle(place)))
        except FileNotFoundError:
            return []

    def temporary(self) -> tuple[int, str]:
        """Return a new file, open for reading and writing, and its name in ``temporary``."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        while True:
            self._written += 1
            name = f"{os.getpid()}-{id(self):x}-{self._written}"
            try:
                return os.open(name, flags, _FILE_MODE, dir_fd=self.handle("temporary")), name
            except FileExistsError:
                continue  # left by a process of the same number that was killed

    def discard(self, name: str) -> None:
        """Remove a temporary file, if it is still there."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.handle("temporary"))

    def clear_temporary(self) -> None:
        """Remove what processes left that were killed, if nobody is writing; the caller holds the lock."""
        with self.locked_now("preparing") as nobody_writes:
            for name in self.names("temporary") if nobody_writes else ():
                self.discard(name)

    def put(self, name: str, place: str, final: str) -> None:
        """Move a temporary file to its own name in a folder."""
        os.rename(name, final, src_dir_fd=self.handle("temporary"), dst_dir_fd=self.handle(place))

    def write(self, place: str, final: str, data: bytes, *, durable: bool = True) -> None:
        """Write a file whole or not at all; when this returns it survives a loss of power, unless not ``durable``."""
        file, name = self.temporary()
        try:
            try:
                write_all(file, data)
                if durable:
                    os.fsync(file)
            finally:
                os.close(file)
            self.put(name, place, final)
        except BaseException:
            self.discard(name)
            raise
        if durable:
            os.fsync(self.handle(place))

    def read(self, place: str, name: str) -> bytes:
        """Return the bytes of a file."""
        with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.handle(place)), "rb") as file:
            return file.read()

    def remove(self, place: str, name: str) -> None:
        """Remove a file for good."""
        os.unlink(name, dir_fd=self.handle(place))
        os.fsync(self.handle(place))

    def now_ns(self) -> int:
        """Return the file system's own time in ns: what changes from now on has this time of change or a later one."""
        file, name = self.temporary()
        try:
            return os.fstat(file).st_ctime_ns
        finally:
            os.close(file)
            self.discard(name)

    @contextmanager
    def locked(self, name: str = "lock", *, shared: bool = False) -> Iterator[None]:
        """Hold one of the two locks, for which processes and threads wait alike."""
        file = self._lock_file(name)
        try:
            fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)

    @contextmanager
    def locked_now(self, name: str) -> Iterator[bool]:
        """Hold a lock if nobody else does, and tell whether that is so."""
        file = self._lock_file(name)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = True
            except BlockingIOError:
                held = False
            yield held
        finally:
            os.close(file)

    def _lock_file(self, name: str) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, _FILE_MODE, dir_fd=self.handle())


def write_all(file: int, data: bytes | memoryview) -> None:
    """Write all of it, however many calls that takes."""
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def is_same_file(one: os.stat_result, other: os.stat_result) -> bool:
    """Tell whether two looks saw the same file with nothing done to it in between."""
    return (
        one.st_ino == other.st_ino
        and one.st_size == other.st_size
        and one.st_mtime_ns == other.st_mtime_ns
        and one.st_ctime_ns == other.st_ctime_ns
        and one.st_dev == other.st_dev
        and stat.S_IFMT(one.st_mode) == stat.S_IFMT(other.st_mode)
    )
