"""State of a feed: its position, what is under way, and its last failure, in one SQLite database.

It is a tracking recorder of the ``eventsourcing`` library with a table of one row. What was delivered is stored
together with the position, in one transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from eventsourcing.persistence import Tracking
from eventsourcing.sqlite import SQLiteTrackingRecorder

__all__ = ["DeliveryFailure", "FeedProgress", "FeedState"]

_COLUMNS: Final = {
    "sent": "INTEGER NOT NULL DEFAULT 0",
    "delivered_at": "INTEGER",
    "file_bytes": "INTEGER NOT NULL DEFAULT 0",
    "under_way": "INTEGER",
    "attempts": "INTEGER NOT NULL DEFAULT 0",
    "paused": "INTEGER NOT NULL DEFAULT 0",
    "failed_at": "INTEGER",
    "code": "TEXT",
    "message": "TEXT",
}


@dataclass(frozen=True, slots=True)
class DeliveryFailure:
    """Why a message was not delivered.

    Args:
        code: such as ``HTTP_STATUS``.
        message: one sentence, without secrets.
        retry_after_s: time that the receiver asks to wait, in seconds.
        is_final: whether the receiver refuses all further messages.
    """

    code: str
    message: str
    retry_after_s: float = 0.0
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class FeedProgress:
    """What a feed has done.

    Args:
        sent: events that were delivered.
        delivered_at: time of the last delivery, ms since 1970.
        file_bytes: size of the file with all that was delivered.
        under_way: last position of the message that was begun; None where none is.
        attempts: failed attempts to deliver it.
        paused: whether nothing is sent until the feed is resumed.
        failed_at: time of the last failure, ms since 1970.
        code: of the last failure.
        message: of the last failure.
    """

    sent: int = 0
    delivered_at: int | None = None
    file_bytes: int = 0
    under_way: int | None = None
    attempts: int = 0
    paused: bool = False
    failed_at: int | None = None
    code: str | None = None
    message: str | None = None


class FeedState(SQLiteTrackingRecorder):
    """The database of one feed."""

    def construct_create_table_statements(self) -> list[str]:
        """Return the statements that make the tables where they are missing."""
        columns = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
        return [
            *super().construct_create_table_statements(),
            f"CREATE TABLE IF NOT EXISTS feed (id INTEGER PRIMARY KEY CHECK (id = 1), {columns})",
            "INSERT OR IGNORE INTO feed (id) VALUES (1)",
        ]

    def progress(self) -> FeedProgress:
        """Return what the feed has done."""
        with self.datastore.transaction(commit=False) as cursor:
            cursor.execute(f"SELECT {', '.join(_COLUMNS)} FROM feed")
            row = dict(cursor.fetchone())
        return FeedProgress(**{**row, "paused": bool(row["paused"])})

    def begin(self, last: int) -> None:
        """Store the last position of a message before it is sent, so that a repetition has the same events."""
        self._set({"under_way": last})

    def deliver(self, tracking: Tracking, events: int, now_ms: int, file_bytes: int) -> None:
        """Store that a message was delivered, and the position.

        Args:
            tracking: the position.
            events: events of the message.
            now_ms: the time.
            file_bytes: size of the file with it.

        Raises:
            IntegrityError: of the library; another process of this feed has stored the position.
        """
        with self.datastore.transaction(commit=True) as cursor:
            self._insert_tracking(cursor, tracking)
            cursor.execute(
                "UPDATE feed SET sent = sent + ?, delivered_at = ?, file_bytes = ?, under_way = NULL, attempts = 0",
                (events, now_ms, file_bytes),
            )

    def fail(self, failure: DeliveryFailure, attempts: int, now_ms: int, *, pauses: bool) -> None:
        """Store a failure.

        Args:
            failure: it.
            attempts: failed attempts to deliver the message, this one too.
            now_ms: the time.
            pauses: whether nothing is sent until the feed is resumed.
        """
        told = {"failed_at": now_ms, "code": failure.code, "message": failure.message}
        self._set({**told, "attempts": attempts, "paused": int(pauses)})

    def resume(self) -> None:
        """Let a paused feed continue, with a new count of attempts."""
        self._set({"paused": 0, "attempts": 0})

    def _set(self, values: dict[str, Any]) -> None:
        with self.datastore.transaction(commit=True) as cursor:
            cursor.execute(f"UPDATE feed SET {', '.join(f'{name} = ?' for name in values)}", tuple(values.values()))
