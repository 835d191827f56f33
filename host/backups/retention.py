"""Retention of backups: closed ones are deleted by age and by size; open ones are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from host.backups.backup_folder import BackupFolder
from host.backups.backup_set import BackupSet, decode
from host.backups.journal import unfinished
from host.backups.objects import ObjectStore
from world.errors import RefusedError

__all__ = ["Pruned", "prune"]

_SUFFIX: Final = ".json"


@dataclass(frozen=True, slots=True)
class Pruned:
    """Result of a prune.

    Args:
        removed: ids of the deleted backups, the oldest first.
        objects: number of deleted contents that no backup referred to.
        freed_bytes: their total size.
        kept_bytes: total size of the remaining contents.
        damaged: ids of unreadable backups; while there are any, no content is deleted, because it may belong to them.
    """

    removed: list[str]
    objects: int
    freed_bytes: int
    kept_bytes: int
    damaged: list[str]


@dataclass(frozen=True, slots=True)
class _BackupContents:
    """The contents of a backup."""

    backup_id: str
    at: int
    is_open: bool
    contents: dict[str, int]


def prune(
    backup_folder: BackupFolder,
    *,
    now_ms: int,
    max_age_ms: int | None,
    max_bytes: int | None,
    keep: Callable[[str], bool],
    has_ended: Callable[[str], bool],
    dry_run: bool = False,
) -> Pruned:
    """Delete old backups, then the oldest ones until the rest is small enough, then unused contents.

    Args:
        backup_folder: the folder, whose lock the caller holds.
        now_ms: the time.
        max_age_ms: closed backups older than this are deleted; None keeps them at any age.
        max_bytes: the oldest closed backups are deleted while all contents exceed this; None for any size.
        keep: returns for an id whether its backup must be kept.
        has_ended: returns for an open backup whether its session has ended without closing it.
        dry_run: delete nothing; only return what would be deleted.

    Raises:
        OSError: something cannot be read or deleted; the remaining backups are complete.
    """
    backups, damaged = _read_all(backup_folder)
    restoring = set(unfinished(backup_folder))
    free = [
        backup
        for backup in backups
        if not (backup.backup_id in restoring or keep(backup.backup_id))
        and (not backup.is_open or has_ended(backup.backup_id))
    ]
    removable = _chosen(backups, free, now_ms=now_ms, max_age_ms=max_age_ms, max_bytes=max_bytes)
    if not dry_run:
        for backup in removable:
            backup_folder.remove("sets", backup.backup_id + _SUFFIX)
    removed = {backup.backup_id for backup in removable}
    used = {sha256 for backup in backups if backup.backup_id not in removed for sha256 in backup.contents}
    objects, freed, kept = _sweep(backup_folder, used, may_remove=not damaged, dry_run=dry_run)
    if not dry_run:
        backup_folder.clear_temporary()
    return Pruned([backup.backup_id for backup in removable], objects, freed, kept, damaged)


def _read_all(backup_folder: BackupFolder) -> tuple[list[_BackupContents], list[str]]:
    backups, damaged = [], []
    for name in backup_folder.names("sets"):
        backup_id = name.removesuffix(_SUFFIX)
        try:
            backups.append(_contents_of(decode(backup_folder.read("sets", name), backup_id)))
        except RefusedError:
            damaged.append(backup_id)
    backups.sort(key=lambda backup: (backup.at, backup.backup_id))
    return backups, damaged


def _contents_of(backup: BackupSet) -> _BackupContents:
    contents = {entry.sha256: entry.size for entry in backup.entries if entry.kind == "file"}
    return _BackupContents(backup.backup_id, backup.at, backup.state == "open", contents)


def _chosen(
    backups: list[_BackupContents],
    free: list[_BackupContents],
    *,
    now_ms: int,
    max_age_ms: int | None,
    max_bytes: int | None,
) -> list[_BackupContents]:
    """Return the backups to delete, the oldest first."""
    users: dict[str, int] = {}
    size = 0
    for backup in backups:
        for sha256, count in backup.contents.items():
            users[sha256] = users.get(sha256, 0) + 1
            size += count if users[sha256] == 1 else 0
    removable = []
    for backup in free:
        is_old = max_age_ms is not None and now_ms - backup.at > max_age_ms
        is_too_much = max_bytes is not None and size > max_bytes
        if not (is_old or is_too_much):
            continue
        removable.append(backup)
        for sha256, count in backup.contents.items():
            users[sha256] -= 1
            size -= 0 if users[sha256] else count
    return removable


def _sweep(backup_folder: BackupFolder, used: set[str], *, may_remove: bool, dry_run: bool) -> tuple[int, int, int]:
    """Delete unused contents; return their number, their bytes, and the bytes that are kept."""
    store = ObjectStore(backup_folder)
    removed, freed, kept = 0, 0, 0
    for sha256, size in list(store.all()):
        if sha256 in used or not may_remove:
            kept += size
            continue
        if not dry_run:
            store.remove(sha256)
        removed, freed = removed + 1, freed + size
    return removed, freed, kept
