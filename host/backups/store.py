"""Backups of a workspace: taken before a lease to change something is granted, restored when its session fails.

Sources: KLIS-6 sections 3.3 and 7; design section 8. Requirements: KO-3.3, KO-7.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import msgspec

from host.backups.backup_folder import BackupFolder, explained
from host.backups.backup_fs import WorkspaceFiles, is_plain, widen_all
from host.backups.backup_set import (
    BackupEntry,
    BackupHeader,
    BackupPlace,
    BackupSet,
    check_id,
    decode,
    decode_header,
    encode,
    note_text,
)
from host.backups.capture import Capture, Progress
from host.backups.content_cache import ContentCache
from host.backups.journal import RestoreOrder, begin, end, read_order, reserve, unfinished
from host.backups.objects import ObjectStore
from host.backups.plan import make_plan
from host.backups.restore import Restored, apply_plan
from host.backups.retention import Pruned, prune
from host.workspace.comparison import ListedAs, listed_as
from host.workspace.names import name_of, path_of
from host.workspace.root import Workspace
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.klis.resources.resource import Resource, recorded_resource
from world.klis.triple import CHANGES, Triple

__all__ = ["CHANGES", "BackupInfo", "Backups", "resources_to_save"]

_SUFFIX: Final = ".json"


@dataclass(frozen=True, slots=True)
class BackupInfo:
    """Description of a backup.

    Args:
        backup_id: its name.
        at: when it was taken, in ms.
        note: a JSON object of the caller.
        resources: the saved resources, as canonical texts.
        state: ``open`` while its session may need it, else ``closed``; ``damaged`` when it cannot be read; all other
            members are then empty.
        entries: number of files, directories and links.
        size_bytes: size of all contents, counting equal ones repeatedly.
    """

    backup_id: str
    at: int
    note: Mapping[str, Any]
    resources: list[str]
    state: Literal["open", "closed", "damaged"]
    entries: int
    size_bytes: int


def resources_to_save(triples: Iterable[Triple]) -> list[Resource]:
    """Return the resources that must be saved before leases of these triples are granted (KO-7).

    These are the files that may be changed, created, deleted or renamed. Deleting or renaming a directory affects its
    content, so it is saved as a subtree.
    """
    resources: dict[Resource, None] = {}
    for triple in triples:
        if triple.resource.type == "FILE" and triple.predicate in CHANGES:
            resources[replace(triple.resource, subtree=True) if triple.covers else triple.resource] = None
    return list(resources)


class Backups:
    """Backups of one workspace; its methods may be called from several threads and processes at once.

    Args:
        workspace: the workspace. The backups are stored in its ``.klock/backups/``.
        hard_links: how to treat a file with further names outside the saved paths: ``refuse`` to save it, or
            ``allow`` it, although a rollback then separates the names.
        listed_as: how the file system looks up names; see ``host.workspace.comparison``.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        hard_links: Literal["refuse", "allow"] = "refuse",
        listed_as: ListedAs = listed_as,
    ) -> None:
        self._workspace = workspace
        self._files = WorkspaceFiles(workspace, listed_as=listed_as)
        self._hard_links: Literal["refuse", "allow"] = hard_links
        self._content_cache = ContentCache()
        self._finished: list[Restored] = []

    # taking

    def prepare(self, resources: Sequence[Resource], *, progress: Progress | None = None) -> None:
        """Copy what a backup of these resources needs, so that a following ``take`` copies little.

        No lock is held on which others wait. A file that changes before ``take`` is copied again.

        Args:
            resources: of type FILE; those with ``/*`` are saved with everything below.
            progress: called at intervals with the number of entries read and the number of bytes copied.

        Raises:
            RefusedError: ``BACKUP_FAILED``, ``HARD_LINK_OUTSIDE``, ``LINK_OUT_OF_WORKSPACE``, ``PRIVATE_PATH``,
                ``OUTSIDE_WORKSPACE``, ``NOT_A_FILE_RESOURCE``.
        """
        with self._writing() as backup_folder, backup_folder.locked("preparing", shared=True):
            self._capture(backup_folder, resources, progress)
            self._content_cache.save(backup_folder)

    def take(self, backup_id: str, resources: Sequence[Resource], *, at: int, note: Mapping[str, Any]) -> BackupInfo:
        """Save resources in their current state; the backup survives a power loss on return (KO-7).

        An interrupted rollback is finished first, so that a partly restored state is not saved.

        Args:
            backup_id: its name; letters, digits, dots, dashes and underscores.
            resources: of type FILE; those with ``/*`` are saved with everything below; missing ones as missing.
            at: the time, in ms.
            note: a JSON object to store with it.

        Raises:
            RefusedError: as ``prepare``, and ``BACKUP_EXISTS``, ``INVALID_BACKUP_ID``, ``NOT_CANONICAL``; nothing is
                saved then.
        """
        check_id(backup_id)
        note_json = note_text(note)
        with self._writing() as backup_folder, backup_folder.locked():
            if backup_id + _SUFFIX in backup_folder.names("sets"):
                raise RefusedError(
                    ErrorCode.BACKUP_EXISTS,
                    f"Backup {backup_id} already exists; choose another id.",
                    backup_id=backup_id,
                )
            self._finished += self._finish(backup_folder)
            taken = self._capture(backup_folder, resources, None)
            backup = msgspec.structs.replace(taken, at=at, backup_id=backup_id, note=note_json)
            reserve(backup_folder)
            backup_folder.write("sets", backup_id + _SUFFIX, encode(backup))
            return _info_of(backup)

    def _capture(
        self, backup_folder: BackupFolder, resources: Sequence[Resource], progress: Progress | None
    ) -> BackupSet:
        """Copy the contents of resources and return them as a set without a name."""
        self._content_cache.load(backup_folder)
        store = ObjectStore(backup_folder)
        capture = Capture(
            self._files,
            store,
            self._content_cache,
            now_ns=backup_folder.now_ns(),
            device=os.fstat(self._workspace.fd).st_dev,
            progress=progress,
        )
        settled_ns = backup_folder.now_ns()
        try:
            places = []
            for resource in resources:
                for path in self._files.places(resource):
                    capture.place(path, subtree=resource.subtree)
                    places.append(BackupPlace(name_of(path), resource.text, resource.subtree))
            capture.link_names(hard_links=self._hard_links)
            store.sync()
        except BaseException:
            store.drop()
            raise
        capture.finish()
        entries = [entry for _, entry in sorted(capture.entries.items())]
        return BackupSet(
            above=[entry for _, entry in sorted(capture.above.items())],
            at=0,
            backup_id="",
            bytes=sum(entry.size for entry in entries),
            count=len(entries),
            entries=entries,
            note=msgspec.Raw(b"{}"),
            places=places,
            resources=[resource.text for resource in resources],
            settled_ns=str(settled_ns),
            state="open",
        )

    # restoring

    def restore(
        self,
        backup_id: str,
        *,
        also_remove: Iterable[bytes] = (),
        only: Iterable[Resource] | None = None,
        fresh: bool = False,
    ) -> Restored:
        """Restore everything that was saved, and delete what was created in its place (KO-3.3).

        Unchanged entries are not touched, unless ``fresh``. Of a path that is not a subtree only the entry
        itself is deleted: a folder that was created there is kept, and reported as failed, while it is not empty. Every
        file is complete at any moment, as before or as saved. ``finish_interrupted`` continues an interrupted rollback.

        Args:
            backup_id: the backup.
            also_remove: further paths below the root that the session created; paths in the backup are kept.
            only: restore only what these resources cover; None for all.
            fresh: also replace unchanged files, so that no open handle refers to them.

        Returns:
            The result; ``failed`` names what could not be restored, and a repetition tries it again.

        Raises:
            RefusedError: ``NO_SUCH_BACKUP``, ``BACKUP_DAMAGED`` (nothing was changed); ``RESTORE_FAILED`` when the
                rollback could not begin.
        """
        order = RestoreOrder(
            also_remove=sorted(name_of(path) for path in set(also_remove) if is_plain(path)),
            backup_id=check_id(backup_id),
            only=None if only is None else [resource.text for resource in only],
            fresh=fresh,
        )
        with self._restoring() as backup_folder, backup_folder.locked():
            if backup_id in unfinished(backup_folder):
                self._finished += self._finish(backup_folder, backup_id)
            return self._restore(backup_folder, order)

    def finish_interrupted(self) -> list[Restored]:
        """Finish interrupted rollbacks; to be called at the start, before anything is granted.

        Returns:
            A result for each, including those that ``take`` had to finish since the last call. A rollback whose backup
            is damaged changes nothing, is reported as failed, and remains unfinished.

        Raises:
            RefusedError: ``RESTORE_FAILED`` when the backup folder cannot be used.
        """
        finished, self._finished = self._finished, []
        if not os.path.lexists(self._workspace.private / "backups"):
            return finished
        with self._restoring() as backup_folder, backup_folder.locked():
            return finished + self._finish(backup_folder)

    def _finish(self, backup_folder: BackupFolder, *backup_ids: str) -> list[Restored]:
        results = []
        if pending := unfinished(backup_folder):
            backup_folder.clear_temporary()
        for backup_id in pending:
            if backup_ids and backup_id not in backup_ids:
                continue
            try:
                results.append(self._restore(backup_folder, read_order(backup_folder, backup_id)))
            except RefusedError as refused:
                results.append(Restored([], [], [backup_id], backup_id, {backup_id: refused.message}))
        return results

    def _restore(self, backup_folder: BackupFolder, order: RestoreOrder) -> Restored:
        backup_id, store = order.backup_id, ObjectStore(backup_folder)
        backup = self._read(backup_folder, backup_id)
        only = None if order.only is None else [recorded_resource(text) for text in order.only]
        further = [path_of(name) for name in order.also_remove]
        with explained("RESTORE_FAILED", f"The rollback to the backup {backup_id} could not begin"):
            try:
                plan = make_plan(self._files, backup, also_remove=further, only=only, fresh=order.fresh)
            except PermissionError:  # a folder denies access to its owner; its mode is restored at the end
                _verify(store, backup.entries)
                begin(backup_folder, order)
                for path in backup.places:
                    widen_all(self._files, path_of(path.name))
                plan = make_plan(self._files, backup, also_remove=further, only=only, fresh=order.fresh)
            _verify(store, plan.put.values())
            begin(backup_folder, order)
        done = apply_plan(self._files, backup_folder, store, plan, backup_id=backup_id)
        with explained("RESTORE_FAILED", f"The rollback to the backup {backup_id} is done but could not be recorded"):
            end(backup_folder, backup_id)
        return done

    # inspecting and closing

    def close(self, backup_id: str) -> None:
        """Record that the session of a backup ended well: retention may delete it from now on.

        Raises:
            RefusedError: ``NO_SUCH_BACKUP``, ``BACKUP_DAMAGED``, ``BACKUP_FAILED``.
        """
        with self._writing() as backup_folder, backup_folder.locked():
            backup = self._read(backup_folder, check_id(backup_id))
            if backup.state != "closed":
                backup_folder.write(
                    "sets", backup_id + _SUFFIX, encode(msgspec.structs.replace(backup, state="closed"))
                )

    def list(self) -> list[BackupInfo]:
        """Return all backups, the oldest first; unreadable ones have the state ``damaged``."""
        infos = []
        with self._reading() as backup_folder:
            for name in backup_folder.names("sets") if backup_folder else ():
                backup_id = name.removesuffix(_SUFFIX)
                try:
                    infos.append(_info_of(decode_header(_text(backup_folder, backup_id), backup_id)))
                except RefusedError as refused:
                    if refused.code == "BACKUP_DAMAGED":
                        infos.append(BackupInfo(backup_id, 0, {}, [], "damaged", 0, 0))
        return sorted(infos, key=lambda info: (info.at, info.backup_id))

    def get(self, backup_id: str) -> BackupInfo:
        """Return one backup.

        Raises:
            RefusedError: ``NO_SUCH_BACKUP``, ``BACKUP_DAMAGED``.
        """
        check_id(backup_id)
        with self._reading() as backup_folder:
            return _info_of(decode_header(_text(backup_folder, backup_id), backup_id))

    def read(self, backup_id: str) -> BackupSet:
        """Return one backup with all its entries; raises as ``get``."""
        with self._reading() as backup_folder:
            return self._read(backup_folder, check_id(backup_id))

    def prune(
        self,
        *,
        now_ms: int,
        max_age_ms: int | None,
        max_bytes: int | None,
        keep: Callable[[str], bool] = lambda _: False,
        has_ended: Callable[[str], bool] = lambda _: False,
        dry_run: bool = False,
    ) -> Pruned:
        """Delete closed backups that are too old, then the oldest until the total size is small enough (KO-7).

        Args:
            now_ms: the time.
            max_age_ms: None for any age.
            max_bytes: None for any size.
            keep: returns for an id whether its backup must be kept at any age.
            has_ended: returns for an open backup whether its session has ended without closing it.
            dry_run: delete nothing; only return what would be deleted.

        Raises:
            RefusedError: ``BACKUP_FAILED`` when something cannot be deleted; the remaining backups are complete.
        """
        with self._writing() as backup_folder, backup_folder.locked():
            return prune(
                backup_folder,
                now_ms=now_ms,
                max_age_ms=max_age_ms,
                max_bytes=max_bytes,
                keep=keep,
                has_ended=has_ended,
                dry_run=dry_run,
            )

    def _read(self, backup_folder: BackupFolder | None, backup_id: str) -> BackupSet:
        return decode(_text(backup_folder, backup_id), backup_id)

    # the backup folder

    @contextmanager
    def _writing(self) -> Iterator[BackupFolder]:
        with (
            explained("BACKUP_FAILED", f"The folder of the backups, {self._workspace.private}/backups, cannot be used"),
            BackupFolder(self._workspace, make=True) as backup_folder,
        ):
            yield backup_folder

    @contextmanager
    def _restoring(self) -> Iterator[BackupFolder]:
        with (
            explained(
                "RESTORE_FAILED", f"The folder of the backups, {self._workspace.private}/backups, cannot be used"
            ),
            BackupFolder(self._workspace, make=True) as backup_folder,
        ):
            yield backup_folder

    @contextmanager
    def _reading(self) -> Iterator[BackupFolder | None]:
        """Open the folder without creating anything; None where it does not exist."""
        with explained(
            "BACKUP_FAILED", f"The folder of the backups, {self._workspace.private}/backups, cannot be read"
        ):
            try:
                backup_folder = BackupFolder(self._workspace, make=False)
            except FileNotFoundError:
                yield None
                return
            with backup_folder:
                yield backup_folder


def _verify(store: ObjectStore, entries: Iterable[BackupEntry]) -> None:
    """Read all contents that a rollback needs, before it changes anything."""
    for sha256, entry in {entry.sha256: entry for entry in entries if entry.kind == "file"}.items():
        store.verify(sha256, entry.size, name=entry.name)


def _text(backup_folder: BackupFolder | None, backup_id: str) -> bytes:
    try:
        if backup_folder is not None:
            return backup_folder.read("sets", backup_id + _SUFFIX)
    except FileNotFoundError:
        pass
    raise RefusedError(
        ErrorCode.NO_SUCH_BACKUP,
        f"Backup {backup_id} does not exist; list the backups with worldctl backups list.",
        backup_id=backup_id,
    )


def _info_of(backup: BackupSet | BackupHeader) -> BackupInfo:
    note: Mapping[str, Any] = msgspec.json.decode(backup.note)
    return BackupInfo(
        backup.backup_id, backup.at, note, list(backup.resources), backup.state, backup.count, backup.bytes
    )
