"""Mapping of recorded worlds to worlds of the counterfactual.

It is used for bases of branches and for worlds that projections read. A world that was the head of a branch maps to the
current head of that branch in the counterfactual. Any other world maps to the world that the same proposal produced,
and without one, to the head at the time at which the record sealed it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from world.events.base import Event
from world.events.proposal_events import ProjectionRecorded, ProposalCompleted, ProposalFailed, ProposalSubmitted
from world.events.realm_events import BranchCreated, BranchSwitched
from world.state.branches import Branch
from world.state.realm_view import RealmView

__all__ = ["Elsewhere", "WorldMapping", "branches_of", "made_with"]


@dataclass(slots=True)
class WorldMapping:
    """Heads of the record, and worlds that differ in the counterfactual."""

    _heads: dict[str, str] = field(default_factory=dict)
    _active: str = ""
    _others: dict[str, str] = field(default_factory=dict)
    _gone: set[str] = field(default_factory=set)

    def begin(self, realm: RealmView) -> None:
        """Read the branches at the start."""
        self._heads = {name: branch.head for name, branch in realm.branches.items()}
        self._active = realm.active

    def recorded(self, event: Event) -> None:
        """Apply an event of the record."""
        if isinstance(event, BranchCreated | ProposalCompleted):
            self._heads[event.branch] = event.world_id
        elif isinstance(event, BranchSwitched):
            self._active = event.branch

    def ended(self, event: ProposalCompleted | ProposalFailed, own: str | None, here: Mapping[str, Branch]) -> None:
        """Map a recorded world.

        Args:
            event: the event that completed or failed its proposal.
            own: the world of the same proposal in the counterfactual, if any.
            here: the branches of the counterfactual.
        """
        now = own
        if now is None:
            self._gone.add(event.world_id)
            now = here[event.branch].head if event.branch in here else ""
        if now != event.world_id:
            self._others[event.world_id] = now

    def own(self, world_id: str) -> str | None:
        """Return the world of the same proposal in the counterfactual; None without one."""
        return None if world_id in self._gone else self._others.get(world_id, world_id)

    def base_for(self, world_id: str, here: Mapping[str, Branch]) -> str:
        """Return the base of a branch for a recorded base; an unmapped one is returned unchanged."""
        for branch in (self._active, *self._heads):
            if self._heads.get(branch) == world_id and branch in here:
                return here[branch].head
        return self._others.get(world_id) or world_id

    def head_for(self, world_id: str, here: Mapping[str, Branch]) -> str:
        """Return the head that a projection reads for a recorded world."""
        base = self.base_for(world_id, here)
        if any(branch.head == base for branch in here.values()):
            return base
        return (here.get(self._active) or next(iter(here.values()))).head


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Branch that begins at another world than the recorded one.

    Args:
        branch: its name.
        then: the recorded world.
        now: the world in the counterfactual.
    """

    branch: str
    then: str
    now: str


def made_with(event: BranchCreated, coming: Sequence[Event]) -> bool:
    """Return whether a branch was created by the forking submission that follows it."""
    following = coming[1] if coming and isinstance(coming[0], ProjectionRecorded) else next(iter(coming), None)
    return (
        isinstance(following, ProposalSubmitted)
        and (following.branch, following.base_world, following.at) == (event.branch, event.world_id, event.at)
        and event.by == following.actor.actor_id
    )


def branches_of(realm: RealmView) -> Mapping[str, Branch]:
    """Return the realm's own branches, by name."""
    return realm.branches
