"""Deadlines and retries of open proposals: queues of the state, ordered by time."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from world.events.base import Event
from world.events.execution_events import EffectRequested
from world.events.lease_events import ProposalRescheduled
from world.events.proposal_events import ProposalJudged

if TYPE_CHECKING:
    from world.state.proposal import Proposal
    from world.state.realm_state import RealmState

__all__ = ["WITH_DEADLINES", "bring_retries_forward", "note_deadlines", "note_hold", "note_retry"]

WITH_DEADLINES: Final[frozenset[type[Event]]] = frozenset({ProposalJudged, ProposalRescheduled, EffectRequested})
"""Events with times that ``note_deadlines`` notes."""


def note_retry(realm: RealmState, proposal_id: str, at: int) -> None:
    """Schedule the next request for leases of an open proposal, at a time in ms, also where no verdict says so."""
    if proposal_id in realm.proposals:
        heapq.heappush(realm.retries, (at, proposal_id))


def bring_retries_forward(realm: RealmState, now: int) -> None:
    """Reschedule retries to at most their backoff from ``now`` (ms): lease time was set to that."""
    sooner = []
    for due, proposal_id in realm.retries:
        proposal = realm.proposals.get(proposal_id)
        if proposal is not None:
            again = realm.klis.asks_again_at(proposal.submitted.actor.actor_id, proposal_id)
            sooner.append((min(due, again or now + realm.klis.in_force.backoff_ms), proposal_id))
    realm.retries = sorted(sooner)


def note_deadlines(realm: RealmState, name: str, event: ProposalJudged | ProposalRescheduled | EffectRequested) -> None:
    """Schedule the deadlines that an event records: of questions to people, and of effects."""
    if isinstance(event, EffectRequested):
        if event.offer is None:
            heapq.heappush(realm.effects, (event.deadline, name, event.requirement.id))
        return
    if event.deadline is not None:
        heapq.heappush(realm.deadlines, (event.deadline, name))
    for effect, deadline in event.effects.items() if isinstance(event, ProposalRescheduled) else ():
        heapq.heappush(realm.effects, (deadline, name, effect))


def note_hold(realm: RealmState, proposal: Proposal) -> None:
    """Note whether a proposal is held."""
    if proposal.held is not None:
        realm.held[proposal.proposal_id] = None
    elif realm.held:
        realm.held.pop(proposal.proposal_id, None)
