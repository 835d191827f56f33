"""Messages of a feed: the next events after a position that the feed selects, in the form in which it sends them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

import orjson

from worldprotocol.api.bootstrap import EventLog, LoggedEvent
from worldprotocol.api.remote.event_forms import logged_form
from worldprotocol.api.sections.feeds import FeedConfig
from worldprotocol.export.cloud_events import BATCH_TYPE, CloudEvents
from worldprotocol.export.ocsf import ApiActivities
from worldprotocol.export.redaction import Redaction

__all__ = ["FeedMessage", "MessageSource"]

MAX_SCANNED: Final = 1_000
"""Events that are searched for one message; after them the position is stored, also where the feed selects none."""

FETCHED: Final = 64
"""Events that are read at once, at least, where a feed sends some of them only."""

MAX_MESSAGE_BYTES: Final = 1_000_000
"""Size from which a message takes no further event, in bytes."""

_TYPES: Final = {"cloudevents": ("application/cloudevents+json", BATCH_TYPE)}
_JSON: Final = ("application/json", "application/json")

_Form = Callable[[LoggedEvent, bool], dict[str, Any] | None]


@dataclass(frozen=True, slots=True)
class FeedMessage:
    """Events that are delivered together; those of a message may be none.

    Args:
        last: position up to which the log was searched.
        positions: of the events, in order.
        lines: the JSON of each event.
        media_type: of the body.
        is_batch: whether the body is a list.
    """

    last: int
    positions: tuple[int, ...]
    lines: tuple[bytes, ...]
    media_type: str
    is_batch: bool

    @property
    def body(self) -> bytes:
        """The event, or the list of events, as JSON."""
        return b"[" + b",".join(self.lines) + b"]" if self.is_batch else self.lines[0]

    def id_in(self, feed: str, log_id: str) -> str:
        """Return the id of the message; whenever it is sent, it is the same.

        Args:
            feed: name of the feed.
            log_id: id of the log.
        """
        first, last = self.positions[0], self.positions[-1]
        return f"{feed}-{log_id}-{first}" + (f"-{last}" if self.is_batch else "")


class MessageSource:
    """The messages of one feed.

    Args:
        log: the log.
        config: selects events and their form.
        redaction: what is hidden; it has learned the names in the log.
    """

    def __init__(self, log: EventLog, config: FeedConfig, redaction: Redaction) -> None:
        self._log = log
        self._config = config
        self._redaction = redaction
        self._form = self._form_of(config.format)
        selects = config.events is not None or config.format == "ocsf"
        self._fetched = max(config.most_events, FETCHED if selects else 1)

    def after(self, position: int, upto: int | None = None) -> FeedMessage:
        """Return the message after a position.

        Args:
            position: of the last event of the message before it.
            upto: last position of a message that was begun; it is made of the same events again.

        Raises:
            DamagedLogError: ``EVENT_CHANGED``, ``LOG_GAP`` and others of reading the log.
        """
        last, size = position, 0
        found: list[tuple[int, bytes]] = []
        for event in self._log.read(position, upto, batch=self._fetched):
            form = self._selected(event)
            last = event.position
            if form is not None:
                found.append((event.position, orjson.dumps(form)))
                size += len(found[-1][1])
            is_large = size >= MAX_MESSAGE_BYTES or last - position >= MAX_SCANNED
            if len(found) >= self._config.most_events or (upto is None and is_large):
                break
        is_batch = self._config.most_events > 1
        return FeedMessage(
            last,
            tuple(place for place, _ in found),
            tuple(line for _, line in found),
            _TYPES.get(self._config.format, _JSON)[is_batch],
            is_batch,
        )

    def _selected(self, event: LoggedEvent) -> dict[str, Any] | None:
        """Return the form of an event; None where the feed does not send it."""
        is_hidden = bool(self._redaction) and self._redaction.hides(event)
        globs = self._config.events
        if globs is not None and (is_hidden or not any(fnmatchcase(event.topic, glob) for glob in globs)):
            return None  # whether a hidden event matches is not shown
        return self._form(event, is_hidden)

    def _form_of(self, name: str) -> _Form:
        if name == "ocsf":
            return ApiActivities(self._log, self._redaction).form
        if name == "json":
            return lambda event, is_hidden: logged_form(event, is_hidden=is_hidden)
        cloud = CloudEvents(self._log)
        is_whole = not self._redaction
        return lambda event, is_hidden: cloud.forms([(event, is_hidden)], is_whole=is_whole)[0]
