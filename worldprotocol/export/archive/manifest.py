"""The manifest of an archive: which stretch of which log it holds, and size and hash of each of its files.

It is one line of canonical JSON, and its SHA-256 names the archive.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import file_digest, sha256
from io import BufferedReader
from pathlib import Path
from typing import Final

import msgspec

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.log import TreeHead
from world.log.merkle import CHUNK_LEAVES, Frontier
from world.model.canonical_json import canonical_bytes
from worldprotocol.export.jsonl_lines import Start

__all__ = [
    "EVENTS",
    "FORMAT",
    "MANIFEST",
    "TABLES",
    "TILES",
    "ArchiveFolder",
    "ArchiveManifest",
    "ArchivedFile",
    "bad_archive",
    "file_of",
    "hash_of",
    "open_archive",
    "open_file",
]

FORMAT: Final = 1
"""Version of the layout of an archive."""

MANIFEST: Final = "manifest.json"
EVENTS: Final = "events.jsonl"
"""File with the events, as ``worldctl export`` writes them."""

TILES: Final = "tlog"
"""Folder with the checkpoint and the tiles, under the names of C2SP tlog-tiles."""

TABLES: Final = "tables"
"""Folder with the Parquet files."""

_PATH: Final = re.compile(r"[a-z0-9][a-z0-9_.]*(/[a-z0-9][a-z0-9_.]*)*")
_HASH: Final = re.compile(r"[0-9a-f]{64}")


class ArchivedFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """File of an archive: its path below the folder, its size in bytes, and its hash in hex."""

    path: str
    size: int
    sha256: str


class ArchiveManifest(msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """Description of an archive.

    ``log_id`` and ``name`` are those of the log. ``start`` is the tree before the first event, absent where that is the
    first one of the log; ``size`` and ``root`` are those of the tree after the last one. ``previous`` is the hash of
    the manifest before it. ``unbundled`` lists the level-0 tiles without a bundle of entries, because an entry is too
    long for one.
    """

    world_protocol: str
    format: int
    log_id: str
    name: str
    size: int
    root: str
    files: list[ArchivedFile]
    start: Start | None = None
    previous: str | None = None
    unbundled: list[int] = []

    @property
    def after(self) -> int:
        """Position before the first event."""
        return 0 if self.start is None else self.start.size

    @property
    def head(self) -> TreeHead:
        """Tree head at the last event."""
        return TreeHead.from_hex(self.size, self.root)

    def frontier(self) -> Frontier:
        """Return the tree before the first event; raises ``RefusedError``."""
        return Frontier() if self.start is None else self.start.frontier()

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        return canonical_bytes(msgspec.to_builtins(self)) + b"\n"


@dataclass(frozen=True, slots=True)
class ArchiveFolder:
    """Archive in a folder.

    Args:
        folder: where it is.
        manifest: what it holds.
        digest: SHA-256 of the manifest in hex, which names the archive.
    """

    folder: Path
    manifest: ArchiveManifest
    digest: str

    @property
    def events(self) -> int:
        """Number of events."""
        return self.manifest.size - self.manifest.after


_MANIFEST: Final = msgspec.json.Decoder(ArchiveManifest)


def open_archive(folder: Path) -> ArchiveFolder:
    """Read the manifest of an archive; ``worldprotocol.export.archive.checking`` compares the files with it.

    Raises:
        RefusedError: ``FILE_UNREADABLE`` where there is no such folder; ``BAD_ARCHIVE``; ``LOG_FORMAT`` for a later
            layout.
    """
    if not folder.is_dir():
        raise RefusedError(
            ErrorCode.FILE_UNREADABLE,
            f"There is no folder {folder}; name an archive that `worldctl archive` wrote.",
            path=str(folder),
        )
    try:
        with open_file(folder / MANIFEST) as file:
            data = file.read()
    except OSError as error:
        raise bad_archive(folder, f"its {MANIFEST} cannot be read: {error.strerror}") from None
    try:
        manifest = _MANIFEST.decode(data)
        faults = list(_faults(manifest))
        is_canonical = manifest.to_bytes() == data
    except (msgspec.MsgspecError, UnicodeError, RecursionError, RefusedError) as error:
        raise bad_archive(folder, f"its {MANIFEST} is none ({error})") from None
    if manifest.format > FORMAT and manifest.world_protocol == "archive":
        raise RefusedError(
            ErrorCode.LOG_FORMAT,
            f"{folder} has layout {manifest.format}; this program supports {FORMAT}. Use the release that wrote it.",
            found=manifest.format,
            known=FORMAT,
        )
    if faults or not is_canonical:
        raise bad_archive(folder, f"its {MANIFEST} {faults[0] if faults else 'is not one line of canonical JSON'}")
    return ArchiveFolder(folder, manifest, sha256(data).hexdigest())


def _faults(manifest: ArchiveManifest) -> list[str]:
    if (manifest.world_protocol, manifest.format) != ("archive", FORMAT):
        return ["is that of something else"]
    manifest.frontier()
    if manifest.head.root_hex != manifest.root or manifest.after >= manifest.size:
        return ["names no stretch of a log"]
    if manifest.size % CHUNK_LEAVES or manifest.after % CHUNK_LEAVES:
        return [f"names a stretch that is not of whole chunks of {CHUNK_LEAVES} events"]
    for one in manifest.files:
        if not _PATH.fullmatch(one.path) or one.size < 0 or not _HASH.fullmatch(one.sha256):
            return [f"names a file that cannot be of an archive: {one.path!r}"]
    if len({one.path for one in manifest.files}) != len(manifest.files):
        return ["names a file twice"]
    if manifest.previous is not None and not _HASH.fullmatch(manifest.previous):
        return ["names no archive as the one before"]
    return []


def open_file(path: Path) -> BufferedReader:
    """Open a file of an archive for reading; raises ``OSError``, also for a FIFO, a device and a folder."""
    file = open(  # noqa: SIM115  # the caller closes it
        path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)
    )
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return file


def hash_of(path: Path) -> tuple[int, str]:
    """Return size in bytes and SHA-256 in hex of a file; raises ``OSError``."""
    with open_file(path) as file:
        digest = file_digest(file, "sha256").hexdigest()
        return file.tell(), digest


@contextmanager
def file_of(folder: Path, path: str) -> Iterator[BufferedReader]:
    """Open a file of an archive for reading, as a context manager.

    Raises:
        RefusedError: ``BAD_ARCHIVE`` where it cannot be read.
    """
    try:
        with open_file(folder / path) as file:
            yield file
    except OSError as error:
        raise bad_archive(folder, f"{path} cannot be read: {error.strerror}") from None


def bad_archive(folder: Path, clause: str, position: int | None = None) -> RefusedError:
    """Return the refusal of an archive, of which ``clause`` is true."""
    place = {} if position is None else {"position": position}
    return RefusedError(ErrorCode.BAD_ARCHIVE, f"{folder} is no sound archive: {clause}.", folder=str(folder), **place)
