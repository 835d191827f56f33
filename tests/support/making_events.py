"""Events made from the JSON of the values that they embed."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from world.events.base import Event
from world.model.record import to_wire

E = TypeVar("E", bound=Event)
ERROR_REST = {"source": {"actionId": "", "nodePath": ""}, "timestamp": 0}
"""Members that every error value has besides its code and message."""


def made(kind: type[E], **members: Any) -> E:
    """Return an event whose embedded values are given as JSON, by the names of its fields."""
    names = {one.name: one.encode_name for one in msgspec.structs.fields(kind)}
    return msgspec.convert({names[name]: to_wire(value) for name, value in members.items()}, kind)
