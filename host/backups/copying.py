"""Copying of file contents: by reference where the file system supports it, else in pieces of limited memory."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from collections.abc import Iterator
from typing import Final

from host.backups.backup_folder import write_all

__all__ = ["PIECE_BYTES", "clone", "copy_bytes", "copy_hashed", "hash_of"]

PIECE_BYTES: Final = 1 << 20
_ZEROS: Final = bytes(PIECE_BYTES)
_FICLONE: Final = 0x40049409
_CANNOT: Final = frozenset(
    {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM, errno.ETXTBSY, errno.ENOTTY}
)


def clone(source: int, target: int) -> bool:
    """Share the blocks of a file with an empty one; return whether the file system supports it."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in _CANNOT:
            return False
        raise
    return True


def hash_of(file: int) -> tuple[str, int]:
    """Return the SHA-256 of a whole file, and its size in bytes."""
    hasher, size = hashlib.sha256(), 0
    for piece in _pieces(file):
        hasher.update(piece)
        size += len(piece)
    return hasher.hexdigest(), size


def _pieces(file: int) -> Iterator[memoryview]:
    """Yield the content of a whole file in pieces; each is valid until the next one."""
    buffer = bytearray(PIECE_BYTES)
    view = memoryview(buffer)
    os.lseek(file, 0, os.SEEK_SET)
    while count := os.readv(file, [buffer]):
        yield view[:count]


def copy_hashed(source: int, target: int) -> tuple[str, int]:
    """Copy a whole file into an empty one and return the SHA-256 and size of the copy.

    Pieces of zeros become holes, so that a sparse file stays small.
    """
    if clone(source, target):
        return hash_of(target)
    hasher, size = hashlib.sha256(), 0
    for piece in _pieces(source):
        hasher.update(piece)
        size += len(piece)
        if piece == _ZEROS[: len(piece)]:
            os.lseek(target, len(piece), os.SEEK_CUR)
        else:
            write_all(target, piece)
    os.ftruncate(target, size)
    return hasher.hexdigest(), size


def copy_bytes(source: int, target: int, size: int) -> None:
    """Copy the first ``size`` bytes of a file into an empty one; holes stay holes.

    Raises:
        OSError: reading or writing failed; ``EIO`` when the source is shorter.
    """
    if os.fstat(source).st_size < size:
        raise OSError(errno.EIO, "the file is shorter than expected")
    if size == 0 or clone(source, target):
        return
    os.ftruncate(target, size)
    at = 0
    while at < size:
        try:
            start = os.lseek(source, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole remains
                return
            raise
        end = min(os.lseek(source, start, os.SEEK_HOLE), size)
        _copy_range(source, target, start, end)
        at = end


def _copy_range(source: int, target: int, start: int, end: int) -> None:
    try:
        while start < end:
            count = os.copy_file_range(source, target, end - start, start, start)
            if not count:
                raise OSError(errno.EIO, "the file became shorter while it was copied")
            start += count
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
    while start < end:
        piece = os.pread(source, min(PIECE_BYTES, end - start), start)
        if not piece:
            raise OSError(errno.EIO, "the file became shorter while it was copied")
        left = memoryview(piece)
        while left:
            count = os.pwrite(target, left, start)
            left, start = left[count:], start + count
