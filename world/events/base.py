"""Base class of the events of the log; ``world.events.codec`` lists the event types."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

__all__ = ["Event", "Wire"]

Wire = dict[str, Any]


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
