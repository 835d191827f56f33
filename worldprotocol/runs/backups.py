"""Administration of the workspace's backups: listing, restoring by hand, and deleting old ones.

A backup's id is that of the verdict whose leases it was taken for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from host.backups import BackupInfo, Pruned, Restored
from host.backups.backup_set import BackupSet
from host.environment import HostEnvironment
from world.engine.writer import Writer
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.klis.resources.resource import Resource, recorded_resource
from world.model.record import Record
from world.pipeline.unit_of_work import UnitOfWork
from world.read_models.archive import Archive
from world.state.realm_view import ReadableRealm
from worldprotocol.runs.declaring import place_of
from worldprotocol.runs.retention import is_needed, prune_backups

__all__ = ["BackupAdministration", "Holder"]


class Holder(Record, frozen=True):
    """Holder of a lease on a resource that a restore would change."""

    agent_id: str
    session_id: str
    lease_id: str
    predicate: str
    resource: str


class BackupAdministration:
    """The backups of a realm's workspace.

    Args:
        archive: of the log.
        premises: the workspace with its backups.
        now_ms: the time, in ms.
        protocol: acts on the log; None for reading only.
    """

    def __init__(self, archive: Archive, premises: HostEnvironment, now_ms: int, protocol: Writer | None) -> None:
        self._archive = archive
        self._premises = premises
        self._now_ms = now_ms
        self._protocol = protocol

    def list(self) -> list[BackupInfo]:
        """Return all backups, the oldest first; one is ``open`` while it may have to be restored."""
        return [self._judged(info) for info in self._premises.backups.list()]

    def get(self, backup_id: str) -> BackupInfo:
        """Return one backup.

        Raises:
            RefusedError: ``NO_SUCH_BACKUP``, ``BACKUP_DAMAGED``, ``INVALID_BACKUP_ID``.
        """
        return self._judged(self._premises.backups.get(backup_id))

    def read(self, backup_id: str) -> BackupSet:
        """Return one backup with all its entries; raises as ``get``."""
        return self._premises.backups.read(backup_id)

    def holders(self, backup_id: str, resources: Iterable[str] = ()) -> Sequence[Holder]:
        """Return the holders of leases in force on the resources that a restore would change.

        Args:
            backup_id: the backup.
            resources: only these of it, as for ``restore``; none is all.

        Raises:
            RefusedError: as ``get`` and ``restore``.
        """
        info = self._premises.backups.get(backup_id)
        chosen = self._chosen(resources, info)
        return self._archive.peek(lambda realm: self._holders(realm, info, chosen))

    def restore(self, backup_id: str, resources: Iterable[str] = (), *, force: bool = False) -> Restored:
        """Restore the state at the grant of the leases; later files there are deleted (KO-3.3).

        No leases are granted meanwhile: the log is locked until it is done.

        Args:
            backup_id: the backup.
            resources: only these: places in the workspace or ``FILE:/...``; none is all that was saved.
            force: restore although other sessions hold leases.

        Raises:
            RefusedError: ``BACKUP_IN_USE`` with ``holders``; ``NOT_IN_BACKUP``, ``OUTSIDE_WORKSPACE``,
                ``LOG_READ_ONLY``, and as ``host.backups.Backups.restore``.
        """
        if self._protocol is None:
            raise RefusedError(
                ErrorCode.LOG_READ_ONLY, "This realm is open read-only; open it with Realm.open to restore."
            )
        info = self._premises.backups.get(backup_id)
        chosen = self._chosen(resources, info)

        def command(work: UnitOfWork) -> Restored:
            holders = [] if force else self._holders(work.realm, info, chosen)
            if holders:
                raise _in_use(holders)
            return self._premises.backups.restore(backup_id, only=chosen or None)

        done: Restored = self._protocol.run(command)
        return done

    def prune(self, *, max_age_ms: int | None = None, max_bytes: int | None = None, dry_run: bool = False) -> Pruned:
        """Delete unneeded backups; see ``worldprotocol.runs.retention.prune_backups``.

        Raises:
            RefusedError: ``BACKUP_FAILED``.
        """
        return prune_backups(
            self._archive,
            self._premises,
            now_ms=self._now_ms,
            max_age_ms=max_age_ms,
            max_bytes=max_bytes,
            dry_run=dry_run,
        )

    @property
    def size_bytes(self) -> int:
        """Size of the contents of all backups on the disk; equal contents are stored once."""
        size = 0
        for folder, _, files in os.walk(self._home("objects")):
            for name in files:
                with suppress(OSError):
                    size += os.lstat(os.path.join(folder, name)).st_size
        return size

    @property
    def interrupted(self) -> Sequence[str]:
        """Ids of the backups with an unfinished rollback."""
        with suppress(OSError):
            return sorted(name.removesuffix(".json") for name in os.listdir(self._home("restoring")))
        return []

    def _home(self, name: str) -> str:
        return str(self._premises.workspace.private / "backups" / name)

    def _judged(self, info: BackupInfo) -> BackupInfo:
        if info.state == "damaged":
            return info
        return replace(info, state="open" if is_needed(self._archive, info, now_ms=self._now_ms) else "closed")

    def _chosen(self, resources: Iterable[str], info: BackupInfo) -> Sequence[Resource]:
        chosen = [place_of(self._premises.workspace, one) for one in resources]
        saved = [recorded_resource(text) for text in info.resources]
        for one in chosen:
            if not any(one.overlaps(other) for other in saved):
                raise RefusedError(
                    ErrorCode.NOT_IN_BACKUP,
                    f"Backup {info.backup_id} has nothing of {one.text}; it was made of {', '.join(info.resources)}.",
                    resource=one.text,
                )
        return chosen

    def _holders(self, realm: ReadableRealm, info: BackupInfo, chosen: Sequence[Resource]) -> Sequence[Holder]:
        saved = [recorded_resource(text) for text in info.resources]
        touched = [one for one in chosen if any(one.overlaps(other) for other in saved)] if chosen else saved
        found = []
        for lease in realm.klis.leases.values():
            if lease.expires_at is not None and lease.expires_at < self._now_ms:
                continue
            triple = lease.triple
            held = replace(triple.resource, subtree=True) if triple.covers else triple.resource
            if any(held.overlaps(one) for one in touched):
                found.append(
                    Holder(
                        lease.session.agent_id,
                        lease.session.session_id,
                        lease.lease_id,
                        triple.predicate.value,
                        triple.resource.text,
                    )
                )
        return found


def _in_use(holders: Sequence[Holder]) -> RefusedError:
    first = holders[0]
    more = f", and {len(holders) - 1} more" if len(holders) > 1 else ""
    return RefusedError(
        ErrorCode.BACKUP_IN_USE,
        f"{first.agent_id!r}, session {first.session_id}, holds {first.predicate} on {first.resource}{more}: what it "
        "does there would be lost. Wait until its leases are over, revoke them, or give it back by force.",
        holders=[one.to_wire() for one in holders],
    )


def rendering_of(info: BackupInfo) -> Mapping[str, Any]:
    """Return a backup as JSON, without its entries."""
    return {
        "backupId": info.backup_id,
        "at": info.at,
        "agentId": info.note.get("agentId"),
        "sessionId": info.note.get("sessionId"),
        "resources": info.resources,
        "entries": info.entries,
        "sizeBytes": info.size_bytes,
        "state": info.state,
    }
