"""The persistence module by which applications of the ``eventsourcing`` library (9.5) find a log.

``PERSISTENCE_MODULE=world.log.persistence`` and ``WORLD_LOG=<address of a log>`` make the library's applications, event
stores, notification logs and subscriptions use a log as their recorder: ``EventLog`` implements the interface itself.
What they write is subject to the log's rules: the state must be canonical JSON (which the factory's transcoder writes),
stream versions begin at 1 and have no gaps, and every insert extends the tree.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from eventsourcing.persistence import (
    AggregateRecorder,
    InfrastructureFactory,
    JSONTranscoder,
    Mapper,
    ProcessRecorder,
    StoredEvent,
    TrackingRecorder,
    Transcoder,
)
from eventsourcing.utils import Environment, EnvType, strtobool

from world.log.log import EventLog, open_log
from world.log.recorder import persistence_errors
from world.model.canonical_json import canonical_bytes

ADDRESS_KEY: Final = "WORLD_LOG"
"""The environment variable with the log's address."""

READ_ONLY_KEY: Final = "WORLD_LOG_READ_ONLY"
"""The environment variable that opens the log read-only."""


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
    """Factory of the library's infrastructure over the log whose address is in ``WORLD_LOG``.

    ``CREATE_TABLE`` (default: yes) creates the store and the log where they are missing; ``WORLD_LOG_READ_ONLY``
    (default: no) opens the log without changing a byte, and creates nothing. A log stores no tracking
    records: a consumer of its events stores its own position, beside what it made of the events.
    """

    def __init__(self, env: Environment | EnvType | None) -> None:
        """Read the environment; the log is opened when the first recorder is requested.

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
        """Return the log as a recorder of events.

        Raises:
            NotImplementedError: for snapshots, which a log does not store.
            OperationalError: the log cannot be opened.
        """
        if purpose == "events":
            return self.application_recorder()
        raise _unsupported("snapshot")

    def application_recorder(self) -> EventLog:
        """Return the log, which is opened with the first call.

        Raises:
            OperationalError: the log cannot be opened.
        """
        if self._log is None:
            read_only = bool(strtobool(self.env.get(READ_ONLY_KEY) or "no"))
            create = not read_only and bool(strtobool(self.env.get("CREATE_TABLE") or "yes"))
            with persistence_errors():
                self._log = open_log(cast("str", self._address), create=create, read_only=read_only)
        return self._log

    def tracking_recorder(self, tracking_recorder_class: type[TrackingRecorder] | None = None) -> TrackingRecorder:
        """Refuse: a log stores no tracking records."""
        raise _unsupported("tracking")

    def process_recorder(self) -> ProcessRecorder:
        """Refuse: a log stores no tracking records."""
        raise _unsupported("process")

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()
            self._log = None


def _unsupported(what: Literal["snapshot", "tracking", "process"]) -> NotImplementedError:
    return NotImplementedError(f"A log has no {what} records; configure another persistence module for them.")
