"""Queues of the state that follow the open proposals: approved ones by execution key, holds, offers and deadlines."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from world.error_codes import ErrorCode
from world.errors import DamagedLogError
from world.events.base import Event
from world.events.execution_events import EffectRequested, ExecutionStarted
from world.events.lease_events import ProposalRescheduled
from world.events.proposal_events import DecisionMade, ProposalHeld, ProposalJudged
from world.state.offers import CHANGES_OFFERS, note_offers
from world.state.proposal import TERMINAL, Proposal

if TYPE_CHECKING:
    from world.klis.ledger_view import ReadableLedger
    from world.state.realm_state import RealmState

__all__ = [
    "WITH_DEADLINES",
    "awaits_caller",
    "bring_retries_forward",
    "note_change",
    "note_deadlines",
    "note_hold",
    "note_retry",
]

WITH_DEADLINES: Final[frozenset[type[Event]]] = frozenset({ProposalJudged, ProposalRescheduled, EffectRequested})
"""Events with times that ``note_deadlines`` notes."""


def note_retry(realm: RealmState, proposal_id: str, at: int) -> None:
    """Schedule the next request for leases of an open proposal, at a time in ms, also where no verdict says so."""
    if proposal_id in realm.proposals:
        heapq.heappush(realm.retries, (at, proposal_id))


def awaits_caller(klis: ReadableLedger, proposal: Proposal) -> bool:
    """Return whether an approved call is held until its caller asks again: its leases were not requested since.

    Args:
        klis: the lease ledger.
        proposal: an open proposal.
    """
    held, name = proposal.held, proposal.proposal_id
    if held is None or held.cause != "caller" or name in klis.requests or name in klis.refused:
        return False
    return not klis.asks_again_at(proposal.submitted.actor.actor_id, name)


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


def note_change(realm: RealmState, proposal: Proposal, event: Any) -> None:
    """Keep the queues, what is running and the deadlines in step with a proposal's new state.

    Args:
        realm: changed in place.
        proposal: an open proposal after the event.
        event: the event.

    Raises:
        DamagedLogError: ``OUT_OF_TURN`` or ``APPROVED_WITHOUT_LEASES``.
    """
    if realm.held or proposal.held is not None:
        note_hold(realm, proposal)
    note = _NOTES.get(type(event))
    if note is not None:
        note(realm, proposal, event)
    if proposal.status in TERMINAL:
        name, key = proposal.proposal_id, proposal.submitted.execution_key
        realm.offered.pop(name, None)
        del realm.proposals[name]
        if realm.running.get(key) == name:
            del realm.running[key]


def _effects(realm: RealmState, proposal: Proposal, event: Any) -> None:
    if type(event) in CHANGES_OFFERS:
        note_offers(realm, proposal, event)
    if type(event) in WITH_DEADLINES:
        note_deadlines(realm, proposal.proposal_id, event)


def _held(realm: RealmState, proposal: Proposal, event: ProposalHeld) -> None:
    if event.cause == "caller" and proposal.deadline is not None:
        heapq.heappush(realm.deadlines, (proposal.deadline, proposal.proposal_id))


def _started(realm: RealmState, proposal: Proposal, _: ExecutionStarted) -> None:
    name, key = proposal.proposal_id, proposal.submitted.execution_key
    if realm.running.get(key) == name:
        return
    queue = realm.queues.get(key, [])
    if not queue or queue[0] != name or key in realm.running:
        raise DamagedLogError(ErrorCode.OUT_OF_TURN, f"Proposal {name} was executed out of its turn.", proposal_id=name)
    queue.pop(0)
    if queue:
        realm.queues[key] = queue  # set, so that the change is noted
    else:
        del realm.queues[key]
    realm.running[key] = name


def _decided(realm: RealmState, proposal: Proposal, event: DecisionMade) -> None:
    if proposal.status != "approved":
        return
    name, key = proposal.proposal_id, proposal.submitted.execution_key
    if realm.klis.settings is not None and not _may_go_on(realm, proposal, event):
        raise DamagedLogError(ErrorCode.APPROVED_WITHOUT_LEASES, f"Proposal {name} was approved and holds no lease.")
    queue = realm.queues.get(key, [])
    queue.append(name)
    realm.queues[key] = queue  # set, so that the change is noted


def _may_go_on(realm: RealmState, proposal: Proposal, event: DecisionMade) -> bool:
    """Return whether an approved proposal holds its leases, or needs none: it may write nothing, or it migrates."""
    if proposal.submitted.migration is not None:
        return True
    scope = event.decision.approved_scope
    if event.verdict_id is None and scope is not None and scope.allowed_paths == ():
        return True
    return realm.klis.holds(proposal.submitted.actor.actor_id, proposal.proposal_id)


_NOTES: Final[Mapping[type[Event], Callable[[RealmState, Proposal, Any], None]]] = {
    **dict.fromkeys((*CHANGES_OFFERS, *WITH_DEADLINES), _effects),
    ProposalHeld: _held,
    ExecutionStarted: _started,
    DecisionMade: _decided,
}
"""What changes after an event, by its type."""
