"""Base class of the events of the log, and their streams; ``world.events.codec`` lists the event types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

import msgspec

__all__ = ["KLIS_STREAM", "LINEAGE_STREAM", "REALM_STREAM", "Event", "ObjectEvent"]


REALM_STREAM: Final = "realm"
"""Events of the registry: creation, domains, actors, bindings and policies."""

LINEAGE_STREAM: Final = "lineage"
"""Events of worlds and branches."""

KLIS_STREAM: Final = "klis"
"""Events of leases."""


class Event(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base class of all events.

    Args:
        at: recorded time, ms since 1970-01-01 UTC, from the injected clock.
    """

    TOPIC: ClassVar[str] = ""
    VERSION: ClassVar[int] = 1
    SPARSE: ClassVar[bool] = False
    """Whether fields that are None, False or empty are left out of the text."""
    TEXTS: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Members that the JSON objects of an event must have, as texts, by field; ``ObjectEvent`` checks them."""

    at: int


class ObjectEvent(Event, frozen=True, kw_only=True):
    """Base class of events with JSON objects that must have some members (``TEXTS``); an absent object has none."""

    def __post_init__(self) -> None:
        for name, members in self.TEXTS.items():
            value = getattr(self, name)
            for member in members if value is not None else ():
                if not isinstance(value.get(member), str):
                    raise ValueError(f"{name} needs the text `{member}`")
