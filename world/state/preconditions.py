"""Errors of the fold of a proposal: an event that cannot follow the events before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from world.error_codes import ErrorCode
from world.errors import DamagedLogError

if TYPE_CHECKING:
    from world.events.base import Event
    from world.state.proposal import Proposal

__all__ = ["contradiction", "require"]


def require(proposal: Proposal, status: str, event: Event) -> None:
    """Check the status of the proposal that an event is about.

    Raises:
        DamagedLogError: ``ILLEGAL_TRANSITION``.
    """
    if proposal.status != status:
        raise contradiction(proposal, event, f"the proposal is {proposal.status}, not {status}")


def contradiction(
    proposal: Proposal, event: Event, why: str, code: ErrorCode = ErrorCode.ILLEGAL_TRANSITION
) -> DamagedLogError:
    """Return the error for an event that contradicts the state of its proposal.

    Args:
        proposal: the state before the event.
        event: the event.
        why: the contradiction, as a clause.
        code: code of the error.
    """
    return DamagedLogError(
        code,
        f"Proposal {proposal.proposal_id} cannot take {event.TOPIC}: {why}.",
        proposal_id=proposal.proposal_id,
        topic=event.TOPIC,
    )
