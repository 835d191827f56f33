"""Retention of backups by need, age and size (KO-7).

A backup is needed while a lease of its verdict is in force, or while a run or a proposal of its session is open, which
may have to be rolled back. Afterwards it is kept for a while, for people, and then deleted.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import Any, Final

from host.backups import BackupInfo, Pruned
from host.environment import HostEnvironment
from world.engine.writer import Writer
from world.errors import WorldProtocolError
from world.read_models.archive import Archive
from world.state.realm_view import RealmView

__all__ = ["is_needed", "prune_backups", "prune_sometimes"]

PRUNE_EVERY_MS: Final = 3_600_000
"""Interval of automatic pruning, in ms."""

STRANGE_MS: Final = 86_400_000
"""Retention of a backup whose verdict is not in the log: its grant may just be being written."""

_STAMP: Final = "pruned"
_LOGGER = logging.getLogger("worldprotocol")


def is_needed(archive: Archive, info: BackupInfo, *, now_ms: int) -> bool:
    """Whether a backup may still have to be restored.

    Args:
        archive: of the log.
        info: the backup.
        now_ms: the time.
    """
    known = archive.rows("verdict", {"of_verdict": info.backup_id})  # read first: a later grant is visible below
    if not known and now_ms - info.at < STRANGE_MS:
        return True
    return archive.peek(lambda realm: _is_in_use(realm, info.backup_id, info.note, now_ms))


def _is_in_use(realm: RealmView, backup_id: str, note: Any, now_ms: int) -> bool:
    session = note.get("sessionId")
    if session in realm.proposals or any(
        (run.agent_id, run.session_id) == (note.get("agentId"), session) for run in realm.runs.values()
    ):
        return True
    return any(
        lease.verdict_id == backup_id and (lease.expires_at is None or now_ms <= lease.expires_at)
        for lease in realm.klis.leases.values()
    )


def prune_backups(
    archive: Archive,
    premises: HostEnvironment,
    *,
    now_ms: int,
    max_age_ms: int | None = None,
    max_bytes: int | None = None,
    dry_run: bool = False,
) -> Pruned:
    """Delete unneeded backups that are too old, then the oldest until the total size is small enough.

    Args:
        archive: of the log.
        premises: the workspace with its backups.
        now_ms: the time.
        max_age_ms: None for the environment's setting.
        max_bytes: None for the environment's setting.
        dry_run: delete nothing; only return what would be deleted.

    Raises:
        RefusedError: ``BACKUP_FAILED`` when something cannot be deleted; the remaining backups are complete.
    """
    backups = {info.backup_id: info for info in premises.backups.list()}

    def keep(backup_id: str) -> bool:
        info = backups.get(backup_id)  # None was taken since the listing
        return info is None or is_needed(archive, info, now_ms=now_ms)

    return premises.backups.prune(
        now_ms=now_ms,
        max_age_ms=premises.keep_ms if max_age_ms is None else max_age_ms,
        max_bytes=premises.keep_bytes if max_bytes is None else max_bytes,
        keep=keep,
        has_ended=lambda _: True,
        dry_run=dry_run,
    )


def prune_sometimes(protocol: Writer, premises: HostEnvironment) -> Pruned | None:
    """Prune by the settings, at most once an hour; None where it is not due, or failed, which is logged."""
    try:
        if not _is_time(premises, protocol.now_ms()):
            return None
        return prune_backups(protocol.archive, premises, now_ms=protocol.now_ms())
    except (WorldProtocolError, OSError) as error:
        _LOGGER.warning("Old backups could not be removed: %s", error)
        return None


def _is_time(premises: HostEnvironment, now_ms: int) -> bool:
    """Whether pruning is due; records that it starts now. Without backups nothing is created."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(FileNotFoundError):
        private = os.open(premises.workspace.private.name, flags, dir_fd=premises.workspace.fd)
        try:
            stamp = os.open(_STAMP, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=private)
            try:
                said = os.read(stamp, 32).decode("ascii", "replace")
                if said.isdigit() and 0 <= now_ms - int(said) < PRUNE_EVERY_MS:
                    return False
                os.ftruncate(stamp, 0)
                os.pwrite(stamp, str(now_ms).encode(), 0)
                return True
            finally:
                os.close(stamp)
        finally:
            os.close(private)
    return False
