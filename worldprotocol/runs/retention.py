"""Which backups are still needed, and removing the others by age and size (KO-7).

A backup is needed while a lease of its verdict is in force, or while a run or a proposal of its session is open: an
end that goes wrong gives it back. When that is over it is kept for a while, for people, and then it goes.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import Any, Final

from host.backups import BackupInfo, Pruned
from host.environment import HostEnvironment
from world.engine.protocol import WorldProtocol
from world.errors import WorldProtocolError
from world.read_models.archive import Archive
from world.state.realm_state import RealmState

__all__ = ["is_needed", "prune_backups", "prune_sometimes"]

PRUNE_EVERY_MS: Final = 3_600_000
"""How often backups are pruned by themselves, in ms."""

STRANGE_MS: Final = 86_400_000
"""How long a backup is kept whose verdict the log does not know: it may be of a grant that is just being written."""

_STAMP: Final = "pruned"
_LOGGER = logging.getLogger("worldprotocol")


def is_needed(archive: Archive, info: BackupInfo, *, now_ms: int) -> bool:
    """Tell whether a backup may still have to be given back.

    Args:
        archive: of the log.
        info: the backup.
        now_ms: the time.
    """
    known = archive.rows("verdict", of_verdict=info.backup_id)  # first: what is granted after this is found below
    if not known and now_ms - info.at < STRANGE_MS:
        return True
    return archive.peek(lambda realm: _is_in_use(realm, info.backup_id, info.note, now_ms))


def _is_in_use(realm: RealmState, backup_id: str, note: Any, now_ms: int) -> bool:
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
    """Remove the backups that nobody needs and that are too old, then the oldest until all are small enough.

    Args:
        archive: of the log.
        premises: the workspace with its backups.
        now_ms: the time.
        max_age_ms: None is what the premises say.
        max_bytes: None is what the premises say.
        dry_run: remove nothing; only tell what would go.

    Raises:
        RefusedError: ``BACKUP_FAILED`` when something cannot be removed; what is left is whole.
    """
    backups = {info.backup_id: info for info in premises.backups.list()}

    def keep(backup_id: str) -> bool:
        info = backups.get(backup_id)  # None was taken this moment
        return info is None or is_needed(archive, info, now_ms=now_ms)

    return premises.backups.prune(
        now_ms=now_ms,
        max_age_ms=premises.keep_ms if max_age_ms is None else max_age_ms,
        max_bytes=premises.keep_bytes if max_bytes is None else max_bytes,
        keep=keep,
        has_ended=lambda _: True,
        dry_run=dry_run,
    )


def prune_sometimes(protocol: WorldProtocol, premises: HostEnvironment) -> Pruned | None:
    """Prune by the settings, once an hour at most; None where it is not time, or it failed, which is logged."""
    try:
        if not _is_time(premises, protocol.now_ms()):
            return None
        return prune_backups(protocol.archive, premises, now_ms=protocol.now_ms())
    except (WorldProtocolError, OSError) as error:
        _LOGGER.warning("Old backups could not be removed: %s", error)
        return None


def _is_time(premises: HostEnvironment, now_ms: int) -> bool:
    """Tell whether the last pruning is long ago, and note that there is one now; nothing is made for no backups."""
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
