"""Branches with another base in the counterfactual, and the port to its scratch realm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from world.events.base import Event
from world.events.proposal_events import (
    ProjectionRecorded,
    ProposalSubmitted,
)
from world.events.realm_events import (
    BranchCreated,
    DomainAdopted,
    WorkspaceRegistered,
)
from worldprotocol.analysis.counterfactual.asked import Insertion

__all__ = ["Changing", "Elsewhere", "made_with"]


class Changing(Protocol):
    """Port to the scratch realm; ``code`` holds the names of changed functions."""

    code: set[str]

    def insert(self, given: Insertion) -> str:
        """Submit an additional intent, and return the proposal's id."""
        ...

    def adopt(self, event: DomainAdopted) -> bool:
        """Adopt a recorded domain; return False if it is not available."""
        ...

    def enforce(self, mode: str) -> None:
        """Set the enforcement mode."""
        ...

    def register(self, event: WorkspaceRegistered) -> None:
        """Let the stand-in for backups have the workspace that was registered."""
        ...


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
