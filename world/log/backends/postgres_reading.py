"""Connections to a PostgreSQL server for reading."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format

from world.log.backends.postgres_hosts import FlushingConnection, PostgresHosts
from world.log.store import Row

__all__ = ["Readers"]

_READERS: Final = 8  # connections for reading; a new one takes the server more CPU time than sixty look-ups


class _EscapingLoader(Loader):
    """Reads text without conversion, so that a verification can name the event in which it is damaged."""

    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        """Return text in which bytes that are no UTF-8 are escaped."""
        return bytes(data).decode("utf-8", "surrogateescape")


class Readers:
    """Idle connections of one store, taken for one query at a time; safe to use from many threads.

    Args:
        hosts: where the connections lead.
        connect: makes another one.
    """

    def __init__(self, hosts: PostgresHosts, connect: Callable[[], FlushingConnection]) -> None:
        self._hosts = hosts
        self._connect = connect
        self._turns = threading.BoundedSemaphore(_READERS)
        self._mutex = threading.Lock()
        self._idle: list[FlushingConnection] = []
        self._is_closed = False

    def add(self, connection: FlushingConnection) -> None:
        """Take over an open connection."""
        with self._mutex:
            self._idle.append(connection)

    def query(self, sql: str, parameters: Sequence[Any]) -> list[Row]:
        """Execute one reading statement and return all rows.

        Raises:
            psycopg.Error: the statement failed, or no server answers.
            WorldProtocolError: what ``connect`` raises.
        """
        with self.taken() as (connection, is_new):
            try:
                return _fetch(connection, sql, parameters)
            except psycopg.OperationalError:
                if is_new or not connection.broken:
                    raise
        self.forget()
        with self.taken(must_connect=True) as (connection, _):
            return _fetch(connection, sql, parameters)

    @contextmanager
    def taken(self, *, must_connect: bool = False) -> Iterator[tuple[FlushingConnection, bool]]:
        """Give a connection for the block, and whether it was made just now.

        Args:
            must_connect: make one, since the idle ones may be broken.

        Raises:
            WorldProtocolError: what ``connect`` raises.
        """
        with self._turns:
            connection, is_new = (self._connect(), True) if must_connect else self._take()
            try:
                yield connection, is_new
            finally:
                self._return(connection)

    def forget(self) -> None:
        """Close the connections after one broke; the next one looks for the primary again."""
        self._hosts.broke()
        with self._mutex:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Close the connections, and those that are in use when they are returned."""
        self._is_closed = True
        self.forget()

    def _take(self) -> tuple[FlushingConnection, bool]:
        with self._mutex:
            while self._idle:
                if self._hosts.is_current(connection := self._idle.pop()):
                    return connection, False
                connection.close()
        return self._connect(), True

    def _return(self, connection: FlushingConnection) -> None:
        with self._mutex:
            if not (self._is_closed or connection.closed or connection.broken):
                self._idle.append(connection)
                return
        connection.close()


def _fetch(connection: FlushingConnection, sql: str, parameters: Sequence[Any]) -> list[Row]:
    """Return the rows; text that is no UTF-8, which only a damaged page holds, comes with escaped bytes."""
    with connection.cursor(binary=True) as cursor:
        cursor.execute(sql, parameters)
        try:
            return cursor.fetchall()
        except UnicodeDecodeError:
            cursor.adapters.register_loader("text", _EscapingLoader)
            cursor.execute(sql, parameters)
            return cursor.fetchall()
