"""Offered effects of the open proposals: which wait for a worker, and when the claims of the others end."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from world.events.base import Event
from world.events.claim_events import EffectClaimed, EffectExtended, EffectLapsed
from world.events.execution_events import (
    EffectFulfilled,
    EffectInDoubt,
    EffectRequested,
    EffectResolved,
    EffectRetried,
    ExecutionCancelled,
)
from world.events.lease_events import ProposalRescheduled
from world.state.effect_steps import unclaimed_offers

if TYPE_CHECKING:
    from world.state.proposal import Proposal
    from world.state.realm_state import RealmState

__all__ = [
    "CHANGES_OFFERS",
    "next_claim_deadline",
    "note_offers",
    "order_offers",
    "overdue_claim",
    "schedule_claims",
]

CHANGES_OFFERS: Final[frozenset[type[Event]]] = frozenset(
    {
        EffectRequested,
        EffectClaimed,
        EffectExtended,
        EffectLapsed,
        EffectFulfilled,
        EffectRetried,
        EffectInDoubt,
        EffectResolved,
        ProposalRescheduled,
        ExecutionCancelled,
    }
)
"""Events after which another effect may be offered, or a claim may end at another time."""


def note_offers(realm: RealmState, proposal: Proposal, event: Event | None = None) -> None:
    """Keep ``offered`` and the times at which claims end in step with a proposal's new state.

    ``offered`` has the proposals with unclaimed offers, in the order in which they were offered.
    """
    name = proposal.proposal_id
    is_offered = any(True for _ in unclaimed_offers(proposal))
    if isinstance(event, EffectLapsed):
        realm.offered.pop(name, None)  # it is offered after the others
    if is_offered and name not in realm.offered:
        realm.offered[name] = None
    elif not is_offered:
        realm.offered.pop(name, None)
    if isinstance(event, EffectClaimed | EffectExtended | ProposalRescheduled | ExecutionCancelled):
        schedule_claims(realm, proposal)


def order_offers(realm: RealmState) -> None:
    """Order ``offered`` by the time of the offers, after a state was read from storage."""

    def since(name: str) -> int:
        return min(asked.at for asked in unclaimed_offers(realm.proposals[name]))

    realm.offered = dict.fromkeys(sorted(realm.offered, key=since))


def schedule_claims(realm: RealmState, proposal: Proposal) -> None:
    """Schedule the deadlines of a proposal's claims."""
    for requirement_id, claim in proposal.claims.items():
        heapq.heappush(realm.claim_deadlines, (claim.deadline, proposal.proposal_id, requirement_id))


def next_claim_deadline(realm: RealmState) -> int | None:
    """Return the earliest deadline of a claim, ms since 1970; ended ones are removed."""
    while realm.claim_deadlines:
        deadline, proposal_id, requirement_id = realm.claim_deadlines[0]
        proposal = realm.proposals.get(proposal_id)
        claim = None if proposal is None else proposal.claims.get(requirement_id)
        if claim is not None and claim.deadline == deadline:
            return deadline
        heapq.heappop(realm.claim_deadlines)
    return None


def overdue_claim(realm: RealmState, now: int) -> tuple[Proposal, str] | None:
    """Return the proposal and the effect of the claim that ended first before ``now`` (ms); None without one."""
    deadline = next_claim_deadline(realm)
    if deadline is None or deadline >= now:
        return None
    _, proposal_id, requirement_id = realm.claim_deadlines[0]
    return realm.proposals[proposal_id], requirement_id
