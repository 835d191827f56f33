"""Logs on a PostgreSQL server, by psycopg: one connection for writing, in pipeline mode, others for reading.

A write is two round trips: one takes the log's advisory transaction lock and reads head, views and what
others appended; the other inserts and commits. The lock is released by the server after the commit is
visible, so positions become visible in order and a reader that asks for what follows its last position misses
nothing. There is no NOTIFY: it would serialize the commits of all logs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Final, TypeVar

import orjson
import psycopg
from psycopg import Connection, Pipeline, errors
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format
from psycopg.pq.abc import PGconn
from sqlalchemy import URL

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, LogBusyError, RefusedError, StorageFullError, WorldProtocolError
from world.log.backends.registry import Durability
from world.log.sql.queries import events_query
from world.log.sql.statement import SqlStatement, dialect
from world.log.store import Batch, Cursor, LockedQuery, Opening, Row, Store, conflict, key_range, newest
from world.log.values import ServerPlace
from world.masking import masked

LOCK_SPACE: Final = 0x57504C47  # "WPLG", the first half of our advisory lock keys
_MIGRATION_LOCK: Final = 0  # the second half; logs have their ids there
_IDLE: Final = 8  # connections kept for the next reader
_CATCH_UP: Final = 256  # events of others that are fetched together with the head...
_EXPECT_S: Final = 5.0  # ... for so long after others were met

_READ: Final = 1
_READ_WRITE: Final = 3

_T = TypeVar("_T")

_DAMAGE: Final = (
    errors.DataCorrupted,
    errors.IndexCorrupted,
    errors.InternalError_,  # what the server says where something in a page makes no sense
    errors.IoError,
    errors.UndefinedFile,
    errors.CharacterNotInRepertoire,
)

_LOCK = SqlStatement("SELECT pg_advisory_xact_lock(%s::INTEGER, %s::INTEGER)", ("space", "key"), {})
_PLACE: Final = (
    "SELECT system_identifier::TEXT, CASE WHEN pg_is_in_recovery() THEN NULL "
    "ELSE pg_walfile_name(pg_current_wal_insert_lsn()) END FROM pg_control_system()"
)
"""The server's place; the name of a WAL segment begins with its timeline, also before the first checkpoint on it."""

_TIMELINE_DIGITS: Final = 8

_INSERT_EVENTS: Final = (
    "WITH event AS (INSERT INTO wp_event (id, log_id, stream, version, topic, schema_version, leaf, state) "
    "SELECT i, l, s, v, t, c, decode(h, 'hex'), j FROM json_to_recordset(%s::json) AS "
    "given (i BIGINT, l INTEGER, s TEXT, v INTEGER, t TEXT, c INTEGER, h TEXT, j TEXT)) "
)
"""The events of a commit in one statement, which the statement that stores the tree head follows."""


class FlushingConnection(Connection[Row]):
    """A connection that continues to send while it waits for an answer.

    In pipeline mode psycopg hands its last command to libpq, flushes once and then only reads. What did not
    fit into the socket's buffer is never sent, and both sides wait for ever (the kind of psycopg's issue
    685).
    """

    def wait(self, gen: Generator[Any, Any, _T], *args: Any, **kwargs: Any) -> _T:
        """Wait for a generator of psycopg's, which yields what the socket must be ready for."""
        return super().wait(_flushing(gen, self.pgconn), *args, **kwargs)


class _EscapingLoader(Loader):
    """Reads text without conversion, so that a verification can name the event in which it is damaged."""

    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        """Return text in which bytes that are no UTF-8 are escaped."""
        return bytes(data).decode("utf-8", "surrogateescape")


class PostgresStore(Store):
    """A PostgreSQL database with logs in it."""

    shared = True
    keeps_clocks = False
    tables_sql = "SELECT tablename::TEXT FROM pg_tables WHERE schemaname = current_schema()"
    head_columns_sql = (
        "SELECT attname::TEXT FROM pg_attribute WHERE attrelid = to_regclass('wp_head') AND attnum > 0 "
        "AND NOT attisdropped"
    )

    def __init__(self, url: URL, *, read_only: bool, durability: Durability, busy_timeout_ms: int) -> None:
        """Connect.

        Args:
            url: SQLAlchemy URL of the database.
            read_only: let the server refuse every change.
            durability: when a commit is safe.
            busy_timeout_ms: how long to wait for a lock, in milliseconds.

        Raises:
            WorldProtocolError: ``LOG_UNAVAILABLE`` when the server cannot be reached.
        """
        super().__init__("postgresql", read_only=read_only)
        self._where = masked(url.render_as_string(hide_password=True))
        _, self._arguments = dialect("postgresql").create_connect_args(url)
        settings = {
            "lock_timeout": str(busy_timeout_ms),
            "synchronous_commit": "on" if durability == "full" else "off",
            "default_transaction_read_only": "on" if read_only else "off",
            "default_transaction_isolation": r"read\ committed",  # stricter ones see the state before the lock
        }
        given = self._arguments.get("options", "")
        chosen = " ".join(f"-c {name}={value}" for name, value in settings.items())
        self._arguments["options"] = f"{given} {chosen}".strip()
        self._idle: list[Connection[Row]] = []
        self._writer: Connection[Row] | None = None
        self._place: ServerPlace | None = None
        self._within: AbstractContextManager[Pipeline] | None = None
        self._pipeline: Pipeline | None = None
        self._has_begun = False
        self._expect_others_until = 0.0
        self._mutex = threading.Lock()
        self._closed = False
        self._idle.append(self._connect(autocommit=True))

    def describe(self) -> str:
        """Return the server's URL without a password."""
        return self._where

    def query(self, sql: str, parameters: Sequence[Any]) -> list[Row]:
        """See ``Store.query``; a connection that broke while it was idle is replaced without an error."""
        connection, fresh = self._reader()
        try:
            try:
                return self._fetch(connection, sql, parameters)
            except psycopg.OperationalError:
                if fresh or not connection.broken:
                    raise
                self._forget_idle()
                connection = self._connect(autocommit=True)
                return self._fetch(connection, sql, parameters)
        except psycopg.Error as error:
            raise self.translate(error) from error
        finally:
            self._return(connection)

    def settle(self) -> None:
        """See ``Store.settle``; there is nothing to prepare."""

    @contextmanager
    def migrating(self) -> Iterator[Cursor]:
        """See ``Store.migrating``."""
        connection = self._connect(autocommit=False)
        try:
            cursor = connection.cursor()
            cursor.execute(_LOCK.sql, (LOCK_SPACE, _MIGRATION_LOCK))
            yield cursor
            connection.commit()
        except psycopg.Error as error:
            raise self.translate(error) from error
        finally:
            connection.close()

    def begin(self, log_id: int, known: int, questions: Sequence[LockedQuery] = ()) -> Opening:
        """See ``Store.begin``; one round trip, repeated when the idle connection is found broken."""
        fresh = self._writer is None
        try:
            try:
                return self._open(log_id, known, questions)
            except psycopg.OperationalError:
                broken = self._writer is None or self._writer.broken
                if fresh or not broken:
                    raise
                self._drop_writer()
                return self._open(log_id, known, questions)
        except BaseException as error:
            self.end()
            if isinstance(error, psycopg.Error):
                raise self.translate(error) from error
            raise

    def place(self) -> ServerPlace | None:
        """See ``Store.place``; a connection that writes stays on one timeline."""
        return self._place

    def cursor(self) -> Cursor:
        """See ``Store.cursor``."""
        if self._writer is None:
            raise RefusedError(ErrorCode.LOG_CLOSED, "The log was closed; open it again.")
        return self._writer.cursor(binary=True)

    def commit(self, batch: Batch | None) -> None:
        """See ``Store.commit``; one round trip."""
        writer = self._writer
        if writer is None or self._pipeline is None:
            raise RefusedError(ErrorCode.LOG_CLOSED, "The log was closed; open it again.")
        if batch is not None:
            cursor = self.cursor()
            cursor.execute(_INSERT_EVENTS + self.head_statement.sql, (_as_json(batch.events), *self.head_row(batch)))
            for row in batch.chunks:
                cursor.execute(self.sql.insert_chunk.sql, row)
        try:
            self.cursor().execute("COMMIT")
            self._pipeline.sync()
            self._has_begun = False
        except psycopg.OperationalError as error:
            if not writer.broken:
                raise
            raise WorldProtocolError(
                ErrorCode.COMMIT_UNKNOWN,
                f"The connection to {self._where} broke during a commit: it may be stored or not. "
                "Load the log again and look before you repeat it.",
            ) from error

    def end(self) -> None:
        """See ``Store.end``."""
        writer = self._writer
        if writer is None:
            return
        if writer.closed or writer.broken:
            self._drop_writer()
        elif self._has_begun:
            try:
                writer.rollback()
                self._has_begun = False
            except psycopg.Error:
                self._drop_writer()

    def translate(self, error: Exception) -> Exception:
        """See ``Store.translate``."""
        return _translate(error, self._where)

    def problems(self, most: int) -> list[str]:
        """See ``Store.problems``; a server's administrator has ``pg_amcheck`` for that."""
        return []

    def compact(self) -> None:
        """See ``Store.compact``; a server uses the space again, and gives back what is at the end of its files."""
        connection = self._connect(autocommit=True)
        try:
            connection.execute("VACUUM wp_event")
        except psycopg.Error as error:
            raise self.translate(error) from error
        finally:
            connection.close()

    def close(self) -> None:
        """See ``Store.close``."""
        self._closed = True
        self._forget_idle()
        self._drop_writer()

    def _connect(self, *, autocommit: bool) -> Connection[Row]:
        if self._closed:
            raise RefusedError(ErrorCode.LOG_CLOSED, "The log was closed; open it again.")
        try:
            connection: Connection[Row] = FlushingConnection.connect(**self._arguments, autocommit=autocommit)
        except psycopg.Error as error:
            raise self.translate(error) from error
        connection.prepare_threshold = 2
        return connection

    # Reading

    def _reader(self) -> tuple[Connection[Row], bool]:
        """Return a connection for one query, and whether it was made just now."""
        with self._mutex:
            if self._idle:
                return self._idle.pop(), False
        return self._connect(autocommit=True), True

    def _return(self, connection: Connection[Row]) -> None:
        with self._mutex:
            if not (self._closed or connection.closed or connection.broken) and len(self._idle) < _IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def _forget_idle(self) -> None:
        with self._mutex:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _fetch(self, connection: Connection[Row], sql: str, parameters: Sequence[Any]) -> list[Row]:
        """Return the rows; text that is no UTF-8, which only a damaged page holds, comes with escaped bytes."""
        with connection.cursor(binary=True) as cursor:
            cursor.execute(sql, parameters)
            try:
                return cursor.fetchall()
            except UnicodeDecodeError:
                cursor.adapters.register_loader("text", _EscapingLoader)
                cursor.execute(sql, parameters)
                return cursor.fetchall()

    # Writing

    def _open(self, log_id: int, known: int, questions: Sequence[LockedQuery]) -> Opening:
        if self._writer is None:
            self._writer = self._connect(autocommit=True)  # else psycopg waits for the server before each BEGIN
            self._place = _place(self._writer)
            self._within = self._writer.pipeline()
            self._pipeline = self._within.__enter__()
        self._has_begun = True  # the driver learns it from the server with the next Sync, which only a commit sends
        self.cursor().execute("BEGIN")
        self._run(_LOCK, space=LOCK_SPACE, key=log_id)
        found = self._run(self.sql.opening, log_id=log_id, **key_range(log_id))
        asked = [self._run(one.statement, **one.values) for one in questions]
        newer = None
        if time.monotonic() < self._expect_others_until:
            newer = self._run(events_query("postgresql"), count=_CATCH_UP, **key_range(log_id, known))
        rows = found.fetchall()
        size, root, last = newest([row[:3] for row in rows])
        if size > known:
            self._expect_others_until = time.monotonic() + _EXPECT_S
        events = newer.fetchall() if newer is not None else None
        views = [row[4:] for row in rows if row[4] is not None]
        answers = [cursor.fetchall() for cursor in asked]
        return Opening(size, last, root, views, events, database_ms=rows[0][3], answers=answers)

    def _run(self, statement: SqlStatement, **values: Any) -> Cursor:
        cursor = self.cursor()
        cursor.execute(statement.sql, statement.bind(**values))
        return cursor

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        pipeline, self._within, self._pipeline = self._within, None, None
        self._has_begun = False
        if writer is None:
            return
        with suppress(psycopg.Error):
            writer.close()
        if pipeline is not None:
            with suppress(psycopg.Error):
                pipeline.__exit__(None, None, None)


def _place(connection: Connection[Row]) -> ServerPlace | None:
    """Return where a connection leads; None for a standby, and where the server has not these functions."""
    try:
        [(system, segment)] = connection.execute(_PLACE).fetchall()
    except (errors.InsufficientPrivilege, errors.UndefinedFunction, errors.FeatureNotSupported):
        return None
    return None if segment is None else ServerPlace(system, int(segment[:_TIMELINE_DIGITS], 16))


def _as_json(events: Sequence[Row]) -> str:
    """Return the rows of events as the JSON that ``_INSERT_EVENTS`` expands."""
    return orjson.dumps(
        [
            {"i": key, "l": log_id, "s": stream, "v": version, "t": topic, "c": schema, "h": leaf.hex(), "j": state}
            for key, log_id, stream, version, topic, schema, leaf, state in events
        ]
    ).decode()


def _flushing(gen: Generator[Any, Any, _T], pgconn: PGconn) -> Generator[Any, Any, _T]:
    """Pass a psycopg generator on, and flush what is not sent yet whenever it only waits to read."""
    try:
        wanted = next(gen)
        while True:
            if wanted == _READ and pgconn.flush():
                ready = (yield _READ_WRITE) & _READ
                if not ready:
                    continue
            else:
                ready = yield wanted
            wanted = gen.send(ready)
    except StopIteration as end:
        result: _T = end.value
        return result


def _translate(error: Exception, where: str) -> Exception:
    """Return the error of ours for an error of psycopg; other errors are returned as they are."""
    if not isinstance(error, psycopg.Error):
        return error
    if isinstance(error, (errors.LockNotAvailable, errors.DeadlockDetected, errors.SerializationFailure)):
        return LogBusyError(
            ErrorCode.LOG_BUSY, f"Another writer keeps the log on {where} locked; try again.", store=where
        )
    if isinstance(error, (errors.UniqueViolation, errors.CheckViolation)):
        return conflict(error.diag.constraint_name or str(error))
    if isinstance(error, errors.DiskFull):
        return StorageFullError(
            ErrorCode.STORAGE_FULL,
            f"The server {where} has no room left. Nothing was appended; free some space and try again.",
            store=where,
        )
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return RefusedError(
            ErrorCode.LOG_READ_ONLY, f"The log on {where} cannot be written: {error.diag.message_primary}.", store=where
        )
    if isinstance(error, errors.InsufficientPrivilege):
        return RefusedError(
            ErrorCode.LOG_READ_ONLY,
            f"The role of {where} lacks a right: {error.diag.message_primary}. Grant it, or use another role.",
            store=where,
        )
    if isinstance(error, errors.InvalidSchemaName):
        return RefusedError(
            ErrorCode.LOG_UNAVAILABLE,
            f"The role of {where} has no place for tables: no schema of its search_path exists and may be used by it. "
            "Create one, or grant USAGE and CREATE on one that exists.",
            store=where,
        )
    if isinstance(error, _DAMAGE):
        reason = " ".join(str(error).split())
        return DamagedLogError(
            ErrorCode.LOG_DAMAGED, f"The database {where} is damaged: {reason}.", store=where, reason=reason
        )
    if isinstance(error, (errors.UndefinedTable, errors.UndefinedColumn)):
        return DamagedLogError(
            ErrorCode.LOG_DAMAGED,
            f"The database {where} is damaged: {error.diag.message_primary}. `worldctl doctor --rebuild` makes a lost "
            "index again; restore anything else from a copy.",
            store=where,
            reason=error.diag.message_primary,
        )
    if isinstance(error, errors.InvalidPassword):
        return RefusedError(ErrorCode.LOG_UNAVAILABLE, f"{where} refuses the user or the password.", store=where)
    if error.sqlstate is None or isinstance(error, (errors.AdminShutdown, errors.CrashShutdown)):
        return WorldProtocolError(
            ErrorCode.LOG_UNAVAILABLE,
            f"The server {where} cannot be reached: {str(error).strip()}. Try again when it runs.",
            store=where,
        )
    return WorldProtocolError(ErrorCode.LOG_FAILED, f"PostgreSQL failed on {where}: {error}.", store=where)
