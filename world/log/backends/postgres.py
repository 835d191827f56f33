"""Logs on a PostgreSQL server, by psycopg: one connection for writing, in pipeline mode, others for reading.

A write is two round trips: one takes the log's advisory transaction lock and reads head, views and what
others appended; the other inserts and commits. The lock is released by the server after the commit is
visible, so positions become visible in order and a reader that asks for what follows its last position misses
nothing. There is no NOTIFY: it would serialize the commits of all logs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Final

import orjson
import psycopg
from psycopg import Pipeline
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.errors import Diagnostic
from psycopg.pq import Format
from sqlalchemy import URL

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.log.backends.builtin import STANDBYS
from world.log.backends.hosts import DatabaseHost
from world.log.backends.postgres_errors import translated, unknown_commit
from world.log.backends.postgres_hosts import FlushingConnection, PostgresHosts
from world.log.backends.registry import Durability
from world.log.sql.queries import events_query
from world.log.sql.statement import SqlStatement, dialect
from world.log.store import Batch, Cursor, LockedQuery, Opening, Row, Store, key_range, newest
from world.log.values import ServerPlace
from world.masking import masked

LOCK_SPACE: Final = 0x57504C47  # "WPLG", the first half of our advisory lock keys
_MIGRATION_LOCK: Final = 0  # the second half; logs have their ids there
_READERS: Final = 8  # connections for reading; a new one takes the server more CPU time than sixty look-ups
_CATCH_UP: Final = 256  # events of others that are fetched together with the head...
_REPLAN_GROWTH: Final = 8  # growth of a log after which statements are planned again...
_REPLAN_EVENTS: Final = 64  # ... from so many events on
_EXPECT_S: Final = 5.0  # ... for so long after others were met

_LOCK = SqlStatement("SELECT pg_advisory_xact_lock(%s::INTEGER, %s::INTEGER)", ("space", "key"), {})
_INSERT_EVENTS: Final = (
    "WITH event AS (INSERT INTO wp_event (id, log_id, stream, version, topic, schema_version, leaf, state) "
    "SELECT i, l, s, v, t, c, decode(h, 'hex'), j FROM json_to_recordset(%s::json) AS "
    "given (i BIGINT, l INTEGER, s TEXT, v INTEGER, t TEXT, c INTEGER, h TEXT, j TEXT)) "
)
"""The events of a commit in one statement, which the statement that stores the tree head follows."""

_NAMES: Final = "SELECT current_setting('synchronous_standby_names')"

_WRITE_NOTHING: Final = "SELECT pg_logical_emit_message(true, 'worldprotocol', '')"
"""A record in the write-ahead log that changes nothing, so that the commit waits for standbys."""


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
    indexes_sql = "SELECT indexname::TEXT FROM pg_indexes WHERE schemaname = current_schema()"
    head_columns_sql = (
        "SELECT attname::TEXT FROM pg_attribute WHERE attrelid = to_regclass('wp_head') AND attnum > 0 "
        "AND NOT attisdropped"
    )

    def __init__(self, url: URL, *, read_only: bool, durability: Durability, busy_timeout_ms: int) -> None:
        """Connect.

        Args:
            url: SQLAlchemy URL of the database, with one host or several; the option ``standbys=asynchronous`` accepts
                that standbys may lack commits that were acknowledged.
            read_only: let the server refuse every change.
            durability: when a commit is safe.
            busy_timeout_ms: how long to wait for a lock, and for standbys at a commit, in milliseconds.

        Raises:
            RefusedError: for writing, ``REPLICATION_ASYNCHRONOUS``, or ``WRITER_FENCED`` when the server was primary
                before a failover.
            WorldProtocolError: ``LOG_UNAVAILABLE`` when no server can be reached.
        """
        super().__init__("postgresql", read_only=read_only)
        self._where = masked(url.render_as_string(hide_password=True))
        _, arguments = dialect("postgresql").create_connect_args(url.difference_update_query([STANDBYS]))
        settings = {
            "lock_timeout": str(busy_timeout_ms),
            "synchronous_commit": "on" if durability == "full" else "off",
            "default_transaction_read_only": "on" if read_only else "off",
            "default_transaction_isolation": r"read\ committed",  # stricter ones see the state before the lock
            "client_min_messages": "warning",  # a commit that is not on the standbys is only a warning
        }
        given = arguments.get("options", "")
        chosen = " ".join(f"-c {name}={value}" for name, value in settings.items())
        arguments["options"] = f"{given} {chosen}".strip()
        accepts = STANDBYS in url.query
        self._hosts = PostgresHosts(arguments, self._where, read_only=read_only, accepts_asynchronous=accepts)
        self._readers = threading.BoundedSemaphore(_READERS)
        self._idle: list[FlushingConnection] = []
        self._spare: FlushingConnection | None = None
        self._writer: FlushingConnection | None = None
        self._within: AbstractContextManager[Pipeline] | None = None
        self._pipeline: Pipeline | None = None
        self._has_begun = False
        self._expect_others_until = 0.0
        self._planned_size: int | None = None  # events in the log when the writer's statements were planned
        self._must_replan = False
        self._warnings: list[str] = []
        self._busy_s = busy_timeout_ms / 1000
        self._is_unconfirmed = True
        self._mutex = threading.Lock()
        self._closed = False
        self._ended = threading.Event()
        connection = self._connect(looks_at_all=True)
        if read_only:
            self._idle.append(connection)
        else:
            self._spare = connection  # for the first write: had its server been replaced since, it would be broken
            self._hosts.watch(self._ended)

    def describe(self) -> str:
        """Return the server's URL without a password."""
        return self._where

    def query(self, sql: str, parameters: Sequence[Any]) -> list[Row]:
        """See ``Store.query``; a connection that broke while it was idle is replaced without an error."""
        with self._readers:
            connection, fresh = self._reader()
            try:
                try:
                    return self._fetch(connection, sql, parameters)
                except psycopg.OperationalError:
                    if fresh or not connection.broken:
                        raise
                    self._forget_idle()
                    connection = self._connect()
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
        connection = self._connect()
        try:
            connection.autocommit = False
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
        fresh = self._writer is None and self._spare is None
        try:
            try:
                return self._open(log_id, known, questions)
            except psycopg.OperationalError:
                broken = self._writer is None or self._writer.broken
                if fresh or not broken:
                    raise
                self._drop_writer()
                self._forget_idle()
                return self._open(log_id, known, questions)
        except BaseException as error:
            self.end()
            if isinstance(error, psycopg.Error):
                raise self.translate(error) from error
            raise

    @property
    def place(self) -> ServerPlace | None:  # type: ignore[override]  # it changes with the connection
        """See ``Store.place``; a connection that writes stays on one timeline."""
        return None if self._writer is None else self._writer.host.place

    def cursor(self) -> Cursor:
        """See ``Store.cursor``."""
        if self._writer is None:
            raise RefusedError(ErrorCode.LOG_CLOSED, "The log was closed; open it again.")
        return self._writer.cursor(binary=True)

    def commit(self, batch: Batch | None) -> None:
        """See ``Store.commit``; one round trip.

        Where commits wait for standbys, a transaction without events waits too, if it may have read events that no
        standby has. Otherwise a repeated command would be acknowledged because its first attempt, whose wait was broken
        off, is stored by the primary alone.
        """
        writer = self._writer
        if writer is None or self._pipeline is None:
            raise RefusedError(ErrorCode.LOG_CLOSED, "The log was closed; open it again.")
        if batch is not None:
            cursor = self.cursor()
            cursor.execute(_INSERT_EVENTS + self.head_statement.sql, (_as_json(batch.events), *self.head_row(batch)))
            for row in batch.chunks:
                cursor.execute(self.sql.insert_chunk.sql, row)
        elif self._is_unconfirmed and writer.host.waits_for_standbys:
            self.cursor().execute(_WRITE_NOTHING)
        self._warnings.clear()
        writer.answers_until = time.monotonic() + self._busy_s if writer.host.waits_for_standbys else None
        try:
            self.cursor().execute("COMMIT")
            self._pipeline.sync()
            self._has_begun = False
        except TimeoutError:
            self._drop_writer()  # without a cancellation: until a standby has the commit, nobody sees it
            raise unknown_commit(f"A commit on {self._where} waits for standbys, {self._busy_s:g} s so far") from None
        except psycopg.OperationalError as error:
            if not writer.broken:
                raise
            self._forget_idle()
            raise unknown_commit(f"The connection to {self._where} broke during a commit") from error
        finally:
            writer.answers_until = None
        if self._warnings:
            raise unknown_commit(f"The commit on {self._where} is stored by the primary alone ({self._warnings[0]})")
        if not self._hosts.is_current(writer):
            raise unknown_commit(f"Another server than {writer.host.name} was promoted during a commit")
        self._is_unconfirmed = False

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
        return translated(error, self._where)

    def problems(self, most: int) -> list[str]:
        """See ``Store.problems``; a server's administrator has ``pg_amcheck`` for that."""
        return []

    def compact(self) -> None:
        """See ``Store.compact``; a server uses the space again, and gives back what is at the end of its files."""
        connection = self._connect()
        try:
            connection.execute("VACUUM wp_event")
        except psycopg.Error as error:
            raise self.translate(error) from error
        finally:
            connection.close()

    def close(self) -> None:
        """See ``Store.close``."""
        self._closed = True
        self._ended.set()
        self._forget_idle()
        self._drop_writer()

    def hosts(self) -> Sequence[DatabaseHost]:
        """See ``Store.hosts``."""
        return self._hosts.survey()

    def _connect(self, *, looks_at_all: bool = False) -> FlushingConnection:
        if self._closed:
            raise RefusedError(ErrorCode.LOG_CLOSED, "The log was closed; open it again.")
        try:
            return self._hosts.connect(looks_at_all=looks_at_all)
        except psycopg.Error as error:
            raise self.translate(error) from error

    def _take_writer(self) -> FlushingConnection:
        """Return the connection for writing; a warning that it receives is kept until the end of the commit."""
        spare, self._spare = self._spare, None
        writer = spare if spare is not None else self._connect(looks_at_all=True)
        writer.add_notice_handler(self._note_warning)
        self._is_unconfirmed = True
        return writer

    def _note_warning(self, notice: Diagnostic) -> None:
        """Keep a warning: a commit whose wait for standbys is cancelled succeeds with one (``SyncRepWaitForLSN``)."""
        if notice.severity_nonlocalized == "WARNING":
            self._warnings.append(f"{notice.message_primary} [{notice.sqlstate}]")

    # Reading

    def _reader(self) -> tuple[FlushingConnection, bool]:
        """Return a connection for one query, and whether it was made just now."""
        with self._mutex:
            while self._idle:
                if self._hosts.is_current(connection := self._idle.pop()):
                    return connection, False
                connection.close()
        return self._connect(), True

    def _return(self, connection: FlushingConnection) -> None:
        with self._mutex:
            is_open = not (self._closed or connection.closed or connection.broken)
            if is_open:
                self._idle.append(connection)
                return
        connection.close()

    def _forget_idle(self) -> None:
        """Close the connections for reading after one broke; the next one looks for the primary again."""
        self._hosts.broke()
        with self._mutex:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _fetch(self, connection: FlushingConnection, sql: str, parameters: Sequence[Any]) -> list[Row]:
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
        if any(one is not None and not self._hosts.is_current(one) for one in (self._writer, self._spare)):
            self._drop_writer()  # another server was promoted
        if self._writer is None:
            self._writer = self._take_writer()  # in autocommit; else psycopg waits for the server before each BEGIN
            self._within = self._writer.pipeline()
            self._pipeline = self._within.__enter__()
        if self._must_replan:
            self.cursor().execute("DISCARD PLANS")
            self._planned_size, self._must_replan = None, False
        self._has_begun = True  # the driver learns it from the server with the next Sync, which only a commit sends
        self.cursor().execute("BEGIN")
        self._run(_LOCK, space=LOCK_SPACE, key=log_id)
        found = self._run(self.sql.opening, log_id=log_id, **key_range(log_id))
        asked = [self._run(one.statement, **one.values) for one in questions]
        names = self.cursor() if self._writer.host.waits_for_standbys else None
        if names is not None:
            names.execute(_NAMES)
        newer = None
        if time.monotonic() < self._expect_others_until:
            newer = self._run(events_query("postgresql"), count=_CATCH_UP, **key_range(log_id, known))
        rows = found.fetchall()
        size, root, last = newest([row[:3] for row in rows])
        if size > known:
            self._expect_others_until = time.monotonic() + _EXPECT_S
            self._is_unconfirmed = True
        self._note_growth(size)
        if names is not None:
            self._hosts.check_waits(self._writer.host, names.fetchone()[0])
        events = newer.fetchall() if newer is not None else None
        views = [row[4:] for row in rows if row[4] is not None]
        answers = [cursor.fetchall() for cursor in asked]
        return Opening(size, last, root, views, events, database_ms=rows[0][3], answers=answers)

    def _note_growth(self, size: int) -> None:
        """Have the statements planned again after the log has grown much.

        A prepared statement keeps the plan that was made while the tables were nearly empty, and every index looked
        equally good, until something analyzes the tables.
        """
        if self._planned_size is None:
            self._planned_size = size
        elif size > _REPLAN_GROWTH * max(self._planned_size, _REPLAN_EVENTS):
            self._must_replan = True

    def _run(self, statement: SqlStatement, **values: Any) -> Cursor:
        cursor = self.cursor()
        cursor.execute(statement.sql, statement.bind(**values))
        return cursor

    def _drop_writer(self) -> None:
        if self._spare is not None:
            self._spare.close()
        writer, self._writer, self._spare = self._writer, None, None
        pipeline, self._within, self._pipeline = self._within, None, None
        self._has_begun = False
        self._planned_size, self._must_replan = None, False
        if writer is None:
            return
        with suppress(psycopg.Error):
            writer.close()
        if pipeline is not None:
            with suppress(psycopg.Error):
                pipeline.__exit__(None, None, None)


def _as_json(events: Sequence[Row]) -> str:
    """Return the rows of events as the JSON that ``_INSERT_EVENTS`` expands."""
    return orjson.dumps(
        [
            {"i": key, "l": log_id, "s": stream, "v": version, "t": topic, "c": schema, "h": leaf.hex(), "j": state}
            for key, log_id, stream, version, topic, schema, leaf, state in events
        ]
    ).decode()
