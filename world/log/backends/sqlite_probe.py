"""Whether a SQLite file can be written now, found out without a commit.

A write is tried in a connection of its own: it takes the lock of writers, changes so many pages that SQLite has to put
them into the ``-wal`` although nothing is committed (its cache holds ``CACHED_PAGES``), and rolls back. So a full disk,
a quota, a limit on the size of files and a disk that fails show as they would show to a commit, and nothing is changed:
what was written is behind the end of the ``-wal``, where the next commit or probe writes too.

A process that reads only changes no byte. It asks the kernel who holds the lock, and tries the disk by a file without a
name beside the log.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from urllib.parse import quote

from world.log.backends.sqlite_locks import LockHolder, lock_holder
from world.log.backends.sqlite_reading import patiently

__all__ = ["ROOM_BYTES", "holder_in_the_way", "try_disk", "try_write"]

ROOM_BYTES: Final = 256 << 10
"""Room that a log must have to count as writable, in bytes: more than an ordinary commit needs."""

CACHED_PAGES: Final = 8
"""Changed pages that SQLite keeps; others are written at once."""

LOOK_AGAIN_S: Final = 0.02
"""Time between two looks at the holder of a lock, in seconds."""

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_UNKNOWN: Final = (errno.EACCES, errno.EPERM)  # of this user, who may not be the one that writes the log


def try_write(path: str, log_id: int, timeout_s: float) -> None:
    """Take the lock of writers and write into a transaction that is rolled back.

    Args:
        path: the file.
        log_id: the log.
        timeout_s: how long to wait for the lock, in seconds.

    Raises:
        sqlite3.Error: as SQLite says.
    """
    uri = f"file:{quote(os.path.abspath(path))}?mode=rw"  # a file that is gone is not made
    connection = sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None)
    try:
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA wal_autocheckpoint=0").fetchall()
        patiently(connection, f"PRAGMA cache_size={CACHED_PAGES}", timeout_s)  # reads the schema
        patiently(connection, "BEGIN IMMEDIATE", timeout_s)
        try:  # the name is in the table and in its index
            connection.execute("UPDATE wp_log SET name = name || ? WHERE id = ?", ("-" * (ROOM_BYTES // 2), log_id))
        finally:
            with suppress(sqlite3.Error):  # SQLite rolls back by itself after grave errors
                connection.execute("ROLLBACK")
    finally:
        connection.close()


def holder_in_the_way(path: str, size: Callable[[], int], timeout_s: float) -> LockHolder | None:
    """Return the process that holds the lock of writers for the whole of a time, in which nothing is committed.

    Args:
        path: the file.
        size: returns the number of events of the log.
        timeout_s: the time, in seconds.
    """
    holder, before = lock_holder(path), size()
    end = time.monotonic() + timeout_s
    while holder is not None and time.monotonic() < end:
        time.sleep(LOOK_AGAIN_S)
        now = lock_holder(path)
        if now is None or now.pid != holder.pid or size() != before:
            return None
        holder = now
    return holder


def try_disk(path: str) -> bool:
    """Return whether ``ROOM_BYTES`` can be written beside a file; True where this user may not try it.

    Raises:
        OSError: the file system fails, or is read-only.
    """
    try:
        with tempfile.TemporaryFile(dir=os.path.dirname(os.path.abspath(path)), buffering=0) as file:
            file.write(os.urandom(ROOM_BYTES))  # a file system that compresses gains nothing
            os.fsync(file.fileno())
    except OSError as error:
        if error.errno in _UNKNOWN:
            return True
        if error.errno in _NO_ROOM:
            return False
        raise
    return True
