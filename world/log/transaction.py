"""One write to a log: what is known under the lock, what is appended, and the rows that are committed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from world.clock import Boot
from world.error_codes import ErrorCode
from world.errors import DamagedLogError
from world.log.merkle import Chunk, Frontier
from world.log.sql.queries import events_query
from world.log.sql.statement import LOG_SHIFT
from world.log.store import Batch, Clocks, Opening, Row, Store, check_covered, key_range
from world.log.tree import gap, refuse_archived
from world.log.values import (
    NEXT_VERSION,
    InvalidEventError,
    LoggedEvent,
    NewEvent,
    ServerPlace,
    StreamConflictError,
    TreeHead,
    check_event,
    check_type,
    event_leaf,
)
from world.log.views import ViewCursor

MAX_STREAMS_REMEMBERED: Final = 65_536
"""Streams whose last version a log keeps in memory; beyond that it forgets all and looks them up again."""

CATCH_UP_EVENTS: Final = 10_000
"""Events of other writers that are read at once under the lock."""

_ALL: Final = 1 << 62  # a limit for queries that want every row


_NO_BOOT: Final = Boot("", 0)


@dataclass(slots=True)
class Memory:
    """What a log remembers between its writes; every write checks it against the store.

    Args:
        frontier: the tree as of the last write seen.
        head: its head.
        versions: last version of the streams met lately.
        place: the database server of the last write seen; None for a file, and before the first write.
    """

    frontier: Frontier
    head: TreeHead
    place: ServerPlace | None = None
    versions: dict[str, int] = field(default_factory=dict)

    def forget_streams_beyond(self, limit: int) -> None:
        """Keep the number of remembered streams bounded."""
        if len(self.versions) > limit:
            self.versions.clear()


class Transaction:
    """A write under the log's lock; ``EventLog.write`` returns it and commits it.

    ``EventLog.insert_events`` appends to it. What is appended is written when the block ends; no reader sees it
    before.
    """

    def __init__(self, store: Store, log_id: int, memory: Memory, max_event_bytes: int) -> None:
        """Begin with a memory that is up to date."""
        self._store = store
        self._log_id = log_id
        self._memory = memory
        self._max_event_bytes = max_event_bytes
        self._caught_up: tuple[int, Sequence[LoggedEvent]] = (memory.head.size, ())
        self._versions: dict[str, int] = {}
        self._appended: list[LoggedEvent] = []
        self._ends: Sequence[int] = ()
        self._noted: tuple[Boot, int, bool] | None = None
        self._clocks = Clocks()
        self._answers: Sequence[Sequence[Row]] = ()

    @property
    def head(self) -> TreeHead:
        """Return the tree head under the lock, without what this transaction appends."""
        return self._memory.head

    @property
    def clocks(self) -> Clocks:
        """Return what the store has to compare the writer's clock with."""
        return self._clocks

    @property
    def answers(self) -> Sequence[Sequence[Row]]:
        """Return the rows of each question of ``EventLog.write``, in order."""
        return self._answers

    @property
    def appended(self) -> Sequence[LoggedEvent]:
        """Return what this transaction has appended so far."""
        return self._appended

    def new_events(self, after: int) -> list[LoggedEvent]:
        """Return the events after a position up to ``head``: what others appended since the caller last
        looked.

        Raises:
            DamagedLogError: ``LOG_GAP`` when one is missing.
        """
        size = self.head.size
        if after >= size:
            return []
        known, events = self._caught_up
        if after >= known:
            return list(events[after - known :])
        return self._fetch(after, size)

    def append(self, events: Iterable[NewEvent]) -> list[LoggedEvent]:
        """Append events and return them as they will be logged.

        Args:
            events: in order; a version other than ``NEXT_VERSION`` must be the next of its stream.

        Raises:
            InvalidEventError: ``EVENT_TOO_LARGE``, ``INVALID_EVENT``.
            StreamConflictError: ``STREAM_CONFLICT`` when a given version is not the next one. A version that was not
                looked up is checked at commit.
        """
        position = self._memory.head.size + len(self._appended)
        versions, earlier = dict(self._versions), self._memory.versions
        most = self._max_event_bytes
        logged: list[LoggedEvent] = []
        for event in events:
            stream, topic, schema_version, state = event.originator_id, event.topic, event.schema_version, event.state
            last, expected = versions.get(stream) or earlier.get(stream), event.originator_version
            if last is None or expected != NEXT_VERSION or len(state) > most:
                check_event(event, most)
                version = self._next_version(event, versions)
            else:
                check_type(topic, schema_version)
                version = last + 1
            versions[stream] = version
            position += 1
            leaf = event_leaf(stream, version, topic, schema_version, state)
            logged.append(LoggedEvent(position, stream, version, topic, schema_version, state, leaf))
        self._versions = versions
        self._appended += logged
        return logged

    def keep_heads(self, sizes: Sequence[int]) -> None:
        """Store the tree heads at these sizes too, where commits of a log end whose events this transaction copies.

        Args:
            sizes: in ascending order, of what is appended.
        """
        self._ends = sizes

    def note_clocks(self, boot: Boot, recorded_ms: int, *, is_confirmed: bool) -> None:
        """Store the clocks with this commit, where the store keeps them, and the greatest time recorded beside them.

        Args:
            boot: the boot clock.
            recorded_ms: the time that the commit records, ms since 1970.
            is_confirmed: an operator says that this time is right, so a greater one was not.
        """
        self._noted = boot, recorded_ms, is_confirmed

    def check_held(self) -> None:
        """Raise an error where the lock was lost, because the transaction was ended from outside."""
        self._store.check_held()

    def cursor(self) -> ViewCursor:
        """Return a cursor in this transaction, for persisted views."""
        return ViewCursor(self._store.cursor(), self._log_id, self._store.backend)

    def _next_version(self, event: NewEvent, versions: dict[str, int]) -> int:
        stream, expected = event.originator_id, event.originator_version
        last = versions.get(stream)
        if last is None:
            last = self._memory.versions.get(stream)
        if last is None:
            if expected == 1:
                return 1  # a new stream, says the caller; the unique constraint contradicts if it is not
            rows = self._store.within(self._store.sql.version, log_id=self._log_id, stream=stream)
            last = rows[0][0] or 0
        if expected not in (NEXT_VERSION, last + 1):
            raise StreamConflictError(
                "STREAM_CONFLICT",
                f"The stream {stream} is at version {last}, so the next event is {last + 1} and not {expected}; load "
                "the stream again and decide anew.",
                stream=stream,
                found=last,
                given=expected,
            )
        return last + 1

    def _fetch(self, after: int, upto: int, *, skips_archived: bool = False) -> list[LoggedEvent]:
        query = events_query(self._store.backend)
        rows = self._store.within(query, count=_ALL, **key_range(self._log_id, after, upto))
        return events_without_gap(rows, after, upto, skips_archived=skips_archived)

    def _catch_up(self, opening: Opening) -> None:
        """Bring the memory to the head found under the lock, and check that the log only grew."""
        self._clocks, self._answers = opening.clocks, opening.answers
        memory = self._memory
        known, size = memory.head.size, opening.size
        is_promoted = memory.place not in (None, self._store.place)
        if size >= known:
            check_covered(size, opening.last)
        if size == known:
            if (opening.root or memory.head.root) != memory.head.root:
                raise shrunk(known, size) if is_promoted else _changed_behind(size)
            memory.place = self._store.place
            return
        if size < known or opening.root is None:
            raise shrunk(known, size)
        events: Sequence[LoggedEvent] = ()
        frontier = memory.frontier
        while frontier.size < size:  # only the last step is kept, so that memory stays bounded
            known, upto = frontier.size, min(size, frontier.size + CATCH_UP_EVENTS)
            if opening.events is not None and len(opening.events) == size - known:
                events = events_without_gap(opening.events, known, size)
            else:
                events = self._fetch(known, upto)
            frontier = frontier.extended([event.leaf for event in events])
            memory.versions.update((event.stream, event.version) for event in events)
        if frontier.root() != opening.root:
            raise shrunk(memory.head.size, size) if is_promoted else _changed_behind(size)
        memory.forget_streams_beyond(MAX_STREAMS_REMEMBERED)
        memory.frontier, memory.head, memory.place = frontier, TreeHead(size, opening.root), self._store.place
        self._caught_up = (known, events)

    def _rows(self) -> tuple[Batch | None, Frontier]:
        """Return what to write, and the tree after it."""
        if not self._appended:
            return None, self._memory.frontier
        base = self._log_id << LOG_SHIFT
        filled: list[Chunk] = []
        frontier = self._memory.frontier.extended([event.leaf for event in self._appended], filled)
        events = _event_rows(self._log_id, base, self._appended)
        chunks = [(base + chunk.index, chunk.root, chunk.frontier.to_bytes()) for chunk in filled]
        head = base + frontier.size, frontier.root(), self._insert_heads(base)
        return Batch(events, head, chunks, self._clock_rows(frontier.size)), frontier

    def _insert_heads(self, base: int) -> int:
        """Write the tree heads before the last one; return the size of the newest."""
        frontier, taken = self._memory.frontier, 0
        for size in self._ends:
            count = size - self._memory.head.size
            if not taken < count < len(self._appended):
                continue
            before, part = frontier.size, self._appended[taken:count]
            frontier, taken = frontier.extended([event.leaf for event in part]), count
            row = (base + size, frontier.root(), before)
            statement = self._store.head_statement
            self._store.cursor().execute(statement.sql, row if self._store.links_heads else row[:2])
        return frontier.size

    def _clock_rows(self, size: int) -> list[tuple[Any, ...]]:
        """Return the rows of the clocks; that of a commit without any has no boot id, and is stored all the same.

        The greatest time recorded has a row of its own only when it changes while it is not that of the last commit: at
        a commit with an earlier time than the one before, and at one that confirms such a time.
        """
        log_id, before = self._log_id, self._clocks
        boot, recorded_ms, is_confirmed = self._noted or (_NO_BOOT, 0, False)
        rows = [(log_id, size, boot.id, boot.ms, recorded_ms)]
        if self._noted is not None and before.boot is not None and before.recorded_ms is not None:
            greatest = max(before.recorded_ms, before.greatest_ms or 0)
            if recorded_ms < greatest and is_confirmed:
                rows.append((-log_id, size, boot.id, boot.ms, recorded_ms))
            elif recorded_ms < greatest and before.greatest_ms is None:
                rows.append((-log_id, self.head.size, before.boot.id, before.boot.ms, before.recorded_ms))
        return rows

    def _remember(self, batch: Batch, frontier: Frontier) -> None:
        """Take over what was committed."""
        memory = self._memory
        memory.frontier, memory.head = frontier, TreeHead(frontier.size, batch.head[1])
        memory.forget_streams_beyond(MAX_STREAMS_REMEMBERED)
        memory.versions.update(self._versions)


def events_without_gap(
    rows: Sequence[Any], after: int, upto: int, *, skips_archived: bool = False
) -> list[LoggedEvent]:
    """Return rows as events.

    Args:
        rows: of the events table.
        after: position before the first event.
        upto: position of the last event.
        skips_archived: leave out events whose contents were removed.

    Raises:
        DamagedLogError: ``LOG_GAP`` when they are not exactly the positions after ``after`` up to ``upto``.
        RefusedError: ``EVENT_ARCHIVED`` where the content of one was removed.
    """
    if len(rows) != upto - after or (rows and rows[-1][0] != upto):
        raise gap(rows, after)
    if skips_archived:
        return [event for event in (LoggedEvent(*row) for row in rows) if event.state]
    refuse_archived(rows)
    return [LoggedEvent(*row) for row in rows]


def _event_rows(log_id: int, base: int, events: Sequence[LoggedEvent]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for event in events:
        try:
            state = event.state.decode()
        except UnicodeDecodeError as error:
            raise InvalidEventError("INVALID_EVENT", f"The state of {event.topic} is no UTF-8: {error}.") from None
        key = base + event.position
        rows.append((key, log_id, event.stream, event.version, event.topic, event.schema_version, event.leaf, state))
    return rows


def shrunk(known: int, size: int) -> DamagedLogError:
    """Return the error of a log that lacks events which a program has seen.

    Args:
        known: number of events that were seen.
        size: number of events now.
    """
    return DamagedLogError(
        ErrorCode.LOG_SHRUNK,
        f"The log has {size} events now, and not all of the {known} that this program has seen: it was cut or "
        "replaced, or a database server was promoted that lacks commits. Open it again.",
        known=known,
        found=size,
    )


def _changed_behind(size: int) -> DamagedLogError:
    return DamagedLogError(
        ErrorCode.TREE_DAMAGED,
        f"The log's tree head at {size} events does not follow from its events; run `worldctl verify`.",
        size=size,
    )
