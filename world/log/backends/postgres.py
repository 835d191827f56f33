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
from functools import partial
from typing import Any, Final

import orjson
import psycopg
from psycopg import Pipeline, errors
from psycopg.errors import Diagnostic
from sqlalchemy import URL

from world.error_codes import ErrorCode
from world.errors import RefusedError, WorldProtocolError
from world.log.backends.builtin import STANDBYS
from world.log.backends.hosts import DatabaseHost
from world.log.backends.postgres_errors import ended_unit, translated, unknown_commit
from world.log.backends.postgres_hosts import FlushingConnection, PostgresHosts
from world.log.backends.postgres_lock import LOCK_SPACE, TAKE, TAKE_AS_UNIT, end_overdue
from world.log.backends.postgres_probe import WRITE_NOTHING, probe_server
from world.log.backends.postgres_reading import ServerReaders
from world.log.backends.registry import Durability
from world.log.sql.queries import events_query
from world.log.sql.statement import LOG_SHIFT, SqlStatement, dialect
from world.log.store import MAX_HOLD_MS, Batch, Clocks, Cursor, LockedQuery, Opening, Row, Store, key_range, newest
from world.log.values import ServerPlace
from world.masking import masked

_MIGRATION_LOCK: Final = 0  # second half of a lock's key; logs have their ids there
_CATCH_UP: Final = 256  # events of others that are fetched together with the head...
_REPLAN_GROWTH: Final = 8  # growth of a log after which statements are planned again...
_REPLAN_EVENTS: Final = 64  # ... from so many events on
_EXPECT_S: Final = 5.0  # ... for so long after others were met
_LOOK_S: Final = 2.0  # after so long a wait for the lock, a writer looks who holds it
_LOOK_AGAIN_S: Final = 1.0

_INSERT_EVENTS: Final = (
    "WITH event AS (INSERT INTO wp_event (id, log_id, stream, version, topic, schema_version, leaf, state) "
    "SELECT i, l, s, v, t, c, decode(h, 'hex'), j FROM json_to_recordset(%s::json) AS "
    "given (i BIGINT, l INTEGER, s TEXT, v INTEGER, t TEXT, c INTEGER, h TEXT, j TEXT)) "
)
"""The events of a commit in one statement, which the statement that stores the tree head follows."""

_ROOT: Final = "SELECT root FROM wp_head WHERE id = %s"

_NAMES: Final = "SELECT current_setting('synchronous_standby_names')"


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
        self._readers = ServerReaders(self._hosts, self._connect)
        self._spare: FlushingConnection | None = None
        self._writer: FlushingConnection | None = None
        self._within: AbstractContextManager[Pipeline] | None = None
        self._pipeline: Pipeline | None = None
        self._has_begun = False
        self._is_unit = False
        self._expect_others_until = 0.0
        self._planned_size: int | None = None  # events in the log when the writer's statements were planned
        self._must_replan = False
        self._warnings: list[str] = []
        self._busy_s = busy_timeout_ms / 1000
        self._is_unconfirmed = True
        self._closed = False
        self._ended = threading.Event()
        connection = self._connect(looks_at_all=True)
        if read_only:
            self._readers.add(connection)
        else:
            self._spare = connection  # for the first write: had its server been replaced since, it would be broken
            self._hosts.watch(self._ended)

    def describe(self) -> str:
        """Return the server's URL without a password."""
        return self._where

    def query(self, sql: str, parameters: Sequence[Any]) -> list[Row]:
        """See ``Store.query``; a connection that broke while it was idle is replaced without an error."""
        try:
            return self._readers.query(sql, parameters)
        except psycopg.Error as error:
            raise translated(error, self._where) from error

    def settle(self) -> None:
        """See ``Store.settle``; there is nothing to prepare."""

    @contextmanager
    def migrating(self) -> Iterator[Cursor]:
        """See ``Store.migrating``."""
        connection = self._connect()
        try:
            connection.autocommit = False
            cursor = connection.cursor()
            cursor.execute(TAKE.sql, (LOCK_SPACE, _MIGRATION_LOCK))
            yield cursor
            connection.commit()
        except psycopg.Error as error:
            raise self.translate(error) from error
        finally:
            connection.close()

    def begin(
        self, log_id: int, known: int, questions: Sequence[LockedQuery] = (), *, is_unit: bool = False
    ) -> Opening:
        """See ``Store.begin``; one round trip, repeated when the idle connection is found broken."""
        fresh = self._writer is None and self._spare is None
        self._is_unit = is_unit
        try:
            try:
                return self._open(log_id, known, questions)
            except psycopg.OperationalError as error:
                if fresh or not (self._writer is None or self._is_lost(error)):
                    raise
                self._drop_writer()
                self._readers.forget()
                return self._open(log_id, known, questions)
        except BaseException as error:
            ours = self.translate(error) if isinstance(error, psycopg.Error) else error
            self.end()
            if ours is not error:
                raise ours from error
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

    def check_held(self) -> None:
        """See ``Store.check_held``."""
        cursor = self.cursor()
        cursor.execute("SELECT 1")
        cursor.fetchall()

    def commit(self, batch: Batch | None) -> None:
        """See ``Store.commit``; one round trip.

        Where commits wait for standbys, a transaction without events waits too, if it may have read events that no
        standby has. Otherwise a repeated command would be acknowledged because its first attempt, whose wait was broken
        off, is stored by the primary alone.
        """
        writer = self._writer
        if writer is None or self._pipeline is None:
            raise RefusedError(ErrorCode.LOG_CLOSED, "The log was closed; open it again.")
        self._warnings.clear()
        writer.answers_until = time.monotonic() + self._busy_s if writer.host.waits_for_standbys else None
        try:
            self._send(batch, writer)
            self._pipeline.sync()
            self._has_begun = False
        except TimeoutError:
            self._drop_writer()  # without a cancellation: until a standby has the commit, nobody sees it
            raise unknown_commit(f"A commit on {self._where} waits for standbys, {self._busy_s:g} s so far") from None
        except psycopg.OperationalError as error:
            if not self._is_lost(error):
                raise
            self._readers.forget()
            is_stored = self._is_stored(batch, writer)
            if is_stored is None:
                raise unknown_commit(f"The connection to {self._where} broke during a commit") from error
            if not is_stored:
                raise
        finally:
            writer.answers_until = None
        if self._warnings:
            raise unknown_commit(f"The commit on {self._where} is stored by the primary alone ({self._warnings[0]})")
        if not self._hosts.is_current(writer):
            raise unknown_commit(f"Another server than {writer.host.name} was promoted during a commit")
        self._is_unconfirmed = False

    def _send(self, batch: Batch | None, writer: FlushingConnection) -> None:
        """Send the statements of a commit."""
        if batch is not None:
            cursor = self.cursor()
            cursor.execute(_INSERT_EVENTS + self.head_statement.sql, (_as_json(batch.events), *self.head_row(batch)))
            for row in batch.chunks:
                cursor.execute(self.sql.insert_chunk.sql, row)
        elif self._is_unconfirmed and writer.host.waits_for_standbys:
            self.cursor().execute(WRITE_NOTHING)
        self.cursor().execute("COMMIT")

    def _is_stored(self, batch: Batch | None, writer: FlushingConnection) -> bool | None:
        """Return whether a commit is stored whose connection broke; None where that cannot be said.

        The server releases the log's lock when the commit is visible or rolled back. So with the lock, a tree head with
        the root of the commit is found or missing for good.
        """
        if batch is None:
            return False
        if writer.host.waits_for_standbys:
            return None  # it may be stored by the primary alone
        key, root = batch.head[:2]
        try:
            connection = self._connect(looks_at_all=True)
        except WorldProtocolError:
            return None
        try:
            if connection.host.place != writer.host.place:
                return None
            connection.execute(TAKE.sql, (LOCK_SPACE, key >> LOG_SHIFT))  # and releases it: it is a transaction
            found = connection.execute(_ROOT, (key,)).fetchone()
            return found is not None and bytes(found[0]) == root
        except psycopg.Error:
            return None
        finally:
            connection.close()

    def end(self) -> None:
        """See ``Store.end``."""
        self._is_unit = False
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
        """See ``Store.translate``; what a unit raises whose connection broke comes from that, except our own errors."""
        if self._is_unit and not isinstance(error, WorldProtocolError) and self._is_lost(error):
            return ended_unit(self._where)
        return translated(error, self._where)

    def _is_lost(self, error: BaseException) -> bool:
        """Return whether the connection for writing is gone; its end is read after the server's last message."""
        is_ended = isinstance(error, errors.AdminShutdown) or isinstance(error.__cause__, errors.AdminShutdown)
        return self._writer is not None and (self._writer.broken or is_ended)

    def probe(self, log_id: int, timeout_s: float) -> ServerPlace | None:
        """See ``Store.probe``."""
        connection = self._connect()
        try:
            return probe_server(connection, log_id, self._where, timeout_s, is_reading=self.read_only)
        except psycopg.Error as error:
            raise translated(error, self._where) from error
        finally:
            connection.close()

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
        self._readers.close()
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
        self._run(TAKE_AS_UNIT if self._is_unit else TAKE, space=LOCK_SPACE, key=log_id)
        found = self._run(self.sql.opening, log_id=log_id, **key_range(log_id))
        asked = [self._run(one.statement, **one.values) for one in questions]
        names = self.cursor() if self._writer.host.waits_for_standbys else None
        if names is not None:
            names.execute(_NAMES)
        newer = None
        if time.monotonic() < self._expect_others_until:
            newer = self._run(events_query("postgresql"), count=_CATCH_UP, **key_range(log_id, known))
        rows = self._wait_for_lock(found, log_id)
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
        return Opening(size, last, root, views, Clocks(database_ms=rows[0][3]), events, answers)

    def _wait_for_lock(self, found: Cursor, log_id: int) -> list[Row]:
        """Return the rows of the statement after the lock; meanwhile, end a unit that holds it for too long."""
        writer = self._writer
        assert writer is not None
        writer.answers_until = time.monotonic() + min(_LOOK_S, self._busy_s / 2)
        writer.on_late = partial(self._end_overdue, log_id)
        try:
            return found.fetchall()
        finally:
            writer.answers_until = writer.on_late = None

    def _end_overdue(self, log_id: int) -> float:
        """End a unit that has held the lock for too long; return when to look again, as of ``time.monotonic``."""
        pause_s = _LOOK_AGAIN_S
        with suppress(psycopg.Error, WorldProtocolError):
            with self._readers.taken() as (connection, _):
                holder = end_overdue(connection, log_id, self._where)
            if holder is not None and holder.is_ended:
                self.units_ended += 1
            elif holder is not None and holder.held_ms is not None:
                pause_s = max(_LOOK_AGAIN_S / 2, (MAX_HOLD_MS - holder.held_ms) / 1000)
        return time.monotonic() + pause_s

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
