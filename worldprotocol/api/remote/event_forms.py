"""The JSON form of recorded events; programs on other machines make the same objects of it as of the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import orjson

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import Event
from world.events.codec import decode_event, encode_event
from world.model.canonical_json import canonical_bytes
from world.read_models.decoding import decoded, state_of
from worldprotocol.api.bootstrap import LoggedEvent

__all__ = ["HiddenEvent", "event_form", "logged_form", "read_event", "read_logged"]


@dataclass(frozen=True, slots=True)
class HiddenEvent:
    """An event that rules of redaction hide from the reader.

    Args:
        position: its place in the log.
        leaf: its leaf hash, 64 hex digits.
    """

    TOPIC: ClassVar[str] = "redacted"
    position: int
    leaf: str


def event_form(event: Event) -> dict[str, Any]:
    """Return an event as it is recorded, without its place in the log."""
    return {"topic": event.TOPIC, "schemaVersion": event.VERSION, "state": orjson.loads(encode_event(event))}


def logged_form(event: LoggedEvent, *, is_hidden: bool = False) -> dict[str, Any]:
    """Return an event of the log; of a hidden one only the position and the leaf hash.

    Args:
        event: the event.
        is_hidden: whether rules of redaction hide it from the reader.
    """
    if is_hidden:
        return {"position": event.position, "leaf": event.leaf.hex(), "redacted": True}
    return {
        "position": event.position,
        "stream": event.stream,
        "version": event.version,
        "topic": event.topic,
        "schemaVersion": event.schema_version,
        "state": state_of(event),
        "leaf": event.leaf.hex(),
    }


def read_event(form: Mapping[str, Any]) -> Any:
    """Return the event of ``event_form``.

    Raises:
        RefusedError: ``LOG_UNAVAILABLE`` for another form.
    """
    try:
        return decode_event(form["topic"], form["schemaVersion"], canonical_bytes(form["state"]), 0)
    except (KeyError, TypeError) as error:
        raise _no_event(error) from None


def read_logged(form: Mapping[str, Any]) -> Event | HiddenEvent:
    """Return the event of ``logged_form``, whose content is compared with its leaf hash.

    Raises:
        RefusedError: ``LOG_UNAVAILABLE`` for another form.
        DamagedLogError: ``EVENT_CHANGED`` where content and leaf hash differ, and as ``decode_event``.
    """
    try:
        if form.get("redacted"):
            return HiddenEvent(form["position"], form["leaf"])
        logged = LoggedEvent(
            position=form["position"],
            stream=form["stream"],
            version=form["version"],
            topic=form["topic"],
            schema_version=form["schemaVersion"],
            state=canonical_bytes(form["state"]),
            leaf=bytes.fromhex(form["leaf"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _no_event(error) from None
    return decoded(logged)


def _no_event(error: Exception) -> RefusedError:
    return RefusedError(
        ErrorCode.LOG_UNAVAILABLE,
        f"The server answered with an event that this version cannot read ({type(error).__name__}: {error}); use the "
        "same version of World Protocol on both sides.",
    )
