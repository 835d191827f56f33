"""Connections that read a SQLite file: beside a writer, or without changing a byte.

Opening a WAL database even with ``mode=ro`` creates its ``-wal`` and ``-shm`` files. So a reader that must
change nothing looks at what is there:

- no ``-wal`` with content: there are no changes outside the main file. It is opened as immutable, and every
  answer is kept only if file and ``-wal`` look the same afterwards as when it was opened; otherwise it is
  opened anew.
- ``-wal`` and ``-shm``: a writer is at work, or crashed. ``readonly_shm`` reads along, without locks in the
  index.
- ``-wal`` with content but no ``-shm``: the two files were copied. SQLite would have to build the index
  beside them; so they are copied to a temporary directory and read there.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import quote

from world.error_codes import ErrorCode
from world.errors import LogBusyError

_IDLE: Final = 8  # connections kept for the next reader
_TIMEOUT_S: Final = 5.0
_ATTEMPTS: Final = 50

Row = tuple[Any, ...]
_Signature = tuple[int, ...]


class _ReadConnection(sqlite3.Connection):
    """A connection that remembers rows, by a number of the caller's, and the data_version at which they were read."""

    known: dict[int, tuple[int, list[Row]]]


class Readers:
    """Connections for the readers of a process that may write too; each query uses one of them alone."""

    def __init__(self, path: str) -> None:
        """Make readers of a file; they are opened when needed."""
        self._uri = f"file:{quote(os.path.abspath(path))}?mode=ro"
        self._idle: list[_ReadConnection] = []
        self._closed = False

    def query(self, sql: str, parameters: Sequence[Any]) -> list[Row]:
        """Execute a statement and return its rows.

        Raises:
            sqlite3.Error: as SQLite says.
        """
        connection = self._taken()
        try:
            return fetch(connection, sql, parameters)
        finally:
            self._give_back(connection)

    def unchanged(self, key: int, query: Callable[[int], tuple[str, Sequence[Any]]]) -> list[Row]:
        """Return the rows of a statement, which is run again only after another connection has committed.

        Args:
            key: a number for this statement with these parameters.
            query: returns statement and parameters for the number.

        Returns:
            The rows; the same list while they are unchanged and read over the same connection.

        Raises:
            sqlite3.Error: as SQLite says.
        """
        connection = self._taken()
        try:
            (version,) = connection.execute("PRAGMA data_version").fetchone()
            known = connection.known.get(key)
            if known is None or known[0] != version:
                known = connection.known[key] = version, fetch(connection, *query(key))
            return known[1]
        finally:
            self._give_back(connection)

    def _taken(self) -> _ReadConnection:
        """Return a connection for the caller alone."""
        try:
            return self._idle.pop()  # list operations are atomic
        except IndexError:
            return self._connect()

    def _give_back(self, connection: _ReadConnection) -> None:
        self._idle.append(connection)
        if len(self._idle) > _IDLE or self._closed:
            self._drain(0 if self._closed else _IDLE)

    def close(self) -> None:
        """Close the idle connections now and those in use when they come back."""
        self._closed = True
        self._drain(0)

    def _connect(self) -> _ReadConnection:
        if self._closed:
            raise sqlite3.ProgrammingError("Cannot operate on a closed database.")
        return connect(self._uri)

    def _drain(self, keep: int) -> None:
        while len(self._idle) > keep:
            try:
                self._idle.pop().close()
            except IndexError:
                return


_PASSING: Final = frozenset(
    {sqlite3.SQLITE_READONLY_RECOVERY, sqlite3.SQLITE_READONLY_CANTLOCK, sqlite3.SQLITE_READONLY_CANTINIT}
)
"""Errors of a reader beside a writer that are over in a moment."""


class ReadOnlyReaders:
    """One guarded connection that changes no byte of the database, its companions or its directory."""

    def __init__(self, path: str) -> None:
        """Open the file; raises sqlite3.Error when it cannot be read."""
        self._path = os.path.abspath(path)
        self._mutex = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._signature: _Signature | None = None
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self._closed = False
        self.query("SELECT count(*) FROM sqlite_schema", ())

    def query(self, sql: str, parameters: Sequence[Any]) -> list[Row]:
        """Execute a statement and return its rows.

        Raises:
            sqlite3.Error: as SQLite says.
            LogBusyError: ``LOG_BUSY`` when the file changed during every attempt.
        """
        with self._mutex:
            for left in reversed(range(_ATTEMPTS)):
                connection = self._current()
                try:
                    rows = fetch(connection, sql, parameters)
                except sqlite3.Error as error:
                    code = getattr(error, "sqlite_errorcode", 0)
                    is_removed = code == sqlite3.SQLITE_CANTOPEN and self._signature is None and left > 0
                    if code in _PASSING or is_removed:  # a writer changes the index of its write-ahead log
                        time.sleep(0.001)
                    elif self._signature is None or self._signature == self._look():
                        raise
                else:
                    if self._signature is None or self._signature == self._look():
                        return rows
                self._drop()
        raise LogBusyError(
            ErrorCode.LOG_BUSY, f"{self._path} changes faster than it can be read; try again.", path=self._path
        )

    def close(self) -> None:
        """Close the connection and remove a temporary copy."""
        with self._mutex:
            self._closed = True
            self._drop()

    def _current(self) -> sqlite3.Connection:
        if self._closed:
            raise sqlite3.ProgrammingError("Cannot operate on a closed database.")
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    def _open(self) -> sqlite3.Connection:
        uri = f"file:{quote(self._path)}?mode=ro"
        signature = self._look()
        if os.path.exists(self._path + "-journal"):  # a store that is being made; WAL comes after that
            self._signature = signature
            return connect(uri)
        if _size(self._path + "-wal") <= 0:
            self._signature = signature
            return connect(f"{uri}&immutable=1")
        if os.path.exists(self._path + "-shm"):
            self._signature = None
            return connect(f"{uri}&readonly_shm=1")
        self._signature = signature
        self._copy = tempfile.TemporaryDirectory(prefix="world-log-")
        copied = os.path.join(self._copy.name, "log.db")
        shutil.copyfile(self._path, copied)
        shutil.copyfile(self._path + "-wal", copied + "-wal")
        return connect(f"file:{quote(copied)}?mode=rw")

    def _look(self) -> _Signature:
        """Return what changes with each write: identity, size and time of file and ``-wal``."""
        status = os.stat(self._path)
        return status.st_ino, status.st_size, status.st_mtime_ns, *_wal_signature(self._path + "-wal")

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._copy is not None:
            self._copy.cleanup()
        self._connection = self._copy = None


def connect(uri: str) -> _ReadConnection:
    """Open a connection for reading, usable from any thread."""
    connection = sqlite3.connect(
        uri, uri=True, timeout=_TIMEOUT_S, isolation_level=None, check_same_thread=False, factory=_ReadConnection
    )
    connection.known = {}
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA query_only=ON")
    return connection


def fetch(connection: sqlite3.Connection, sql: str, parameters: Sequence[Any]) -> list[Row]:
    """Execute a statement and return its rows; text that is no UTF-8 comes with escaped bytes instead of an
    error.

    Only a changed file holds such text, and a verification must be able to read it in order to name it.
    """
    try:
        return connection.execute(sql, parameters).fetchall()
    except sqlite3.OperationalError as error:
        if not str(error).startswith("Could not decode"):
            raise
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    try:
        return connection.execute(sql, parameters).fetchall()
    finally:
        connection.text_factory = str


def _wal_signature(path: str) -> _Signature:
    """Return what identifies the content of a ``-wal``; an absent and an empty one are alike."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return (0,)
    return (status.st_ino, status.st_size, status.st_mtime_ns) if status.st_size else (0,)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return -1
