"""Journal of rollbacks: ``restoring/ID.json``, written before the first change and deleted after the last."""

from __future__ import annotations

import errno
import os
from typing import Final

import msgspec

from host.backups.backup_folder import BackupFolder
from host.backups.objects import damaged
from world.model.canonical_json import canonical_bytes, digest

__all__ = ["RestoreOrder", "begin", "end", "read_order", "reserve", "unfinished"]

_FOLDER: Final = "restoring"
_SUFFIX: Final = ".json"
_RESERVE: Final = "reserve"
_RESERVE_BYTES: Final = 1 << 20
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class RestoreOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The order of a rollback.

    Args:
        also_remove: names of further paths to delete.
        backup_id: the backup.
        only: the resources to restore; None for all.
        fresh: whether unchanged files are also replaced.
    """

    also_remove: list[str]
    backup_id: str
    only: list[str] | None
    fresh: bool = False


class _Journal(msgspec.Struct, frozen=True):
    digest: str
    order: RestoreOrder


def begin(folder: BackupFolder, order: RestoreOrder) -> None:
    """Record the beginning of a rollback durably; a full disk's reserve is used for it.

    Raises:
        OSError: no disk space, or no permission to write.
    """
    fields = msgspec.to_builtins(order)
    name, text = order.backup_id + _SUFFIX, canonical_bytes({"digest": digest(fields), "order": fields})
    try:
        folder.write(_FOLDER, name, text)
    except OSError as error:
        if error.errno not in _FULL or _RESERVE not in folder.names(""):
            raise
        folder.remove("", _RESERVE)
        folder.write(_FOLDER, name, text)


def end(folder: BackupFolder, backup_id: str) -> None:
    """Record that a rollback is complete."""
    folder.remove(_FOLDER, backup_id + _SUFFIX)


def unfinished(folder: BackupFolder) -> list[str]:
    """Return the ids of the backups with an unfinished rollback."""
    return [name.removesuffix(_SUFFIX) for name in folder.names(_FOLDER)]


def read_order(folder: BackupFolder, backup_id: str) -> RestoreOrder:
    """Return the order of an unfinished rollback.

    Raises:
        RefusedError: ``BACKUP_DAMAGED`` when the entry is not what was written.
    """
    path = f".klock/backups/{_FOLDER}/{backup_id}{_SUFFIX}"
    try:
        entry = msgspec.json.decode(folder.read(_FOLDER, backup_id + _SUFFIX), type=_Journal)
        if entry.digest == digest(msgspec.to_builtins(entry.order)) and entry.order.backup_id == backup_id:
            return entry.order
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    raise damaged(f"The journal entry of the rollback to {backup_id} ({path})", "is damaged", backup_id=backup_id)


def reserve(folder: BackupFolder) -> None:
    """Reserve disk space, so that a rollback can begin after a session has filled the disk."""
    for name in (_FOLDER, "temporary"):
        folder.handle(name)
    if _RESERVE not in folder.names(""):
        file, name = folder.temporary()
        try:
            os.posix_fallocate(file, 0, _RESERVE_BYTES)
            folder.put(name, "", _RESERVE)
        finally:
            os.close(file)
            folder.discard(name)
