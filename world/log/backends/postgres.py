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
from world.log.statements import events_query
from world.log.store import Batch, Cursor, Opening, Row, Store, conflict, key_range, newest
from world.log.tables import SqlStatement, dialect
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
_NOW = SqlStatement("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT", (), {})


class _FlushingConnection(Connection[Row]):
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
        self._pipeline: AbstractContextManager[Pipeline] | None = None
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

    def begin(self, log_id: int, known: int) -> Opening:
        """See ``Store.begin``; one round trip, repeated when the idle connection is found broken."""
        fresh = self._writer is None
        try:
            try:
                return self._open(log_id, known)
            except psycopg.OperationalError:
                broken = self._writer is None or self._writer.broken
                if fresh or not broken:
                    raise
                self._drop_writer()
                return self._open(log_id, known)
        except BaseException as error:
            self.end()
            if isinstance(error, psycopg.Error):
                raise self.translate(error) from error
            raise

    def cursor(self) -> Cursor:
        """See ``Store.cursor``."""
        if self._writer is None:
            raise RefusedError(ErrorCode.LOG_CLOSED, "The log was closed; open it again.")
        return self._writer.cursor(binary=True)

    def commit(self, batch: Batch | None) -> None:
        """See ``Store.commit``; one round trip."""
        writer = self._writer
        if writer is None:
            raise RefusedError(ErrorCode.LOG_CLOSED, "The log was closed; open it again.")
        if batch is not None:
            cursor = self.cursor()
            sql = self.sql
            for row in batch.events:
                cursor.execute(sql.insert_event.sql, row)
            cursor.execute(self.head_statement.sql, self.head_row(batch))
            for row in batch.chunks:
                cursor.execute(sql.insert_chunk.sql, row)
        try:
            writer.commit()
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
        elif writer.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            try:
                writer.rollback()
            except psycopg.Error:
                self._drop_writer()

    def translate(self, error: Exception) -> Exception:
        """See ``Store.translate``."""
        return _translate(error, self._where)

    def problems(self, most: int) -> list[str]:
        """See ``Store.problems``; a server's administrator has ``pg_amcheck`` for that."""
        return []

    def close(self) -> None:
        """See ``Store.close``."""
        self._closed = True
        self._forget_idle()
        self._drop_writer()

    def _connect(self, *, autocommit: bool) -> Connection[Row]:
        if self._closed:
            raise RefusedError(ErrorCode.LOG_CLOSED, "The log was closed; open it again.")
        try:
            connection: Connection[Row] = _FlushingConnection.connect(**self._arguments, autocommit=autocommit)
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

    def _open(self, log_id: int, known: int) -> Opening:
        if self._writer is None:
            self._writer = self._connect(autocommit=False)
            pipeline = self._writer.pipeline()
            pipeline.__enter__()
            self._pipeline = pipeline
        self._run(_LOCK, space=LOCK_SPACE, key=log_id)
        head = self._run(self.sql.last_head, **key_range(log_id))
        views = self._run(self.sql.read_views, view_log=log_id)
        clock = self._run(_NOW)
        newer = None
        if time.monotonic() < self._expect_others_until:
            newer = self._run(events_query("postgresql"), count=_CATCH_UP, **key_range(log_id, known))
        size, root, last = newest(head.fetchall())
        if size > known:
            self._expect_others_until = time.monotonic() + _EXPECT_S
        events = newer.fetchall() if newer is not None else None
        return Opening(size, last, root, views.fetchall(), events, database_ms=clock.fetchone()[0])

    def _run(self, statement: SqlStatement, **values: Any) -> Cursor:
        cursor = self.cursor()
        cursor.execute(statement.sql, statement.bind(**values))
        return cursor

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        pipeline, self._pipeline = self._pipeline, None
        if writer is None:
            return
        with suppress(psycopg.Error):
            writer.close()
        if pipeline is not None:
            with suppress(psycopg.Error):
                pipeline.__exit__(None, None, None)


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
        told = " ".join(str(error).split())
        return DamagedLogError(
            ErrorCode.LOG_DAMAGED, f"The database {where} is damaged: {told}.", store=where, reason=told
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
