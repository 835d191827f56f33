"""Closing and opening the log of a realm to writers, without the realm's program.

Nothing else is done: with a domain that is not the realm's, the engine runs neither what is due nor any other command.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Final, TypeVar

from pydantic import BaseModel

from world.clock import SystemClock
from world.core import ActionContext, Domain, Patch
from world.engine.writer import Writer
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.writer_events import CloseReason, OpenReason, WriterClosed
from world.log import TreeHead
from world.log.url import LogAddress
from world.read_models.live.sealed_snapshot import open_snapshot
from world.state.writer_epoch import closed_log
from worldprotocol.api.bootstrap import bootstrap
from worldprotocol.directory.directory_log import DirectoryLog
from worldprotocol.directory.state import RealmEntry

__all__ = [
    "MOVE_WAIT_S",
    "check_whole",
    "close_place",
    "is_open_somewhere",
    "open_copy",
    "open_place",
    "open_where_placed",
    "writer_at",
]

MOVE_WAIT_S: Final = 60.0
"""Longest wait of a command for the end of a move, in seconds."""

_NO_DOMAIN: Final = "urn:world-protocol:no-domain"
_PAUSE_S: Final = 0.02

R = TypeVar("R")


class _NoState(BaseModel):
    """The state of no realm."""


def _no_domain() -> Domain:
    """Return a domain that is in force in no realm."""
    domain = Domain(_NO_DOMAIN, version="1.0.0", state=_NoState)

    @domain.action("none", version="1")
    def none(ctx: ActionContext, wanted: _NoState) -> list[Patch]:
        return []

    return domain


@contextmanager
def writer_at(address: str | LogAddress) -> Iterator[Writer]:
    """Open the writer of a log, which only closes it and opens it again.

    Args:
        address: of the log.

    Raises:
        RefusedError: as ``world.log.open_log``.
    """
    log, _, protocol = bootstrap(address, create=False, domain=_no_domain(), clock=SystemClock())
    with log:
        try:
            yield protocol
        finally:
            protocol.close()


def check_whole(writer: Writer) -> None:
    """Check that a log has the content of all its events, so that it can be copied or exported as it is.

    Args:
        writer: of the log.

    Raises:
        RefusedError: ``EVENT_ARCHIVED`` where it was cut.
    """
    snapshot = open_snapshot(writer.archive.log)
    if snapshot is not None:
        raise RefusedError(
            ErrorCode.EVENT_ARCHIVED,
            f"The log was cut after event {snapshot.upto}: only its archives have the contents of earlier events. "
            "Give them back first (`worldctl cut ARCHIVE... --undo`); the log can be cut again later.",
            position=snapshot.upto,
        )


def close_place(writer: Writer, reason: CloseReason, target: str | None, by: str) -> TreeHead:
    """Close a log to writers, unless it is closed for the same reason; return its tree head.

    Args:
        writer: of the log.
        reason: why.
        target: where the realm continues after a move.
        by: who closes it, for the record.
    """
    closed = writer.realm().writer.closed
    if closed is not None and (closed.reason, closed.target) != (reason, target):
        writer.open_writer("abandon", by=by)  # abandoned work had closed it
        closed = None
    if closed is None:
        try:
            writer.close_writer(reason, by=by, target=target)
        except RefusedError as refused:
            if refused.code != ErrorCode.LOG_FENCED:
                raise  # by a process that continues the same work
    return writer.archive.log.head()


def open_place(directory: DirectoryLog, name: str, writer: Writer | None = None) -> bool:
    """Open the place that a directory names for a realm, if it is closed to writers; return whether it was.

    The directory's lock is held meanwhile, so that no work begins or ends.

    Args:
        directory: the directory.
        name: of the realm. Nothing is opened while work is under way with it, or while it is archived.
        writer: of the place, if it is open already.

    Raises:
        RefusedError: ``UNKNOWN_REALM``; ``LOG_FENCED`` where the directory does not know why the log was closed; as
            ``world.log.open_log``.
    """
    with directory.change() as change:
        entry = change.state.entry(name)
        if entry.status != "open":
            return False
        with writer_at(entry.place) if writer is None else nullcontext(writer) as at_place:
            closed = at_place.realm().writer.closed
            if closed is None:
                return False
            at_place.open_writer(_why_opened(entry, at_place.archive.log.head(), closed), by=entry.by)
    return True


def is_open_somewhere(directory: DirectoryLog, name: str, wait_s: float = MOVE_WAIT_S) -> bool:
    """Wait for the end of a move, open the realm's place if it is closed, and return whether it has one.

    Args:
        directory: the directory.
        name: of the realm.
        wait_s: longest wait for the end of a move, in seconds; 0 does not wait.

    Raises:
        RefusedError: as ``open_place``.
    """
    end = time.monotonic() + wait_s
    while (status := directory.state().entry(name).status) == "moving" and time.monotonic() < end:
        time.sleep(_PAUSE_S)
    if status == "open":
        open_place(directory, name)
    return status == "open"


def open_where_placed(directory: DirectoryLog, name: str, open_at: Callable[[str], R]) -> tuple[str, R]:
    """Open a realm where a directory places it; return the place, and what was opened.

    A place that is closed to writers because of a move is opened at the end of the move.

    Args:
        directory: the directory.
        name: of the realm.
        open_at: opens the realm at an address for acting, and settles it, so that a closed log is refused.

    Raises:
        RefusedError: ``UNKNOWN_REALM``; ``LOG_FENCED`` where the realm is archived, or a move does not end within
            ``MOVE_WAIT_S``; as ``open_at``.
    """
    while True:
        place = directory.state().entry(name).place
        try:
            return place, open_at(place)
        except RefusedError as refused:
            if refused.code != ErrorCode.LOG_FENCED or not is_open_somewhere(directory, name):
                raise


def _why_opened(entry: RealmEntry, head: TreeHead, closed: WriterClosed) -> OpenReason:
    """Return why a closed log may be opened at the place that a directory names.

    A directory that is older than the log, or another one, does not know why it was closed.

    Raises:
        RefusedError: ``LOG_FENCED`` where neither the end of a move or of a restoration nor abandoned work says it.
    """
    if entry.head == head:
        return "move" if closed.reason == "move" else "restore"
    if entry.abandoned == (closed.reason, closed.target):
        return "abandon"
    raise RefusedError(
        ErrorCode.LOG_FENCED,
        f"The log of {entry.name!r} at {entry.place} was closed to writers, and this directory does not know why: "
        f"{closed_log(closed).message} This directory may be an old copy, or another one may have moved the realm.",
        epoch=closed.epoch,
        reason=closed.reason,
        target=closed.target,
    )


def open_copy(address: str, by: str) -> int:
    """Begin the next writer epoch at a place whose log was not closed: a copy of a log that is lost.

    Args:
        address: of the log.
        by: who opens it, for the record.

    Returns:
        The number of the epoch.

    Raises:
        RefusedError: ``LOG_FENCED`` where the log was moved or archived; as ``world.log.open_log``.
    """
    with writer_at(address) as writer:
        closed = writer.realm().writer.closed
        if closed is not None:
            raise closed_log(closed)
        return writer.open_writer("restore", by=by)
