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

from host.backups.area import Area, explained
from host.backups.backup_fs import Ground, is_plain, widen_all
from host.backups.capture import Capture, Progress
from host.backups.journal import RestoreOrder, begin, end, read_order, reserve, unfinished
from host.backups.known import Known
from host.backups.objects import ObjectStore
from host.backups.plan import make_plan
from host.backups.restore import Restored, carry_out
from host.backups.retention import Pruned, prune
from host.backups.sets import (
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
from host.workspace.comparison import ListedAs, listed_as
from host.workspace.names import name_of, path_of
from host.workspace.root import Workspace
from world.errors import RefusedError
from world.klis.predicate import Predicate
from world.klis.resources.resource import Resource, recorded_resource
from world.klis.triple import Triple

__all__ = ["CHANGES", "BackupInfo", "Backups", "resources_to_save"]

_SUFFIX: Final = ".json"
CHANGES: Final = frozenset({Predicate.PROVIDES, Predicate.MUTATES, Predicate.DELETES, Predicate.RENAMES})
"""The predicates that let their holder change a resource."""


@dataclass(frozen=True, slots=True)
class BackupInfo:
    """What a backup says about itself.

    Args:
        backup_id: its name.
        at: when it was taken, in ms.
        note: what the caller wanted to remember.
        resources: what was saved, as canonical texts.
        state: ``open`` while the session that it was taken for may need it, else ``closed``; ``damaged`` when it cannot
            be read, and nothing else of it is known.
        entries: how many files, directories and links it remembers.
        size_bytes: of the files' contents together, though equal ones are kept once.
    """

    backup_id: str
    at: int
    note: Mapping[str, Any]
    resources: list[str]
    state: Literal["open", "closed", "damaged"]
    entries: int
    size_bytes: int


def resources_to_save(triples: Iterable[Triple]) -> list[Resource]:
    """Return what must be saved before the leases of these triples are granted (KO-7).

    That is every file that may be changed, made, deleted or renamed. To delete or rename a directory takes along what
    is below, so it is saved as a subtree.
    """
    found: dict[Resource, None] = {}
    for triple in triples:
        if triple.resource.type == "FILE" and triple.predicate in CHANGES:
            found[replace(triple.resource, subtree=True) if triple.covers else triple.resource] = None
    return list(found)


class Backups:
    """The backups of one workspace; its methods may be called from several threads and processes at once.

    Args:
        workspace: whose. The backups are kept in its ``.klock/backups/``.
        hard_links: what to do with a file that has further names outside of what is saved: ``refuse`` to save it, or
            ``allow`` it, though a rollback parts the names then.
        listed_as: how the file system finds names; see ``host.workspace.comparison``.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        hard_links: Literal["refuse", "allow"] = "refuse",
        listed_as: ListedAs = listed_as,
    ) -> None:
        self._workspace = workspace
        self._ground = Ground(workspace, listed_as=listed_as)
        self._hard_links: Literal["refuse", "allow"] = hard_links
        self._known = Known()
        self._finished: list[Restored] = []

    # taking

    def prepare(self, resources: Sequence[Resource], *, progress: Progress | None = None) -> None:
        """Copy what a backup of these resources will need, so that ``take`` right after it copies little.

        No lock is held that anybody waits for. Nothing is promised: what changes until ``take`` is copied there again.

        Args:
            resources: of type FILE; those with ``/*`` are saved with everything below.
            progress: called from time to time with how many files were looked at and how many bytes were copied.

        Raises:
            RefusedError: ``BACKUP_FAILED``, ``HARD_LINK_OUTSIDE``, ``LINK_OUT_OF_WORKSPACE``, ``PRIVATE_PATH``,
                ``OUTSIDE_WORKSPACE``, ``NOT_A_FILE_RESOURCE``.
        """
        with self._writing() as area, area.locked("preparing", shared=True):
            self._capture(area, resources, progress)
            self._known.save(area)

    def take(self, backup_id: str, resources: Sequence[Resource], *, at: int, note: Mapping[str, Any]) -> BackupInfo:
        """Save resources as they are now; when this returns, the backup survives a loss of power (KO-7).

        A rollback that was cut off is finished first: half of it must not be saved.

        Args:
            backup_id: its name; letters, digits, dots, dashes and underscores.
            resources: of type FILE; those with ``/*`` are saved with everything below; missing ones as missing.
            at: the time, in ms.
            note: a JSON object to remember with it.

        Raises:
            RefusedError: what ``prepare`` refuses, ``BACKUP_EXISTS``, ``INVALID_BACKUP_ID``, ``NOT_CANONICAL``; then
                nothing was saved.
        """
        check_id(backup_id)
        noted = note_text(note)
        with self._writing() as area, area.locked():
            if backup_id + _SUFFIX in area.names("sets"):
                raise RefusedError(
                    "BACKUP_EXISTS", f"There is a backup {backup_id} already; take another id.", backup_id=backup_id
                )
            self._finished += self._finish(area)
            taken = self._capture(area, resources, None)
            backup = msgspec.structs.replace(taken, at=at, backup_id=backup_id, note=noted)
            reserve(area)
            area.write("sets", backup_id + _SUFFIX, encode(backup))
            return _info_of(backup)

    def _capture(self, area: Area, resources: Sequence[Resource], progress: Progress | None) -> BackupSet:
        """Copy what resources hold and return it as a set without a name."""
        self._known.load(area)
        store = ObjectStore(area)
        capture = Capture(
            self._ground,
            store,
            self._known,
            now_ns=area.now_ns(),
            device=os.fstat(self._workspace.fd).st_dev,
            progress=progress,
        )
        settled_ns = area.now_ns()
        try:
            places = []
            for resource in resources:
                for place in self._ground.places(resource):
                    capture.place(place, subtree=resource.subtree)
                    places.append(BackupPlace(name_of(place), resource.text, resource.subtree))
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
        """Bring everything that was saved back to how it was, and remove what came to be in its place (KO-3.3).

        What is as it was is not touched, unless it is to be ``fresh``. Of a place that is no subtree only the entry
        itself is removed: a folder that came to be there stays, and is told, while it is not empty. Each file is there
        whole, as before or as saved, at any moment. A rollback that is cut off goes on with ``finish_interrupted``.

        Args:
            backup_id: which backup.
            also_remove: further paths below the root that the session made; what the backup knows stays.
            only: restore only what these resources cover; None for all.
            fresh: put files that are as they were anew, too, so that no handle that is still open leads to any.

        Returns:
            What was done; ``failed`` names what could not be restored, and asking again tries that again.

        Raises:
            RefusedError: ``NO_SUCH_BACKUP``, ``BACKUP_DAMAGED`` and nothing was changed; ``RESTORE_FAILED`` when the
                rollback could not begin.
        """
        order = RestoreOrder(
            also_remove=sorted(name_of(place) for place in set(also_remove) if is_plain(place)),
            backup_id=check_id(backup_id),
            only=None if only is None else [resource.text for resource in only],
            fresh=fresh,
        )
        with self._restoring() as area, area.locked():
            if backup_id in unfinished(area):
                self._finished += self._finish(area, backup_id)
            return self._restore(area, order)

    def finish_interrupted(self) -> list[Restored]:
        """Finish the rollbacks that were cut off; to be called at the start, before anything is granted.

        Returns:
            What was done for each, those included that ``take`` had to finish since the last call. One whose backup is
            damaged changes nothing, is told as failed, and stays.

        Raises:
            RefusedError: ``RESTORE_FAILED`` when the folder of the backups cannot be used.
        """
        finished, self._finished = self._finished, []
        if not os.path.lexists(self._workspace.private / "backups"):
            return finished
        with self._restoring() as area, area.locked():
            return finished + self._finish(area)

    def _finish(self, area: Area, *backup_ids: str) -> list[Restored]:
        found = []
        if waiting := unfinished(area):
            area.clear_temporary()
        for backup_id in waiting:
            if backup_ids and backup_id not in backup_ids:
                continue
            try:
                found.append(self._restore(area, read_order(area, backup_id)))
            except RefusedError as refused:
                found.append(Restored([], [], [backup_id], backup_id, {backup_id: refused.message}))
        return found

    def _restore(self, area: Area, order: RestoreOrder) -> Restored:
        backup_id, store = order.backup_id, ObjectStore(area)
        backup = self._read(area, backup_id)
        only = None if order.only is None else [recorded_resource(text) for text in order.only]
        further = [path_of(name) for name in order.also_remove]
        with explained("RESTORE_FAILED", f"The rollback to the backup {backup_id} could not begin"):
            try:
                plan = make_plan(self._ground, backup, also_remove=further, only=only, fresh=order.fresh)
            except PermissionError:  # a folder is closed to its owner; its mode comes back at the end
                _verify(store, backup.entries)
                begin(area, order)
                for place in backup.places:
                    widen_all(self._ground, path_of(place.name), subtree=True)
                plan = make_plan(self._ground, backup, also_remove=further, only=only, fresh=order.fresh)
            _verify(store, plan.put.values())
            begin(area, order)
        done = carry_out(self._ground, area, store, plan, backup_id=backup_id)
        with explained("RESTORE_FAILED", f"The rollback to the backup {backup_id} is done but could not be noted"):
            end(area, backup_id)
        return done

    # looking and ending

    def close(self, backup_id: str) -> None:
        """Note that the session of a backup ended well: retention may remove it from now on.

        Raises:
            RefusedError: ``NO_SUCH_BACKUP``, ``BACKUP_DAMAGED``, ``BACKUP_FAILED``.
        """
        with self._writing() as area, area.locked():
            backup = self._read(area, check_id(backup_id))
            if backup.state != "closed":
                area.write("sets", backup_id + _SUFFIX, encode(msgspec.structs.replace(backup, state="closed")))

    def list(self) -> list[BackupInfo]:
        """Return all backups, the oldest first; those that cannot be read are told as ``damaged``."""
        found = []
        with self._reading() as area:
            for name in area.names("sets") if area else ():
                backup_id = name.removesuffix(_SUFFIX)
                try:
                    found.append(_info_of(decode_header(_text(area, backup_id), backup_id)))
                except RefusedError as refused:
                    if refused.code == "BACKUP_DAMAGED":
                        found.append(BackupInfo(backup_id, 0, {}, [], "damaged", 0, 0))
        return sorted(found, key=lambda info: (info.at, info.backup_id))

    def get(self, backup_id: str) -> BackupInfo:
        """Return one backup.

        Raises:
            RefusedError: ``NO_SUCH_BACKUP``, ``BACKUP_DAMAGED``.
        """
        check_id(backup_id)
        with self._reading() as area:
            return _info_of(decode_header(_text(area, backup_id), backup_id))

    def read(self, backup_id: str) -> BackupSet:
        """Return one backup with all its entries; refuses what ``get`` refuses."""
        with self._reading() as area:
            return self._read(area, check_id(backup_id))

    def prune(
        self,
        *,
        now_ms: int,
        max_age_ms: int | None,
        max_bytes: int | None,
        keep: Callable[[str], bool] = lambda _: False,
        is_over: Callable[[str], bool] = lambda _: False,
        dry_run: bool = False,
    ) -> Pruned:
        """Remove closed backups that are too old, then the oldest until the contents of all are small enough (KO-7).

        Args:
            now_ms: the time.
            max_age_ms: None for any age.
            max_bytes: None for any size.
            keep: tells of an id whether its backup must stay, whatever its age.
            is_over: tells of an open backup whether its session has ended, though nobody closed it.
            dry_run: remove nothing; only tell what would go.

        Raises:
            RefusedError: ``BACKUP_FAILED`` when something cannot be removed; what is left is whole.
        """
        with self._writing() as area, area.locked():
            return prune(
                area,
                now_ms=now_ms,
                max_age_ms=max_age_ms,
                max_bytes=max_bytes,
                keep=keep,
                is_over=is_over,
                dry_run=dry_run,
            )

    def _read(self, area: Area | None, backup_id: str) -> BackupSet:
        return decode(_text(area, backup_id), backup_id)

    # the folder

    @contextmanager
    def _writing(self) -> Iterator[Area]:
        with (
            explained("BACKUP_FAILED", f"The folder of the backups, {self._workspace.private}/backups, cannot be used"),
            Area(self._workspace, make=True) as area,
        ):
            yield area

    @contextmanager
    def _restoring(self) -> Iterator[Area]:
        with (
            explained(
                "RESTORE_FAILED", f"The folder of the backups, {self._workspace.private}/backups, cannot be used"
            ),
            Area(self._workspace, make=True) as area,
        ):
            yield area

    @contextmanager
    def _reading(self) -> Iterator[Area | None]:
        """Open the folder without making anything; None where there is none."""
        with explained(
            "BACKUP_FAILED", f"The folder of the backups, {self._workspace.private}/backups, cannot be read"
        ):
            try:
                area = Area(self._workspace, make=False)
            except FileNotFoundError:
                yield None
                return
            with area:
                yield area


def _verify(store: ObjectStore, entries: Iterable[BackupEntry]) -> None:
    """Read all contents that a rollback needs before it changes anything."""
    for sha256, entry in {entry.sha256: entry for entry in entries if entry.kind == "file"}.items():
        store.verify(sha256, entry.size, name=entry.name)


def _text(area: Area | None, backup_id: str) -> bytes:
    try:
        if area is not None:
            return area.read("sets", backup_id + _SUFFIX)
    except FileNotFoundError:
        pass
    raise RefusedError(
        "NO_SUCH_BACKUP",
        f"There is no backup {backup_id}; worldctl backups list shows those there are.",
        backup_id=backup_id,
    )


def _info_of(found: BackupSet | BackupHeader) -> BackupInfo:
    note: Mapping[str, Any] = msgspec.json.decode(found.note)
    return BackupInfo(found.backup_id, found.at, note, list(found.resources), found.state, found.count, found.bytes)
