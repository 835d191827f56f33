"""Moving a realm to another database while it is used.

1. The directory records that the move began.
2. The events are copied while the old place is written, to a log whose name no address can have.
3. The old place is closed to writers: its log ends with ``writer.closed``, which names the new place.
4. The events since step 2 are copied, and the tree heads of both places are compared.
5. The copy gets its name, and the directory records that the realm is at the new place.
6. The new place is opened to writers: ``writer.opened``, with the next epoch.

Each step may be repeated. A move that ended in between is continued by the same command, and until step 5 it may be
abandoned; then the old place is opened again. Step 5 and every opening hold the directory's lock, so that the realm is
never open at two places. Source: docs/realms.md, "Moving a realm".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

from world.audit.database_server import missing_rights, writing_roles
from world.engine.writer import Writer
from world.error_codes import ErrorCode
from world.errors import RefusedError, WorldProtocolError
from world.events.writer_events import CloseReason, WriterClosed
from world.log import EventLog, TreeHead
from world.log.url import parse_address
from worldprotocol.directory.copying import LogCopy, open_target
from worldprotocol.directory.directory_log import DirectoryLog, recorded_address
from worldprotocol.directory.events import RealmMoved, Work, WorkAbandoned, WorkBegun
from worldprotocol.directory.state import RealmEntry, archived
from worldprotocol.directory.writers import check_whole, close_place, open_place, writer_at
from worldprotocol.export.jsonl_lines import Progress

__all__ = [
    "MoveReport",
    "MoveStep",
    "OnStep",
    "abandon",
    "abandoned",
    "begin_work",
    "check_work",
    "close_whole",
    "move_realm",
]

FEW: Final = 100
"""Number of events that may be left to copy when the old place is closed, if its writers are not too fast."""

ROUNDS: Final = 5
"""Most passes over what was appended meanwhile, before the old place is closed whatever is left."""

MoveStep = Literal["begun", "copied", "closed", "compared", "moved", "opened"]
"""A step of a move that was done."""

OnStep = Callable[[MoveStep], None]


@dataclass(frozen=True, slots=True)
class MoveReport:
    """A move that ended.

    Args:
        source: the old place.
        target: the new place.
        head: the tree head that both had.
        copied: number of events that were copied while no writer was open.
        closed_ms: time from closing the old place to opening the new one, in milliseconds; None where that was not one
            process.
    """

    source: str
    target: str
    head: TreeHead
    copied: int
    closed_ms: float | None


def move_realm(
    directory: DirectoryLog, name: str, to: str, *, by: str, progress: Progress, on_step: OnStep = lambda step: None
) -> MoveReport:
    """Move a realm, or continue a move that was interrupted.

    Args:
        directory: the directory.
        name: of the realm.
        to: address of the new place, a log that does not exist, or is empty, or holds the beginning of the realm.
        by: who moves it, for the record.
        progress: called with the number of copied events and of all.
        on_step: called after each step.

    Raises:
        RefusedError: ``UNKNOWN_REALM``, ``REALM_IN_WORK``, ``REALM_ARCHIVED``; ``LOG_NOT_EMPTY`` and
            ``INVALID_ADDRESS`` for a target that cannot be one; ``ROLE_WITHOUT_RIGHTS`` where the writers of the old
            place could not write there; ``WORK_ABANDONED`` where the move was
            abandoned meanwhile; ``EVENT_ARCHIVED`` where the log was cut; those of ``world.log.open_log`` for both
            places. Until the old place is closed, a refusal leaves it as it was.
        DamagedLogError: ``EVENT_CHANGED``, ``TREE_MISMATCH`` where the copy differs from the log.
    """
    target = recorded_address(to)
    directory.check_place(target)
    entry = directory.state().entry(name)
    if (ended := _ended_move(directory, entry, target)) is not None:
        return ended
    check_work(entry, "move", target)
    if entry.status == "open":
        open_place(directory, name)
    with writer_at(entry.place) as old:
        check_whole(old)
        source = old.archive.log
        into = open_target(target, source)
        with into.log:
            _check_roles(source, into.log)
            try:
                if not into.is_hidden:
                    _check_complete(into.log, source.head(), directory.state().entry(name))
                copy = LogCopy.between(source, into)
                begin_work(directory, name, "move", target, by)
                on_step("begun")
                for _ in range(ROUNDS):
                    with _unless_abandoned(directory, entry, target):
                        copy.advance(source.head().size, progress)
                    if source.head().size - copy.read_back.size <= FEW:
                        break
                on_step("copied")
                with writer_at(into.log.address) as new:
                    copied = new.realm().position  # loads the state that was copied, before the old place is closed
                    since = time.monotonic()
                    head = close_whole(directory, name, old, "move", target, by=by)
                    on_step("closed")
                    with _unless_abandoned(directory, entry, target):
                        copy.advance(head.size, progress)
                    on_step("compared")
                    _note_moved(directory, entry, old, target, head, copy=into.log, by=by)
                    on_step("moved")
                    was_closed = open_place(directory, name, new)
                    closed_ms = (time.monotonic() - since) * 1000 if was_closed else None
            except RefusedError:
                with directory.change() as change:  # waits for a process that has renamed the copy, and records it
                    entry = change.state.entry(name)
                if (ended := _ended_move(directory, entry, target)) is not None:
                    return ended  # by another process, which has opened the target to writers
                raise
    on_step("opened")
    return MoveReport(entry.place, target, head, head.size - copied, closed_ms)


def _ended_move(directory: DirectoryLog, entry: RealmEntry, target: str) -> MoveReport | None:
    """Open the realm at the target of a move that the directory has recorded; None without such a move."""
    if entry.status != "open" or entry.place != target or entry.head is None:
        return None
    open_place(directory, entry.name)
    return MoveReport(target, target, entry.head, 0, None)


def _check_roles(source: EventLog, target: EventLog) -> None:
    """Refuse a target on PostgreSQL that the roles of the realm's writers cannot read and write.

    Raises:
        RefusedError: ``ROLE_WITHOUT_RIGHTS``.
    """
    roles = sorted({*writing_roles(source), *writing_roles(target)})
    missing = {role: list(rights) for role in roles if (rights := missing_rights(target, role))}
    if missing:
        lacking = "; ".join(f"{role}: {', '.join(rights)}" for role, rights in missing.items())
        raise RefusedError(
            ErrorCode.ROLE_WITHOUT_RIGHTS,
            f"The realm is not moved to {target.address.store()}: its servers could not write there. Missing rights: "
            f"{lacking}. The tables exist now: run docs/deploy/postgresql-roles.sql in that database, and repeat the "
            "command.",
            missing=missing,
        )


def _check_complete(target: EventLog, head: TreeHead, entry: RealmEntry) -> None:
    """Refuse a target with events that is not the complete copy of a move which ended before it was recorded.

    Raises:
        RefusedError: ``LOG_NOT_EMPTY``.
    """
    size = target.head().size
    is_closed = target.event_at(size).topic == WriterClosed.TOPIC
    if entry.work != "move" or target.head() != head or not is_closed:
        raise RefusedError(
            ErrorCode.LOG_NOT_EMPTY,
            f"{target.address} holds a log with {size} events, and programs that know the place could write there "
            "before the move ends. Drop that log, or name another place.",
            events=size,
        )


def close_whole(
    directory: DirectoryLog, name: str, writer: Writer, work: CloseReason, target: str | None, *, by: str
) -> TreeHead:
    """Close a log to writers for work that needs the contents of all its events; return its tree head.

    A log may have been cut while the work was prepared; then the work is given up, and the log is opened again.

    Args:
        directory: the directory, where the work has begun.
        name: of the realm.
        writer: of the log.
        work: why it is closed.
        target: where the realm continues after a move.
        by: who closes it, for the record.

    Raises:
        RefusedError: ``EVENT_ARCHIVED`` where the log was cut; ``NOTHING_TO_ABANDON`` where another process gave the
            work up.
    """
    head = close_place(writer, work, target, by)
    try:
        check_whole(writer)
    except RefusedError:
        abandon(directory, name, work, by=by)
        raise
    return head


def abandon(directory: DirectoryLog, name: str, work: Work, *, by: str) -> RealmEntry:
    """Give up what is under way with a realm; it stays where it was, and is open to writers there.

    What a move has copied to its target can be written by nothing but a move there, which continues the copy.

    Args:
        directory: the directory.
        name: of the realm.
        work: what is to be given up.
        by: who gives it up, for the record.

    Returns:
        The entry afterwards.

    Raises:
        RefusedError: ``UNKNOWN_REALM``; ``NOTHING_TO_ABANDON`` where no such work is under way.
    """
    with directory.change() as change:
        entry = change.state.entry(name)
        if entry.work != work:
            where = f"archived in {entry.archive}" if entry.status == "archived" else f"at {entry.place}"
            found = f"its {_NOUN[entry.work]} to {entry.target} is" if entry.work else f"it is {where}"
            raise RefusedError(
                ErrorCode.NOTHING_TO_ABANDON,
                f"No {_NOUN[work]} of the realm {name!r} is under way; {found}.",
                realm=name,
            )
        change.append(WorkAbandoned(at=change.at, by=by, name=name, work=work))
    open_place(directory, name)
    return directory.state().entry(name)


def begin_work(directory: DirectoryLog, name: str, work: Work, target: str, by: str) -> None:
    """Record that work begins, unless the same is under way, or another process has just moved the realm there.

    Raises:
        RefusedError: as ``check_work``.
    """
    with directory.change() as change:
        entry = change.state.entry(name)
        check_work(entry, work, target)
        if entry.work is None and not (work == "move" and entry.place == target):
            change.append(WorkBegun(at=change.at, by=by, name=name, work=work, target=target))


def check_work(entry: RealmEntry, work: Work, target: str) -> None:
    """Refuse work while other work is under way, or that cannot be done with an archive or without one.

    Raises:
        RefusedError: ``REALM_IN_WORK``, ``REALM_ARCHIVED``, ``REALM_NOT_ARCHIVED``.
    """
    if (entry.work, entry.target) == (work, target):
        return
    if entry.work is not None:
        command = f"worldctl realm {entry.work} {entry.name}"
        raise RefusedError(
            ErrorCode.REALM_IN_WORK,
            f"A {_NOUN[entry.work]} of the realm {entry.name!r} to {entry.target} is under way. Repeat that command to "
            f"finish it, or give it up (`{command} --abandon`).",
            realm=entry.name,
            work=entry.work,
            target=entry.target,
        )
    if entry.status == "archived" and work != "restore":
        raise archived(entry)
    if entry.status != "archived" and work == "restore":
        raise RefusedError(
            ErrorCode.REALM_NOT_ARCHIVED, f"The realm {entry.name!r} is no archive; it is at {entry.place}."
        )


def _note_moved(
    directory: DirectoryLog,
    before: RealmEntry,
    old: Writer,
    target: str,
    head: TreeHead,
    *,
    copy: EventLog,
    by: str,
) -> None:
    """Record that the realm is at its new place, under the directory's lock; nothing opens the old one meanwhile.

    The complete copy gets its name first. It is closed to writers, as its last event says.

    Raises:
        RefusedError: ``WORK_ABANDONED``; ``LOG_NOT_EMPTY`` where another log was founded at the new place meanwhile.
    """
    with directory.change() as change:
        entry = change.state.entry(before.name)
        if entry.status == "open" and entry.place == target:
            return  # by a process that continues the same move
        is_same = old.realm().writer.closed is not None and old.archive.log.head() == head
        if (entry.work, entry.target) == ("move", target) and is_same:
            copy.rename(parse_address(target).name)
            moved = RealmMoved(at=change.at, by=by, name=entry.name, place=target, size=head.size, root=head.root_hex)
            change.append(moved)
            return
    raise abandoned(directory, before.name, "move")


@contextmanager
def _unless_abandoned(directory: DirectoryLog, before: RealmEntry, target: str) -> Iterator[None]:
    """Raise ``WORK_ABANDONED`` for the failure of a copy that was closed to writers, because the move was abandoned."""
    try:
        yield
    except WorldProtocolError:
        entry = directory.state().entry(before.name)
        if (entry.work, entry.target) == ("move", target) or entry.place == target:
            raise
        raise abandoned(directory, before.name, "move") from None


def abandoned(directory: DirectoryLog, name: str, work: Work) -> RefusedError:
    """Return the refusal of work that another process gave up; a log that was closed afterwards is opened again."""
    open_place(directory, name)
    entry = directory.state().entry(name)
    return RefusedError(
        ErrorCode.WORK_ABANDONED,
        f"Another process gave the {_NOUN[work]} of the realm {name!r} up meanwhile, or opened its log; it is "
        f"{entry.status} at {entry.place}. Begin again, if it is still wanted.",
        realm=name,
    )


_NOUN = {"move": "move", "archive": "archiving", "restore": "restoration"}
