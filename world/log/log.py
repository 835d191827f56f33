"""The append-only log: one history of events in a store, its Merkle tree, and the one way to write to it.

Every event has a position without gaps, a place in its stream, canonical JSON state and a leaf hash; every
commit stores the tree head it reached. A writer works under the log's lock and first sees what others
appended, so nothing is decided on stale state (design section 2). Readers see committed events only and miss
none.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

from world.errors import Refused
from world.log.following import Follower
from world.log.migration import find_log, log_names
from world.log.statements import AT_ONCE, events_at_query, events_query
from world.log.store import BUSY_TIMEOUT_MS, Durability, Opening, Row, Store, key_range
from world.log.tables import Statement
from world.log.transaction import Memory, Transaction
from world.log.tree import ConsistencyProof, InclusionProof, StoredTree, gap
from world.log.url import Address, Backend, parse_address
from world.log.values import MAX_EVENT_BYTES, MAX_NUMBER, LoggedEvent, TreeHead
from world.log.views import REBUILD_BATCH, PersistedView, Progress, ViewState, mend_view, prepare_view, view_states

READ_BATCH: Final = 1_000
"""Most events fetched by one query of a reader."""

BATCH_BYTES: Final = 16 * 1024 * 1024
"""State bytes a reader aims to hold at once; batches shrink where events are large."""

_FIRST_BATCH: Final = 128
_ALL: Final = 1 << 62


def open_log(
    address: str | Address,
    *,
    read_only: bool = False,
    create: bool = False,
    durability: Durability = "full",
    view: PersistedView | None = None,
    max_event_bytes: int = MAX_EVENT_BYTES,
    busy_timeout_ms: int = BUSY_TIMEOUT_MS,
    progress: Progress | None = None,
) -> EventLog:
    """Open a log.

    Args:
        address: see ``world.log.url``.
        read_only: change no byte; writing is refused, and ``view`` is only looked at.
        create: make the store and the log where they do not exist.
        durability: ``full`` (a commit survives the loss of power) or ``normal`` (the last commits may not).
        view: a view to keep up to date; it is built or brought up to date before the log is returned.
        max_event_bytes: limit of one event's state, in bytes.
        busy_timeout_ms: how long a writer waits for the lock, in milliseconds.
        progress: called while the view is built, with events done and events in all.

    Raises:
        Refused: ``INVALID_ADDRESS``, ``LOG_NOT_FOUND``, ``NOT_A_LOG``, ``LOG_FORMAT``, ``LOG_BUSY``,
            ``VIEW_NEWER`` and others, each saying what to do.
        DamagedLog: the database is damaged.
    """
    where = address if isinstance(address, Address) else parse_address(address)
    store = open_store(
        where, read_only=read_only, create=create, durability=durability, busy_timeout_ms=busy_timeout_ms
    )
    return open_log_in(store, where, create=create, view=view, max_event_bytes=max_event_bytes, progress=progress)


def open_log_in(
    store: Store,
    where: Address,
    *,
    create: bool = False,
    view: PersistedView | None = None,
    max_event_bytes: int = MAX_EVENT_BYTES,
    progress: Progress | None = None,
) -> EventLog:
    """Open a log in a store that is open already, and take the store over; arguments and errors as of ``open_log``."""
    try:
        log_id = find_log(store, where.name, create=create)
        log = EventLog(store, where, log_id, view=view, max_event_bytes=max_event_bytes)
        if view is not None and not store.read_only:
            prepare_view(store, log_id, view)
            log.catch_up_view(progress)
    except BaseException:
        store.close()
        raise
    return log


def rebuild_view(
    address: str | Address,
    view: PersistedView,
    *,
    busy_timeout_ms: int = BUSY_TIMEOUT_MS,
    progress: Progress | None = None,
) -> int:
    """Build a view anew from the events, whatever state it is in; nothing else is needed than the log itself.

    Args:
        address: see ``world.log.url``.
        view: the view.
        busy_timeout_ms: how long to wait for the log's lock, in milliseconds.
        progress: called with events done and events in all.

    Returns:
        How many events the view covers now.

    Raises:
        Refused: as ``open_log`` does.
        DamagedLog: the events themselves are damaged.
    """
    with open_log(address, busy_timeout_ms=busy_timeout_ms) as log:
        mend_view(log._store, log.log_id, view)
        log._view = view
        log.rebuild_view(progress)
        return log.head().size


def list_logs(address: str | Address) -> list[str]:
    """Return the names of the logs in a store, sorted; the name in the address does not matter.

    Raises:
        Refused: as ``open_log`` does.
    """
    where = address if isinstance(address, Address) else parse_address(address)
    store = open_store(where, read_only=True, create=False, durability="full", busy_timeout_ms=BUSY_TIMEOUT_MS)
    try:
        return list(log_names(store))
    finally:
        store.close()


def open_store(where: Address, *, read_only: bool, create: bool, durability: Durability, busy_timeout_ms: int) -> Store:
    """Connect to the database of an address; see ``open_log``."""
    if where.backend == "sqlite":
        from world.log.sqlite import SqliteStore

        return SqliteStore(
            where.path,
            read_only=read_only,
            create=create,
            durability=durability,
            busy_timeout_ms=busy_timeout_ms,
        )
    from world.log.postgres import PostgresStore

    assert where.url is not None
    return PostgresStore(where.url, read_only=read_only, durability=durability, busy_timeout_ms=busy_timeout_ms)


class EventLog:
    """An open log; safe to use from many threads. Close it, or use it as a context manager."""

    def __init__(
        self,
        store: Store,
        address: Address,
        log_id: int,
        *,
        view: PersistedView | None,
        max_event_bytes: int,
    ) -> None:
        """Take over an open store; ``open_log`` is the way in."""
        self._store = store
        self._address = address
        self._view = view
        self._max_event_bytes = max_event_bytes
        self._memory: Memory | None = None
        self._writing = threading.Lock()
        self._writer: int | None = None
        self._grown = threading.Condition()
        self._tree = StoredTree(store, log_id)
        self.log_id = log_id

    @property
    def name(self) -> str:
        """Return the log's name in its store."""
        return self._address.name

    @property
    def address(self) -> Address:
        """Return where the log is kept."""
        return self._address

    @property
    def read_only(self) -> bool:
        """Tell whether the log was opened to be read only."""
        return self._store.read_only

    @property
    def backend(self) -> Backend:
        """Return the kind of database."""
        return self._store.backend

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections and wake those who follow; closing twice does nothing."""
        try:
            self._store.close()
        finally:
            with self._grown:
                self._grown.notify_all()

    # Reading

    def head(self) -> TreeHead:
        """Return the newest committed tree head.

        Raises:
            DamagedLog: ``EVENT_UNSEALED`` or ``LOG_GAP`` when it does not cover exactly the events there are.
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
    ) -> Iterator[LoggedEvent]:
        """Yield events in log order, as of the moment of the call.

        Args:
            after: position before the first event.
            upto: last position; None is the newest committed event.
            topics: only events with one of these topics.
            stream: only events of this stream.
            batch: most events to fetch at once; fewer are fetched where events are large.

        Raises:
            DamagedLog: ``LOG_GAP`` at the first missing event, when all events are read.
        """
        for rows in self.read_rows(after, upto, topics=topics, stream=stream, batch=batch):
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
            if rows:
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
            Refused: ``NO_SUCH_EVENT`` when the log does not reach that far.
            DamagedLog: ``LOG_GAP`` when it should be there.
        """
        query = events_query(self.backend)
        if position >= 1:
            rows = self._store.select(query, count=1, **key_range(self.log_id, position - 1, position))
            if rows:
                return LoggedEvent(*rows[0])
        size = self.head().size
        if 1 <= position <= size:
            raise gap([], position - 1)
        raise Refused("NO_SUCH_EVENT", f"There is no event {position}; the log has {size}.", position=position)

    def events_at(self, positions: Sequence[int]) -> Iterator[list[LoggedEvent]]:
        """Yield the events at positions in the order of the log, in lists of at most ``AT_ONCE``.

        Raises:
            DamagedLog: ``LOG_GAP`` when one is not there.
        """
        query, base = events_at_query(self.backend), key_range(self.log_id)["base"]
        for start in range(0, len(positions), AT_ONCE):
            part = positions[start : start + AT_ONCE]
            keys = {f"key{n}": base + part[min(n, len(part) - 1)] for n in range(AT_ONCE)}
            rows = self._store.select(query, base=base, **keys)
            if len(rows) != len(part):
                raise gap([], min(set(part) - {row[0] for row in rows}, default=part[0]) - 1)
            yield [LoggedEvent(*row) for row in rows]

    def stream(
        self,
        stream_id: str,
        *,
        after: int = 0,
        upto: int | None = None,
        limit: int | None = None,
        descending: bool = False,
    ) -> list[LoggedEvent]:
        """Return the events of a stream in order of version.

        Args:
            stream_id: the stream.
            after: version before the first event.
            upto: last version; None is the newest.
            limit: most events to return; None returns all.
            descending: newest first.
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

    def query(self, statement: Statement, **values: Any) -> list[Row]:
        """Run a compiled reading statement, such as one on a view's tables, and return its rows."""
        return self._store.select(statement, **values)

    def view_state(self, name: str) -> ViewState | None:
        """Return how far a stored view is; None when the log has no such view."""
        return view_states(self._store, self.log_id).get(name)

    def audit_rows(self, after: int, count: int) -> list[Row]:
        """Return stored rows as they are, with the log id last; gaps are not looked for."""
        return self._store.select(self._store.sql.audit, count=count, **key_range(self.log_id, after))

    def audit_chunks(self, after: int, count: int) -> list[Row]:
        """Return stored chunk rows (index, root, frontier) with an index beyond ``after``."""
        return self._store.select(self._store.sql.chunks, count=count, **key_range(self.log_id, after))

    def audit_streams(self, count: int) -> list[Row]:
        """Return events that break the order of their stream: position, stream, version, version before."""
        base = key_range(self.log_id)["base"]
        return self._store.select(self._store.sql.disorder, log_id=self.log_id, base=base, count=count)

    def audit_storage(self, count: int) -> list[str]:
        """Return what the database itself finds wrong with how it is stored, at most ``count`` sentences."""
        return self._store.problems(count)

    # Proving

    def root_at(self, size: int) -> TreeHead:
        """Return the head of the tree over the first ``size`` events, computed from stored hashes.

        Raises:
            Refused: ``NO_SUCH_EVENT`` when the log is shorter.
            DamagedLog: ``TREE_DAMAGED`` when it is not the head stored for that size.
        """
        return self._tree.root_at(size)

    def prove_inclusion(self, position: int, size: int | None = None) -> InclusionProof:
        """Prove that an event is in the log as it was with ``size`` events (None: now).

        Raises:
            Refused: ``NO_SUCH_EVENT``.
            DamagedLog: ``TREE_DAMAGED`` when the stored hashes prove nothing.
        """
        return self._tree.prove_inclusion(position, self.head().size if size is None else size)

    def prove_consistency(self, first: int, second: int | None = None) -> ConsistencyProof:
        """Prove that the log with ``first`` events begins the log with ``second`` (None: now).

        Raises:
            Refused: ``NO_SUCH_EVENT`` when the log is shorter, ``INVALID_INPUT`` when the first is longer.
            DamagedLog: ``TREE_DAMAGED`` when the stored hashes prove nothing.
        """
        return self._tree.prove_consistency(first, self.head().size if second is None else second)

    # Writing

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """Take the log's lock, give a transaction, and commit it when the block ends normally.

        Events, tree head and what the transaction's cursor did are committed together. An exception in the
        block, or while committing, leaves nothing behind. With a view, the block must apply every event it
        appends to it.

        Raises:
            LogBusy: ``LOG_BUSY`` when another writer kept the lock too long.
            StorageFull: ``STORAGE_FULL``.
            Refused: ``LOG_READ_ONLY``, ``STREAM_CONFLICT``, ``VIEW_CHANGED``.
            DamagedLog: the stored log contradicts what this object saw before.
            WorldProtocolError: ``COMMIT_UNKNOWN`` when the acknowledgement of the commit was lost.
        """
        with self._exclusive():
            opening = self._begin()
            while not self._is_view_live(opening):
                self._store.end()
                self._advance_view(None)
                opening = self._begin()
            with self._transaction(opening) as transaction:
                yield transaction

    def catch_up_view(self, progress: Progress | None = None) -> None:
        """Apply to the view all events it has not seen, in several transactions; what is done stays done.

        Args:
            progress: called with events done and events in all.

        Raises:
            Refused: ``VIEW_CHANGED`` when another program replaced the view; open the log again.
        """
        if self._view is not None:
            with self._exclusive():
                self._advance_view(progress)

    def rebuild_view(self, progress: Progress | None = None) -> None:
        """Drop what the view holds for this log and build it from the events; see ``catch_up_view``."""
        if self._view is not None:
            with self._exclusive():
                with self._transaction(self._begin()) as transaction:
                    self._set_view(transaction, 0)
                self._advance_view(progress)

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Keep the threads of this process apart; the store's lock keeps processes apart."""
        if self.read_only:
            raise Refused("LOG_READ_ONLY", "The log was opened to be read only; open it for writing.")
        me = threading.get_ident()
        if self._writer == me:
            raise Refused("LOG_BUSY", "This thread is writing to the log already; finish that write first.")
        with self._writing:
            self._writer = me
            try:
                yield
            finally:
                self._writer = None

    def _begin(self) -> Opening:
        if self._memory is None:
            self._memory = self._load_memory()
        return self._store.begin(self.log_id, self._memory.head.size)

    @contextmanager
    def _transaction(self, opening: Opening) -> Iterator[Transaction]:
        assert self._memory is not None
        try:
            transaction = Transaction(self._store, self.log_id, self._memory, self._max_event_bytes)
            transaction._catch_up(opening)
            yield transaction
            batch, frontier = transaction._rows()
            if batch is not None:
                self._stop_other_views(opening)
            self._store.commit(batch)
        except Exception as error:
            ours = self._store.translate(error)
            if ours is error:
                raise
            raise ours from error
        finally:
            self._store.end()
        if batch is not None:
            transaction._remember(batch, frontier)
            with self._grown:
                self._grown.notify_all()

    def _load_memory(self) -> Memory:
        head = self.head()
        return Memory(self._tree.frontier(head), head)

    # Views

    def _is_view_live(self, opening: Opening) -> bool:
        """Tell whether the view needs nothing before this write; refuse when it is not ours any more."""
        if self._view is None:
            return True
        try:
            return self._view_position(opening) is None
        except BaseException:
            self._store.end()
            raise

    def _view_position(self, opening: Opening) -> int | None:
        assert self._view is not None
        for name, version, position in opening.views:
            if name == self._view.name and version == self._view.version:
                return None if position is None else int(position)
        raise Refused(
            "VIEW_CHANGED",
            f"Another release replaced the view {self._view.name} of this log; open the log again.",
            view=self._view.name,
        )

    def _stop_other_views(self, opening: Opening) -> None:
        """Note where views that this writer does not keep cease to be right."""
        kept = self._view.name if self._view is not None else ""
        if any(position is None and name != kept for name, _, position in opening.views):
            statement = self._store.sql.stop_views
            values = {"view_log": self.log_id, "new_position": opening.size, "kept": kept}
            self._store.cursor().execute(statement.sql, statement.bind(**values))

    def _advance_view(self, progress: Progress | None) -> None:
        while not self._advance_view_once(progress or _silent):
            pass

    def _advance_view_once(self, progress: Progress) -> bool:
        """Apply one batch of events to the view; return whether it is live then."""
        opening = self._begin()
        with self._transaction(opening) as transaction:
            position = self._view_position(opening)
            if position is None:
                return True
            assert self._view is not None
            cursor = transaction.cursor()
            if position == 0:
                self._view.clear(cursor)
            upto = min(position + REBUILD_BATCH, opening.size)
            if upto > position:
                self._view.apply(cursor, transaction._fetch(position, upto))
            self._set_view(transaction, None if upto == opening.size else upto)
            progress(upto, opening.size)
        return upto == opening.size

    def _set_view(self, transaction: Transaction, position: int | None) -> None:
        assert self._view is not None
        transaction.cursor().run(
            self._store.sql.set_view,
            view_log=self.log_id,
            view_name=self._view.name,
            new_version=self._view.version,
            new_position=position,
        )


def _silent(_done: int, _all: int) -> None:
    """Tell nobody."""


def next_limit(rows: list[Row], batch: int) -> int:
    """Return how many events to fetch next, so that their states fit the memory a reader may use."""
    sample = rows[::8]
    average = sum([len(row[5] or b"") for row in sample]) // len(sample) + 1
    return max(1, min(batch, BATCH_BYTES // average))
