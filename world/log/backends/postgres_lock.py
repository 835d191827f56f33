"""The lock of a log on PostgreSQL: a unit of work that holds it is named, and a waiter ends it after its time.

A process that is stopped while it holds the lock (SIGSTOP, a paused container or machine) would stop all writers of the
log for as long. A unit of work is one transaction, so it can be ended from outside: the server rolls it back and
releases the lock, and the process learns it at its next statement. So a unit names itself in ``application_name`` in
the statement that takes the lock, with the log and the time by the server's clock, until its transaction ends. A waiter
ends the backend of a unit that has held the lock for ``MAX_HOLD_MS``, where the unit has its own role, and where the
server waits for the unit's process. A backend that works is not ended, and least of all one that waits for standbys:
its commit is stored, and an end would show it before a standby has it.

Whatever else holds the lock (a migration, a cut, an import, a view that is made again) names no unit, and is never
ended.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from msgspec import Struct
from psycopg import Connection

from world.log.sql.statement import SqlStatement
from world.log.store import MAX_HOLD_MS

__all__ = ["LOCK_SPACE", "TAKE", "TAKE_AS_UNIT", "LockingBackend", "end_overdue", "find_backend"]

LOCK_SPACE: Final = 0x57504C47  # "WPLG", the first half of our advisory lock keys; logs have their ids as second half

_NAME: Final = "worldprotocol unit"

_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000)::BIGINT"

TAKE: Final = SqlStatement("SELECT pg_advisory_xact_lock(%s::INTEGER, %s::INTEGER)", ("space", "key"), {})
"""Takes the lock."""

TAKE_AS_UNIT: Final = SqlStatement(
    "SELECT pg_advisory_xact_lock(%s::INTEGER, %s::INTEGER), "
    f"set_config('application_name', '{_NAME} ' || %s::INTEGER || ' ' || {_NOW}, true)",
    ("space", "key", "key"),
    {},
)
"""Takes the lock and names the unit that has it; the columns are computed in order, so it is named afterwards."""

_FIND: Final = f"""
SELECT pid, client, held, CASE WHEN held >= %s AND may_be_ended THEN pg_terminate_backend(pid) ELSE false END
FROM (SELECT a.pid, coalesce(host(a.client_addr), 'a socket') AS client,
    {_NOW} - substring(a.application_name FROM '^{_NAME} ' || %s::INTEGER || ' ([0-9]{{1,15}})$')::BIGINT AS held,
    a.usename = session_user AND a.wait_event_type = 'Client' AS may_be_ended
  FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
  WHERE l.locktype = 'advisory' AND l.granted AND l.classid = %s AND l.objid = %s AND l.objsubid = 2
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) OFFSET 0) AS holder"""
"""Finds the backend that holds the lock of a log, and ends a unit that has held it for so many ms; NULL ends none."""

_LOGGER: Final = logging.getLogger("worldprotocol")


class LockingBackend(Struct, frozen=True):
    """A backend that holds the lock of a log.

    Args:
        pid: its process id on the server.
        client: address of its process; ``a socket`` on the server's machine.
        held_ms: how long it has held the lock, in milliseconds; None where it is no unit of work.
        is_ended: whether it was ended now.
    """

    pid: int
    client: str
    held_ms: int | None
    is_ended: bool


def find_backend(connection: Connection[Any], log_id: int, end_after_ms: int | None = None) -> LockingBackend | None:
    """Return the backend that holds the lock of a log; None where none does.

    Args:
        connection: another one than that which waits for the lock.
        log_id: the log.
        end_after_ms: time after which a unit of this role, which the server waits for, is ended; None ends none.

    Raises:
        psycopg.Error: the server did not answer.
    """
    row = connection.execute(_FIND, (end_after_ms, log_id, LOCK_SPACE, log_id)).fetchone()
    return None if row is None else LockingBackend(*row)


def end_overdue(connection: Connection[Any], log_id: int, where: str) -> LockingBackend | None:
    """End the unit of work that has held the lock of a log for longer than ``MAX_HOLD_MS``.

    Args:
        connection: another one than that which waits for the lock.
        log_id: the log.
        where: address of the server, for people.

    Returns:
        The backend that holds the lock, ended or not; None where none does.

    Raises:
        psycopg.Error: the server did not answer.
    """
    found = find_backend(connection, log_id, MAX_HOLD_MS)
    if found is not None and found.is_ended:
        _LOGGER.warning(
            "Ended the unit of work of backend %d on %s (client %s): it had held the lock of log %d for %d ms. Its "
            "process is stopped, or does too much at once; it repeats the unit when it continues.",
            *(found.pid, where, found.client, log_id, found.held_ms),
        )
    return found
