"""Content-addressed store of file contents: each once under its hash (``copy_hashed``), ``objects/ab/abcdef...``.

An object under its final name is complete and on the disk; ``sync`` makes its name durable before a backup refers to
it. Small objects are written one after the other and then synced together: a journaling file system
commits them at once.

"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Iterator
from typing import Final

from host.backups.backup_folder import BackupFolder, write_all
from host.backups.copying import PIECE_BYTES, copy_hashed, has_hash
from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["ObjectStore", "damaged"]

_AT_ONCE: Final = 256
_MANY: Final = 16
_BYTES_AT_ONCE: Final = 64 << 20


def damaged(what: str, why: str, /, **details: object) -> RefusedError:
    """Return the error that names a damaged part of the backups."""
    return RefusedError(
        ErrorCode.BACKUP_DAMAGED,
        f"{what} {why}; nothing was restored from it. Check the disk, and replace the file from another copy.",
        **details,
    )


class ObjectStore:
    """The objects of one backup folder; for one operation and one thread.

    Args:
        folder: the open folder.
    """

    def __init__(self, backup_folder: BackupFolder) -> None:
        self._backup_folder = backup_folder
        self._waiting: dict[str, tuple[int, str, int]] = {}
        self._waiting_bytes = 0
        self._used: set[str] = set()
        self.copied_bytes = 0

    def has(self, sha256: str, size: int) -> bool:
        """Whether an object of this size in bytes exists; marks it as used for ``sync``."""
        folder = sha256[:2]
        if sha256 not in self._waiting:
            try:
                status = os.stat(sha256, dir_fd=self._backup_folder.handle(f"objects/{folder}"), follow_symlinks=False)
            except FileNotFoundError:
                return False
            if status.st_size != size:
                return False
        self._used.add(folder)
        return True

    def add(self, file: int, size: int) -> tuple[str, int]:
        """Copy an open file from its start and return the SHA-256 and size of the content.

        Args:
            file: open for reading.
            size: its expected size in bytes.

        Raises:
            OSError: it cannot be read, or the disk is full.
        """
        if size <= PIECE_BYTES:
            data = _read_up_to(file, PIECE_BYTES + 1)
            if len(data) <= PIECE_BYTES:
                return self.add_bytes(data), len(data)
        target, name = self._backup_folder.temporary()
        try:
            sha256, count = copy_hashed(file, target)
        except BaseException:
            os.close(target)
            self._backup_folder.discard(name)
            raise
        self._keep(sha256, count, target, name)
        return sha256, count

    def add_bytes(self, data: bytes) -> str:
        """Store bytes and return their SHA-256."""
        sha256 = hashlib.sha256(data).hexdigest()
        if self.has(sha256, len(data)):
            return sha256
        target, name = self._backup_folder.temporary()
        try:
            write_all(target, data)
        except BaseException:
            os.close(target)
            self._backup_folder.discard(name)
            raise
        self._keep(sha256, len(data), target, name)
        return sha256

    def _keep(self, sha256: str, size: int, file: int, name: str) -> None:
        self.copied_bytes += size
        if self.has(sha256, size):
            os.close(file)
            self._backup_folder.discard(name)
            return
        self._waiting[sha256] = (file, name, size)
        self._used.add(sha256[:2])
        self._waiting_bytes += size
        if len(self._waiting) >= _AT_ONCE or self._waiting_bytes >= _BYTES_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Write added objects to the disk and rename them to their final names."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        try:
            sync_files([file for file, _, _ in waiting.values()])
            for sha256, (_, name, _) in waiting.items():
                self._backup_folder.put(name, f"objects/{sha256[:2]}", sha256)
        except BaseException:
            for _, name, _ in waiting.values():
                self._backup_folder.discard(name)
            raise
        finally:
            for file, _, _ in waiting.values():
                os.close(file)

    def sync(self) -> None:
        """Make all added and used objects durable, including their names."""
        self.flush()
        for folder in sorted(self._used):
            os.fsync(self._backup_folder.handle(f"objects/{folder}"))
        if self._used:
            os.fsync(self._backup_folder.handle("objects"))
        self._used.clear()

    def drop(self) -> None:
        """Discard objects that were added and not flushed, after a failure."""
        for file, name, _ in self._waiting.values():
            os.close(file)
            self._backup_folder.discard(name)
        self._waiting.clear()

    def open(self, sha256: str) -> int:
        """Open an object for reading.

        Raises:
            OSError: it does not exist or cannot be read.
        """
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(sha256, flags, dir_fd=self._backup_folder.handle(f"objects/{sha256[:2]}"))

    def verify(self, sha256: str, size: int, *, name: str) -> None:
        """Read a whole object and compare it with its name.

        Args:
            sha256: its name.
            size: its expected size in bytes.
            name: the file with this content, for the error.

        Raises:
            RefusedError: ``BACKUP_DAMAGED`` when it is missing or differs.
        """
        what = f"The saved content {sha256} of {name}"
        try:
            file = self.open(sha256)
        except FileNotFoundError:
            raise damaged(what, "is missing", object=sha256, name=name) from None
        except OSError as error:
            raise damaged(what, f"cannot be read ({error.strerror})", object=sha256, name=name) from error
        try:
            is_same = has_hash(file, sha256, size)
        except OSError as error:
            raise damaged(what, f"cannot be read ({error.strerror})", object=sha256, name=name) from error
        finally:
            os.close(file)
        if not is_same:
            raise damaged(what, "differs from the saved content", object=sha256, name=name)

    def all(self) -> Iterator[tuple[str, int]]:
        """Yield every object and its size in bytes."""
        for folder in self._backup_folder.names("objects"):
            handle = self._backup_folder.handle(f"objects/{folder}")
            with os.scandir(handle) as entries:
                for entry in entries:
                    yield entry.name, entry.stat(follow_symlinks=False).st_size

    def remove(self, sha256: str) -> None:
        """Delete an object that no backup refers to."""
        os.unlink(sha256, dir_fd=self._backup_folder.handle(f"objects/{sha256[:2]}"))


def sync_files(files: list[int]) -> None:
    """Sync open files of one file system: many of them in one call, which is faster than one call each."""
    if len(files) >= _MANY and _sync_file_system(files[0]):
        return
    for file in files:
        os.fsync(file)


def _sync_file_system(file: int) -> bool:
    """Sync the whole file system of a file; return whether this system supports it."""
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        return False
    if syncfs(ctypes.c_int(file)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return True


def _read_up_to(file: int, limit: int) -> bytes:
    os.lseek(file, 0, os.SEEK_SET)
    pieces, left = [], limit
    while left and (piece := os.read(file, left)):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)
