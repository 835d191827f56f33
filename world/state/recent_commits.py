"""What a process saw being committed lately: worlds, by any process, and attempts at intents, by itself.

A process applies every event of the log in order. So it has all children of a world that it saw being sealed, and can
decide without a query that a world is new. While no other process commits, a preparation takes the number of an attempt
from here, too; a submission compares it under the log's lock with the number that the index has
(``world.pipeline.preparation.prepared.unchanged_submission``).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from world.events.proposal_events import ProposalSubmitted
from world.events.realm_events import WorldSealed

__all__ = ["KEPT_INTENTS", "KEPT_WORLDS", "RecentAttempts", "RecentWorlds"]

KEPT_WORLDS: Final = 256
"""Number of worlds that are remembered."""

KEPT_INTENTS: Final = 4_096
"""Number of intentKeys that are remembered."""


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


class RecentAttempts:
    """The number of the last attempt at each intentKey, of those that were submitted lately."""

    def __init__(self) -> None:
        """Begin empty."""
        self._attempts: OrderedDict[str, int] = OrderedDict()
        self._is_alone = False

    def note_others(self) -> None:
        """Note that another process committed after what was added."""
        self._is_alone = False

    def add(self, event: ProposalSubmitted) -> None:
        """Add a submission that this process committed."""
        self._is_alone = True
        self.learn(event.intent.intent_key, event.attempt)

    def learn(self, intent_key: str, attempts: int) -> None:
        """Note how many attempts at an intentKey are committed."""
        self._attempts.pop(intent_key, None)
        self._attempts[intent_key] = attempts
        if len(self._attempts) > KEPT_INTENTS:
            self._attempts.popitem(last=False)

    def of(self, intent_key: str) -> int | None:
        """Return how many attempts at an intentKey are known; None where other processes may have made some."""
        return self._attempts.get(intent_key, 0) if self._is_alone else None
