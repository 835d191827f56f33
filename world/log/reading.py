"""Reading a stored log, and proving its content: everything about an open log that changes no byte."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.log.following import Follower
from world.log.merkle import Frontier
from world.log.sql.queries import AT_ONCE, events_at_query, events_query
from world.log.sql.statement import CLOCK_TABLE, LOG_SHIFT, SNAPSHOT_TABLE, SqlStatement
from world.log.store import Clocks, Row, Store, clocks_of, key_range
from world.log.tree import ConsistencyProof, InclusionProof, StoredTree, gap, refuse_archived
from world.log.url import Backend, LogAddress
from world.log.values import MAX_NUMBER, LoggedEvent, ServerPlace, TreeHead
from world.log.views import ViewState, view_states
from world.model.short_repr import short_repr

if TYPE_CHECKING:
    from world.log.backends.hosts import DatabaseHost

READ_BATCH: Final = 1_000
"""Most events fetched by one query of a reader."""

BATCH_BYTES: Final = 16 * 1024 * 1024
"""State bytes a reader aims to hold at once; batches shrink where events are large."""

_FIRST_BATCH: Final = 128
_ALL: Final = 1 << 62
_STATE: Final = 5  # of the fields of ``LoggedEvent``


class LogReader:
    """The reading half of an open log; safe to use from many threads. ``world.log.log.EventLog`` also writes."""

    def __init__(self, store: Store, address: LogAddress, log_id: int) -> None:
        """Read from an open store."""
        self._store = store
        self._address = address
        self._grown = threading.Condition()
        self._tree = StoredTree(store, log_id)
        self.log_id = log_id

    @property
    def name(self) -> str:
        """Return the log's name in its store."""
        return self._address.name

    def __repr__(self) -> str:
        return short_repr(self, str(self._address))

    @property
    def address(self) -> LogAddress:
        """Return where the log is kept."""
        return self._address

    @property
    def read_only(self) -> bool:
        """Return whether the log was opened to be read only."""
        return self._store.read_only

    @property
    def has_wal_reset_fault(self) -> bool:
        """Whether the log is a file of a SQLite that can lose pages unless checkpoints exclude writers."""
        return self._store.has_wal_reset_fault

    @property
    def derives_views(self) -> bool:
        """Return whether its views are made in each process that needs them, because they cannot be stored."""
        return self._store.derives_views

    @property
    def backend(self) -> Backend:
        """Return the kind of database."""
        return self._store.backend

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections and wake those who follow; closing twice does nothing."""
        try:
            self._store.close()
        finally:
            with self._grown:
                self._grown.notify_all()

    # Reading

    @property
    def units_ended(self) -> int:
        """How many units of work of other processes this log has ended, since they held its lock for too long."""
        return self._store.units_ended

    def probe(self, timeout_s: float) -> ServerPlace | None:
        """Find out whether the log can be written now, without an event; see ``Store.probe``."""
        return self._store.probe(self.log_id, timeout_s)

    def head(self) -> TreeHead:
        """Return the newest committed tree head.

        Raises:
            DamagedLogError: ``EVENT_UNSEALED`` or ``LOG_GAP`` when it does not cover exactly the events there are.
        """
        return self._tree.head()

    def stored_head(self) -> TreeHead:
        """Return the newest tree head as it is stored, for verification: events may stand beyond it."""
        return self._tree.stored_head()[0]

    def heads(self, after: int = 0, upto: int | None = None) -> Iterator[TreeHead]:
        """Yield the tree heads stored with each commit, with sizes in (after, upto], smallest first."""
        while True:
            rows = self._store.select(self._store.sql.heads, count=READ_BATCH, **key_range(self.log_id, after, upto))
            for size, root in rows:
                yield TreeHead(size, root)
            if len(rows) < READ_BATCH:
                return
            after = rows[-1][0]

    def read(
        self,
        after: int = 0,
        upto: int | None = None,
        *,
        topics: Sequence[str] | None = None,
        stream: str | None = None,
        batch: int = READ_BATCH,
        skip_archived: bool = False,
    ) -> Iterator[LoggedEvent]:
        """Yield events in log order, as of the moment of the call.

        Args:
            after: position before the first event.
            upto: last position; None is the newest committed event.
            topics: only events with one of these topics.
            stream: only events of this stream.
            batch: most events to fetch at once; fewer are fetched where events are large.
            skip_archived: leave out events whose content was removed from a cut log.

        Raises:
            DamagedLogError: ``LOG_GAP`` at the first missing event, when all events are read.
            RefusedError: ``EVENT_ARCHIVED`` at the first event without its content, unless they are left out.
        """
        read = self.read_rows(after, upto, topics=topics, stream=stream, batch=batch, skip_archived=skip_archived)
        for rows in read:
            for row in rows:
                yield LoggedEvent(*row)

    def read_rows(
        self,
        after: int = 0,
        upto: int | None = None,
        *,
        topics: Sequence[str] | None = None,
        stream: str | None = None,
        batch: int = READ_BATCH,
        skip_archived: bool = False,
    ) -> Iterator[list[Row]]:
        """Yield events as ``read`` does, in lists of tuples with the fields of ``LoggedEvent``."""
        last = self.head().size if upto is None else min(upto, self.stored_head().size)
        whole = topics is None and stream is None
        query = events_query(self.backend, topics=len(topics or ()), stream=stream is not None)
        extra: dict[str, Any] = {f"topic{n}": topic for n, topic in enumerate(topics or ())}
        if topics is not None and not topics:
            return
        if stream is not None:
            extra |= {"log_id": self.log_id, "stream": stream, "gt": 0, "lte": MAX_NUMBER}
        limit = min(batch, _FIRST_BATCH)
        while after < last:
            rows = self._store.select(query, count=limit, **key_range(self.log_id, after, last), **extra)
            if whole and (not rows or rows[-1][0] - after != len(rows)):
                raise gap(rows, after)
            if rows and skip_archived:
                yield self._with_content(rows)
            elif rows:
                self._refuse_removed(rows)
                yield rows
            if len(rows) < limit:
                if whole and rows[-1][0] != last:
                    raise gap(rows, after)
                return
            after = rows[-1][0]
            limit = next_limit(rows, batch)

    def event_at(self, position: int) -> LoggedEvent:
        """Return the event at a position.

        Raises:
            RefusedError: ``NO_SUCH_EVENT`` when the log does not reach that far; ``EVENT_ARCHIVED``.
            DamagedLogError: ``LOG_GAP`` when it should be there.
        """
        query = events_query(self.backend)
        if position >= 1:
            rows = self._store.select(query, count=1, **key_range(self.log_id, position - 1, position))
            if rows:
                self._refuse_removed(rows)
                return LoggedEvent(*rows[0])
        size = self.head().size
        if 1 <= position <= size:
            raise gap([], position - 1)
        raise RefusedError(
            ErrorCode.NO_SUCH_EVENT, f"There is no event {position}; the log has {size}.", position=position
        )

    def events_at(self, positions: Sequence[int]) -> Iterator[list[LoggedEvent]]:
        """Yield the events at positions that the index names, in the order of the log and in lists of ``AT_ONCE``.

        Raises:
            DamagedLogError: ``LOG_GAP`` when one is not there; ``INDEX_DAMAGED`` when the log does not reach that far.
            RefusedError: ``EVENT_ARCHIVED``.
        """
        query, base = events_at_query(self.backend), key_range(self.log_id)["base"]
        for start in range(0, len(positions), AT_ONCE):
            part = positions[start : start + AT_ONCE]
            keys = {f"key{n}": base + part[min(n, len(part) - 1)] for n in range(AT_ONCE)}
            rows = self._store.select(query, base=base, **keys)
            if len(rows) != len(part):
                missing = min(set(part) - {row[0] for row in rows}, default=part[0])
                if 1 <= missing <= self.head().size:
                    raise gap([], missing - 1)
                raise DamagedLogError(
                    ErrorCode.INDEX_DAMAGED,
                    "The index does not fit its log: it names what is not there; `worldctl doctor --rebuild` makes it "
                    "again.",
                )
            self._refuse_removed(rows)
            yield [LoggedEvent(*row) for row in rows]

    def stream(
        self,
        stream_id: str,
        *,
        after: int = 0,
        upto: int | None = None,
        limit: int | None = None,
        descending: bool = False,
        skip_archived: bool = False,
    ) -> list[LoggedEvent]:
        """Return the events of a stream in order of version.

        Args:
            stream_id: the stream.
            after: version before the first event.
            upto: last version; None is the newest.
            limit: most events to return; None returns all.
            descending: newest first.
            skip_archived: leave out events whose content was removed from a cut log.

        Raises:
            RefusedError: ``EVENT_ARCHIVED`` where the content of one was removed, unless they are left out.
        """
        rows = self._store.select(
            events_query(self.backend, stream=True, descending=descending),
            log_id=self.log_id,
            stream=stream_id,
            gt=after,
            lte=MAX_NUMBER if upto is None else upto,
            count=_ALL if limit is None else limit,
            **key_range(self.log_id),
        )
        if skip_archived:
            rows = self._with_content(rows)
        self._refuse_removed(rows)
        return [LoggedEvent(*row) for row in rows]

    def follow(self, after: int = 0, *, poll_ms: int = 100, topics: Sequence[str] | None = None) -> Follower:
        """Return an iterator over events that waits for new ones at the end, until it is stopped.

        Args:
            after: position before the first event.
            poll_ms: how often to look for events of other processes, in milliseconds; commits made through
                this object wake it at once.
            topics: only events with one of these topics.
        """
        return Follower(self, self._grown, after, poll_ms, topics)

    def check_place(self) -> None:
        """Check that the log's files are those that were opened; only where it is open for writing.

        Raises:
            WorldProtocolError: ``LOG_MOVED``.
        """
        self._store.check_place()

    def _refuse_removed(self, rows: Sequence[Row]) -> None:
        """Refuse rows of which one has no content: as archived where the log was cut, otherwise as damaged."""
        try:
            refuse_archived(rows)
        except RefusedError as refused:
            self._check_cut_after(refused.details["position"])
            raise

    def _with_content(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows that have their content; where others have none, the log must have been cut."""
        kept = [row for row in rows if row[_STATE]]
        if len(kept) < len(rows):
            self._check_cut_after(max(row[0] for row in rows if not row[_STATE]))
        return kept

    def _check_cut_after(self, position: int) -> None:
        """Check that an event may have no content, because the log was cut after it."""
        rows: Sequence[Row] = ()
        if SNAPSHOT_TABLE in {row[0] for row in self._store.query(self._store.tables_sql, ())}:
            rows = self._store.select(self._store.sql.last_snapshot, log_id=self.log_id)
        if not rows or (rows[0][0] or 0) < position:
            raise DamagedLogError(
                ErrorCode.EVENT_CHANGED,
                f"Event {position} has no content, and the log was not cut after it. Run `worldctl verify`, and "
                "restore the log from a copy.",
                position=position,
            )

    def hosts(self) -> Sequence[DatabaseHost]:
        """Ask all hosts of the log's server what they are; empty for a log in a file."""
        return self._store.hosts()

    def query(self, statement: SqlStatement, **values: Any) -> list[Row]:
        """Run a compiled reading statement, such as one on a view's tables, and return its rows."""
        return self._store.select(statement, **values)

    def keys(self, after: int = 0, upto: int | None = None) -> dict[str, int]:
        """Return ``low`` and ``high`` of a statement on events: the keys of the positions in (after, upto].

        Args:
            after: position before the first event.
            upto: last position; None is the end.
        """
        span = key_range(self.log_id, after, upto)
        return {name: span[name] for name in ("low", "high")}

    def view_state(self, name: str) -> ViewState | None:
        """Return how far a stored view is; None when the log has no such view."""
        return view_states(self._store, self.log_id).get(name)

    def snapshot(self, upto: int) -> str | None:
        """Return the stored snapshot of the state after the event at a position; None where there is none."""
        if SNAPSHOT_TABLE not in {row[0] for row in self._store.query(self._store.tables_sql, ())}:
            return None
        rows = self._store.select(self._store.sql.read_snapshot, log_id=self.log_id, upto=upto)
        return str(rows[0][0]) if rows else None

    def audit_rows(self, after: int, count: int) -> list[Row]:
        """Return stored rows as they are, with the log id last; gaps are not looked for."""
        return self._store.select(self._store.sql.audit, count=count, **key_range(self.log_id, after))

    def audit_chunks(self, after: int, count: int) -> list[Row]:
        """Return stored chunk rows (index, root, frontier) with an index beyond ``after``."""
        return self._store.select(self._store.sql.chunks, count=count, **key_range(self.log_id, after))

    def audit_streams(self, count: int) -> list[Row]:
        """Return events that break the order of their stream: position, stream, version, version before."""
        span = key_range(self.log_id)
        return self._store.select(self._store.sql.disorder, log_id=self.log_id, count=count, **span)

    def audit_heads(self, count: int) -> list[Row]:
        """Return size, named and stored head before, of tree heads where the two differ; for verification."""
        if not self._store.has_linked_heads():
            return []
        return self._store.select(self._store.sql.broken_links, count=count, **key_range(self.log_id))

    def lacks_clocks(self) -> bool:
        """Return whether the clocks of the last commit are missing, or are those of another commit.

        False where the store keeps none: on a server, in exported tables, and where an earlier release committed last.
        """
        store = self._store
        if not store.keeps_clocks or store.derives_views or not store.has_linked_heads():
            return False
        rows = store.select(store.sql.last_head, **key_range(self.log_id))
        is_kept = CLOCK_TABLE in {row[0] for row in store.query(store.tables_sql, ())}
        if is_kept:
            rows = store.select(store.sql.opening, log_id=self.log_id, **key_range(self.log_id))
        size, last = rows[0][0], rows[0][2]
        if size is None or size != last or (is_kept and rows[0][3] == size):
            return False  # where the last head and the last event differ, the tree's pass says so
        [(before,)] = store.select(store.sql.newest_link, high=(self.log_id << LOG_SHIFT) + size)
        return before is not None

    def clocks(self) -> Clocks:
        """Return what the store has to compare a writer's clock with, as of the newest commit."""
        store = self._store
        if store.keeps_clocks and CLOCK_TABLE not in {row[0] for row in store.query(store.tables_sql, ())}:
            return Clocks()  # an earlier release, or exported tables
        row = store.select(store.sql.opening, log_id=self.log_id, **key_range(self.log_id))[0]
        return clocks_of(row) if store.keeps_clocks else Clocks(database_ms=row[3])

    def audit_storage(self, count: int) -> list[str]:
        """Return what the database itself finds wrong with how it is stored, at most ``count`` sentences."""
        return self._store.problems(count)

    # Proving

    def root_at(self, size: int) -> TreeHead:
        """Return the head of the tree over the first ``size`` events, computed from stored hashes.

        Raises:
            RefusedError: ``NO_SUCH_EVENT`` when the log is shorter.
            DamagedLogError: ``TREE_DAMAGED`` when it is not the head stored for that size.
        """
        return self._tree.root_at(size)

    def frontier(self, size: int) -> Frontier:
        """Return the tree over the first ``size`` events, ready to grow; errors as of ``root_at``."""
        return self._tree.frontier(self._tree.root_at(size))

    def prove_inclusion(self, position: int, size: int | None = None) -> InclusionProof:
        """Prove that an event is in the log as it was with ``size`` events (None: now).

        Raises:
            RefusedError: ``NO_SUCH_EVENT``.
            DamagedLogError: ``TREE_DAMAGED`` when the stored hashes prove nothing.
        """
        return self._tree.prove_inclusion(position, self.head().size if size is None else size)

    def prove_consistency(self, first: int, second: int | None = None) -> ConsistencyProof:
        """Prove that the log with ``first`` events begins the log with ``second`` (None: now).

        Raises:
            RefusedError: ``NO_SUCH_EVENT`` when the log is shorter, ``INVALID_INPUT`` when the first is longer.
            DamagedLogError: ``TREE_DAMAGED`` when the stored hashes prove nothing.
        """
        return self._tree.prove_consistency(first, self.head().size if second is None else second)

    def tile(self, level: int, index: int, width: int) -> bytes:
        """Return a tile of the tree (C2SP tlog-tiles): hashes of consecutive complete subtrees in a row.

        Args:
            level: each hash is the root over ``256 ** level`` leaves.
            index: the first hash is number ``256 * index`` of its level.
            width: hashes, 1 to 256.

        Raises:
            RefusedError: ``NO_SUCH_EVENT`` when the log is shorter.
            DamagedLogError: ``TREE_DAMAGED``, ``LOG_GAP``.
        """
        return self._tree.tile(level, index, width)


def next_limit(rows: list[Row], batch: int) -> int:
    """Return how many events to fetch next, so that their states fit the memory a reader may use."""
    sample = rows[::8]
    average = sum([len(row[5] or b"") for row in sample]) // len(sample) + 1
    return max(1, min(batch, BATCH_BYTES // average))
