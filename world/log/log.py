"""The append-only log: one history of events in a store, its Merkle tree, and the one way to write to it.

Every event has a position without gaps, a place in its stream, canonical JSON state and a leaf hash; every
commit stores the tree head it reached. A writer works under the log's lock and first sees what others
appended, so nothing is decided on stale state (design section 2). Readers see committed events only and miss
none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

from eventsourcing.persistence import StoredEvent

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.log.backends.registry import Durability, StoreOptions, storage_backend
from world.log.migration import find_log, log_names, make_derived_tables, rename_log
from world.log.reading import BATCH_BYTES, READ_BATCH, next_limit
from world.log.recorder import NotificationReader, new_event, persistence_errors
from world.log.store import BUSY_TIMEOUT_MS, Cursor, LockedQuery, Opening, Store, key_range
from world.log.transaction import Memory, Transaction
from world.log.url import LogAddress, parse_address
from world.log.values import MAX_EVENT_BYTES, NewEvent, ServerPlace
from world.log.views import REBUILD_BATCH, PersistedView, Progress, mend_view, prepare_views, refuse_cut, with_beside

__all__ = [
    "BATCH_BYTES",
    "READ_BATCH",
    "EventLog",
    "list_logs",
    "next_limit",
    "open_log",
    "open_log_in",
    "open_store",
    "rebuild_view",
]


def open_log(
    address: str | LogAddress,
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
        busy_timeout_ms: how long a writer waits for the lock, and at a commit for standbys, in milliseconds.
        progress: called while the view is built, with events done and events in all.

    Raises:
        RefusedError: ``INVALID_ADDRESS``, ``LOG_NOT_FOUND``, ``NOT_A_LOG``, ``LOG_FORMAT``, ``LOG_BUSY``,
            ``VIEW_NEWER`` and others, each saying what to do.
        DamagedLogError: the database is damaged.
    """
    where = address if isinstance(address, LogAddress) else parse_address(address)
    store = open_store(
        where, read_only=read_only, create=create, durability=durability, busy_timeout_ms=busy_timeout_ms
    )
    return open_log_in(store, where, create=create, view=view, max_event_bytes=max_event_bytes, progress=progress)


def open_log_in(
    store: Store,
    where: LogAddress,
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
            prepare_views(store, log_id, view)
            log.catch_up_view(progress)
    except BaseException:
        store.close()
        raise
    return log


def rebuild_view(address: str | LogAddress, view: PersistedView, *, progress: Progress | None = None) -> int:
    """Build a view and the stored parts of the tree anew from the events, whatever state they are in.

    Args:
        address: see ``world.log.url``.
        view: the view.
        progress: called with events done and events in all.

    Returns:
        How many events the view covers now.

    Raises:
        RefusedError: as ``open_log`` does; ``EVENT_ARCHIVED`` where contents of events were removed.
        DamagedLogError: the events themselves are damaged.
    """
    with open_log(address) as log:
        refuse_cut(log._store, "The index cannot be made again")
        make_derived_tables(log._store)
        log._tree.mend_chunks()
        for one in with_beside(view):
            mend_view(log._store, log.log_id, one)
        log._view, log._views = view, with_beside(view)
        log.rebuild_view(progress)
        return log.head().size


def list_logs(address: str | LogAddress) -> list[str]:
    """Return the names of the logs in a store, sorted; the name in the address does not matter.

    Raises:
        RefusedError: as ``open_log`` does.
    """
    where = address if isinstance(address, LogAddress) else parse_address(address)
    with closing(open_store(where, read_only=True, create=False, durability="full")) as store:
        return list(log_names(store))


def open_store(
    where: LogAddress, *, read_only: bool, create: bool, durability: Durability, busy_timeout_ms: int = BUSY_TIMEOUT_MS
) -> Store:
    """Connect to the database of an address; see ``open_log``."""
    options = StoreOptions(read_only=read_only, create=create, durability=durability, busy_timeout_ms=busy_timeout_ms)
    return storage_backend(where.scheme).open(where, options)


class EventLog(NotificationReader):
    """An open log, and an application recorder of the ``eventsourcing`` library.

    Safe to use from many threads. Close it, or use it as a context manager.
    """

    def __init__(
        self,
        store: Store,
        address: LogAddress,
        log_id: int,
        *,
        view: PersistedView | None,
        max_event_bytes: int,
    ) -> None:
        """Take over an open store; ``open_log`` is the way in."""
        super().__init__(store, address, log_id)
        self._view, self._views = view, with_beside(view)
        self._max_event_bytes = max_event_bytes
        self._memory: Memory | None = None
        self._writing = threading.Lock()
        self._writer: int | None = None

    def rename(self, name: str) -> None:
        """Give the log another name in its store; raises ``RefusedError`` ``LOG_NOT_EMPTY``, ``LOG_READ_ONLY``."""
        with self._exclusive():
            rename_log(self._store, self.log_id, name)
        self._address = replace(self._address, name=name)

    @contextmanager
    def write(self, questions: Sequence[LockedQuery] = (), *, is_unit: bool = False) -> Iterator[Transaction]:
        """Take the log's lock, give a transaction, and commit it when the block ends normally.

        Events, tree head and what the transaction's cursor did are committed together. An exception in the
        block, or while committing, leaves nothing behind. With a view, the block must apply every event it
        appends to it.

        Args:
            questions: reading statements on the state under the lock; ``Transaction.answers`` has their rows. A server
                answers them in the round trip that takes the lock.
            is_unit: another writer may end the block on a server once it has held the lock for too long (12 s), so the
                caller repeats it when it was ended.

        Raises:
            UnitEndedError: the block was ended; nothing of it is stored.
            LogBusyError: ``LOG_BUSY`` when another writer kept the lock too long.
            StorageFullError: ``STORAGE_FULL``.
            RefusedError: ``LOG_READ_ONLY``, ``STREAM_CONFLICT``, ``VIEW_CHANGED``.
            DamagedLogError: the stored log contradicts what this object saw before.
            WorldProtocolError: ``COMMIT_UNKNOWN`` when the acknowledgement of the commit was lost; ``LOG_MOVED``
                when the log's file is not under its name any more.
        """
        with self._exclusive():
            opening = self._begin(questions, is_unit=is_unit)
            while not self._is_view_live(opening):
                self._store.end()
                self._advance_view(None)
                opening = self._begin(questions, is_unit=is_unit)
            with self._transaction(opening) as transaction:
                yield transaction

    def place(self) -> ServerPlace | None:
        """Return where the writer that has the log's lock writes; None for a file, or where the server does not say."""
        return self._store.place

    def insert_events(
        self, stored_events: Sequence[StoredEvent], *, transaction: Transaction | None = None, **_: Any
    ) -> list[int]:
        """Append events and return their positions.

        Args:
            stored_events: in order. Of a ``NewEvent`` the state is taken to be canonical; that of any other stored
                event is checked, and gets schema version 1.
            transaction: of ``write``, which commits the events and whose caller applies them to the view; None
                commits them, with the view, before this method returns.

        Raises:
            StreamConflictError: ``STREAM_CONFLICT`` (the library's ``IntegrityError``); nothing was appended.
            InvalidEventError: ``INVALID_EVENT``, ``EVENT_TOO_LARGE`` (the library's ``DataError``).
            OperationalError: without a transaction, in place of whatever else ``write`` raises, which is its cause.

        Source: docs/architecture.md, "The log".
        """
        events = [event if isinstance(event, NewEvent) else new_event(event) for event in stored_events]
        if transaction is not None:
            return [logged.position for logged in transaction.append(events)]
        if not events:
            return []
        with persistence_errors(), self.write() as own:
            logged = own.append(events)
            if self._view is not None:
                self._view.apply(own.cursor(), logged)
        return [event.position for event in logged]

    def store_snapshot(self, upto: int, state: str) -> None:
        """Store the state after the event at a position, in place of one of that position; older ones stay.

        Raises:
            RefusedError: as ``write``.
        """
        from world.log.tables import SEALED, creation

        with self._store.migrating() as cursor:
            for sql in creation(SEALED, self.backend):
                cursor.execute(sql)
        with self._changing() as cursor:
            drop, insert = self._store.sql.drop_snapshots, self._store.sql.insert_snapshot
            cursor.execute(drop.sql, drop.bind(of_log=self.log_id, least=upto, most=upto))
            cursor.execute(insert.sql, insert.bind(log_id=self.log_id, upto=upto, state=state))

    def drop_snapshots(self, before: int) -> None:
        """Remove the stored snapshots of positions before one."""
        with self._changing() as cursor:
            drop = self._store.sql.drop_snapshots
            cursor.execute(drop.sql, drop.bind(of_log=self.log_id, least=0, most=before - 1))

    def set_contents(self, contents: Sequence[tuple[int, str]], *, check: Callable[[], None] | None = None) -> None:
        """Remove the contents of events, or give removed ones back, in one commit; nothing else of an event changes.

        Args:
            contents: positions, each with the state as canonical JSON; an empty text removes it. The caller has
                compared it with the leaf hash.
            check: called under the log's lock before anything is changed; what it raises changes nothing.

        Raises:
            RefusedError: as ``write``; those of ``check``.
        """
        statement, base = self._store.sql.set_state, key_range(self.log_id)["base"]
        rows = [statement.bind(key=base + position, content=state) for position, state in contents]
        with self._changing() as cursor:
            if check is not None:
                check()
            if rows:
                cursor.executemany(statement.sql, rows)

    def compact(self) -> None:
        """Give the space of removed contents back, as far as the database can; takes as long as copying the log.

        Raises:
            RefusedError: ``LOG_READ_ONLY``, ``LOG_BUSY``.
        """
        with self._exclusive():
            self._store.compact()

    @contextmanager
    def _changing(self) -> Iterator[Cursor]:
        """Give a cursor under the log's lock, for changes that append no event, and commit when the block ends."""
        with self._exclusive():
            try:
                self._begin()
                yield self._store.cursor()
                self._store.commit(None)
            except Exception as error:
                ours = self._store.translate(error)
                if ours is error:
                    raise
                raise ours from error
            finally:
                self._store.end()

    def catch_up_view(self, progress: Progress | None = None) -> None:
        """Apply to the view all events it has not seen, in several transactions; what is done stays done.

        Args:
            progress: called with events done and events in all.

        Raises:
            RefusedError: ``VIEW_CHANGED`` when another program replaced the view; open the log again.
        """
        if self._view is not None:
            with self._exclusive():
                self._advance_view(progress)

    def derive_view(self) -> bool:
        """Make the view of a store without tables of its own, for this process; return whether there is one now."""
        if self._view is None or not self._store.derives_views:
            return False
        with self._writing:
            prepare_views(self._store, self.log_id, self._view)
            self._advance_view(None)
        return True

    def rebuild_view(self, progress: Progress | None = None) -> None:
        """Drop what the view holds for this log and build it from the events; see ``catch_up_view``."""
        if self._view is not None:
            with self._exclusive():
                with self._transaction(self._begin()) as transaction:
                    for one in self._views:
                        self._set_view(transaction, one, 0)
                self._advance_view(progress)

    def renew_view(self, name: str) -> None:
        """Have a stored view made again when the log is opened with it next, because its events have contents again."""
        stop = self._store.sql.stop_view
        with self._changing() as cursor:
            cursor.execute(stop.sql, stop.bind(view_log=self.log_id, new_position=0, view_name=name))

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Keep the threads of this process apart; the store's lock keeps processes apart."""
        if self.read_only:
            raise RefusedError(ErrorCode.LOG_READ_ONLY, "The log was opened to be read only; open it for writing.")
        me = threading.get_ident()
        if self._writer == me:
            raise RefusedError(
                ErrorCode.LOG_BUSY, "This thread is writing to the log already; finish that write first."
            )
        with self._writing:
            self._writer = me
            try:
                yield
            finally:
                self._writer = None

    def _begin(self, questions: Sequence[LockedQuery] = (), *, is_unit: bool = False) -> Opening:
        if self._memory is None:
            self._memory = self._load_memory()
        return self._store.begin(self.log_id, self._memory.head.size, questions, is_unit=is_unit)

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
        """Return whether the view needs nothing before this write; refuse when it is not ours any more."""
        try:
            return all(self._view_position(opening, one) is None for one in self._views)
        except BaseException:
            self._store.end()
            raise

    def _view_position(self, opening: Opening, view: PersistedView) -> int | None:
        for name, version, position in opening.views:
            if name == view.name and version == view.version:
                return None if position is None else int(position)
        raise RefusedError(
            ErrorCode.VIEW_CHANGED,
            f"Another release replaced the view {view.name} of this log; open the log again.",
            view=view.name,
        )

    def _stop_other_views(self, opening: Opening) -> None:
        """Note where views that this writer does not keep cease to be right."""
        kept = {one.name for one in self._views}
        stopped = [name for name, _, position in opening.views if position is None and name not in kept]
        for name in stopped:
            statement = self._store.sql.stop_view
            values = {"view_log": self.log_id, "new_position": opening.size, "view_name": name}
            self._store.cursor().execute(statement.sql, statement.bind(**values))

    def _advance_view(self, progress: Progress | None) -> None:
        for view in self._views:
            while not self._advance_view_once(view, progress or _silent):
                pass

    def _advance_view_once(self, view: PersistedView, progress: Progress) -> bool:
        """Apply one batch of events to a view; return whether it is live then."""
        opening = self._begin()
        with self._transaction(opening) as transaction:
            position = self._view_position(opening, view)
            if position is None:
                return True
            cursor = transaction.cursor()
            if position == 0:
                view.clear(cursor)
            upto = min(position + REBUILD_BATCH, opening.size)
            if upto > position:
                view.apply(cursor, transaction._fetch(position, upto, skips_archived=view is not self._view))
            self._set_view(transaction, view, None if upto == opening.size else upto)
            progress(upto, opening.size)
        return upto == opening.size

    def _set_view(self, transaction: Transaction, view: PersistedView, position: int | None) -> None:
        transaction.cursor().run(
            self._store.sql.set_view,
            view_log=self.log_id,
            view_name=view.name,
            new_version=view.version,
            new_position=position,
        )


def _silent(_done: int, _all: int) -> None:
    """Notify no subscriber."""
