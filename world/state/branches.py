"""Branches of a realm: lines of worlds, each with a head and a tip."""

from __future__ import annotations

from collections.abc import MutableMapping

from msgspec import Struct

from world.error_codes import ErrorCode
from world.errors import DamagedLogError
from world.events.proposal_events import ProposalCompleted, ProposalFailed
from world.model.short_repr import short_repr

__all__ = ["Branch", "move_branch"]


class Branch(Struct, frozen=True):
    """A named line of worlds; an immutable value.

    Args:
        name: the name, unique in the realm.
        head: id of its newest completed world (WP-lineage).
        tip: id of its newest sealed world, completed or failed.
    """

    name: str
    head: str
    tip: str

    def __repr__(self) -> str:
        failed = () if self.tip == self.head else (f"tip {self.tip[:12]}",)
        return short_repr(self, self.name, f"head {self.head[:12]}", *failed)


def move_branch(branches: MutableMapping[str, Branch], event: ProposalCompleted | ProposalFailed) -> None:
    """Move the branch of a proposal that ends: its tip, and its head where the proposal is completed.

    Args:
        branches: the branches of the realm by name; changed in place.
        event: the proposal's last event.

    Raises:
        DamagedLogError: ``WRONG_PARENT`` when its world does not follow the head of the branch.
    """
    branch = branches.get(event.branch)
    if branch is None or branch.head != event.parent:
        raise DamagedLogError(
            ErrorCode.WRONG_PARENT,
            f"Proposal {event.proposal_id} was sealed on {event.parent[:12]}, which is not the head of "
            f"{event.branch!r}.",
            proposal_id=event.proposal_id,
        )
    head = event.world_id if isinstance(event, ProposalCompleted) else branch.head
    branches[event.branch] = Branch(branch.name, head, event.world_id)
