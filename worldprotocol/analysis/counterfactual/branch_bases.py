"""Branches of the record that begin elsewhere in the counterfactual, and what changes its scratch realm."""

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
)
from worldprotocol.analysis.counterfactual.asked import Insertion

__all__ = ["Changing", "Elsewhere", "made_with"]


class Changing(Protocol):
    """The scratch realm, as far as the record changes what it is made with; ``code`` names functions that changed."""

    code: set[str]

    def insert(self, given: Insertion) -> str:
        """Submit an intent that nobody submitted, and return the proposal's id."""
        ...

    def adopt(self, event: DomainAdopted) -> bool:
        """Bring the domain of an adoption into force; False where it cannot be had."""
        ...

    def enforce(self, mode: str) -> None:
        """Let executions be refused or not what they may not write."""
        ...


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A branch that does not begin at the world where the record has it.

    Args:
        branch: its name.
        then: the world of the record.
        now: the world here.
    """

    branch: str
    then: str
    now: str


def made_with(event: BranchCreated, coming: Sequence[Event]) -> bool:
    """Tell whether a branch was made by a submission that forks; it stands before it, and before its projection."""
    following = coming[1] if coming and isinstance(coming[0], ProjectionRecorded) else next(iter(coming), None)
    return (
        isinstance(following, ProposalSubmitted)
        and (following.branch, following.base_world, following.at) == (event.branch, event.world_id, event.at)
        and event.by == following.actor["actorId"]
    )
