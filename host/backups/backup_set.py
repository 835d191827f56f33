"""Content of one backup: ``sets/ID.json``, canonical JSON with its own digest.

Times and inode numbers are texts, because JSON numbers are exact only up to 2^53. Names are written as in ``FILE:``
resources. The target of a link, which may be any bytes, is percent-encoded.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from typing import Any, Final, Literal
from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec

from host.backups.objects import damaged
from host.workspace.names import name_of, path_of
from host.workspace.safe import kind_of
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes

__all__ = ["BackupEntry", "BackupHeader", "BackupPlace", "BackupSet", "check_id", "decode", "encode", "entry_of"]

VERSION: Final = 1
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_DIGEST: Final = re.compile(rb'"digest":"([0-9a-f]{64})"')
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_PLAIN: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in '%"\\')

Kind = Literal["file", "dir", "link", "other", "missing"]


class BackupEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One file, directory or link as saved; the fields are in canonical order.

    Args:
        ctime_ns: time of the last change of anything, in ns.
        gid: group.
        ino: inode number, empty where it is not meaningful.
        kind: ``missing`` where nothing existed, ``other`` for pipes, sockets and devices.
        links: number of names of the file.
        mode: all bits, the kind's included.
        mtime_ns: time of the last change of the content, in ns.
        name: below the workspace's root, as ``/src/a.py``.
        rdev: device number, for device files.
        same_as: the name of an earlier entry that is the same file (a hard link).
        sha256: of a file's bytes.
        size: of a file, in bytes.
        target: of a link.
        uid: owner.
        xattrs: extended attributes, as hexadecimal text.
    """

    ctime_ns: str = ""
    gid: int = 0
    ino: str = ""
    kind: Kind
    links: int = 1
    mode: int = 0
    mtime_ns: str = ""
    name: str
    rdev: int = 0
    same_as: str = ""
    sha256: str = ""
    size: int = 0
    target: str = ""
    uid: int = 0
    xattrs: dict[str, str] = {}

    @property
    def relative(self) -> bytes:
        """Path below the workspace's root."""
        return path_of(self.name)

    @property
    def mtime(self) -> int:
        """Time of the last change of the content, in ns."""
        return int(self.mtime_ns)

    @property
    def target_bytes(self) -> bytes:
        """Target of a link, as written."""
        return unquote_to_bytes(self.target)


class BackupPlace(msgspec.Struct, frozen=True, rename="camel"):
    """Path of a resource when it was saved, and whether it includes everything below."""

    name: str
    resource: str
    subtree: bool


class BackupHeader(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A backup without its entries, which are not decoded."""

    at: int
    backup_id: str
    bytes: int
    count: int
    entries: msgspec.Raw
    note: msgspec.Raw
    resources: list[str]
    state: Literal["open", "closed"]
    version: int


class BackupSet(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One backup; the fields are in canonical order.

    Args:
        above: the directories that lead to the saved paths, in case they must be created again.
        at: when it was taken, in ms.
        backup_id: its name.
        bytes: total size of the contents.
        count: number of entries.
        digest: SHA-256 of this text with an empty digest.
        entries: everything that was saved, by name.
        note: a JSON object of the caller.
        places: the path of each resource.
        resources: the requested resources, as canonical texts.
        settled_ns: a change before this time happened before the entry was read, in ns.
        state: ``open`` while the session that it was taken for may still need it.
        version: of this format.
    """

    above: list[BackupEntry]
    at: int
    backup_id: str
    bytes: int
    count: int
    digest: str = ""
    entries: list[BackupEntry]
    note: msgspec.Raw
    places: list[BackupPlace]
    resources: list[str]
    settled_ns: str
    state: Literal["open", "closed"]
    version: int = VERSION


def check_id(backup_id: str) -> str:
    """Check the id of a backup, which is also a file name.

    Raises:
        RefusedError: ``INVALID_BACKUP_ID``.
    """
    if not isinstance(backup_id, str) or not _ID.fullmatch(backup_id):
        raise RefusedError(
            ErrorCode.INVALID_BACKUP_ID,
            f"{backup_id!r} is not a valid backup id; use up to 128 letters, digits, dots, dashes and underscores, "
            "a letter or digit first.",
        )
    return backup_id


def note_text(note: Mapping[str, Any]) -> msgspec.Raw:
    """Return a note as canonical text; raises ``NOT_CANONICAL`` where it has none."""
    return msgspec.Raw(canonical_bytes(dict(note)))


def encode(backup: BackupSet) -> bytes:
    """Return a set as canonical JSON with its digest."""
    text = msgspec.json.encode(msgspec.structs.replace(backup, digest=""))
    digest = hashlib.sha256(text).hexdigest()
    return text.replace(b'"digest":""', b'"digest":"%s"' % digest.encode(), 1)


def decode(text: bytes, backup_id: str) -> BackupSet:
    """Decode the set in a file.

    Raises:
        RefusedError: ``BACKUP_DAMAGED`` when it differs from what was written.
    """
    _check_digest(text, backup_id)
    try:
        backup = msgspec.json.decode(text, type=BackupSet)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged_set(backup_id, f"cannot be read ({error})") from None
    for entry in (*backup.entries, *backup.above):
        _check_entry(entry, backup_id)
    if backup.version != VERSION or backup.backup_id != backup_id:
        raise _damaged_set(backup_id, f"is version {backup.version} of {backup.backup_id!r}")
    return backup


def decode_header(text: bytes, backup_id: str) -> BackupHeader:
    """Decode a set without its entries; raises as ``decode``."""
    _check_digest(text, backup_id)
    try:
        return msgspec.json.decode(text, type=BackupHeader)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged_set(backup_id, f"cannot be read ({error})") from None


def _check_digest(text: bytes, backup_id: str) -> None:
    recorded = _DIGEST.search(text)
    if recorded is None:
        raise _damaged_set(backup_id, "has no digest")
    bare = b'%s"digest":""%s' % (text[: recorded.start()], text[recorded.end() :])
    if hashlib.sha256(bare).hexdigest().encode() != recorded[1]:
        raise _damaged_set(backup_id, "holds other bytes than were written")


def _check_entry(entry: BackupEntry, backup_id: str) -> None:
    parts = entry.relative.split(b"/")
    if (b".." in parts or b"." in parts) or (entry.kind == "file" and not _SHA256.fullmatch(entry.sha256)):
        raise _damaged_set(backup_id, f"has the invalid entry {entry.name!r}")


def _damaged_set(backup_id: str, why: str) -> RefusedError:
    return damaged(f"The backup {backup_id} (.klock/backups/sets/{backup_id}.json)", why, backup_id=backup_id)


def entry_of(
    relative: bytes,
    status: os.stat_result,
    *,
    trusted: bool,
    sha256: str = "",
    target: bytes = b"",
    xattrs: dict[str, str] | None = None,
) -> BackupEntry:
    """Return the entry for a path and its status.

    Args:
        relative: the path below the root.
        status: the status of the entry.
        trusted: whether its inode number and time of change identify its content.
        sha256: of a file's bytes.
        target: of a link.
        xattrs: extended attributes, in hexadecimal text.
    """
    kind = kind_of(status.st_mode)
    return BackupEntry(
        ctime_ns=str(status.st_ctime_ns),
        gid=status.st_gid,
        ino=str(status.st_ino) if trusted else "",
        kind=kind,
        links=status.st_nlink if kind == "file" else 1,
        mode=status.st_mode,
        mtime_ns=str(status.st_mtime_ns),
        name=name_of(relative),
        rdev=status.st_rdev if kind == "other" else 0,
        sha256=sha256,
        size=status.st_size if kind == "file" else 0,
        target=quote_from_bytes(target, safe=_PLAIN) if target else "",
        uid=status.st_uid,
        xattrs=xattrs or {},
    )
