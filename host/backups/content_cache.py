"""Cache of content hashes: avoids reading files that have not changed.

A file is identified by device, inode, size, and the times of its last change. Only files unchanged since before the
read began are cached (as git does with its index): every later change has a later time.
"""

from __future__ import annotations

import hashlib
import os
import struct
from typing import Final

from host.backups.backup_folder import BackupFolder

__all__ = ["ContentCache"]

_NAME: Final = "known"
_MAGIC: Final = b"klock-known-1\n"
_RECORD: Final = struct.Struct("<QQQqq32s")
_DIGEST_BYTES: Final = 32
_MOST: Final = 1_000_000


class ContentCache:
    """Content hashes of files by their inodes, in memory and saved to the disk."""

    def __init__(self) -> None:
        self._hashes: dict[tuple[int, int], tuple[int, int, int, bytes]] = {}
        self._changed = False
        self._loaded = False

    def content(self, seen: os.stat_result) -> str | None:
        """Return the SHA-256 of a file whose status is as cached, or None."""
        record = self._hashes.get((seen.st_dev, seen.st_ino))
        if record is None or record[:3] != (seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns):
            return None
        return record[3].hex()

    def remember(self, seen: os.stat_result, sha256: str, *, before_ns: int) -> None:
        """Cache the hash of a file that was read.

        Args:
            seen: the file's status before and after the read.
            sha256: its hash.
            before_ns: the file system's time at the beginning of the read, in ns; a file changed since is not cached.
        """
        if seen.st_ctime_ns >= before_ns:
            return
        key = (seen.st_dev, seen.st_ino)
        self._hashes.pop(key, None)
        self._hashes[key] = (seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, bytes.fromhex(sha256))
        self._changed = True

    def load(self, folder: BackupFolder) -> None:
        """Load the cache of an earlier process; a missing or damaged file is ignored."""
        if self._loaded:
            return
        self._loaded = True
        try:
            data = folder.read("", _NAME)
        except OSError:
            return
        body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
        if not body.startswith(_MAGIC) or hashlib.sha256(body).digest() != digest:
            return
        if (len(body) - len(_MAGIC)) % _RECORD.size:
            return
        records = memoryview(body)[len(_MAGIC) :]
        read = {(dev, ino): rest for dev, ino, *rest in _RECORD.iter_unpack(records)}
        for key, (size, mtime, ctime, content) in read.items():
            self._hashes.setdefault(key, (size, mtime, ctime, content))

    def save(self, folder: BackupFolder) -> None:
        """Save the cache, if it grew; it need not survive a power loss."""
        if not self._changed:
            return
        self._changed = False
        latest = list(self._hashes.items())[-_MOST:]
        body = _MAGIC + b"".join(_RECORD.pack(*key, *record) for key, record in latest)
        folder.write("", _NAME, body + hashlib.sha256(body).digest(), durable=False)
