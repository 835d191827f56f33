"""Shared store in memory with injected faults.

It is the engine's own SQLite store, so every statement is the real one; what it does not need is a file. A worker that
crashes loses its objects and opens the log again in this store, as a process would open a file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from world.error_codes import ErrorCode
from world.errors import LogBusyError, UnitEndedError, WorldProtocolError
from world.log.backends.sqlite import SqliteStore
from world.log.store import MAX_HOLD_MS, Batch, LockedQuery, Opening
from world.log.url import MEMORY

__all__ = ["FAULTS", "KilledError", "SimulatedStore"]


class KilledError(BaseException):
    """The process that was running is no more; nothing in it may catch this."""


def _disk_fails() -> Exception:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
    return error


def _disk_is_full() -> Exception:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    return error


def _lost() -> Exception:
    return WorldProtocolError(ErrorCode.COMMIT_UNKNOWN, "The acknowledgement of the commit was lost.")


_BEFORE: Final[Mapping[str, Callable[[], BaseException]]] = {
    "io": _disk_fails,
    "full": _disk_is_full,
    "killed_before": lambda: KilledError("before a commit"),
    "not_committed": _lost,
}
_AFTER: Final[Mapping[str, Callable[[], BaseException]]] = {
    "committed": _lost,
    "killed_after": lambda: KilledError("after a commit"),
}
_STOPPED: Final = {"stopped": None, "stopped_twice": "stopped"}
"""Faults by which a process is stopped while it holds the lock, each with the fault of the next commit."""

FAULTS: Final = ("busy", *_BEFORE, *_AFTER, *_STOPPED)
"""What can fail once: another process keeps the lock, the disk fails or is full, the process dies before or after the
commit, the acknowledgement is lost, whether the commit was made or not, and the process is stopped before the commit,
so that another one ends its unit, as on a server; once, or a second time when it repeats the unit."""


class SimulatedStore(SqliteStore):
    """SQLite in memory, with at most one injected fault at the next commit of events.

    ``meanwhile`` is what others do while the process that commits is stopped.
    """

    def __init__(self) -> None:
        """Begin without any table."""
        super().__init__(MEMORY, read_only=False, create=True, durability="normal", busy_timeout_ms=0)
        self.fault: str | None = None
        self.meanwhile: Callable[[], None] = lambda: None

    def begin(
        self, log_id: int, known: int, questions: Sequence[LockedQuery] = (), *, is_unit: bool = False
    ) -> Opening:
        """See ``Store.begin``."""
        if self.fault == "busy":
            self.fault = None
            raise LogBusyError(ErrorCode.LOG_BUSY, "Another writer keeps the log locked; try again.")
        return super().begin(log_id, known, questions, is_unit=is_unit)

    def commit(self, batch: Batch | None) -> None:
        """See ``Store.commit``."""
        fault = ""
        if batch is not None:
            fault, self.fault = self.fault or "", None
        if fault in _BEFORE:
            raise _BEFORE[fault]()
        if fault in _STOPPED:
            self._abandon()
            self.meanwhile()
            self.fault = _STOPPED[fault]
            message = "Another writer ended the unit of work while its process was stopped. Nothing of it was recorded."
            raise UnitEndedError(ErrorCode.LOG_UNAVAILABLE, message, limit_ms=MAX_HOLD_MS)
        super().commit(batch)
        if fault in _AFTER:
            raise _AFTER[fault]()

    def _notice_others(self, writer: sqlite3.Connection) -> None:
        """There are none: a database in memory has one connection."""

    @property
    def changes(self) -> int:
        """How many rows were ever written, those included that were taken back."""
        return self._own().total_changes

    def close(self) -> None:
        """Stay open: a worker that ends takes nothing with it."""

    def end_all(self) -> None:
        """Close the database."""
        super().close()

    def image(self) -> list[tuple[Any, ...]]:
        """Return the rows of all events, as they are stored."""
        return self.query("SELECT * FROM wp_event ORDER BY id", ())
