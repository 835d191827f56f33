"""Decoding of stored events for read models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

import orjson

from world.error_codes import ErrorCode
from world.errors import DamagedLogError
from world.events.base import REALM_STREAM, Event
from world.events.codec import decode_event
from world.events.realm_events import LogFounded
from world.log import EventLog, LoggedEvent, is_intact
from world.log.store import Row
from world.log.values import NO_EVENT, event_leaf

__all__ = ["decoded", "decoded_rows", "known", "log_id_of", "registry_events", "state_of"]

KEPT_EVENTS: Final = 1_024
"""Number of recently used payloads in the cache, which holds only small ones."""
SMALL_STATE: Final = 4_096
"""Maximum size of a state whose payload is cached, in bytes."""


def registry_events(log: EventLog, *kinds: type[Event], upto: int | None = None) -> Iterator[LoggedEvent]:
    """Yield the events of some types of the registry, in the order of the log.

    They are read from the stream of the registry, so that the cost does not grow with the rest of the log.

    Args:
        log: the log.
        kinds: types of events of ``world.events.base.REALM_STREAM``.
        upto: position of the last event; None is the newest.
    """
    topics = {kind.TOPIC for kind in kinds}
    return (logged for logged in log.read(upto=upto, stream=REALM_STREAM) if logged.topic in topics)


def known(logged: LoggedEvent) -> Event:
    """Return the payload of a logged event for a fold, possibly a shared object that must not be modified.

    One process folds each event several times: into the realm of the commands and into that of the readers.

    Raises:
        DamagedLogError: as ``decoded``.
    """
    is_small = type(logged.state) is bytes and len(logged.state) <= SMALL_STATE
    return _known(logged) if is_small else decoded(logged)


@lru_cache(maxsize=KEPT_EVENTS)
def _known(logged: LoggedEvent) -> Event:
    return decoded(logged)  # all columns of a row, including its leaf hash, are part of the cache key


def decoded(logged: LoggedEvent) -> Event:
    """Return the payload of a logged event.

    Raises:
        DamagedLogError: ``EVENT_CHANGED`` where content and leaf hash differ, and as ``decode_event``.
    """
    _require_intact(logged)
    return decode_event(logged.topic, logged.schema_version, logged.state, logged.position)


def decoded_rows(rows: Iterable[Row]) -> Iterator[tuple[int, Event]]:
    """Yield position and payload of the rows of ``EventLog.read_rows``, for a pass over many events.

    Raises:
        DamagedLogError: as ``decoded``.
    """
    for position, stream, version, topic, schema_version, state, leaf in rows:
        try:
            is_sound = event_leaf(stream, version, topic, schema_version, state) == leaf
        except NO_EVENT:
            is_sound = False
        if not is_sound:
            raise _changed(position)
        yield position, decode_event(topic, schema_version, state, position)


def log_id_of(log: EventLog) -> str | None:
    """Return the id that the founding of a log recorded; None where the log does not begin with a founding.

    Raises:
        RefusedError: ``NO_SUCH_EVENT`` for an empty log.
        DamagedLogError: as ``decoded``.
    """
    first = decoded(log.event_at(1))
    return first.log_id if isinstance(first, LogFounded) else None


def state_of(logged: LoggedEvent) -> Any:
    """Return the state of a logged event of any topic as JSON.

    Raises:
        DamagedLogError: ``EVENT_CHANGED`` where content and leaf hash differ, ``BAD_EVENT`` where it is not JSON.
    """
    _require_intact(logged)
    try:
        return orjson.loads(logged.state)
    except ValueError:
        raise DamagedLogError(
            ErrorCode.BAD_EVENT,
            f"Event {logged.position} is not JSON; run `worldctl verify`.",
            position=logged.position,
        ) from None


def _require_intact(logged: LoggedEvent) -> None:
    if not is_intact(logged):
        raise _changed(logged.position)


def _changed(position: int) -> DamagedLogError:
    return DamagedLogError(
        ErrorCode.EVENT_CHANGED,
        f"Event {position} is not what was logged: its content and its leaf hash differ. Run "
        "`worldctl verify`, and restore the log from a copy.",
        position=position,
    )
