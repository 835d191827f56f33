"""Folder of the backups: ``.klock/backups/`` of a workspace, accessed by directory handles only.

        lock          held exclusively while a backup is taken, closed, pruned or restored
        preparing     held shared while objects are copied in advance of a backup
        known         content hashes of files as last read, by inode, size and times
        reserve       disk space that a rollback may use when the disk is full
        objects/ab/   contents of files, named by their SHA-256
        sets/         one file per backup
        restoring/    one file per unfinished rollback, and the files it is about to move into place
        temporary/    files that are being written

Every file under its final name is complete: it is written to ``temporary``, synced to the disk and renamed.
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

__all__ = ["DIRECTORY", "BackupFolder", "explained", "reason"]

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags for opening directories: a link in place of a directory is an error, never followed."""

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
    errno.ENOTDIR: "a file or link is in the place of a folder; move it away",
    errno.ELOOP: "a link is in the place of a file or folder; move it away",
    errno.EMFILE: "this process has too many files open; raise the limit (ulimit -n)",
    errno.EIO: "the disk reports an error; check it",
}


def reason(error: OSError) -> str:
    """Describe an error of the operating system and its remedy, as a clause."""
    hint = _HINTS.get(error.errno or 0)
    return hint or f"{(error.strerror or type(error).__name__).lower()}"


@contextmanager
def explained(code: str, what: str) -> Iterator[None]:
    """Convert errors of the operating system to a ``RefusedError`` with the failed operation, reason and remedy."""
    try:
        yield
    except OSError as error:
        raise RefusedError(code, f"{what}: {reason(error)}.", errno=error.errno) from error


class BackupFolder:
    """Directory handles for one operation on the folder; a context manager.

    Args:
        workspace: the workspace of the backups.
        make: whether missing folders are created.

    Raises:
        OSError: the folder does not exist, or cannot be opened or created.
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
            pass  # created by another process
        return os.open(name, DIRECTORY, dir_fd=parent)

    def handle(self, subfolder: str = "") -> int:
        """Return the handle of a subfolder; this object closes it."""
        existing = self._handles.get(subfolder)
        if existing is None:
            above, _, name = subfolder.rpartition("/")
            existing = self._handles[subfolder] = self._folder(name, self.handle(above))
        return existing

    def names(self, subfolder: str) -> list[str]:
        """Return the sorted names in a folder; none where it is missing."""
        try:
            return sorted(os.listdir(self.handle(subfolder)))
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
                continue  # left by a killed process with the same process id

    def discard(self, name: str) -> None:
        """Delete a temporary file, if it exists."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.handle("temporary"))

    def clear_temporary(self) -> None:
        """Delete files of killed processes, if no process is writing; the caller holds the lock."""
        with self.locked_now("preparing") as is_idle:
            for name in self.names("temporary") if is_idle else ():
                self.discard(name)

    def put(self, name: str, subfolder: str, final: str) -> None:
        """Rename a temporary file to its final name in a folder."""
        os.rename(name, final, src_dir_fd=self.handle("temporary"), dst_dir_fd=self.handle(subfolder))

    def write(self, subfolder: str, final: str, data: bytes, *, durable: bool = True) -> None:
        """Write a file atomically; it survives a power loss on return, unless not ``durable``."""
        file, name = self.temporary()
        try:
            try:
                write_all(file, data)
                if durable:
                    os.fsync(file)
            finally:
                os.close(file)
            self.put(name, subfolder, final)
        except BaseException:
            self.discard(name)
            raise
        if durable:
            os.fsync(self.handle(subfolder))

    def read(self, subfolder: str, name: str) -> bytes:
        """Return the bytes of a file."""
        with open(
            os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.handle(subfolder)), "rb"
        ) as file:
            return file.read()

    def remove(self, subfolder: str, name: str) -> None:
        """Delete a file durably."""
        os.unlink(name, dir_fd=self.handle(subfolder))
        os.fsync(self.handle(subfolder))

    def now_ns(self) -> int:
        """Return the file system's time in ns; later changes have this time of change or a later one."""
        file, name = self.temporary()
        try:
            return os.fstat(file).st_ctime_ns
        finally:
            os.close(file)
            self.discard(name)

    @contextmanager
    def locked(self, name: str = "lock", *, shared: bool = False) -> Iterator[None]:
        """Hold one of the two locks; both processes and threads wait for it."""
        file = self._lock_file(name)
        try:
            fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)

    @contextmanager
    def locked_now(self, name: str) -> Iterator[bool]:
        """Try to hold a lock without waiting; yield whether it is held."""
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
    """Write all bytes, in as many calls as needed."""
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def is_same_file(one: os.stat_result, other: os.stat_result) -> bool:
    """Whether two stat results show the same unchanged file."""
    return (
        one.st_ino == other.st_ino
        and one.st_size == other.st_size
        and one.st_mtime_ns == other.st_mtime_ns
        and one.st_ctime_ns == other.st_ctime_ns
        and one.st_dev == other.st_dev
        and stat.S_IFMT(one.st_mode) == stat.S_IFMT(other.st_mode)
    )
