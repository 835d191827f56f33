"""What a log asks of the database that keeps it; SQLite and PostgreSQL each answer in their own module.

A store holds connections, one of them for writing. Reads see committed events only, and are one statement
each. A write begins by taking the log's lock, so that everything read after it is the newest there is, and
ends with one commit of events, tree head and views together, or with nothing.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from world.clock import Boot
from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.log.sql.queries import statements
from world.log.sql.statement import FORMAT, FORMAT_VERSION, LOG_SHIFT, SqlStatement
from world.log.url import Backend, hidden_name, is_log_name
from world.log.values import ServerPlace, StreamConflictError

if TYPE_CHECKING:
    from world.log.backends.hosts import DatabaseHost
    from world.log.statements import Statements

Row = tuple[Any, ...]

MAX_HOLD_MS: Final = 12_000
"""How long a unit of work may hold the lock on a server while others wait for it, in milliseconds."""

BUSY_TIMEOUT_MS: Final = 15_000
"""How long a writer waits for the log's lock by default, in milliseconds: longer than a unit of work may hold it."""


class Cursor(Protocol):
    """A driver's cursor (PEP 249), as far as logs and views use it."""

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Any:
        """Execute one statement."""

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]], /) -> Any:
        """Execute one statement with each of many rows of parameters."""

    def fetchone(self) -> Any:
        """Return the next row, or None."""

    def fetchall(self) -> list[Any]:
        """Return the rows that are left."""


class Clocks(Struct, frozen=True):
    """What a store has to compare a writer's clock with.

    Args:
        boot: the boot clock at the last commit; None where it was not stored with it.
        recorded_ms: the time that the last commit recorded, ms since 1970; None where it was not stored with it.
        database_ms: the clock of the database server now, ms since 1970; None without a server.
        greatest_boot: the boot clock at the commit that recorded the greatest time.
        greatest_ms: the greatest time recorded, ms since 1970; None unless the last commit recorded an earlier one.
    """

    boot: Boot | None = None
    recorded_ms: int | None = None
    database_ms: int | None = None
    greatest_boot: Boot | None = None
    greatest_ms: int | None = None


def clocks_of(row: Row) -> Clocks:
    """Return the clocks of a row of ``opening`` on SQLite; those of an earlier commit do not count for the last one."""
    size, noted, boot_id, boot_ms, recorded_ms, greatest_id, greatest_boot_ms, greatest_ms = row[0], *row[3:10]
    if noted is None or noted != size or not boot_id:
        return Clocks()
    if greatest_ms is None or greatest_ms <= recorded_ms:
        return Clocks(Boot(boot_id, boot_ms), recorded_ms)
    return Clocks(Boot(boot_id, boot_ms), recorded_ms, None, Boot(greatest_id, greatest_boot_ms), greatest_ms)


class Opening(Struct, frozen=True):
    """What a writer finds under the lock.

    Args:
        size: events under the newest tree head.
        last: position of the last event there is.
        root: root of the stored tree head; None for a log without commits.
        views: name, version and position of the log's stored views.
        clocks: what the store has to compare the writer's clock with.
        events: rows of the events after those the writer had read; None when they were not fetched.
        answers: the rows of each query that was sent with the opening, in order.
    """

    size: int
    last: int
    root: bytes | None
    views: Sequence[Row]
    clocks: Clocks
    events: Sequence[Row] | None = None
    answers: Sequence[Sequence[Row]] = ()


class LockedQuery(Struct, frozen=True):
    """A reading statement and its values, answered under the lock together with the opening of a write."""

    statement: SqlStatement
    values: Mapping[str, Any]


class Batch(Struct, frozen=True):
    """The rows of one commit, in the order of the tables' columns; ``clocks`` are those of a file."""

    events: Sequence[Row]
    head: Row
    chunks: Sequence[Row]
    clocks: Sequence[Row] = ()


class Store(ABC):
    """One database with logs in it, as one process uses it."""

    backend: Backend
    read_only: bool
    sql: Statements
    shared: bool
    """True when tables of others may live beside ours."""
    keeps_clocks: bool
    """True when the clocks of the last commit are stored, because no server has a clock of its own."""
    tables_sql: str
    """Selects the names of the tables in the database."""
    indexes_sql: str
    """Selects the names of the indexes in the database."""
    head_columns_sql: str
    """Selects the names of the columns of ``wp_head``."""
    place: ServerPlace | None = None
    """Where the connection for writing leads; None for a file, or where the server does not say."""
    derives_views: bool = False
    """True where views are made in tables of the process, because the store has none and cannot be written."""
    has_wal_reset_fault: bool = False
    """True for a file of a SQLite that can lose pages unless checkpoints exclude writers."""
    units_ended: int = 0
    """How many units of work of other processes this one has ended, since they held the log's lock for too long."""
    links_heads: bool = True
    """False where ``wp_head`` has no column ``before``, and could not be given one."""

    def __init__(self, backend: Backend, *, read_only: bool) -> None:
        """Keep what all stores have in common."""
        self.backend = backend
        self.read_only = read_only
        self.sql = statements(backend)

    @abstractmethod
    def describe(self) -> str:
        """Return the store's address for people."""

    @abstractmethod
    def query(self, sql: str, parameters: Sequence[Any]) -> list[Row]:
        """Execute one reading statement on what is committed and return all rows; safe from any thread.

        Raises:
            DamagedLogError: the database is damaged.
            WorldProtocolError: ``LOG_UNAVAILABLE`` and others; the next call tries again.
        """

    @abstractmethod
    def migrating(self) -> AbstractContextManager[Cursor]:
        """Return a transaction under the lock that keeps migrations of the store apart."""

    @abstractmethod
    def settle(self) -> None:
        """Prepare for writing, once the store is known to be one of ours."""

    @abstractmethod
    def begin(
        self, log_id: int, known: int, questions: Sequence[LockedQuery] = (), *, is_unit: bool = False
    ) -> Opening:
        """Take the log's lock and begin a transaction; the caller has the writer's mutex.

        Args:
            log_id: the log.
            known: number of events that the caller has; a store may fetch later ones along with the head.
            questions: answered under the lock, on a server in the same round trip.
            is_unit: a waiting writer may end the transaction once it has held the lock for too long, where the store
                can do that; the caller repeats it.

        Raises:
            UnitEndedError: ``LOG_UNAVAILABLE``: it was ended; what is read later and ``commit`` raise it too.
            LogBusyError: ``LOG_BUSY`` when another writer kept the lock too long.
        """

    @abstractmethod
    def cursor(self) -> Cursor:
        """Return a cursor within the transaction that ``begin`` began."""

    @abstractmethod
    def commit(self, batch: Batch | None) -> None:
        """Write the rows and commit.

        Raises:
            StreamConflictError: ``STREAM_CONFLICT``; nothing was committed.
            WorldProtocolError: ``COMMIT_UNKNOWN`` when the acknowledgement was lost, so that both may be;
                ``LOG_MOVED`` when a file that was opened is not the one under its name.
        """

    def check_held(self) -> None:  # noqa: B027  # nothing ends a transaction on a file
        """Ask the server within the transaction that ``begin`` began; raises what any statement raises."""

    def check_place(self) -> None:  # noqa: B027  # a database server has no files to compare
        """Check that the log's files are those that were opened; only where it is open for writing.

        Raises:
            WorldProtocolError: ``LOG_MOVED``.
        """

    def hosts(self) -> Sequence[DatabaseHost]:
        """Ask all hosts of the address what they are; empty for a store in a file."""
        return ()

    @abstractmethod
    def end(self) -> None:
        """Give up what was not committed and release the lock; never raises."""

    @abstractmethod
    def translate(self, error: Exception) -> Exception:
        """Return our error for a driver's error, or the error itself when it is none."""

    @abstractmethod
    def probe(self, log_id: int, timeout_s: float) -> ServerPlace | None:
        """Find out whether the log can be written now, without an event; return where it would be written.

        Args:
            log_id: the log.
            timeout_s: how long to wait for the log's lock, in seconds; a server that hangs may take longer.

        Raises:
            WorldProtocolError: what a write would raise: ``LOG_BUSY``, ``STORAGE_FULL``, ``LOG_MOVED``,
                ``LOG_UNAVAILABLE``, ``LOG_READ_ONLY`` and others.
        """

    @abstractmethod
    def problems(self, most: int) -> list[str]:
        """Return what the database itself says is wrong with how it is stored; empty where it does not check."""

    @abstractmethod
    def compact(self) -> None:
        """Give the space of deleted content back to the file system, outside of a transaction."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections; closing twice does nothing."""

    @property
    def head_statement(self) -> SqlStatement:
        """The statement that stores a tree head, with as many values as ``links_heads`` asks for."""
        return self.sql.insert_head if self.links_heads else self.sql.insert_unlinked_head

    def head_row(self, batch: Batch) -> Row:
        """Return the values for ``head_statement``."""
        return batch.head if self.links_heads else batch.head[:2]

    def has_linked_heads(self) -> bool:
        """Return whether tree heads are stored with the size of the head before."""
        return any(row[0] == "before" for row in self.query(self.head_columns_sql, ()))

    def select(self, statement: SqlStatement, **values: Any) -> list[Row]:
        """Run a compiled reading statement; see ``query``.

        No row has a text with a lone surrogate, which cannot be stored, whether it was typed or read from a damaged
        page.
        """
        try:
            return self.query(statement.sql, statement.bind(**values))
        except UnicodeEncodeError:
            return []
        except OverflowError:
            message = "The log names a place that no database has; run `worldctl verify`."
            raise DamagedLogError(ErrorCode.LOG_DAMAGED, message) from None

    def newest_head(self, log_id: int) -> list[Row]:
        """Return the row of ``last_head`` as of the last commit; a store may know without reading it."""
        return self.select(self.sql.last_head, **key_range(log_id))

    def within(self, statement: SqlStatement, **values: Any) -> list[Row]:
        """Run a compiled statement within the transaction that ``begin`` began and return its rows."""
        cursor = self.cursor()
        cursor.execute(statement.sql, statement.bind(**values))
        return cursor.fetchall()


def newest(rows: Sequence[Row]) -> tuple[int, bytes | None, int]:
    """Return size and root of the newest tree head, and the last event's position, from a row of ``last_head``."""
    size, root, last = rows[0]
    if size is not None and not isinstance(root, bytes):
        root = b""  # a damaged row; no tree has this root
    return size or 0, root, last or 0


def check_covered(size: int, last: int) -> None:
    """Compare the newest tree head with the last event: every commit writes both.

    Raises:
        DamagedLogError: ``EVENT_UNSEALED`` when events stand beyond the head, ``LOG_GAP`` when it covers more than
            there are.
    """
    if last > size:
        raise DamagedLogError(
            ErrorCode.EVENT_UNSEALED,
            f"The log holds events up to {last}, and its newest tree head covers {size}: tree heads were removed, or "
            "events were written by something else than a commit. Run `worldctl verify`, and restore the log from a "
            "copy.",
            position=size + 1,
            events=last,
            head=size,
        )
    if last < size:
        raise DamagedLogError(
            ErrorCode.LOG_GAP,
            f"The log ends at event {last}, and its newest tree head covers {size}: event {last + 1} is missing. "
            "Run `worldctl verify`, and restore the log from a copy.",
            position=last + 1,
            events=last,
            head=size,
        )


def key_range(log_id: int, after: int = 0, upto: int | None = None) -> dict[str, int]:
    """Return the parameters that select a log's positions in (after, upto]; None is the end."""
    base = log_id << LOG_SHIFT
    last = base + ((1 << LOG_SHIFT) - 1 if upto is None else upto)
    return {"base": base, "low": base + after, "high": last}


def check_format(rows: Sequence[Row], where: str) -> None:
    """Refuse a store whose format this program does not know.

    Raises:
        RefusedError: ``LOG_FORMAT`` with the found and the known version.
        DamagedLogError: ``LOG_DAMAGED`` when there is no format at all: it is written together with the tables.
    """
    if not rows:
        raise lost_tables(where, "the format of its tables is lost")
    if len(rows) != 1 or rows[0][0] != FORMAT:
        raise RefusedError(
            ErrorCode.LOG_FORMAT, f"{where} keeps logs in a format this program does not know.", found=rows
        )
    version = rows[0][1]
    if version != FORMAT_VERSION:
        advice = "update this program" if version > FORMAT_VERSION else "migrate it with the release that wrote it"
        raise RefusedError(
            ErrorCode.LOG_FORMAT,
            f"{where} has log format {version}; this program supports {FORMAT_VERSION}: {advice}.",
            found=version,
            known=FORMAT_VERSION,
        )


def not_a_log(where: str, what: str, *, is_empty: bool = False) -> RefusedError:
    """Return the refusal of a thing that is no log.

    Args:
        where: the file or server, for people.
        what: what is wrong with it.
        is_empty: whether a log can be created there as it is.
    """
    return RefusedError(ErrorCode.NOT_A_LOG, f"{where} is no log: {what}.", path=where, is_empty=is_empty)


def lost_tables(where: str, what: str) -> DamagedLogError:
    """Return the error for a store that lost what was made together with the rest."""
    return DamagedLogError(
        ErrorCode.LOG_DAMAGED, f"{where} is damaged: {what}. Restore it from a copy.", path=where, reason=what
    )


def not_found(where: str, name: str, names: Sequence[str]) -> RefusedError:
    """Return the refusal of a log name that the store does not hold."""
    known = [one for one in names if is_log_name(one)]
    is_copied = any(one.startswith(hidden_name(name, "")) for one in names)
    held = "a copy of a realm that is not complete" if is_copied else ", ".join(known) or "none"
    advice = "Check the name, or create the log"
    if is_copied:
        advice = "End its move or restoration first, or name another place"
    return RefusedError(
        ErrorCode.LOG_NOT_FOUND,
        f"{where} holds no log named {name!r} (it holds: {held}). {advice}.",
        name=name,
        names=known,
        **({"is_copied": True} if is_copied else {}),
    )


def conflict(constraint: str) -> Exception:
    """Return the error for a broken constraint of the events' table."""
    if re.search(r"wp_event[._]stream", constraint):
        return StreamConflictError(
            "STREAM_CONFLICT",
            "Another event already has this version in its stream; load the stream again and decide anew.",
        )
    return DamagedLogError(ErrorCode.LOG_DAMAGED, f"The store refuses the next position of the log ({constraint}).")
