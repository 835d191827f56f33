"""State of one workspace entry, with the hash of its content."""

from __future__ import annotations

import hashlib
import os
import stat
from typing import Any, Final, NamedTuple

from host.workspace.safe import CHUNK, Kind
from host.workspace.sparse import hash_sparse, is_mostly_holes

__all__ = ["MAX_TRIES", "Stamp", "hash_content", "stamp_of"]

MAX_TRIES: Final = 8
"""Repetitions of a read of an entry that changes meanwhile."""


class Stamp(NamedTuple):
    """State of one entry.

    Args:
        kind: file, dir, link or other.
        mode: permission bits, set-id and sticky ones included.
        uid: of its owner.
        gid: of its group.
        size: in bytes.
        mtime_ns: time of the last change of its content, in nanoseconds since 1970.
        ctime_ns: time of the last change of anything, set by the kernel.
        ino: inode.
        dev: device.
        content: SHA-256 of a file's bytes, or of its blocks where it is mostly holes (``host.workspace.sparse``);
            target of a link; number of a device or socket; None for a file that may not be read and for a folder.
    """

    kind: Kind
    mode: int
    uid: int
    gid: int
    size: int
    mtime_ns: int
    ctime_ns: int
    ino: int
    dev: int
    content: bytes | None

    @property
    def sha256(self) -> str | None:
        """The SHA-256 of a file's bytes in hex, None for everything else."""
        return self.content.hex() if self.kind == "file" and self.content is not None else None


def stamp_of(kind: Kind, seen: os.stat_result, content: bytes | None) -> Stamp:
    """Return the stamp of an entry with this status."""
    return Stamp._make(
        (
            kind,
            stat.S_IMODE(seen.st_mode),
            seen.st_uid,
            seen.st_gid,
            seen.st_size,
            seen.st_mtime_ns,
            seen.st_ctime_ns,
            seen.st_ino,
            seen.st_dev,
            content,
        )
    )


def _hash_plain(source: int, seen: os.stat_result) -> Any:
    digest = hashlib.sha256()
    os.lseek(source, 0, os.SEEK_SET)
    while piece := os.read(source, min(seen.st_size + 1, CHUNK)):
        digest.update(piece)
    return digest


def hash_content(source: int) -> tuple[os.stat_result, bytes]:
    """Return the status and SHA-256 of a file, from one moment unless it is written continuously."""
    seen = os.fstat(source)
    for _ in range(MAX_TRIES):
        before = seen
        digest = hash_sparse(source, before.st_size) if is_mostly_holes(before) else _hash_plain(source, before)
        seen = os.fstat(source)
        if (seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns) == (
            before.st_size,
            before.st_mtime_ns,
            before.st_ctime_ns,
        ):
            break
    return seen, digest.digest()
