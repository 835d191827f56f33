"""Cache of file digests from the last scan; see ``host.workspace.scan`` for its validity rules."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from host.workspace.stamps import Stamp
from world.private_files import open_private

__all__ = ["CachedDigest", "ScanCache"]

_FORMAT: Final = b"world-protocol scan cache 1\n"
_DIGEST: Final = 32

CachedDigest = tuple[int, int, int, int, int, bytes]
"""Size, mtime, ctime, inode, device, digest."""


class ScanCache:
    """Digests of the last scan, for unchanged files."""

    def __init__(self, file: Path | None, cached: Mapping[bytes, CachedDigest] | None = None) -> None:
        self._place = file
        self._digests: Mapping[bytes, CachedDigest] = cached or {}
        self._started: os.stat_result | None = None
        if file is None:
            return
        with contextlib.suppress(OSError):  # without a cache, everything is hashed
            file.parent.mkdir(parents=True, exist_ok=True)
            self._started = _file_system_time(file)
        if cached is None:
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                self._digests = _read(file)

    def digest(self, path: bytes, seen: os.stat_result) -> bytes | None:
        """Return the digest of an unchanged file, None for changed and for other entries."""
        digests = self._digests.get(path)
        if digests is None or not stat.S_ISREG(seen.st_mode):
            return None
        size, mtime, ctime, ino, dev, content = digests
        is_same = (
            ctime == seen.st_ctime_ns
            and mtime == seen.st_mtime_ns
            and size == seen.st_size
            and ino == seen.st_ino
            and dev == seen.st_dev
        )
        return content if is_same else None

    def write(self, stamps: Mapping[bytes, Stamp]) -> Mapping[bytes, CachedDigest]:
        """Store the digests that remain valid for the next scan; a failure to write the file is ignored."""
        if self._place is None or self._started is None:
            return {}
        # Another device has its own clock, so the time of change of its files is not comparable.
        started, device = self._started.st_mtime_ns, self._started.st_dev
        digests = {
            path: (size, mtime, ctime, ino, dev, content)
            for path, (kind, _, _, _, size, mtime, ctime, ino, dev, content) in stamps.items()
            if kind == "file" and content and dev == device and mtime < started and ctime < started
        }
        if digests == self._digests:
            return digests
        body = msgspec.msgpack.encode(digests)
        temporary = self._place.with_name(f"{self._place.name}.{secrets.token_hex(8)}")
        with contextlib.suppress(OSError):
            try:
                with open_private(temporary) as file:
                    file.write(_FORMAT + hashlib.sha256(body).digest() + body)
                temporary.replace(self._place)
            finally:
                temporary.unlink(missing_ok=True)
        return digests


def _file_system_time(file: Path) -> os.stat_result:
    """Return the status of a new file, whose times are by the clock of its file system."""
    fresh = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)
    finally:
        fresh.unlink(missing_ok=True)


def _read(file: Path) -> dict[bytes, CachedDigest]:
    """Return the stored digests, none where the file is damaged."""
    data = file.read_bytes()
    head = len(_FORMAT) + _DIGEST
    body = memoryview(data)[head:]
    if data[:head] != _FORMAT + hashlib.sha256(body).digest():
        return {}
    return msgspec.msgpack.decode(body, type=dict[bytes, CachedDigest])
