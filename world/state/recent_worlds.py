"""The worlds that a process saw being sealed lately, by itself or by other processes.

A process applies every event of the log in order. So it has all children of a world that it saw being sealed, and can
decide without a query that a world is new.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from world.events.realm_events import WorldSealed

__all__ = ["KEPT_WORLDS", "RecentWorlds"]

KEPT_WORLDS: Final = 256
"""Number of worlds that are remembered."""


@dataclass(slots=True)
class _Recent:
    event: WorldSealed
    children: set[str] = field(default_factory=set)


class RecentWorlds:
    """Committed worlds in the order in which they were sealed; the oldest are dropped first."""

    def __init__(self) -> None:
        """Begin empty."""
        self._worlds: OrderedDict[str, _Recent] = OrderedDict()

    def clear(self) -> None:
        """Drop all worlds, because others may have been missed."""
        self._worlds.clear()

    def add(self, event: WorldSealed) -> None:
        """Add the world that was sealed last."""
        self._worlds[event.world_id] = _Recent(event)
        parent = None if event.parent is None else self._worlds.get(event.parent)
        if parent is not None:
            parent.children.add(event.world_id)
        while len(self._worlds) > KEPT_WORLDS:
            self._worlds.popitem(last=False)

    def sealed(self, world_id: str) -> WorldSealed | None:
        """Return the event that sealed a world, or None when it is not among the recent ones."""
        known = self._worlds.get(world_id)
        return None if known is None else known.event

    def outcome(self, world_id: str) -> tuple[str, int] | None:
        """Return the outcome and the height of a world, or None when it is not among the recent ones."""
        event = self.sealed(world_id)
        return None if event is None else (event.outcome, event.height)

    def is_new(self, world_id: str, parent: str) -> bool:
        """Return whether a child of a world is certainly not sealed; False where this is not known."""
        known = self._worlds.get(parent)
        return known is not None and world_id not in known.children
