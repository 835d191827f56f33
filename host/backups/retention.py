"""Which backups may go: those whose session ended well, by age and by size; never an open one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from host.backups.area import Area
from host.backups.journal import unfinished
from host.backups.objects import ObjectStore
from host.backups.sets import BackupSet, decode
from world.errors import RefusedError

__all__ = ["Pruned", "prune"]

_SUFFIX: Final = ".json"


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a prune did.

    Args:
        removed: ids of the backups that were removed, the oldest first.
        objects: contents that no backup referred to any more, removed.
        freed_bytes: their size together.
        kept_bytes: size of all contents that are kept.
        damaged: ids of backups that cannot be read; while there are any, no content is removed, for it may be theirs.
    """

    removed: list[str]
    objects: int
    freed_bytes: int
    kept_bytes: int
    damaged: list[str]


@dataclass(frozen=True, slots=True)
class _Known:
    """Of a backup: what a prune needs to know."""

    backup_id: str
    at: int
    is_open: bool
    contents: dict[str, int]


def prune(
    area: Area,
    *,
    now_ms: int,
    max_age_ms: int | None,
    max_bytes: int | None,
    keep: Callable[[str], bool],
    is_over: Callable[[str], bool],
    dry_run: bool = False,
) -> Pruned:
    """Remove old backups, then the oldest ones until the rest is small enough, then contents that are nobody's.

    Args:
        area: the folder, whose lock the caller holds.
        now_ms: the time.
        max_age_ms: closed backups older than this go; None keeps them whatever their age.
        max_bytes: closed backups go, the oldest first, while all contents take more than this; None for any size.
        keep: tells of an id whether its backup must stay.
        is_over: tells of an open backup whether its session has ended, though it was not closed.
        dry_run: remove nothing; only tell what would go.

    Raises:
        OSError: something cannot be read or removed; what is left is whole.
    """
    backups, damaged = _read_all(area)
    restoring = set(unfinished(area))
    free = [
        backup
        for backup in backups
        if not (backup.backup_id in restoring or keep(backup.backup_id))
        and (not backup.is_open or is_over(backup.backup_id))
    ]
    gone = _chosen(backups, free, now_ms=now_ms, max_age_ms=max_age_ms, max_bytes=max_bytes)
    if not dry_run:
        for backup in gone:
            area.remove("sets", backup.backup_id + _SUFFIX)
    removed = {backup.backup_id for backup in gone}
    used = {sha256 for backup in backups if backup.backup_id not in removed for sha256 in backup.contents}
    objects, freed, kept = _sweep(area, used, may_remove=not damaged, dry_run=dry_run)
    if not dry_run:
        area.clear_temporary()
    return Pruned([backup.backup_id for backup in gone], objects, freed, kept, damaged)


def _read_all(area: Area) -> tuple[list[_Known], list[str]]:
    found, damaged = [], []
    for name in area.names("sets"):
        backup_id = name.removesuffix(_SUFFIX)
        try:
            found.append(_known(decode(area.read("sets", name), backup_id)))
        except RefusedError:
            damaged.append(backup_id)
    found.sort(key=lambda backup: (backup.at, backup.backup_id))
    return found, damaged


def _known(backup: BackupSet) -> _Known:
    contents = {entry.sha256: entry.size for entry in backup.entries if entry.kind == "file"}
    return _Known(backup.backup_id, backup.at, backup.state == "open", contents)


def _chosen(
    backups: list[_Known], free: list[_Known], *, now_ms: int, max_age_ms: int | None, max_bytes: int | None
) -> list[_Known]:
    """Return the backups that go, the oldest first."""
    users: dict[str, int] = {}
    size = 0
    for backup in backups:
        for sha256, count in backup.contents.items():
            users[sha256] = users.get(sha256, 0) + 1
            size += count if users[sha256] == 1 else 0
    gone = []
    for backup in free:
        is_old = max_age_ms is not None and now_ms - backup.at > max_age_ms
        is_too_much = max_bytes is not None and size > max_bytes
        if not (is_old or is_too_much):
            continue
        gone.append(backup)
        for sha256, count in backup.contents.items():
            users[sha256] -= 1
            size -= 0 if users[sha256] else count
    return gone


def _sweep(area: Area, used: set[str], *, may_remove: bool, dry_run: bool) -> tuple[int, int, int]:
    """Remove the contents that nobody uses; return how many, their bytes, and the bytes that are kept."""
    store = ObjectStore(area)
    removed, freed, kept = 0, 0, 0
    for sha256, size in list(store.all()):
        if sha256 in used or not may_remove:
            kept += size
            continue
        if not dry_run:
            store.remove(sha256)
        removed, freed = removed + 1, freed + size
    return removed, freed, kept
