"""Base class of the events of the log; ``world.events.codec`` lists the event types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

__all__ = ["Event", "check_texts"]


class Event(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base class of all events.

    Args:
        at: recorded time, ms since 1970-01-01 UTC, from the injected clock.
    """

    TOPIC: ClassVar[str] = ""
    VERSION: ClassVar[int] = 1
    SPARSE: ClassVar[bool] = False
    """Whether fields that are None, False or empty are left out of the text."""

    at: int


def check_texts(name: str, value: Mapping[str, Any] | None, *members: str) -> None:
    """Check that an embedded JSON object has members that are texts; None has none.

    Raises:
        ValueError: with the name of the first member that is missing or not a text.
    """
    if value is None:
        return
    for member in members:
        if not isinstance(value.get(member), str):
            raise ValueError(f"{name} needs the text `{member}`")
