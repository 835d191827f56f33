"""Checkpoints of the WAL under a version of SQLite with the WAL-reset fault.

Before 3.51.3, 3.50.7 and 3.44.6, a commit of one connection that begins the WAL anew during a checkpoint of another one
can have later checkpoints leave out committed pages. Here SQLite makes no checkpoint by itself, and ours are made while
a second connection holds the lock of writers: meanwhile nothing commits, and no process makes another checkpoint.

Source: https://sqlite.org/wal.html#walresetbug.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import Final

__all__ = ["GuardedCheckpoints", "has_wal_reset_fault"]

_FIXED: Final = ((3, 44, 6), (3, 50, 7), (3, 51, 3))
"""First version of a release line without the fault; later lines have none, earlier ones all of it."""

WAL_BYTES: Final = 1_000 * 4_096
"""Size of a WAL from which on there are checkpoints, about that of SQLite's own limit."""

COMMITS: Final = 50
"""Commits of this process between two checkpoints of a WAL of that size, whose file keeps its size."""


def has_wal_reset_fault(version: tuple[int, int, int] = sqlite3.sqlite_version_info) -> bool:
    """Return whether a version of SQLite has the fault; that of this process by default."""
    is_fixed = any(one <= version < (*one[:2], 1_000) for one in _FIXED)
    return version < _FIXED[-1] and not is_fixed


class GuardedCheckpoints:
    """The checkpoints of one connection for writing.

    Args:
        path: the file.
        connect: opens another connection to it.
    """

    def __init__(self, path: str, connect: Callable[[], sqlite3.Connection]) -> None:
        self._wal = f"{path}-wal"
        self._connect = connect
        self._guard: sqlite3.Connection | None = None
        self._commits = COMMITS  # the file may be large already

    @staticmethod
    def take_over(writer: sqlite3.Connection) -> None:
        """Have a connection make no checkpoint by itself."""
        writer.execute("PRAGMA wal_autocheckpoint=0").fetchall()

    def follow_commit(self, writer: sqlite3.Connection, check_place: Callable[[], None]) -> None:
        """Make a checkpoint where one is due and no other connection writes; a later commit repeats what was not made.

        Args:
            writer: the connection that has committed.
            check_place: raises where the path leads to another file by now.
        """
        self._commits += 1
        if self._commits <= COMMITS or not self._is_large():
            return
        with suppress(sqlite3.Error):
            if self._guard is None:
                self._guard = self._connect()
            self._guard.execute("BEGIN IMMEDIATE")
            try:
                check_place()
                writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                self._commits = 0
            finally:
                self._guard.execute("ROLLBACK")

    def close(self) -> None:
        """Close the second connection."""
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.close()

    def _is_large(self) -> bool:
        try:
            return os.stat(self._wal).st_size >= WAL_BYTES
        except OSError:
            return False
