"""The reading half of the recorder interface: a log's streams and notifications as the library's values.

Positions in the log are the library's notification ids. Failures of the storage are raised as the library's
``OperationalError``, with the engine's exception as its cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, cast
from uuid import UUID

from eventsourcing.persistence import (
    ApplicationRecorder,
    Notification,
    OperationalError,
    PersistenceError,
    StoredEvent,
    Subscription,
)

from world.errors import RefusedError, WorldProtocolError
from world.log.following import Follower
from world.log.reading import LogReader
from world.log.values import InvalidEventError, LoggedEvent, NewEvent
from world.model.canonical_json import canonical_bytes, read_json

_SCHEMA_VERSION: Final = 1  # the library keeps its class_version inside the state


@dataclass(frozen=True)
class LogNotification(Notification):
    """The library's notification of a logged event, with what a log stores besides."""

    schema_version: int
    """Version of the schema of the state, from 1."""
    leaf: bytes
    """The leaf hash, 32 bytes."""


class NotificationReader(LogReader, ApplicationRecorder):
    """An open log with the reading methods of the library's ``ApplicationRecorder``."""

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[LogNotification]:
        """Return the events of a stream in order of version, each with its position and its leaf hash.

        Args:
            originator_id: the stream; a UUID names the stream with its text.
            gt: version before the first event.
            lte: last version; None is the newest.
            desc: newest first.
            limit: most events to return; None returns all.

        Raises:
            OperationalError: the log cannot be read.
        """
        with persistence_errors():
            events = self.stream(str(originator_id), after=gt or 0, upto=lte, limit=limit, descending=desc)
        return [notification(event) for event in events]

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[LogNotification]:
        """Return events in the order of the log.

        Args:
            start: first position, or the position before it; None is the beginning.
            limit: most events to return.
            stop: last position; None is the newest.
            topics: only events with one of these topics; empty is all.
            inclusive_of_start: whether the event at ``start`` is returned.

        Raises:
            OperationalError: the log cannot be read.
        """
        after = max(0, (start or 1) - 1 if inclusive_of_start or start is None else start)
        found: list[LogNotification] = []
        with persistence_errors():
            for rows in self.read_rows(after, stop, topics=topics or None, batch=max(1, limit)):
                found += [notification(LoggedEvent(*row)) for row in rows]
                if len(found) >= limit:
                    break
        return found[:limit]

    def max_notification_id(self) -> int | None:
        """Return the last position; None for an empty log.

        Raises:
            OperationalError: the log cannot be read.
        """
        with persistence_errors():
            return self.head().size or None

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> Subscription[ApplicationRecorder]:
        """Return an iterator over notifications that waits for new ones, of this process and of others.

        Args:
            gt: position before the first event; None is the beginning.
            topics: only events with one of these topics; empty is all.
        """
        return cast("Subscription[ApplicationRecorder]", LogSubscription(self, gt, topics))


class LogSubscription(Subscription[NotificationReader]):
    """Notifications as they are recorded, from this process or another."""

    def __init__(self, recorder: NotificationReader, gt: int | None = None, topics: Sequence[str] = ()) -> None:
        """Begin after the notification ``gt``."""
        super().__init__(recorder=recorder, gt=gt, topics=topics)
        self._follower: Follower = recorder.follow(gt or 0, topics=tuple(topics) or None)

    def stop(self) -> None:
        """End the iteration, also while it waits."""
        super().stop()
        self._follower.stop()

    def __next__(self) -> LogNotification:
        """Return the next notification, waiting for it.

        Raises:
            StopIteration: after ``stop``.
            OperationalError: the log was closed, or cannot be read.
        """
        with persistence_errors():
            return notification(next(self._follower))


@contextmanager
def persistence_errors() -> Iterator[None]:
    """Raise the library's ``OperationalError`` from an error of the engine that is no exception of the library."""
    try:
        yield
    except PersistenceError:
        raise
    except WorldProtocolError as error:
        raise OperationalError(str(error)) from error


def notification(event: LoggedEvent) -> LogNotification:
    """Return a logged event as a notification."""
    return LogNotification(
        event.stream, event.version, event.topic, event.state, event.position, event.schema_version, event.leaf
    )


def new_event(event: StoredEvent) -> NewEvent:
    """Return a stored event of the library as an event to append, with schema version 1.

    Raises:
        InvalidEventError: ``INVALID_EVENT`` when its state is not canonical JSON (RFC 8785).
    """
    try:
        canonical = canonical_bytes(read_json(event.state))
    except RefusedError as error:
        raise InvalidEventError(
            "INVALID_EVENT", f"The state of {event.topic} is not canonical JSON: {error} Encode it as RFC 8785 says."
        ) from None
    if canonical != event.state:
        raise InvalidEventError(
            "INVALID_EVENT", f"The state of {event.topic} is JSON, but not in canonical form (RFC 8785)."
        )
    if event.originator_version < 1:
        raise InvalidEventError(
            "INVALID_EVENT",
            f"The version {event.originator_version} of the stream {event.originator_id} is below 1; versions begin at "
            "1.",
        )
    return NewEvent(str(event.originator_id), event.topic, _SCHEMA_VERSION, event.state, event.originator_version)
