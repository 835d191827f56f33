"""Rollbacks that have begun: ``restoring/ID.json``, written before the first change and removed after the last."""

from __future__ import annotations

import errno
import os
from typing import Final

import msgspec

from host.backups.area import Area
from host.backups.objects import damaged
from world.model.canonical_json import canonical_bytes, digest

__all__ = ["RestoreOrder", "begin", "end", "read_order", "reserve", "unfinished"]

_FOLDER: Final = "restoring"
_SUFFIX: Final = ".json"
_RESERVE: Final = "reserve"
_RESERVE_BYTES: Final = 1 << 20
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class RestoreOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a rollback was asked for.

    Args:
        also_remove: names of further paths that are to go.
        backup_id: which backup.
        only: the resources that are to be restored; None for all.
        fresh: whether files that are as they were are put anew, too.
    """

    also_remove: list[str]
    backup_id: str
    only: list[str] | None
    fresh: bool = False


class _Journal(msgspec.Struct, frozen=True):
    digest: str
    order: RestoreOrder


def begin(area: Area, order: RestoreOrder) -> None:
    """Note a rollback for good; on a full disk the room that was kept for it is used.

    Raises:
        OSError: there is no room, or no right to write.
    """
    told = msgspec.to_builtins(order)
    name, text = order.backup_id + _SUFFIX, canonical_bytes({"digest": digest(told), "order": told})
    try:
        area.write(_FOLDER, name, text)
    except OSError as error:
        if error.errno not in _FULL or _RESERVE not in area.names(""):
            raise
        area.remove("", _RESERVE)
        area.write(_FOLDER, name, text)


def end(area: Area, backup_id: str) -> None:
    """Note that a rollback is done."""
    area.remove(_FOLDER, backup_id + _SUFFIX)


def unfinished(area: Area) -> list[str]:
    """Return the ids of the backups whose rollback has begun and not ended."""
    return [name.removesuffix(_SUFFIX) for name in area.names(_FOLDER)]


def read_order(area: Area, backup_id: str) -> RestoreOrder:
    """Return what a rollback was asked for.

    Raises:
        RefusedError: ``BACKUP_DAMAGED`` when it is not what was written.
    """
    place = f".klock/backups/{_FOLDER}/{backup_id}{_SUFFIX}"
    try:
        found = msgspec.json.decode(area.read(_FOLDER, backup_id + _SUFFIX), type=_Journal)
        if found.digest == digest(msgspec.to_builtins(found.order)) and found.order.backup_id == backup_id:
            return found.order
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    raise damaged(f"The note of the rollback to {backup_id} ({place})", "is damaged", backup_id=backup_id)


def reserve(area: Area) -> None:
    """Keep some room on the disk, so that a rollback can begin when a session has filled it."""
    for folder in (_FOLDER, "temporary"):
        area.handle(folder)
    if _RESERVE not in area.names(""):
        file, name = area.temporary()
        try:
            os.posix_fallocate(file, 0, _RESERVE_BYTES)
            area.put(name, "", _RESERVE)
        finally:
            os.close(file)
            area.discard(name)
