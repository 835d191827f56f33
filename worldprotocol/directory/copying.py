"""Copying a log from one store to another: the same events at the same positions, under the same tree heads.

The copy has the tree head of each commit of the source, because questions about the past, and a cut of the log, go to
the end of a commit. An interrupted copy continues with the first event that is missing, and two processes may copy at
the same time: each batch is appended under the target's lock, to a log that ends where the batch begins. What was
copied is read back from the target and compared with the source's tree, so that a copy that was altered on the way is
found.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, LogBusyError, RefusedError
from world.log import EventLog, LoggedEvent, is_intact, open_log
from world.log.merkle import Frontier
from world.log.url import LogAddress, hidden_name, is_log_name, parse_address
from world.read_models.archive import Archive
from world.read_models.decoding import log_id_of
from world.read_models.index import WorldIndex
from worldprotocol.export.jsonl import append_copies
from worldprotocol.export.jsonl_lines import Progress

__all__ = ["LogCopy", "LogTarget", "growing_at", "open_target"]

_PROBE_MS: Final = 500
"""How long the probe of two addresses waits for the target's lock, in milliseconds."""


@dataclass(frozen=True, slots=True)
class LogTarget:
    """The log that gets a copy.

    Args:
        log: open for writing.
        index: its index, which each batch updates.
        is_hidden: whether no address names it, because the copy is not complete.
    """

    log: EventLog
    index: WorldIndex
    is_hidden: bool


def growing_at(address: str, log_id: str) -> LogAddress:
    """Return where a copy is made: under a name that no address can have, so that only this work can write to it.

    Args:
        address: of the copy once it is complete, when ``EventLog.rename`` gives it its name.
        log_id: id of the copied log.

    Returns:
        The hidden place; the place of the address where its log has events.

    Raises:
        RefusedError: as ``world.log.open_log``.
    """
    where = parse_address(address)
    try:
        with open_log(where, read_only=True) as there:
            if there.head().size:
                return where
    except RefusedError as refused:
        if refused.code not in (ErrorCode.LOG_NOT_FOUND, ErrorCode.NOT_A_LOG):
            raise
    return replace(where, name=hidden_name(where.name, log_id))


def open_target(address: str, source: EventLog) -> LogTarget:
    """Open the log that gets a copy, and create it where it does not exist; its index is kept in step.

    Args:
        address: of the copy once it is complete; see ``growing_at``.
        source: the log that is copied; checkpoints of worlds are as far apart in the copy.

    Raises:
        RefusedError: ``NOT_A_LOG``, ``LOG_FORMAT``, ``INVALID_ADDRESS`` and others of ``world.log.open_log``.
    """
    place = growing_at(address, str(log_id_of(source)))
    every = Archive(source).checkpoint_every()
    index = WorldIndex() if every is None else WorldIndex(checkpoint_every=every)
    log = open_log(place, create=True, view=index, max_event_bytes=sys.maxsize)
    return LogTarget(log, index, is_hidden=not is_log_name(place.name))


@dataclass(slots=True)
class LogCopy:
    """A copy that grows: first of most events, then of those that were appended meanwhile.

    Args:
        source: the log.
        target: the copy.
        index: of the copy.
        read_back: the tree over the events that were read back from the target.
    """

    source: EventLog
    target: EventLog
    index: WorldIndex
    read_back: Frontier

    @classmethod
    def between(cls, source: EventLog, into: LogTarget) -> LogCopy:
        """Begin a copy, or continue one.

        Args:
            source: the log.
            into: an empty log, or one that holds the beginning of the source.

        Raises:
            RefusedError: ``LOG_NOT_EMPTY`` for a target with other events, and for the source itself.
        """
        target = into.log
        head = target.head()
        if head.size and (head.size > source.head().size or source.root_at(head.size).root != head.root):
            raise RefusedError(
                ErrorCode.LOG_NOT_EMPTY,
                f"{target.address} holds {head.size} events that are not the beginning of {source.address}. Name an "
                "empty log.",
                events=head.size,
                root=head.root_hex,
            )
        _refuse_same_log(source, target)
        return cls(source, target, into.index, Frontier())

    def advance(self, upto: int, progress: Progress) -> None:
        """Copy the events up to a position, and read them back.

        Args:
            upto: last position.
            progress: called with the position that was reached and ``upto``.

        Raises:
            DamagedLogError: ``EVENT_CHANGED``, ``TREE_MISMATCH`` where source and copy differ; ``LOG_GAP``.
            RefusedError: ``STORAGE_FULL`` and others of writing.
        """
        while (size := self.target.head().size) < upto:
            if size and self.source.event_at(size).leaf != self.target.event_at(size).leaf:
                raise self._mismatch(size)  # as where the copy was closed to writers, because the move was given up
            for events, ends in _commits(self.source, size, upto):
                if not self._append(events, ends):
                    break  # another process is copying too
                progress(events[-1].position, upto)
        self._read_back(upto)

    def _append(self, events: list[LoggedEvent], ends: list[int]) -> bool:
        """Append a batch with its tree heads; return False where the target does not end before it any more."""
        with self.target.write() as transaction:
            if transaction.head.size != events[0].position - 1:
                return False
            append_copies(self.target, self.index, transaction, events, ends)
        return True

    def _read_back(self, upto: int) -> None:
        for rows in self.target.read_rows(self.read_back.size, upto):
            for row in rows:
                if not is_intact(LoggedEvent(*row)):
                    raise DamagedLogError(
                        ErrorCode.EVENT_CHANGED,
                        f"Event {row[0]} was changed on its way to {self.target.address}: its content and its leaf "
                        "hash differ. The realm was not moved; copy it to another place.",
                        position=row[0],
                    )
            self.read_back = self.read_back.extended(row[6] for row in rows)
        expected, copied = self.source.root_at(upto), self.target.root_at(upto)
        if not expected.root == copied.root == self.read_back.root():
            raise self._mismatch(upto)

    def _mismatch(self, upto: int) -> DamagedLogError:
        return DamagedLogError(
            ErrorCode.TREE_MISMATCH,
            f"The tree over the first {upto} events is {self.source.root_at(upto).root_hex} at {self.source.address} "
            f"and {self.target.root_at(upto).root_hex} at {self.target.address}, and {self.read_back.size} events that "
            f"were read back have {self.read_back.root().hex()}: the copy differs. The realm was not moved; copy it to "
            "another place.",
            position=upto,
        )


def _commits(source: EventLog, after: int, upto: int) -> Iterator[tuple[list[LoggedEvent], list[int]]]:
    """Yield the events of a log in batches that end with a commit, each with the sizes at which its commits end."""
    pending: list[LoggedEvent] = []
    for rows in source.read_rows(after, upto):
        pending += [LoggedEvent(*row) for row in rows]
        ends = [head.size for head in source.heads(pending[0].position - 1, pending[-1].position)]
        if ends:
            count = ends[-1] - pending[0].position + 1
            yield pending[:count], ends
            pending = pending[count:]
    if pending:
        yield pending, []


def _refuse_same_log(source: EventLog, target: EventLog) -> None:
    """Refuse a target that is the source by another address: a write to one excludes a write to the other.

    Raises:
        RefusedError: ``LOG_NOT_EMPTY``.
    """
    try:
        with source.write(), open_log(target.address, busy_timeout_ms=_PROBE_MS) as probe, probe.write():
            return
    except LogBusyError:
        raise RefusedError(
            ErrorCode.LOG_NOT_EMPTY,
            f"{target.address} cannot be written while {source.address} is: it is the same log, in the same file, or "
            "another process is writing there. Name a log in another database.",
        ) from None
