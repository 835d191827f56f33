"""Contents of files, each kept once under the SHA-256 of its bytes: ``objects/ab/abcdef...``.

An object that stands under its name is complete and on the disk; its name is brought to the disk by ``sync``, before
a backup refers to it. Many small objects are written one after the other and then synced together: file systems with a
journal commit them at once.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Iterator
from typing import Final

from host.backups.area import Area, write_all
from host.backups.copying import PIECE_BYTES, copy_hashed, hash_of
from world.errors import RefusedError

__all__ = ["ObjectStore", "damaged"]

_AT_ONCE: Final = 256
_MANY: Final = 16
_BYTES_AT_ONCE: Final = 64 << 20


def damaged(what: str, why: str, /, **details: object) -> RefusedError:
    """Return the refusal that names a damaged part of the backups."""
    return RefusedError(
        "BACKUP_DAMAGED",
        f"{what} {why}; nothing was restored from it. Check the disk, and put the file back from elsewhere.",
        **details,
    )


class ObjectStore:
    """The objects of one area; for one operation and one thread.

    Args:
        area: the open folder.
    """

    def __init__(self, area: Area) -> None:
        self._area = area
        self._waiting: dict[str, tuple[int, str, int]] = {}
        self._waiting_bytes = 0
        self._used: set[str] = set()
        self.copied_bytes = 0

    def has(self, sha256: str, size: int) -> bool:
        """Tell whether an object is there with this size in bytes; it then counts as used for ``sync``."""
        folder = sha256[:2]
        if sha256 not in self._waiting:
            try:
                found = os.stat(sha256, dir_fd=self._area.handle(f"objects/{folder}"), follow_symlinks=False)
            except FileNotFoundError:
                return False
            if found.st_size != size:
                return False
        self._used.add(folder)
        return True

    def add(self, file: int, size: int) -> tuple[str, int]:
        """Copy an open file from its start and return the SHA-256 and size of what was read.

        Args:
            file: open for reading.
            size: how many bytes it is expected to have.

        Raises:
            OSError: it cannot be read, or there is no room.
        """
        if size <= PIECE_BYTES:
            data = _read_up_to(file, PIECE_BYTES + 1)
            if len(data) <= PIECE_BYTES:
                return self.add_bytes(data), len(data)
        target, name = self._area.temporary()
        try:
            sha256, count = copy_hashed(file, target)
        except BaseException:
            os.close(target)
            self._area.discard(name)
            raise
        self._keep(sha256, count, target, name)
        return sha256, count

    def add_bytes(self, data: bytes) -> str:
        """Keep bytes and return their SHA-256."""
        sha256 = hashlib.sha256(data).hexdigest()
        if self.has(sha256, len(data)):
            return sha256
        target, name = self._area.temporary()
        try:
            write_all(target, data)
        except BaseException:
            os.close(target)
            self._area.discard(name)
            raise
        self._keep(sha256, len(data), target, name)
        return sha256

    def _keep(self, sha256: str, size: int, file: int, name: str) -> None:
        self.copied_bytes += size
        if self.has(sha256, size):
            os.close(file)
            self._area.discard(name)
            return
        self._waiting[sha256] = (file, name, size)
        self._used.add(sha256[:2])
        self._waiting_bytes += size
        if len(self._waiting) >= _AT_ONCE or self._waiting_bytes >= _BYTES_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Bring what was added to the disk and under its name."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        try:
            sync_files([file for file, _, _ in waiting.values()])
            for sha256, (_, name, _) in waiting.items():
                self._area.put(name, f"objects/{sha256[:2]}", sha256)
        except BaseException:
            for _, name, _ in waiting.values():
                self._area.discard(name)
            raise
        finally:
            for file, _, _ in waiting.values():
                os.close(file)

    def sync(self) -> None:
        """Bring everything that was added or found to the disk for good, names included."""
        self.flush()
        for folder in sorted(self._used):
            os.fsync(self._area.handle(f"objects/{folder}"))
        if self._used:
            os.fsync(self._area.handle("objects"))
        self._used.clear()

    def drop(self) -> None:
        """Forget what was added and not yet flushed, after a failure."""
        for file, name, _ in self._waiting.values():
            os.close(file)
            self._area.discard(name)
        self._waiting.clear()

    def open(self, sha256: str) -> int:
        """Open an object for reading.

        Raises:
            OSError: it is not there or cannot be read.
        """
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(sha256, flags, dir_fd=self._area.handle(f"objects/{sha256[:2]}"))

    def verify(self, sha256: str, size: int, *, name: str) -> None:
        """Read an object whole and compare it with its name.

        Args:
            sha256: which one.
            size: how many bytes it must have.
            name: the file that it is the content of, for the error.

        Raises:
            RefusedError: ``BACKUP_DAMAGED`` when it is missing or holds other bytes.
        """
        what = f"The content {sha256} that the backup keeps of {name}"
        try:
            file = self.open(sha256)
        except FileNotFoundError:
            raise damaged(what, "is missing", object=sha256, name=name) from None
        except OSError as error:
            raise damaged(what, f"cannot be read ({error.strerror})", object=sha256, name=name) from error
        try:
            found = hash_of(file)
        except OSError as error:
            raise damaged(what, f"cannot be read ({error.strerror})", object=sha256, name=name) from error
        finally:
            os.close(file)
        if found != (sha256, size):
            raise damaged(what, "holds other bytes than were saved", object=sha256, name=name)

    def all(self) -> Iterator[tuple[str, int]]:
        """Yield every object and its size in bytes."""
        for folder in self._area.names("objects"):
            handle = self._area.handle(f"objects/{folder}")
            with os.scandir(handle) as entries:
                for entry in entries:
                    yield entry.name, entry.stat(follow_symlinks=False).st_size

    def remove(self, sha256: str) -> None:
        """Remove an object that no backup refers to."""
        os.unlink(sha256, dir_fd=self._area.handle(f"objects/{sha256[:2]}"))


def sync_files(files: list[int]) -> None:
    """Bring open files of one file system to the disk: many of them at once, as waiting for each takes much longer."""
    if len(files) >= _MANY and _sync_file_system(files[0]):
        return
    for file in files:
        os.fsync(file)


def _sync_file_system(file: int) -> bool:
    """Bring all of the file system that a file is on to the disk; tell whether this system can do that."""
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
