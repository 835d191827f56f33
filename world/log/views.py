"""Views that are kept in tables beside the log and change in the same commit as the events.

A view is *live* when every commit also changes it; then its stored position is NULL. A writer that does not
have the view stops it: it stores the position up to which the view is right, in its own commit. The next process
that opens the log with the view applies what is missing. So a live view costs a commit nothing, and no view is ever
silently stale.

The tables of a view belong to all logs of a store; the row with log id 0 holds the version of the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.log.sql.queries import events_query, statements
from world.log.sql.statement import POSITION_MASK, SqlStatement
from world.log.store import Cursor, Row, Store, key_range
from world.log.tree import refuse_archived
from world.log.url import Backend
from world.log.values import LoggedEvent

if TYPE_CHECKING:
    from sqlalchemy import MetaData

REBUILD_BATCH: Final = 2_000
"""Events applied to a view in one transaction while it is rebuilt."""

Progress = Callable[[int, int], None]
"""Called with how many events are done, and how many there are."""

OF_ALL_LOGS: Final = 0
"""The log id of the row that describes a view's tables."""


class ViewCursor:
    """A driver's cursor inside the transaction of an append, with its log and its backend."""

    __slots__ = ("_cursor", "backend", "log_id")

    def __init__(self, cursor: Cursor, log_id: int, backend: Backend) -> None:
        """Wrap the driver's cursor."""
        self._cursor = cursor
        self.log_id = log_id
        self.backend = backend

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Execute one statement with positional parameters in the driver's style."""
        self._cursor.execute(sql, parameters)

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute one statement once for every row of parameters."""
        if rows:
            self._cursor.executemany(sql, rows)

    def run(self, statement: SqlStatement, **values: Any) -> None:
        """Execute a compiled statement with parameters by name."""
        self._cursor.execute(statement.sql, statement.bind(**values))

    def fetchone(self) -> Row | None:
        """Return the next row of the last statement, or None."""
        row: Row | None = self._cursor.fetchone()
        return row

    def fetchall(self) -> list[Row]:
        """Return the remaining rows of the last statement."""
        return self._cursor.fetchall()

    def stream(self, stream: str, after: int, upto: int) -> list[LoggedEvent]:
        """Return the stored events of a stream with versions in (``after``, ``upto``], in order."""
        query = events_query(self.backend, stream=True)
        span = {"log_id": self.log_id, "stream": stream, "gt": after, "lte": upto, "count": upto - after}
        self.run(query, **span, **key_range(self.log_id))
        rows = self.fetchall()
        refuse_archived(rows)
        return [LoggedEvent(*row) for row in rows]

    def contents(self, after: int, upto: int) -> list[LoggedEvent]:
        """Return the stored events with positions in (``after``, ``upto``] whose contents were not removed."""
        self.run(events_query(self.backend), count=upto - after, **key_range(self.log_id, after, upto))
        return [event for event in (LoggedEvent(*row) for row in self.fetchall()) if event.state]

    def event_at(self, position: int) -> LoggedEvent | None:
        """Return a stored event, None where there is none; what this transaction appends is not stored yet."""
        self.run(events_query(self.backend), count=1, **key_range(self.log_id, position - 1, position))
        rows = self.fetchall()
        refuse_archived(rows)
        return LoggedEvent(*rows[0]) if rows else None


class PersistedView(Protocol):
    """A read model in tables of its own; every row must name the log it belongs to (``cursor.log_id``).

    A view whose tables a later release gave more indexes, with the same version, names them in ``later_indexes``; they
    are added when a log that lacks them is opened for writing. A view that is kept together with others, which a later
    release added, has them in ``beside``; each has a position of its own, so that an earlier program that writes to the
    log stops them, and what it wrote is applied when the log is opened next. They cover the events that have contents.
    """

    @property
    def name(self) -> str:
        """Return the stable name."""

    @property
    def version(self) -> int:
        """Return the version; a higher one drops the tables and builds the view again from the events."""

    @property
    def metadata(self) -> MetaData:
        """Return the tables of the view, and no others."""

    def clear(self, cursor: ViewCursor) -> None:
        """Remove everything the view holds about ``cursor.log_id``."""

    def apply(self, cursor: ViewCursor, events: Sequence[LoggedEvent]) -> None:
        """Bring the view from before these events to after them."""


@dataclass(frozen=True, slots=True)
class ViewState:
    """How far a stored view is.

    Args:
        version: version of its tables and contents.
        position: events it covers; None when it is live, which is all of them.
    """

    version: int
    position: int | None

    @property
    def live(self) -> bool:
        """Return whether the view covers every event."""
        return self.position is None


def with_beside(view: PersistedView | None) -> tuple[PersistedView, ...]:
    """Return a view and those that are kept together with it; nothing for None."""
    return () if view is None else (view, *getattr(view, "beside", ()))


def prepare_views(store: Store, log_id: int, view: PersistedView) -> None:
    """Prepare a view as ``prepare_view`` does, and those that are kept together with it.

    Raises:
        RefusedError: as ``prepare_view``; ``LOG_FORMAT`` for a role that may not create the tables which a log of an
            earlier release lacks.
    """
    first, *others = with_beside(view)
    prepare_view(store, log_id, first)
    for one in others:
        try:
            prepare_view(store, log_id, one)
        except RefusedError as refused:
            if refused.code != ErrorCode.LOG_READ_ONLY:
                raise
            raise _lacks_tables(store, one) from refused


def _lacks_tables(store: Store, view: PersistedView) -> RefusedError:
    names = ", ".join(sorted(view.metadata.tables))
    return RefusedError(
        ErrorCode.LOG_FORMAT,
        f"{store.describe()} was made by an earlier release and lacks {names}, which this role may not create: run "
        "`worldctl doctor --rebuild` once with the role that owns the tables.",
        lacks=names,
    )


def prepare_view(store: Store, log_id: int, view: PersistedView) -> None:
    """Make the tables of a view and its record, where they are missing or of an older version.

    Raises:
        RefusedError: ``VIEW_NEWER`` when a later release made the tables; ``EVENT_ARCHIVED`` where they have to be made
            again and contents of events were removed.
    """
    stored = view_states(store, OF_ALL_LOGS).get(view.name)
    mine = view_states(store, log_id).get(view.name)
    if stored is not None and stored.version == view.version and mine is not None:
        _add_indexes(store, view)
        return
    with store.migrating() as raw:
        cursor = ViewCursor(raw, log_id, store.backend)
        stored = stored_states(cursor, OF_ALL_LOGS).get(view.name)
        if stored is None or stored.version != view.version:
            _make_tables(store, cursor, view, stored)
        if view.name not in stored_states(cursor, log_id):
            cursor.execute(store.sql.insert_view.sql, (log_id, view.name, view.version, 0))


def _add_indexes(store: Store, view: PersistedView) -> None:
    """Add to the tables of a view, which an earlier release made, the indexes that they lack.

    A role that may write the tables and not change them continues without them, as does one that finds the store
    locked: they change what a statement costs, and not what it returns.
    """
    later: frozenset[str] = getattr(view, "later_indexes", frozenset())
    if later <= {row[0] for row in store.query(store.indexes_sql, ())}:
        return
    from world.log.tables import creation

    with suppress(RefusedError), store.migrating() as cursor:
        for sql in creation(view.metadata, store.backend):
            if sql.startswith("CREATE INDEX"):
                cursor.execute(sql)


def mend_view(store: Store, log_id: int, view: PersistedView) -> None:
    """Prepare a view that is to be rebuilt: make its tables again where something of them is lost or was changed.

    Where a whole table has to be made again, every log of the store loses its part of the view; then all of them start
    anew. The view that people read is made again too.

    Raises:
        RefusedError: ``VIEW_NEWER`` when a later release made the tables.
    """
    from world.log.schema import READABLE, schema_faults
    from world.log.tables import creation, readable_view

    faults = schema_faults(store.select, store.backend, {view.name: view.metadata})
    indexes = {str(index.name) for table in view.metadata.tables.values() for index in table.indexes}
    with store.migrating() as raw:
        cursor = ViewCursor(raw, log_id, store.backend)
        stored = stored_states(cursor, OF_ALL_LOGS).get(view.name)
        if stored is not None and any(one.view == view.name and one.name not in indexes for one in faults):
            _make_tables(store, cursor, view, stored)
        else:  # its indexes may be lost, or others be in their places
            for name in sorted(indexes.intersection(one.name for one in faults)):
                cursor.execute(f"DROP INDEX IF EXISTS {name}")
            for sql in creation(view.metadata, store.backend):
                cursor.execute(sql)
        if any(one.name == READABLE and one.is_mendable for one in faults):
            cursor.execute(f"DROP VIEW IF EXISTS {READABLE}")
            cursor.execute(readable_view(store.backend))
    prepare_view(store, log_id, view)


def refuse_cut(store: Store, what: str) -> None:
    """Refuse what would need the contents of all events, where some were removed.

    Args:
        store: the store.
        what: what is refused, as the beginning of a sentence.

    Raises:
        RefusedError: ``EVENT_ARCHIVED``.
    """
    rows = store.select(store.sql.removed)
    if rows:
        position = rows[0][0] & POSITION_MASK
        raise RefusedError(
            ErrorCode.EVENT_ARCHIVED,
            f"{what}, because contents of events were removed from {store.describe()}: give them back with `worldctl "
            "cut --undo ARCHIVE...`, repeat this, and cut the log again.",
            position=position,
        )


def view_states(store: Store, log_id: int) -> dict[str, ViewState]:
    """Return the states of a log's views by name, as last committed."""
    return _states(store.select(store.sql.read_views, view_log=log_id))


def stored_states(cursor: ViewCursor, log_id: int) -> dict[str, ViewState]:
    """Return the states of a log's views by name, as of the transaction of a cursor."""
    cursor.run(statements(cursor.backend).read_views, view_log=log_id)
    return _states(cursor.fetchall())


def make_tables(cursor: ViewCursor, view: PersistedView, *, replaces: bool) -> None:
    """Make the tables of a view and the record of their version.

    Args:
        cursor: in a transaction.
        view: the view.
        replaces: whether to remove tables and records of another version first.
    """
    from world.log.tables import creation, removal

    sql = statements(cursor.backend)
    if replaces:
        for statement in removal(view.metadata, cursor.backend):
            cursor.execute(statement)
        cursor.execute(sql.drop_view.sql, (view.name,))
    for statement in creation(view.metadata, cursor.backend):
        cursor.execute(statement)
    cursor.execute(sql.insert_view.sql, (OF_ALL_LOGS, view.name, view.version, None))


def _make_tables(store: Store, cursor: ViewCursor, view: PersistedView, stored: ViewState | None) -> None:
    if stored is not None and stored.version > view.version:
        raise RefusedError(
            ErrorCode.VIEW_NEWER,
            f"{store.describe()} was written by a later release: its view {view.name} has version "
            f"{stored.version}, this program supports {view.version}. Update this program.",
            view=view.name,
            found=stored.version,
            known=view.version,
        )
    if stored is not None:
        refuse_cut(store, f"This release keeps the view {view.name} in another form, which it cannot make")
    make_tables(cursor, view, replaces=stored is not None)


def _states(rows: Sequence[Row]) -> dict[str, ViewState]:
    return {name: ViewState(version, position) for name, version, position in rows}
