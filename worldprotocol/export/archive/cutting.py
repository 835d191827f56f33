"""Cutting a log: removal of the contents of archived events, and their return.

The order of the steps makes each interruption harmless. The snapshot is stored first; it means nothing until the event
``log.archived`` names its hash. From then on contents may be missing up to that event, and they are removed from the
first one on, in small commits. A log of which only some are removed is folded from the snapshot too. What follows from
the events (checkpoints, the copy of the lease ledger) is stored before, so that the index needs no removed event.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec import structs

from world.audit.sealing import last_commit, seal
from world.audit.verify import verify
from world.engine.writer_epochs import check_place
from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.events.base import REALM_STREAM
from world.events.codec import decode_event, encode_event
from world.events.realm_events import BranchCreated, LogArchived
from world.klis.ledger_codec import ledger_to_wire
from world.log import EventLog, LoggedEvent, NewEvent, open_log
from world.model.canonical_json import canonical_text
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from world.read_models.index import KEYS_NAME, IndexRows, WorldIndex
from world.read_models.live.sealed_snapshot import (
    SealedSnapshot,
    archived_event,
    archived_upto,
    read_snapshot,
    snapshot_hash,
)
from world.read_models.live.state_loading import load_realm
from world.state.realm_state import RealmState
from world.state.realm_view import RealmView
from world.state.writer_epoch import closed_log
from worldprotocol.export.archive.checking import check_archive, check_row
from worldprotocol.export.archive.manifest import EVENTS, ArchiveFolder, bad_archive, open_file
from worldprotocol.export.jsonl import import_log
from worldprotocol.export.jsonl_lines import Progress, read_items

__all__ = ["CutLog", "CutPlan", "check_cut", "cut", "open_for_cutting", "plan_cut", "restore"]

AT_ONCE: Final = 2_000
"""Contents that are removed or given back in one commit."""

_NOWHERE: Final = 0  # the position of no event


@dataclass(frozen=True, slots=True)
class CutPlan:
    """Where a log will be cut.

    Args:
        archives: the archives of all events up to there, in order.
        upto: position of the last event whose content may be removed, the last one of a commit.
        before: up to where it is cut already; 0 where it is not.
    """

    archives: tuple[ArchiveFolder, ...]
    upto: int
    before: int


@dataclass(frozen=True, slots=True)
class CutLog:
    """Result of a cut.

    Args:
        upto: position of the last event whose content may be missing.
        kept: how many events up to there keep their content.
        removed: how many contents this run removed.
        manifest: hash of the manifest of the last archive.
        snapshot: hash of the snapshot.
    """

    upto: int
    kept: int
    removed: int
    manifest: str
    snapshot: str


def open_for_cutting(address: str, *, read_only: bool = False, has_view: bool = True) -> EventLog:
    """Open the log at an address, with its index unless contents are given back; errors: ``world.log.open_log``."""
    return open_log(address, read_only=read_only, view=WorldIndex() if has_view else None)


def plan_cut(log: EventLog, archives: Sequence[ArchiveFolder], most: int, progress: Progress | None = None) -> CutPlan:
    """Check the archives, and return where the log can be cut.

    Args:
        log: the log.
        archives: of all events from the first one on, in order.
        most: position after which everything stays.
        progress: called while the archives are checked.

    Raises:
        RefusedError: ``BAD_ARCHIVE``; ``NOTHING_TO_ARCHIVE`` where nothing is to be removed.
        DamagedLogError: the log is damaged.
    """
    check_row(archives, log)
    for one in archives:
        check_archive(one, progress)
    done = archived_event(log)
    before = 0 if done is None else done.upto
    is_cut = archived_upto(log) > 0
    end = archives[-1].manifest.size if archives else 0
    upto = last_commit(log, min(end, most))
    if upto < before or upto == 0:
        raise RefusedError(
            ErrorCode.NOTHING_TO_ARCHIVE,
            f"Nothing can be removed: the archives end with event {end}, what is kept begins after event {most}, and "
            + (
                f"the log {'is' if is_cut else 'was'} cut after event {before}." if before else "the log was never cut."
            ),
            before=before,
            upto=upto,
        )
    return CutPlan(tuple(archives), upto, before)


def check_cut(log: EventLog, archives: Sequence[ArchiveFolder], progress: Progress | None = None) -> None:
    """Check that the snapshot of a cut log follows from the archived events, and that these are sound.

    They are imported into a temporary log, verified there, and folded again.

    Args:
        log: the log.
        archives: of all events up to the cut, in order; compared with the log already (``check_row``).
        progress: called with events done and events in all, by each step.

    Raises:
        RefusedError: ``BAD_ARCHIVE`` where the archives end before the cut, or their events contradict each other.
        DamagedLogError: ``SNAPSHOT_CHANGED``.
    """
    done = archived_event(log) if archives else None
    if done is None:
        return
    end = archives[-1]
    if end.manifest.size < done.upto:
        raise RefusedError(
            ErrorCode.BAD_ARCHIVE,
            f"The archives end with event {end.manifest.size}, in {end.folder}, and the log was cut after event "
            f"{done.upto}: name all of its archives, in order.",
            folder=str(end.folder),
        )
    with tempfile.TemporaryDirectory(prefix="archives-") as scratch:
        address = str(Path(scratch, "scratch.db"))
        for archive in archives:
            with open_file(archive.folder / EVENTS) as lines:
                import_log(lines, address, progress=progress)
        with open_log(address, read_only=True) as whole:
            for finding in verify(whole, progress=progress).findings:
                if finding.position <= done.upto:  # an archive may end within a commit
                    raise bad_archive(end.folder, finding.message.rstrip("."), finding.position)
            made = seal(whole, done.upto, progress).to_text()
    if made != log.snapshot(done.upto):
        raise DamagedLogError(
            ErrorCode.SNAPSHOT_CHANGED,
            f"The snapshot of the state after event {done.upto} does not follow from the archived events.",
            position=done.upto,
        )


def cut(log: EventLog, plan: CutPlan, *, by: str, now_ms: int, progress: Progress | None = None) -> CutLog:
    """Remove the contents of archived events that nothing needs any more, and continue where a run was interrupted.

    Args:
        log: the log, open for writing with its index.
        plan: where.
        by: who did it, for the record.
        now_ms: the time, ms since 1970.
        progress: called with the number of events that were handled, and their total, while the state is folded and
            while contents are removed.

    Raises:
        RefusedError: ``BRANCH_BEFORE_CUT``; ``LOG_FENCED``, ``WRITER_FENCED`` where this place may not write; as
            ``EventLog.write``.
        DamagedLogError: the log is damaged.
    """
    log.set_contents([(_NOWHERE, "")])  # a database role that may only append is refused before anything is recorded
    if plan.upto > plan.before:
        snapshot = seal(log, plan.upto, progress)
        text = snapshot.to_text()
        log.store_snapshot(plan.upto, text)
        _store_derived(log, snapshot)
        event = LogArchived(
            at=now_ms,
            upto=plan.upto,
            root=snapshot.root,
            manifest=plan.archives[-1].digest,
            snapshot=snapshot_hash(text),
            by=by,
        )
        _append(log, event, plan.before, snapshot)
    elif not archived_upto(log):  # the contents were given back, and the log may have been copied since
        if log.snapshot(plan.upto) is None:
            log.store_snapshot(plan.upto, seal(log, plan.upto, progress).to_text())
        _store_derived(log, _stored_snapshot(log)[1])
    done, snapshot = _stored_snapshot(log)
    removed = _remove(log, snapshot, progress)
    log.drop_snapshots(done.upto)
    return CutLog(done.upto, len(snapshot.kept), removed, done.manifest, done.snapshot)


def restore(log: EventLog, archives: Sequence[ArchiveFolder], progress: Progress | None = None) -> int:
    """Give the removed contents back to a log, and return how many there were.

    Args:
        log: the log, open for writing.
        archives: of all removed events, in order.
        progress: called with the position that was reached, and that of the last one.

    Raises:
        RefusedError: ``BAD_ARCHIVE`` where they are not of this log, or end before the cut.
    """
    check_row(archives, log)
    done = archived_event(log)
    end = archives[-1].manifest.size if archives else 0
    if done is None or end < done.upto:
        cut_at = "was never cut" if done is None else f"is cut after event {done.upto}"
        raise RefusedError(ErrorCode.BAD_ARCHIVE, f"The log {cut_at}, and the archives end with event {end}.", upto=end)
    first: tuple[int, str] | None = None  # given back last: while it is missing, the log is folded from its snapshot
    pending: list[tuple[int, str]] = []
    returned = 0
    for position, state in _missing(log, archives):
        if first is None:
            first = position, state
            continue
        pending.append((position, state))
        if len(pending) == AT_ONCE:
            log.set_contents(pending)
            returned, pending = returned + len(pending), []
            if progress is not None:
                progress(position, done.upto)
    log.set_contents(pending)
    if first is not None:
        log.set_contents([first])
    log.renew_view(KEYS_NAME)
    return returned + len(pending) + (first is not None)


def _missing(log: EventLog, archives: Sequence[ArchiveFolder]) -> Iterator[tuple[int, str]]:
    """Yield position and archived content of each event without content."""
    for archive in archives:
        rows: dict[int, tuple[bytes, bytes]] = {}
        with open_file(archive.folder / EVENTS) as lines:
            for _, item in read_items(lines, lambda _: None):
                if not isinstance(item, LoggedEvent):
                    continue
                position = item.position
                if position not in rows:
                    found = log.audit_rows(position - 1, AT_ONCE)
                    rows = {row[0]: (row[5], row[6]) for row in found}
                state, leaf = rows.pop(position, (b"", b""))
                if leaf != item.leaf:
                    raise RefusedError(
                        ErrorCode.BAD_ARCHIVE, f"Event {position} of {archive.folder} is not that of this log."
                    )
                if not state:
                    yield position, item.state.decode()


def _store_derived(log: EventLog, snapshot: SealedSnapshot) -> None:
    """Store the checkpoints of the worlds of the snapshot, and a copy of the ledger after the cut."""
    archive = Archive(log)
    realm = load_realm(log, archive)
    rows = IndexRows()
    for world, data in snapshot.data():
        if not archive.rows("checkpoint", {"of_world": world.world_id}):
            rows.add_checkpoint(world.world_id, canonical_text(data))
    rows.add_ledger(realm.position, realm.klis_version, canonical_text(ledger_to_wire(realm.klis)))
    with log.write() as transaction:
        rows.write(transaction.cursor())


def _stored_snapshot(log: EventLog) -> tuple[LogArchived, SealedSnapshot]:
    done = archived_event(log)
    assert done is not None
    return done, read_snapshot(log, done)


def _append(log: EventLog, event: LogArchived, before: int, snapshot: SealedSnapshot) -> None:
    """Append the event that permits the removal; refuse where something else happened, or this may not write."""
    view = WorldIndex()
    with log.write() as transaction:
        realm = load_realm(log, Archive(log))
        _check_open(realm)
        place = log.place()
        if place is not None:
            check_place(realm.writer, place)
        if (0 if realm.archived is None else realm.archived.upto) != before:
            raise RefusedError(ErrorCode.LOG_BUSY, "Another process cut the log meanwhile; look, and repeat the cut.")
        _check_branches(log, snapshot)
        last = decoded(log.event_at(log.head().size))
        timed = structs.replace(event, at=max(event.at, last.at))
        new = NewEvent(REALM_STREAM, LogArchived.TOPIC, LogArchived.VERSION, encode_event(timed))
        log.insert_events([new], transaction=transaction)
        view.apply(transaction.cursor(), transaction.appended)


def _check_open(realm: RealmState | RealmView) -> None:
    """Refuse to change a log that is closed to writers: it is being copied as it is, or was."""
    if realm.writer.closed is not None:
        raise closed_log(realm.writer.closed)


def _check_branches(log: EventLog, snapshot: SealedSnapshot) -> None:
    """Refuse to remove what a branch needs that was created meanwhile, at a world before the cut."""
    archive, known = Archive(log), {world.world_id for world in snapshot.worlds}
    for logged in log.read(snapshot.upto, topics=[BranchCreated.TOPIC]):
        event = decode_event(logged.topic, logged.schema_version, logged.state, logged.position)
        assert isinstance(event, BranchCreated)
        if event.world_id not in known and archive.world(event.world_id).position <= snapshot.upto:
            raise RefusedError(
                ErrorCode.BRANCH_BEFORE_CUT,
                f"The branch {event.branch!r} was created at a world before event {snapshot.upto}, where the log is to "
                "be cut. Nothing was removed.",
                branch=event.branch,
                position=logged.position,
            )


def _remove(log: EventLog, snapshot: SealedSnapshot, progress: Progress | None) -> int:
    kept, position, removed, archive = set(snapshot.kept), 0, 0, Archive(log)
    while position < snapshot.upto:
        rows = log.audit_rows(position, AT_ONCE)
        rows = [row for row in rows if row[0] <= snapshot.upto]
        contents = [(row[0], "") for row in rows if row[5] and row[0] not in kept]
        if contents:
            log.set_contents(contents, check=lambda: _check_open(archive.realm()))
        removed += len(contents)
        position = rows[-1][0] if rows else snapshot.upto
        if progress is not None:
            progress(position, snapshot.upto)
    return removed
