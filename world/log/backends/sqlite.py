"""Logs in a SQLite file: WAL, one connection for writing, others for reading.

A writer waits for ``BEGIN IMMEDIATE`` by asking often and briefly: SQLite's own busy handler sleeps up to 100
ms, so that a busy neighbour can starve all others. And a writer that met another one lately pauses before it
takes the lock again, so that the other finds it free (SQLite has no queue). The database's main file is never
opened but by SQLite itself, since closing it elsewhere in the process would drop SQLite's locks on it (POSIX
advisory locks).
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final
from urllib.parse import quote

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, LogBusyError, RefusedError, StorageFullError, WorldProtocolError
from world.log.backends.opened_files import OpenedFiles, check_path, identity
from world.log.backends.registry import Durability
from world.log.backends.sqlite_checkpoints import GuardedCheckpoints, has_wal_reset_fault
from world.log.backends.sqlite_locks import LockHolder, lock_holder
from world.log.backends.sqlite_probe import holder_in_the_way, try_disk, try_write
from world.log.backends.sqlite_reading import BUSY, Readers, ReadOnlyReaders, fetch, patiently
from world.log.sql.statement import LOG_SHIFT
from world.log.store import (
    Batch,
    Cursor,
    LockedQuery,
    Opening,
    Row,
    Store,
    clocks_of,
    conflict,
    key_range,
    lost_tables,
    newest,
    not_a_log,
)
from world.log.url import MEMORY
from world.private_files import make_private

_PAUSE_S: Final = 0.0006  # longer than a waiting writer sleeps before it asks again
_POLITE_S: Final = 0.5  # how long after a commit of others pauses are made
_UNWRITTEN: Final = (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
_NOT_OURS: Final = ("no such table", "no such column", "unsupported file format")  # the schema was changed
_UNREADABLE: Final = (sqlite3.Error, UnicodeDecodeError)  # the latter for what the driver says about a bad schema
_SCHEMA_BYTES: Final = 1 << 16  # our schema is on the first page
_OPEN_ATTEMPTS: Final = 3  # to open a file that is being replaced
_NOT_READ: Final = "Nothing was read"
_NOT_STORED: Final = "Nothing of the commit was stored"
_NOT_ACKNOWLEDGED: Final = "The commit is in the file that was opened, or in its -wal, and was not acknowledged"


class SqliteStore(Store):
    """A SQLite file, or memory, with logs in it."""

    shared = False
    keeps_clocks = True
    tables_sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    indexes_sql = "SELECT name FROM sqlite_schema WHERE type = 'index'"
    head_columns_sql = "SELECT name FROM pragma_table_info('wp_head')"

    def __init__(
        self, path: str, *, read_only: bool, create: bool, durability: Durability, busy_timeout_ms: int
    ) -> None:
        """Open the file; nothing is created but the file itself.

        Args:
            path: the file, or ``:memory:``.
            read_only: change no byte.
            create: make a file that does not exist.
            durability: when a commit is safe.
            busy_timeout_ms: how long to wait for the lock, in milliseconds.

        Raises:
            RefusedError: ``LOG_NOT_FOUND``, ``NOT_A_LOG``, or ``LOG_BUSY``.
        """
        super().__init__("sqlite", read_only=read_only)
        self._path = path
        self._patience_s = busy_timeout_ms / 1000
        self._mutex = threading.RLock()  # guards the only connection of a database in memory
        self._writer: sqlite3.Connection | None = None
        self._files: OpenedFiles | None = None  # of a file that is open for writing
        self._commits_of_others = 0  # SQLite's data_version of the writing connection
        self._newest: tuple[int, list[Row]] | None = None  # log and row of ``last_head`` as of that data_version
        self._polite_until = 0.0
        self.has_wal_reset_fault = path != MEMORY and has_wal_reset_fault()
        self._checkpoints = GuardedCheckpoints(path, self._connect_once) if self.has_wal_reset_fault else None
        if path != MEMORY:
            check_path(path, create=create, read_only=read_only)
        try:
            self._open(durability)
        except _UNREADABLE as error:
            self.close()
            raise self.translate(error) from error

    def _open(self, durability: Durability) -> None:
        self._readers: Readers | ReadOnlyReaders | None = None
        if self.read_only and self._path != MEMORY:
            self._readers = ReadOnlyReaders(self._path)
            return
        self._writer = self._connect()
        level = "FULL" if durability == "full" else "NORMAL"
        self._patiently(self._writer, f"PRAGMA synchronous={level}")  # reads the schema, so it needs a lock
        if self._path != MEMORY:
            self._note_companions()
            self._readers = Readers(self._path)

    def _connect(self) -> sqlite3.Connection:
        """Open the connection for writing, and note which file it has opened."""
        if self._path == MEMORY:
            return self._connect_once()
        for _ in range(_OPEN_ATTEMPTS):
            before = identity(self._path)
            connection = self._connect_once()
            self._files = OpenedFiles(self._path)
            if before is None or before == identity(self._path):
                return connection
            connection.close()
        raise LogBusyError(ErrorCode.LOG_BUSY, f"{self._path} is being replaced; try again.", path=self._path)

    def _note_companions(self) -> None:
        """Note ``-wal`` and ``-shm``, which SQLite opens with the first read in WAL mode."""
        self._patiently(self._own(), "SELECT count(*) FROM sqlite_schema")
        if self._files is not None:
            self._files.note_companions()

    def _connect_once(self) -> sqlite3.Connection:
        if self._path != MEMORY:
            with suppress(OSError):  # SQLite says what is wrong; its other files get the mode of this one
                make_private(self._path)
        name = MEMORY if self._path == MEMORY else file_uri(self._path, "rw" if os.path.exists(self._path) else "rwc")
        connection = sqlite3.connect(
            name, uri=self._path != MEMORY, timeout=0, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA trusted_schema=OFF")  # a file from elsewhere runs no functions of ours
        connection.execute("PRAGMA foreign_keys=ON")
        if self._checkpoints is not None:
            self._checkpoints.take_over(connection)
        return connection

    def describe(self) -> str:
        """Return the file's path."""
        return self._path

    def query(self, sql: str, parameters: Sequence[Any]) -> list[Row]:
        """See ``Store.query``."""
        self._refuse_moved()
        try:
            if self._readers is not None:
                return self._readers.query(sql, parameters)
            with self._mutex:
                return fetch(self._own(), sql, parameters)
        except _UNREADABLE as error:
            raise self._why_unreadable(error) from error

    def newest_head(self, log_id: int) -> list[Row]:
        """See ``Store.newest_head``; the row is read again once SQLite's data_version says that it may have changed.

        Commits of this process do not change the data_version of its writing connection, so their rows are known.
        """
        readers = self._readers
        if not isinstance(readers, Readers):
            return super().newest_head(log_id)
        self._refuse_moved()
        try:
            return self._own_newest(log_id) or readers.unchanged(log_id, self._last_head)
        except _UNREADABLE as error:
            raise self._why_unreadable(error) from error

    def _own_newest(self, log_id: int) -> list[Row] | None:
        """Return the row that this process saw or wrote last; None if another one may have committed since."""
        if self._newest is None or not self._mutex.acquire(blocking=False):
            return None
        try:
            newest, writer = self._newest, self._writer
            if newest is None or writer is None or newest[0] != log_id:
                return None
            (version,) = writer.execute("PRAGMA data_version").fetchone()
            return newest[1] if version == self._commits_of_others else None
        finally:
            self._mutex.release()

    def _last_head(self, log_id: int) -> tuple[str, Sequence[Any]]:
        statement = self.sql.last_head
        return statement.sql, statement.bind(**key_range(log_id))

    def _why_unreadable(self, error: Exception) -> Exception:
        """Return the error for a failed read: that the file was moved, where a new reader found another or none."""
        try:
            self._check_files(_NOT_READ)
        except WorldProtocolError as moved:
            return moved
        return self.translate(error)

    @contextmanager
    def migrating(self) -> Iterator[Cursor]:
        """See ``Store.migrating``."""
        with self._mutex:
            try:
                self._patiently(self._own(), "BEGIN IMMEDIATE")
                yield self._own().cursor()
                self._check_files(_NOT_STORED)
                self._patiently(self._own(), "COMMIT")  # before WAL is on, readers can be in the way
                self._check_files(_NOT_ACKNOWLEDGED)
            except sqlite3.Error as error:
                raise self.translate(error) from error
            finally:
                self._abandon()

    def settle(self) -> None:
        """See ``Store.settle``."""
        if self._path == MEMORY or self.read_only:
            return
        try:
            self._patiently(self._own(), "PRAGMA journal_mode=WAL")
            self._note_companions()
        except sqlite3.Error as error:
            raise self.translate(error) from error

    def begin(
        self, log_id: int, known: int, questions: Sequence[LockedQuery] = (), *, is_unit: bool = False
    ) -> Opening:
        """See ``Store.begin``."""
        self._mutex.acquire()
        try:
            writer = self._own()
            self._refuse_moved()
            if time.monotonic() < self._polite_until:
                time.sleep(_PAUSE_S)
            self._patiently(writer, "BEGIN IMMEDIATE")
            self._notice_others(writer)
            rows = self.within(self.sql.opening, log_id=log_id, **key_range(log_id))
            answers = [self.within(one.statement, **one.values) for one in questions]
        except BaseException as error:
            self.end()
            if isinstance(error, sqlite3.Error):
                raise self.translate(error) from error
            raise
        heads = [rows[0][:3]]
        self._newest = log_id, heads
        size, root, last = newest(heads)
        views = [row[10:] for row in rows if row[10] is not None]
        return Opening(size, last, root, views, clocks_of(rows[0]), answers=answers)

    def cursor(self) -> Cursor:
        """See ``Store.cursor``."""
        return self._own().cursor()

    def commit(self, batch: Batch | None) -> None:
        """See ``Store.commit``."""
        writer = self._own()
        if batch is not None:
            sql = self.sql
            if len(batch.events) == 1:
                writer.execute(sql.insert_event.sql, batch.events[0])
            else:
                writer.executemany(sql.insert_event.sql, batch.events)
            writer.execute(self.head_statement.sql, self.head_row(batch))
            if batch.chunks:
                writer.executemany(sql.insert_chunk.sql, batch.chunks)
            for clock in batch.clocks:
                writer.execute(sql.keep_clock.sql, clock)
        self._check_files(_NOT_STORED)
        writer.execute("COMMIT")
        if batch is not None:
            log_id, size = divmod(batch.head[0], 1 << LOG_SHIFT)
            self._newest = log_id, [(size, batch.head[1], size)]
        self._check_files(_NOT_ACKNOWLEDGED)  # it may have been moved since the check before
        if self._checkpoints is not None:
            self._checkpoints.follow_commit(writer, self.check_place)

    def check_place(self) -> None:
        """See ``Store.check_place``."""
        self._check_files(_NOT_READ)

    def _refuse_moved(self) -> None:
        if self._files is not None:
            self._files.refuse_moved()

    def _check_files(self, consequence: str) -> None:
        if self._files is not None:
            self._files.check(consequence)

    def end(self) -> None:
        """See ``Store.end``."""
        self._abandon()
        self._mutex.release()

    def translate(self, error: Exception) -> Exception:
        """See ``Store.translate``."""
        return translate(error, self._path)

    def probe(self, log_id: int, timeout_s: float) -> None:
        """See ``Store.probe``; a process that reads only changes no byte, and finds out less."""
        if self._path == MEMORY:
            return
        try:
            if not self.read_only:
                self._own()
                self.check_place()
                self._refuse_moved()
                try_write(self._path, log_id, timeout_s)
            elif holder := holder_in_the_way(self._path, lambda: newest(self.newest_head(log_id))[0], timeout_s):
                raise _busy(self._path, holder)
            elif not try_disk(self._path):
                raise _without_room(self._path, is_full=True)
        except (*_UNREADABLE, OSError) as error:
            raise self._why_unreadable(error) from error

    def problems(self, most: int) -> list[str]:
        """See ``Store.problems``; SQLite looks through every page of the file."""
        try:
            faults = [str(row[0]) for row in self.query(f"PRAGMA integrity_check({most})", ())]
        except DamagedLogError as damage:
            return [damage.message]
        return [] if faults == ["ok"] else faults

    def compact(self) -> None:
        """See ``Store.compact``; SQLite writes the file anew, and needs as much space again meanwhile."""
        try:
            self._patiently(self._own(), "VACUUM")
            # with a time to wait, it holds the lock of writers; without one, it goes on beside them
            self._own().execute(f"PRAGMA busy_timeout={round(self._patience_s * 1000)}").fetchall()
            self._patiently(self._own(), "PRAGMA wal_checkpoint(TRUNCATE)")
            self._own().execute("PRAGMA busy_timeout=0").fetchall()
        except sqlite3.Error as error:
            raise self.translate(error) from error

    def close(self) -> None:
        """See ``Store.close``."""
        with self._mutex:
            readers, self._readers = getattr(self, "_readers", None), None
            writer, self._writer = self._writer, None
            if readers is not None:
                readers.close()
            if self._checkpoints is not None:
                self._checkpoints.close()
            if writer is not None:
                writer.close()

    def _own(self) -> sqlite3.Connection:
        if self._writer is None:
            raise RefusedError(
                ErrorCode.LOG_CLOSED if not self.read_only else ErrorCode.LOG_READ_ONLY, _closed(self.read_only)
            )
        return self._writer

    def _abandon(self) -> None:
        if self._writer is not None and self._writer.in_transaction:
            with suppress(sqlite3.Error):  # SQLite rolls back by itself after grave errors
                self._writer.execute("ROLLBACK")

    def _notice_others(self, writer: sqlite3.Connection) -> None:
        (version,) = writer.execute("PRAGMA data_version").fetchone()
        if version != self._commits_of_others:
            if self._commits_of_others:
                self._polite_until = time.monotonic() + _POLITE_S
            self._commits_of_others = version

    def _patiently(self, connection: sqlite3.Connection, sql: str) -> None:
        patiently(connection, sql, self._patience_s)


def file_uri(path: str, mode: str, **options: int) -> str:
    """Return the URI by which SQLite opens a file in a mode (``ro``, ``rw``, ``rwc``)."""
    extra = "".join(f"&{name}={value}" for name, value in options.items())
    return f"file:{quote(os.path.abspath(path))}?mode={mode}{extra}"


def translate(error: Exception, path: str) -> Exception:
    """Return the error of ours for an error of SQLite's driver; other errors are returned as they are."""
    if isinstance(error, UnicodeDecodeError):  # from the driver's own message about a damaged schema
        return DamagedLogError(ErrorCode.LOG_DAMAGED, f"The file {path} is damaged. Restore it from a copy.", path=path)
    if not isinstance(error, sqlite3.Error):
        return error
    if str(error).startswith(_NOT_OURS):
        return DamagedLogError(
            ErrorCode.LOG_DAMAGED,
            f"The file {path} is damaged: {error}. `worldctl doctor --rebuild` makes a lost index again; restore "
            "anything else from a copy.",
            path=path,
            reason=str(error),
        )
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in BUSY:
        return _busy(path, lock_holder(path))
    if code == sqlite3.SQLITE_FULL or getattr(error, "sqlite_errorcode", 0) in _UNWRITTEN:
        return _without_room(path, is_full=code == sqlite3.SQLITE_FULL)
    if code == sqlite3.SQLITE_CORRUPT:
        return DamagedLogError(
            ErrorCode.LOG_DAMAGED,
            f"The file {path} is damaged ({error}). Restore it from a copy.",
            path=path,
            reason=str(error),
        )
    if code == sqlite3.SQLITE_NOTADB:
        return _no_database(path)
    if code == sqlite3.SQLITE_CONSTRAINT:
        return conflict(str(error))
    if code == sqlite3.SQLITE_READONLY:
        return RefusedError(
            ErrorCode.LOG_READ_ONLY, f"The file {path} cannot be written; check its permissions.", path=path
        )
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return RefusedError(
            ErrorCode.LOG_UNAVAILABLE, f"The file {path} cannot be opened; check path and permissions.", path=path
        )
    if isinstance(error, sqlite3.ProgrammingError):
        return RefusedError(ErrorCode.LOG_CLOSED, _closed(False))
    return WorldProtocolError(ErrorCode.LOG_FAILED, f"SQLite failed on {path}: {error}.", path=path)


def _busy(path: str, holder: LockHolder | None) -> LogBusyError:
    """Return the error for a lock that was not released in time; it names the process that holds it by now."""
    if holder is None:
        return LogBusyError(ErrorCode.LOG_BUSY, f"Another writer keeps {path} locked; try again.", path=path)
    advice = "let it continue, or end it" if holder.is_stopped else "try again"
    message = f"Another writer keeps {path} locked: {holder}; {advice}."
    return LogBusyError(ErrorCode.LOG_BUSY, message, path=path, pid=holder.pid, is_stopped=holder.is_stopped)


def _without_room(path: str, *, is_full: bool) -> StorageFullError:
    reason = f"There is no room left for {path}"
    if not is_full:  # what a limit on the size of files looks like, and a disk that fails
        reason = f"{path} could not be written: there is no room left, files may not grow so large, or the disk fails"
    return StorageFullError(
        ErrorCode.STORAGE_FULL,
        f"{reason}. This commit was not appended, those before it were; free some space and try again.",
        path=path,
    )


def _no_database(path: str) -> WorldProtocolError:
    """Return the error for a file that SQLite does not take for a database: a damaged log where it has our tables."""
    beginning = b""
    with suppress(OSError), open(path, "rb") as file:
        beginning = file.read(_SCHEMA_BYTES)
    if b"CREATE TABLE wp_event" in beginning:
        return lost_tables(path, "its first bytes are not those of a SQLite database")
    return not_a_log(path, "the file is no SQLite database")


def _closed(read_only: bool) -> str:
    return f"The log was {'opened to be read only; open it for writing' if read_only else 'closed; open it again'}."
