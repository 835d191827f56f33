"""Look-ups of a recheck in the archive, and its worker registry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from world.model.immutable_json import FrozenDict
from world.pipeline.unit_of_work import Earlier
from world.read_models.archive import Archive
from world.state.ports import LookupConditions

__all__ = ["Nobody", "PastLookup"]


@dataclass(frozen=True, slots=True)
class PastLookup:
    """Look-ups in committed events; a case reads only earlier ones (see ``Lookup``)."""

    archive: Archive

    def proposal_of_intent(self, intent_id: str) -> str | None:
        """Return the proposal with an intentId."""
        rows = self.archive.rows("by_intent", {"of_intent": intent_id})
        return str(rows[0][0]) if rows else None

    def attempts(self, intent_key: str) -> int:
        """Return the number of proposals with an intentKey."""
        rows = self.archive.rows("attempts", {"of_key": intent_key})
        return int(rows[0][0] or 0) if rows else 0

    def count(self, before: int, **conditions: Unpack[LookupConditions]) -> int:
        """Count earlier proposals."""
        return self.archive.count(before, **conditions)

    def earlier(self, before: int, most: int, **conditions: Unpack[LookupConditions]) -> list[Earlier]:
        """Return at most ``most`` earlier proposals, in the order of the log."""
        return self.archive.earlier(before, most, **conditions)

    def inputs(self, found: Sequence[Earlier]) -> list[tuple[str, Any]]:
        """Return the inputs of their intents."""
        return self.archive.inputs(found)

    def world_outcome(self, world_id: str) -> tuple[str, int] | None:
        """Return a world's outcome and height."""
        row = self.archive.find_world(world_id)
        return None if row is None else (row.outcome, row.height)

    def checked_state(self, world_id: str) -> FrozenDict:
        """Return a world's data after comparing it with the world's snapshotHash."""
        return self.archive.checked_state(world_id)


class Nobody:
    """No worker: a recheck executes nothing."""

    me = "recheck"

    def is_gone(self, worker: str) -> bool:
        """Return False; a recheck never takes over work."""
        return False

    def close(self) -> None:
        """Do nothing."""
