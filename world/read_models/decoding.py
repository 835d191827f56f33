"""Decoding of stored events for read models."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import orjson

from world.errors import DamagedLogError
from world.events.base import Event
from world.events.codec import decode_event
from world.log import LoggedEvent, is_intact

__all__ = ["decoded", "known", "state_of"]

KEPT_EVENTS: Final = 1_024
"""Payloads of events kept in memory, those of small states that were asked for last."""
SMALL_STATE: Final = 4_096
"""Bytes of a state up to which its payload is kept."""


def known(logged: LoggedEvent) -> Event:
    """Return the payload of a logged event for a fold, which changes nothing of it and may share it with others.

    One process folds each event several times: into the realm that commands run on, and into the one that is looked at.

    Raises:
        DamagedLogError: as ``decoded``.
    """
    is_small = type(logged.state) is bytes and len(logged.state) <= SMALL_STATE
    return _known(logged) if is_small else decoded(logged)


@lru_cache(maxsize=KEPT_EVENTS)
def _known(logged: LoggedEvent) -> Event:
    return decoded(logged)  # whatever of a row is another, its leaf hash too, makes it another key


def decoded(logged: LoggedEvent) -> Event:
    """Return the payload of a logged event.

    Raises:
        DamagedLogError: ``EVENT_CHANGED`` where content and leaf hash disagree, and as ``decode_event``.
    """
    _require_intact(logged)
    return decode_event(logged.topic, logged.schema_version, logged.state, logged.position)


def state_of(logged: LoggedEvent) -> Any:
    """Return the state of a logged event as JSON, whatever its topic.

    Raises:
        DamagedLogError: ``EVENT_CHANGED`` where content and leaf hash disagree, ``BAD_EVENT`` where it is no JSON.
    """
    _require_intact(logged)
    try:
        return orjson.loads(logged.state)
    except ValueError:
        raise DamagedLogError(
            "BAD_EVENT", f"Event {logged.position} holds no JSON; run `worldctl verify`.", position=logged.position
        ) from None


def _require_intact(logged: LoggedEvent) -> None:
    if not is_intact(logged):
        raise DamagedLogError(
            "EVENT_CHANGED",
            f"Event {logged.position} is not what was logged: its content and its leaf hash disagree. Run "
            "`worldctl verify`, and restore the log from a copy.",
            position=logged.position,
        )
