"""The worlds that one writer saw being sealed lately, by itself or by other processes.

A writer applies every event of the log in order. So it knows all children of a world that it saw being sealed, and can
tell without a query that a world is new; and it has the data of a head that another process has moved, without reading
the events of the worlds before it again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from world.errors import DamagedLogError, RefusedError
from world.events.malformed import MALFORMED
from world.events.realm_events import WorldSealed
from world.model.identity import state_hash
from world.model.immutable_json import FrozenDict
from world.model.recorded_patch import patched
from world.model.snapshot import Snapshot

__all__ = ["KEPT_WORLDS", "RecentWorlds"]

KEPT_WORLDS: Final = 256
"""Number of worlds that are remembered."""

KEPT_DATA: Final = 16
"""Number of worlds of other processes whose data is kept."""


@dataclass(slots=True)
class _Recent:
    event: WorldSealed
    children: set[str] = field(default_factory=set)


class RecentWorlds:
    """Worlds in the order in which they were sealed; the oldest are forgotten first."""

    def __init__(self) -> None:
        self._worlds: OrderedDict[str, _Recent] = OrderedDict()
        self._data: OrderedDict[str, FrozenDict] = OrderedDict()

    def clear(self) -> None:
        """Forget all worlds, because some of them were not committed or others were missed."""
        self._worlds.clear()
        self._data.clear()

    def add(self, event: WorldSealed) -> None:
        """Add the world that was sealed last."""
        self._worlds[event.world_id] = _Recent(event)
        parent = None if event.parent is None else self._worlds.get(event.parent)
        if parent is not None:
            parent.children.add(event.world_id)
        while len(self._worlds) > KEPT_WORLDS:
            self._worlds.popitem(last=False)

    def follow(self, event: WorldSealed, computed: Mapping[str, Snapshot]) -> None:
        """Add a world that another process sealed, with its data where that of its parent is known.

        Args:
            event: how it was sealed.
            computed: states of worlds that this process has computed, by the ids of the worlds.
        """
        self.add(event)
        if event.parent is None:
            return
        before = self._data.get(event.parent)
        if before is None:
            if event.parent not in computed:
                return
            before = computed[event.parent].data
        try:
            self._data[event.world_id] = patched(before, event.patches)
        except (DamagedLogError, RefusedError, *MALFORMED):
            return  # who needs the data reads the log, which names the fault
        while len(self._data) > KEPT_DATA:
            self._data.popitem(last=False)

    def outcome(self, world_id: str) -> tuple[str, int] | None:
        """Return the outcome and the height of a world, or None when it is not among the recent ones."""
        known = self._worlds.get(world_id)
        return None if known is None else (known.event.outcome, known.event.height)

    def is_new(self, world_id: str, parent: str) -> bool:
        """Return whether a child of a world is certainly not sealed; False where this is not known."""
        known = self._worlds.get(parent)
        return known is not None and world_id not in known.children

    def checked_state(self, world_id: str) -> FrozenDict | None:
        """Return the data of a world of another process after comparing it with its snapshotHash, if it is known."""
        known, data = self._worlds.get(world_id), self._data.get(world_id)
        if known is None or data is None:
            return None
        error = known.event.error
        found = state_hash(data, errors=() if error is None else (error,), last_error=error)
        return data if found == known.event.snapshot_hash else None
