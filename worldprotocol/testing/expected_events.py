"""Expected events of scenes, and their comparison with recorded events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import Event
from world.events.codec import TOPICS
from world.model.record import to_wire
from worldprotocol.testing.divergences import short

__all__ = ["ExpectedEvent", "differences", "event", "matches", "shown", "summary"]


@dataclass(frozen=True, slots=True)
class ExpectedEvent:
    """Expected event; see ``event``.

    Args:
        topic: its topic.
        fields: expected fields.
    """

    topic: str
    fields: Mapping[str, Any]

    def __str__(self) -> str:
        fields = ", ".join(f"{name}={shown(one)}" for name, one in self.fields.items())
        return f"{self.topic} {fields}" if fields else self.topic


def event(topic: str, /, **fields: object) -> ExpectedEvent:
    """Return an expected event.

    Args:
        topic: such as ``decision.made``.
        **fields: expected fields, by their names in Python; of nested objects only the given members are compared.

    Raises:
        RefusedError: ``INVALID_VALUE`` for an unknown topic or field.
    """
    kind = TOPICS.get(topic)
    if kind is None:
        raise RefusedError(
            ErrorCode.INVALID_VALUE, f"There is no event {topic!r}; the topics are {', '.join(sorted(TOPICS))}."
        )
    known = {one.name for one in msgspec.structs.fields(kind)}
    unknown = sorted(fields.keys() - known)
    if unknown:
        raise RefusedError(
            ErrorCode.INVALID_VALUE, f"{topic} has no field {unknown[0]!r}; its fields are {', '.join(sorted(known))}."
        )
    return ExpectedEvent(topic, fields)


def matches(expected: ExpectedEvent, happened: Event) -> bool:
    """Return whether a recorded event is the expected one."""
    return expected.topic == happened.TOPIC and not any(
        list(differences(one, to_wire(getattr(happened, name)), name)) for name, one in expected.fields.items()
    )


def differences(expected: Any, was: Any, path: str) -> Iterator[str]:
    """Yield the differences of a value from the expected one."""
    if isinstance(expected, Mapping) and isinstance(was, Mapping):
        for name, one in expected.items():
            place = f"{path}.{name}" if path else str(name)
            if name in was:
                yield from differences(one, was[name], place)
            else:
                yield f"  {place}: expected {shown(one)}, was not there"
    elif not _equal(expected, was):
        yield f"  {path}: expected {shown(expected)}, was {shown(was)}"


def _equal(expected: Any, was: Any) -> bool:
    """Return whether two values are equal JSON; an expected value may define its own equality."""
    if isinstance(expected, int | float) and isinstance(was, int | float):
        return isinstance(expected, bool) is isinstance(was, bool) and expected == was
    if isinstance(expected, list | tuple) and isinstance(was, list):
        return len(expected) == len(was) and all(map(_equal, expected, was))
    if isinstance(expected, Mapping) and isinstance(was, Mapping):
        return expected.keys() == was.keys() and all(_equal(one, was[name]) for name, one in expected.items())
    return bool(expected == was)


def shown(value: Any) -> str:
    """Return a value as JSON, or its ``repr`` if it is no JSON."""
    return short(value) if isinstance(value, dict | list | int | float | None) else repr(value)


_SUMMARISED: Final = ("decision", "error", "patches", "ruling", "binding", "requirement", "result", "status", "branch")
"""Fields of which one summarises an event."""


def summary(one: Event) -> str:
    """Return an event's topic and its most informative field."""
    for name in _SUMMARISED:
        value = to_wire(getattr(one, name, None))
        if value not in (None, [], {}):
            if name == "decision":
                value = {part: value[part] for part in ("decision", "authority", "reason")}
            elif name == "ruling":
                value = {part: value[part] for part in ("verdict", "reason")}
            return f"{one.TOPIC} {name}={shown(value)}"
    return one.TOPIC
