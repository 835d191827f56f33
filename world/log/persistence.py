"""Our logs behind the storage interfaces of the ``eventsourcing`` library (9.5), so that its tools read them.

``PERSISTENCE_MODULE=world.log.persistence`` and ``WORLD_LOG=<address of a log>`` make the library's
applications, event stores, notification logs and subscriptions work on a log. What they write is subject to
the log's rules: the state must be canonical JSON (the factory's transcoder sees to that), stream versions are
checked, and every insert grows the tree.

Importing this module imports ``eventsourcing.domain``; nothing else in the engine does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast
from uuid import UUID

from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    DataError,
    InfrastructureFactory,
    IntegrityError,
    JSONTranscoder,
    Mapper,
    Notification,
    OperationalError,
    PersistenceError,
    ProcessRecorder,
    StoredEvent,
    Subscription,
    TrackingRecorder,
    Transcoder,
)
from eventsourcing.utils import Environment, EnvType, strtobool

from world.errors import RefusedError, WorldProtocolError
from world.log.following import Follower
from world.log.log import EventLog, open_log
from world.log.values import LoggedEvent, NewEvent
from world.model.canonical_json import canonical_bytes, read_json

ADDRESS_KEY: Final = "WORLD_LOG"
"""The environment variable with the log's address."""

_SCHEMA_VERSION: Final = 1  # the library keeps its class_version inside the state
_BATCH: Final = 500


class LogRecorder(ApplicationRecorder):
    """An application recorder of the library over one of our logs; positions are its notification ids."""

    def __init__(self, log: EventLog) -> None:
        """Read and write ``log``; whoever opened it closes it."""
        self.log = log

    def insert_events(self, stored_events: Sequence[StoredEvent], **_: Any) -> Sequence[int] | None:
        """Append events in one commit and return their positions.

        Raises:
            IntegrityError: a stream version is taken, or not the next one; nothing was appended.
            DataError: a state is not canonical JSON, or an event is too large or malformed.
            OperationalError: the log is busy, full, or cannot be reached.
        """
        if not stored_events:
            return []
        try:
            events = [_new_event(event) for event in stored_events]
            with self.log.write() as transaction:
                logged = transaction.append(events)
        except WorldProtocolError as error:
            raise _foreign(error) from error
        return [event.position for event in logged]

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """Return the events of a stream with versions in (gt, lte]."""
        events = self.log.stream(str(originator_id), after=gt or 0, upto=lte, limit=limit, descending=desc)
        return [StoredEvent(event.stream, event.version, event.topic, event.state) for event in events]

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """Return events in log order, from ``start`` on, up to ``stop``, at most ``limit``."""
        after = max(0, (start or 1) - 1 if inclusive_of_start or start is None else start)
        found: list[Notification] = []
        for rows in self.log.read_rows(after, stop, topics=topics or None, batch=max(1, limit)):
            found += [_notification(LoggedEvent(*row)) for row in rows]
            if len(found) >= limit:
                break
        return found[:limit]

    def max_notification_id(self) -> int | None:
        """Return the last position; None for an empty log."""
        return self.log.head().size or None

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> Subscription[ApplicationRecorder]:
        """Return an iterator over notifications after ``gt`` that waits for new ones."""
        return cast("Subscription[ApplicationRecorder]", LogSubscription(self, gt, topics))


class LogSubscription(Subscription[LogRecorder]):
    """Notifications as they are recorded, from this process or another."""

    def __init__(self, recorder: LogRecorder, gt: int | None = None, topics: Sequence[str] = ()) -> None:
        """Begin after the notification ``gt``."""
        super().__init__(recorder=recorder, gt=gt, topics=topics)
        self._follower: Follower = recorder.log.follow(gt or 0, topics=tuple(topics) or None)

    def stop(self) -> None:
        """End the iteration, also while it waits."""
        super().stop()
        self._follower.stop()

    def __next__(self) -> Notification:
        """Return the next notification, waiting for it."""
        return _notification(next(self._follower))


class CanonicalTranscoder(JSONTranscoder):
    """The library's JSON transcoder, writing canonical JSON (RFC 8785)."""

    def encode(self, obj: Any) -> bytes:
        """Return the canonical JSON of an object.

        Raises:
            RefusedError: ``NOT_CANONICAL`` when it has none.
        """
        return canonical_bytes(json.loads(super().encode(obj)))


@dataclass(frozen=True)
class RecordedEvent:
    """Any event of a log, for the library's event store, with its state as plain JSON values."""

    originator_id: str
    originator_version: int
    topic: str
    state: Any


class RecordedEventMapper(Mapper[str]):
    """Reads events of any topic without classes for them.

    To use it, set ``MAPPER_TOPIC=world.log.persistence:RecordedEventMapper``.
    """

    def to_domain_event(self, stored_event: StoredEvent) -> Any:
        """Return the stored event with its state decoded."""
        return RecordedEvent(
            str(stored_event.originator_id),
            stored_event.originator_version,
            stored_event.topic,
            json.loads(stored_event.state),
        )

    def to_stored_event(self, domain_event: Any) -> StoredEvent:
        """Return a recorded event in stored form."""
        return StoredEvent(
            domain_event.originator_id,
            domain_event.originator_version,
            domain_event.topic,
            canonical_bytes(domain_event.state),
        )


class LogFactory(InfrastructureFactory[TrackingRecorder]):
    """Makes the library's infrastructure over the log whose address is in ``WORLD_LOG``.

    ``CREATE_TABLE`` (default: yes) makes the store and the log where they are missing. Tracking and process
    recorders are not kept in a log: what follows a log keeps its own position.
    """

    def __init__(self, env: Environment | EnvType | None) -> None:
        """Read the environment; the log is opened when the first recorder is asked for.

        Raises:
            OSError: no address is given.
        """
        super().__init__(env)
        self._address = self.env.get(ADDRESS_KEY)
        self._log: EventLog | None = None
        if not self._address:
            raise OSError(f"Set {' or '.join(self.env.create_keys(ADDRESS_KEY))} to the address of a log.")

    def transcoder(self) -> Transcoder:
        """Return the transcoder that is configured, or one that writes canonical JSON."""
        return super().transcoder() if self.env.get(self.TRANSCODER_TOPIC) else CanonicalTranscoder()

    def aggregate_recorder(self, purpose: str = "events") -> AggregateRecorder:
        """Return a recorder over the log; snapshots are refused, since a log keeps what happened only."""
        if purpose == "events":
            return self.application_recorder()
        raise _unsupported("snapshot")

    def application_recorder(self) -> LogRecorder:
        """Return a recorder over the log."""
        if self._log is None:
            create = strtobool(self.env.get("CREATE_TABLE") or "yes")
            try:
                self._log = open_log(cast("str", self._address), create=bool(create))
            except WorldProtocolError as error:
                raise _foreign(error) from error
        return LogRecorder(self._log)

    def tracking_recorder(self, tracking_recorder_class: type[TrackingRecorder] | None = None) -> TrackingRecorder:
        """Refuse: a log keeps no tracking records."""
        raise _unsupported("tracking")

    def process_recorder(self) -> ProcessRecorder:
        """Refuse: a log keeps no tracking records."""
        raise _unsupported("process")

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()
            self._log = None


def _new_event(event: StoredEvent) -> NewEvent:
    try:
        canonical = canonical_bytes(read_json(event.state))
    except RefusedError as error:
        raise RefusedError("INVALID_EVENT", f"The state of {event.topic} is no canonical JSON: {error}") from None
    if canonical != event.state:
        raise RefusedError(
            "INVALID_EVENT", f"The state of {event.topic} is JSON, but not in canonical form (RFC 8785)."
        )
    return NewEvent(str(event.originator_id), event.topic, _SCHEMA_VERSION, event.state, event.originator_version)


def _notification(event: LoggedEvent) -> Notification:
    return Notification(event.stream, event.version, event.topic, event.state, event.position)


def _foreign(error: WorldProtocolError) -> PersistenceError:
    """Return the library's exception for one of ours."""
    if error.code == "STREAM_CONFLICT":
        return IntegrityError(str(error))
    if error.code in ("INVALID_EVENT", "EVENT_TOO_LARGE", "NOT_CANONICAL"):
        return DataError(str(error))
    return OperationalError(str(error))


def _unsupported(what: Literal["snapshot", "tracking", "process"]) -> NotImplementedError:
    return NotImplementedError(f"A log has no {what} records; configure another persistence module for them.")
