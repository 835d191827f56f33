"""Files that are mostly holes: they are hashed and copied in time that grows with their data, not with their size.

``truncate -s 8E`` takes no time and no room on a disk; to read the holes of such a file would take years. The hash is
one of the blocks that are not zero, with their places, so it does not depend on which zeros are holes.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["SPARSE_BYTES", "add_block", "begin_hash", "blocks", "data_segments", "hash_sparse", "is_mostly_holes"]

SPARSE_BYTES: Final = 64 << 20
"""Files of at most this size are read whole."""

BLOCK_BYTES: Final = 4_096
_ZEROS: Final = bytes(BLOCK_BYTES)


def is_mostly_holes(seen: os.stat_result) -> bool:
    """Return whether most of a large file is holes."""
    return seen.st_size > SPARSE_BYTES and seen.st_blocks * 512 < seen.st_size // 2


def data_segments(file: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each stretch of the first ``size`` bytes of a file that is no hole."""
    at = 0
    while at < size:
        try:
            start = os.lseek(file, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole remains
                return
            raise
        at = min(os.lseek(file, start, os.SEEK_HOLE), size)
        if start < at:
            yield start, at


def blocks(file: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield place and content of each block of the first ``size`` bytes of a file that is not all zeros."""
    done = 0
    for start, end in data_segments(file, size):
        at = max(done, start - start % BLOCK_BYTES)
        while at < end:
            block = os.pread(file, min(BLOCK_BYTES, size - at), at)
            if not block:
                break  # it became shorter
            if block != _ZEROS[: len(block)]:
                yield at, block
            at += BLOCK_BYTES
        done = at


def hash_sparse(file: int, size: int) -> Any:
    """Return the hash object of a sparse file of this size; see the module."""
    hasher = begin_hash(size)
    for at, block in blocks(file, size):
        add_block(hasher, at, block)
    return hasher


def begin_hash(size: int) -> Any:
    """Return a hash object for a sparse file of this size."""
    return hashlib.sha256(b"world-protocol sparse 1\0%d" % size)


def add_block(hasher: Any, at: int, block: bytes) -> None:
    """Add a block at a place to the hash of a sparse file."""
    hasher.update(b"\0%d:" % at)
    hasher.update(block)
