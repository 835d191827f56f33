"""Which content a file had when it was last read: spares reading what did not change.

A file is known by device, inode, size, and the times of its last change. Only what had been left alone since before the
reading began is remembered (as git does with its index): what changes later then has a later time for certain.
"""

from __future__ import annotations

import hashlib
import os
import struct
from typing import Final

from host.backups.area import Area

__all__ = ["Known"]

_NAME: Final = "known"
_MAGIC: Final = b"klock-known-1\n"
_RECORD: Final = struct.Struct("<QQQqq32s")
_DIGEST_BYTES: Final = 32
_MOST: Final = 1_000_000


class Known:
    """The contents of files by their inodes, in memory and from time to time on the disk."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], tuple[int, int, int, bytes]] = {}
        self._changed = False
        self._loaded = False

    def content(self, seen: os.stat_result) -> str | None:
        """Return the SHA-256 of a file that looks as it did when it was read."""
        found = self._found.get((seen.st_dev, seen.st_ino))
        if found is None or found[:3] != (seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns):
            return None
        return found[3].hex()

    def remember(self, seen: os.stat_result, sha256: str, *, before_ns: int) -> None:
        """Remember what was read from a file.

        Args:
            seen: the file as it was before and after the reading.
            sha256: what was read.
            before_ns: the file system's time when the reading began, in ns; a file changed since is not remembered.
        """
        if seen.st_ctime_ns >= before_ns:
            return
        key = (seen.st_dev, seen.st_ino)
        self._found.pop(key, None)
        self._found[key] = (seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, bytes.fromhex(sha256))
        self._changed = True

    def load(self, area: Area) -> None:
        """Read what an earlier process knew; a file that is missing or damaged says nothing."""
        if self._loaded:
            return
        self._loaded = True
        try:
            data = area.read("", _NAME)
        except OSError:
            return
        body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
        if not body.startswith(_MAGIC) or hashlib.sha256(body).digest() != digest:
            return
        if (len(body) - len(_MAGIC)) % _RECORD.size:
            return
        told = memoryview(body)[len(_MAGIC) :]
        read = {(dev, ino): rest for dev, ino, *rest in _RECORD.iter_unpack(told)}
        for key, (size, mtime, ctime, content) in read.items():
            self._found.setdefault(key, (size, mtime, ctime, content))

    def save(self, area: Area) -> None:
        """Write what is known, if it grew; it need not survive a loss of power."""
        if not self._changed:
            return
        self._changed = False
        latest = list(self._found.items())[-_MOST:]
        body = _MAGIC + b"".join(_RECORD.pack(*key, *told) for key, told in latest)
        area.write("", _NAME, body + hashlib.sha256(body).digest(), durable=False)
