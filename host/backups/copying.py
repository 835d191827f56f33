"""Copying of file contents: by reference where the file system supports it, else in pieces of limited memory."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from collections.abc import Iterator
from typing import Final

from host.backups.backup_folder import write_all
from host.workspace.sparse import (
    SPARSE_BYTES,
    add_block,
    begin_hash,
    blocks,
    data_segments,
    hash_sparse,
    is_mostly_holes,
)

__all__ = ["PIECE_BYTES", "clone", "copy_bytes", "copy_hashed", "has_hash"]

PIECE_BYTES: Final = 1 << 20
_ZEROS: Final = bytes(PIECE_BYTES)
_READ_WHOLE_BYTES: Final = 1 << 32
"""Files that are mostly holes are read whole up to this size: the holes may have been made after the hash."""
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


def _hash_of(file: int) -> tuple[str, int]:
    """Return the hash of a whole file, as ``copy_hashed`` does, and its size in bytes."""
    seen = os.fstat(file)
    sha256 = hash_sparse(file, seen.st_size).hexdigest() if is_mostly_holes(seen) else _hash_plain(file)
    return sha256, os.fstat(file).st_size


def _hash_plain(file: int) -> str:
    hasher = hashlib.sha256()
    for piece in _pieces(file):
        hasher.update(piece)
    return hasher.hexdigest()


def has_hash(file: int, sha256: str, size: int) -> bool:
    """Return whether a file has this content, whichever of its zeros are holes, now and when it was hashed."""
    seen = os.fstat(file)
    if seen.st_size != size:
        return False
    if size > SPARSE_BYTES and hash_sparse(file, size).hexdigest() == sha256:
        return True
    is_read_whole = size <= _READ_WHOLE_BYTES or not is_mostly_holes(seen)
    return is_read_whole and _hash_plain(file) == sha256


def _pieces(file: int) -> Iterator[memoryview]:
    """Yield the content of a whole file in pieces; each is valid until the next one."""
    buffer = bytearray(PIECE_BYTES)
    view = memoryview(buffer)
    os.lseek(file, 0, os.SEEK_SET)
    while count := os.readv(file, [buffer]):
        yield view[:count]


def copy_hashed(source: int, target: int) -> tuple[str, int]:
    """Copy a whole file into an empty one and return the hash and size of the copy.

    The hash is the SHA-256 of its bytes, or of its blocks where it is mostly holes (``host.workspace.sparse``). Pieces
    of zeros become holes, so that a sparse file stays small.
    """
    if clone(source, target):
        return _hash_of(target)
    seen = os.fstat(source)
    if is_mostly_holes(seen):
        return _copy_sparse(source, target, seen.st_size)
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


def _copy_sparse(source: int, target: int, size: int) -> tuple[str, int]:
    hasher = begin_hash(size)
    os.ftruncate(target, size)
    for at, block in blocks(source, size):
        add_block(hasher, at, block)
        _write_at(target, at, block)
    return hasher.hexdigest(), size


def _write_at(target: int, at: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        count = os.pwrite(target, left, at)
        left, at = left[count:], at + count


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
    for start, end in data_segments(source, size):
        _copy_range(source, target, start, end)


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
        _write_at(target, start, piece)
        start += len(piece)
