"""Which worlds of the branch stand for those of the record, where branches begin there or projections look at them.

A world that was the head of a branch then stands for whatever is that head here: who branched off there went on from
where things stood. Any other stands for what the same proposal came to here, and where that came to nothing, for what
was the head when the record sealed it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from world.events.base import Event
from world.events.proposal_events import ProposalCompleted, ProposalFailed
from world.events.realm_events import BranchCreated, BranchSwitched
from world.state.realm_state import Branch, RealmState

__all__ = ["WorldMapping", "branches_of"]


@dataclass(slots=True)
class WorldMapping:
    """Follows the heads of the record, and remembers which worlds are others here."""

    _heads: dict[str, str] = field(default_factory=dict)
    _active: str = ""
    _others: dict[str, str] = field(default_factory=dict)
    _gone: set[str] = field(default_factory=set)

    def begin(self, realm: RealmState) -> None:
        """Take over the branches where the record is left."""
        self._heads = {name: branch.head for name, branch in realm.branches.items()}
        self._active = realm.active

    def recorded(self, event: Event) -> None:
        """Take in an event of the record."""
        if isinstance(event, BranchCreated | ProposalCompleted):
            self._heads[event.branch] = event.world_id
        elif isinstance(event, BranchSwitched):
            self._active = event.branch

    def ended(self, event: ProposalCompleted | ProposalFailed, own: str | None, here: Mapping[str, Branch]) -> None:
        """Remember what stands for a world that the record sealed.

        Args:
            event: sealed it.
            own: what the same proposal came to here; None for nothing.
            here: the branches here.
        """
        now = own
        if now is None:
            self._gone.add(event.world_id)
            now = here[event.branch].head if event.branch in here else ""
        if now != event.world_id:
            self._others[event.world_id] = now

    def own(self, world_id: str) -> str | None:
        """Return what a proposal came to here whose world that was then; None where that is nothing."""
        return None if world_id in self._gone else self._others.get(world_id, world_id)

    def base_for(self, world_id: str, here: Mapping[str, Branch]) -> str:
        """Return where a branch begins that began at a world; one that nothing stands for is given back as it is."""
        for branch in (self._active, *self._heads):
            if self._heads.get(branch) == world_id and branch in here:
                return here[branch].head
        return self._others.get(world_id) or world_id

    def head_for(self, world_id: str, here: Mapping[str, Branch]) -> str:
        """Return at which head a projection looks that looked at a world."""
        found = self.base_for(world_id, here)
        if any(branch.head == found for branch in here.values()):
            return found
        return (here.get(self._active) or next(iter(here.values()))).head


def branches_of(realm: RealmState) -> Mapping[str, Branch]:
    """Return the branches, by name; they are the realm's own."""
    return realm.branches
