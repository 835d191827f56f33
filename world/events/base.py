"""What all events of the log share; the events themselves stand in ``world.events.codec``."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

__all__ = ["Event", "Wire"]

Wire = dict[str, Any]


class Event(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What all events share.

    Args:
        at: recorded time, ms since 1970, from the injected clock.
    """

    TOPIC: ClassVar[str] = ""
    VERSION: ClassVar[int] = 1
    SPARSE: ClassVar[bool] = False
    """Whether fields that hold nothing are left out of the text."""

    at: int
