"""Look-ups of a recheck in the events before a step."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, Unpack, cast

from world.errors import RefusedError
from world.events.realm_events import WorldSealed
from world.model.immutable_json import FrozenDict, freeze
from world.model.patch import apply_patches
from world.model.snapshot import error_state_hash
from world.read_models.archive import Archive
from world.read_models.counting import Counts
from world.state.ports import Conditions, Earlier, LookupConditions
from world.state.realm_state import RealmState

__all__ = ["MAX_WORLDS", "PastLookup"]

MAX_WORLDS: Final = 64
"""Number of worlds whose data is kept; they share their equal parts."""


class PastLookup:
    """Look-ups in committed events; a case reads only earlier ones (see ``Lookup``).

    A recheck reads every event in order, so most look-ups are answered from the events that it has read: the states of
    the worlds sealed last, and counts over rows of the index that are read once. Everything else is read through the
    archive, with the same result.
    """

    def __init__(self, archive: Archive, realm: RealmState) -> None:
        """Begin before the first event.

        Args:
            archive: archive of the log.
            realm: the state that the caller folds; its open proposals are those that are judged.
        """
        self._archive = archive
        self._realm = realm
        self._counts = Counts(archive)
        self._worlds: OrderedDict[str, tuple[WorldSealed, FrozenDict]] = OrderedDict()

    def follow(self, sealed: WorldSealed) -> None:
        """Keep the data of a world, where that of its parent is kept.

        Args:
            sealed: the next world of the log.
        """
        try:
            if sealed.data is not None:
                data = freeze(sealed.data)
            else:
                parent = self._worlds.get(sealed.parent or "")
                if parent is None:
                    return
                data = apply_patches(parent[1], sealed.patches)
        except RefusedError:
            return  # the archive reports it, if a step reads this world
        self._worlds[sealed.world_id] = sealed, data
        if len(self._worlds) > MAX_WORLDS:
            self._worlds.popitem(last=False)

    def proposal_of_intent(self, intent_id: str) -> str | None:
        """Return the proposal with an intentId."""
        rows = self._archive.rows("by_intent", {"of_intent": intent_id})
        return str(rows[0][0]) if rows else None

    def attempts(self, intent_key: str) -> int:
        """Return the number of proposals with an intentKey."""
        rows = self._archive.rows("attempts", {"of_key": intent_key})
        return int(rows[0][0] or 0) if rows else 0

    def count(self, before: int, **conditions: Unpack[LookupConditions]) -> int:
        """Count earlier proposals, without ``other_than``."""
        own = self._realm.proposals.get(conditions.get("other_than", ""))
        if own is None:
            return self._archive.count(before, **conditions)
        others = {name: value for name, value in conditions.items() if name != "other_than"}
        return self._counts.count(before, own.submitted, **cast(Conditions, others))

    def earlier(self, before: int, most: int, **conditions: Unpack[LookupConditions]) -> list[Earlier]:
        """Return at most ``most`` earlier proposals, in the order of the log."""
        return self._archive.earlier(before, most, **conditions)

    def inputs(self, found: Sequence[Earlier]) -> list[tuple[str, Any]]:
        """Return the inputs of their intents."""
        return self._archive.inputs(found)

    def world_outcome(self, world_id: str, parent: str | None = None) -> tuple[str, int] | None:
        """Return a world's outcome and height."""
        known = self._worlds.get(world_id)
        if known is not None:
            return known[0].outcome, known[0].height
        row = self._archive.find_world(world_id)
        return None if row is None else (row.outcome, row.height)

    def sealed_at(self, world_id: str) -> int | None:
        """Return the position of the event that sealed a world."""
        row = self._archive.find_world(world_id)
        return None if row is None else row.position

    def checked_state(self, world_id: str) -> FrozenDict:
        """Return a world's data after comparing it with the world's snapshotHash."""
        known = self._worlds.get(world_id)
        if known is not None:
            sealed, data = known
            if error_state_hash(data, sealed.error) == sealed.snapshot_hash:
                self._worlds.move_to_end(world_id)
                return data
        return self._archive.checked_state(world_id)
