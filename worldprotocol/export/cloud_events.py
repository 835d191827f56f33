"""Events of a log as CloudEvents 1.0 in JSON.

Source and id identify an event: the log's id, and the position. Data is the recorded state. The extension attributes
``leaf``, ``schemaversion`` and ``streamversion`` are the rest of what the log records beside it;
``traceparent`` is that of the proposal which an event is about (CloudEvents distributed tracing extension). Of a hidden
event only position and leaf hash are shown. Source: CloudEvents 1.0.2, JSON event format 1.0.2.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final
from urllib.parse import quote

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.proposal_events import ProposalSubmitted
from world.read_models.decoding import log_id_of, state_of
from worldprotocol.api.bootstrap import EventLog, LoggedEvent

__all__ = ["BATCH_TYPE", "CloudEvents"]

BATCH_TYPE: Final = "application/cloudevents-batch+json"
"""Media type of a list of events."""

PREFIX: Final = "world-protocol."
MAX_TRACES: Final = 10_000
"""Streams whose trace context is remembered."""

_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class CloudEvents:
    """Events of one log as CloudEvents.

    Args:
        log: the log.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._traces: OrderedDict[str, str | None] = OrderedDict()
        self._mutex = threading.Lock()

    @cached_property
    def source(self) -> str:
        """The URI that identifies the log; it stays the same where the log is moved."""
        return f"urn:world-protocol:log:{quote(log_id_of(self._log) or '', safe='')}"

    def forms(self, events: Iterable[tuple[LoggedEvent, bool]], *, is_whole: bool) -> list[dict[str, Any]]:
        """Return events as JSON.

        Args:
            events: each with whether it is hidden from the reader.
            is_whole: whether the reader may read all events, so that the trace context of others may be shown.
        """
        return [self._hidden(one) if is_hidden else self._form(one, is_whole=is_whole) for one, is_hidden in events]

    def _hidden(self, event: LoggedEvent) -> dict[str, Any]:
        return {
            "specversion": "1.0",
            "id": str(event.position),
            "source": self.source,
            "type": f"{PREFIX}redacted",
            "leaf": event.leaf.hex(),
        }

    def _form(self, event: LoggedEvent, *, is_whole: bool) -> dict[str, Any]:
        state = state_of(event)
        optional = {
            "time": _time(state.get("at")),
            "traceparent": self._trace_of(event, state, is_whole=is_whole),
        }
        return {
            "specversion": "1.0",
            "id": str(event.position),
            "source": self.source,
            "type": PREFIX + event.topic,
            "subject": event.stream,
            "datacontenttype": "application/json",
            "leaf": event.leaf.hex(),
            "schemaversion": event.schema_version,
            "streamversion": event.version,
            **{name: value for name, value in optional.items() if value is not None},
            "data": state,
        }

    def _trace_of(self, event: LoggedEvent, state: dict[str, Any], *, is_whole: bool) -> str | None:
        """Return the trace context of an event: its own, or that of the proposal whose stream it is in.

        Of a proposal that had ended before the log was cut there is none.
        """
        if event.topic == ProposalSubmitted.TOPIC:
            return _traceparent(state)
        if not is_whole or event.version == 1:
            return None
        with self._mutex:
            if event.stream in self._traces:
                self._traces.move_to_end(event.stream)
                return self._traces[event.stream]
        found = None
        with _suppress_archived():
            for first in self._log.stream(event.stream, limit=1):
                if first.topic == ProposalSubmitted.TOPIC:
                    found = _traceparent(state_of(first))
        with self._mutex:
            self._traces[event.stream] = found
            if len(self._traces) > MAX_TRACES:
                self._traces.popitem(last=False)
        return found


@contextmanager
def _suppress_archived() -> Iterator[None]:
    """Go on where the content of an event was removed from a cut log."""
    try:
        yield
    except RefusedError as refused:
        if refused.code != ErrorCode.EVENT_ARCHIVED:
            raise


def _traceparent(state: dict[str, Any]) -> str | None:
    trace = state.get("trace")
    found = trace.get("traceparent") if isinstance(trace, dict) else None
    return found if isinstance(found, str) and _TRACEPARENT.fullmatch(found) else None


def _time(at: Any) -> str | None:
    """Return a time of an event as RFC 3339; None for a time after the year 9999."""
    try:
        return datetime.fromtimestamp(at / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (TypeError, ValueError, OverflowError, OSError):
        return None
