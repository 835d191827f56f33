"""Whether a log on a PostgreSQL server can be written now, found out without an event.

In a connection of its own, the log's lock is taken and given back in one statement, and the rights of the role are
looked at. Then a record that changes nothing is committed, without the log's lock: that commit waits for the disk, and
for standbys where commits wait for them.
"""

from __future__ import annotations

import time
from typing import Final

from psycopg import errors

from world.error_codes import ErrorCode
from world.errors import LogBusyError, RefusedError, WorldProtocolError
from world.log.backends.postgres_hosts import FlushingConnection
from world.log.backends.postgres_lock import LOCK_SPACE, TAKE, LockingBackend, find_backend
from world.log.values import ServerPlace

__all__ = ["WRITE_NOTHING", "probe_server"]

WRITE_NOTHING: Final = "SELECT pg_logical_emit_message(true, 'worldprotocol', '')"
"""A record in the write-ahead log that changes nothing, so that the commit waits for standbys."""

_MAY_APPEND: Final = "SELECT has_table_privilege('wp_event', 'INSERT')"


def probe_server(
    connection: FlushingConnection, log_id: int, where: str, timeout_s: float, *, is_reading: bool
) -> ServerPlace | None:
    """Find out whether the log can be written; return the place of the server.

    Args:
        connection: of its own; the caller closes it.
        log_id: the log.
        where: address of the server, for people.
        timeout_s: how long to wait for the lock, and then for the commit, in seconds.
        is_reading: the role may be one that only reads, and nothing is committed.

    Raises:
        psycopg.Error: the server does not answer, is a standby, or has no room.
        LogBusyError: ``LOG_BUSY``, with the backend that holds the lock.
        RefusedError: ``LOG_READ_ONLY``: the role may not append.
        WorldProtocolError: ``LOG_UNAVAILABLE``: no standby confirms the commit.
    """
    connection.execute("BEGIN READ WRITE; ROLLBACK")
    connection.execute(f"SET lock_timeout = {max(1, round(timeout_s * 1000))}".encode())
    try:
        connection.execute(
            TAKE.sql, (LOCK_SPACE, log_id)
        )  # in autocommit: a process that is stopped here holds nothing
    except errors.LockNotAvailable:
        raise _held(find_backend(connection, log_id), where) from None
    may_append = is_reading or (connection.execute(_MAY_APPEND).fetchone() or (False,))[0]
    if not may_append:
        message = f"The role of {where} lacks the right to append events. Grant it, or use another role."
        raise RefusedError(ErrorCode.LOG_READ_ONLY, message, store=where)
    if not is_reading:
        _commit_nothing(connection, where, timeout_s)
    return connection.host.place


def _commit_nothing(connection: FlushingConnection, where: str, timeout_s: float) -> None:
    """Commit a record that changes nothing."""
    connection.answers_until = time.monotonic() + timeout_s
    try:
        connection.execute(WRITE_NOTHING)  # in autocommit
    except TimeoutError:
        waits_for = "standbys" if connection.host.waits_for_standbys else "the disk"
        raise WorldProtocolError(
            ErrorCode.LOG_UNAVAILABLE,
            f"A commit on {where} waits for {waits_for}, {timeout_s:g} s so far.",
            store=where,
        ) from None
    finally:
        connection.answers_until = None


def _held(holder: LockingBackend | None, where: str) -> LogBusyError:
    if holder is None:
        return LogBusyError(ErrorCode.LOG_BUSY, f"Other writers keep the log on {where} locked.", store=where)
    known = {} if holder.held_ms is None else {"held_ms": holder.held_ms}
    return LogBusyError(
        ErrorCode.LOG_BUSY,
        f"Backend {holder.pid} (client {holder.client}) keeps the log on {where} locked.",
        store=where,
        pid=holder.pid,
        client=holder.client,
        **known,
    )
