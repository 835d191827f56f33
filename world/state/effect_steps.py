"""Effects of an execution, folded from their events: requested, offered, claimed, failed, in doubt, fulfilled.

An offered effect is claimed by one worker at a time. A claim ends with the result that names it, when it lapses, when
its effect is in doubt, or with its proposal. Source: design sections 5 and 8; HC-journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import structs

from world.error_codes import ErrorCode
from world.events.base import Event
from world.events.claim_events import ClaimReference, EffectClaimed, EffectExtended, EffectLapsed
from world.events.execution_events import (
    EffectDropped,
    EffectFulfilled,
    EffectInDoubt,
    EffectRequested,
    EffectResolved,
    EffectRetried,
)
from world.events.lease_events import ProposalRescheduled
from world.model.snapshot import ErrorValue
from world.state.preconditions import contradiction, require

if TYPE_CHECKING:
    from world.state.proposal import Proposal

__all__ = [
    "EFFECT_STEPS",
    "GIVEN_UP",
    "ROLLBACK",
    "EndedClaim",
    "effect_deadline",
    "hurry_claims",
    "reschedule_effects",
    "unclaimed_offers",
]

ROLLBACK: Final = "workspace.restore"
"""The effect by which a failed execution gives back what it had leased for change; the engine alone asks for it."""
GIVEN_UP: Final = frozenset({"EFFECT_TIMED_OUT", "CANCELLED", "LEASES_REVOKED", "NOT_WANTED", "KLIS_SCOPE_VIOLATION"})
"""Codes of effects whose handlers may still run, though their results are not used any more."""


CANCELLED_FOR_MS: Final = 15_000
"""Time that an actor has to report a call that was cancelled while it made it, in ms."""


class EndedClaim(NamedTuple):
    """A claim that does not hold any more: its effect, whether it ended with a result of its worker, and its actor."""

    requirement_id: str
    claim: ClaimReference
    is_answered: bool
    subject: str | None = None


def unclaimed_offers(proposal: Proposal) -> Iterator[EffectRequested]:
    """Yield the offered effects of an execution that no worker has claimed."""
    for name, asked in proposal.requested.items():
        if asked.offer is not None and name not in proposal.claims:
            yield asked


def hurry_claims(proposal: Proposal, at: int) -> None:
    """Let the claims of actors on their own calls end soon after a cancellation at a time, ms since 1970."""
    for name, claim in proposal.claims.items():
        offer = proposal.requested[name].offer
        if offer is not None and offer.by_actor:
            soon = min(claim.deadline, at + CANCELLED_FOR_MS)
            proposal.claims[name] = structs.replace(claim, deadline=soon)


def effect_deadline(proposal: Proposal, requirement_id: str) -> int | None:
    """Return when the executing process has had its time for an effect, ms since 1970; None for other effects."""
    asked = proposal.requested.get(requirement_id)
    return None if asked is None or asked.offer is not None else asked.deadline


def reschedule_effects(proposal: Proposal, event: ProposalRescheduled) -> None:
    """Set the deadlines of effects under way, of claims, and of retries, that lie after the confirmed time."""
    for name, deadline in event.effects.items():
        asked, claim = proposal.requested.get(name), proposal.claims.get(name)
        if asked is None:
            raise contradiction(proposal, event, f"effect {name} is not under way")
        if claim is not None:
            proposal.claims[name] = structs.replace(claim, at=event.at, deadline=deadline)
            proposal.requested[name] = structs.replace(asked, at=min(asked.at, event.at))
        else:
            proposal.requested[name] = structs.replace(asked, at=event.at, deadline=deadline)
        proposal.requested_at[name] = min(proposal.requested_at.get(name, event.at), event.at)
        failure = proposal.failures.get(name)
        if failure is not None and failure.at > event.at:
            due = event.at + failure.due - failure.at
            proposal.failures[name] = structs.replace(failure, at=event.at, due=due)


def _requested(proposal: Proposal, event: EffectRequested) -> None:
    require(proposal, "executing", event)
    name = event.requirement.id
    if name in proposal.in_doubt:
        raise contradiction(proposal, event, f"effect {name} is in doubt")
    if name in proposal.claims:
        raise _bad_claim(proposal, event, f"effect {name} is claimed")
    proposal.requested[name] = event
    proposal.requested_at.setdefault(name, event.at)


def _claimed(proposal: Proposal, event: EffectClaimed) -> None:
    require(proposal, "executing", event)
    name = event.requirement_id
    asked = proposal.requested.get(name)
    if asked is None or asked.offer is None:
        raise _bad_claim(proposal, event, f"effect {name} is not offered")
    if name in proposal.claims:
        raise _bad_claim(proposal, event, f"effect {name} is claimed by {proposal.claims[name].worker}")
    proposal.claims[name] = event


def _extended(proposal: Proposal, event: EffectExtended) -> None:
    claim = _held_claim(proposal, event)
    proposal.claims[event.requirement_id] = structs.replace(claim, at=event.at, deadline=event.deadline)


def _lapsed(proposal: Proposal, event: EffectLapsed) -> None:
    claim = _held_claim(proposal, event)
    name = event.requirement_id
    _end_claim(proposal, name, claim, is_answered=False)
    proposal.requested[name] = structs.replace(proposal.requested[name], at=event.at)  # it is offered from now on


def _held_claim(proposal: Proposal, event: EffectExtended | EffectLapsed) -> EffectClaimed:
    require(proposal, "executing", event)
    claim = proposal.claims.get(event.requirement_id)
    if claim is None or (claim.claim_id, claim.token) != (event.claim_id, event.token):
        raise _bad_claim(proposal, event, f"claim {event.claim_id} with token {event.token} does not hold the effect")
    return claim


def _answer_claim(proposal: Proposal, event: EffectFulfilled | EffectRetried) -> None:
    """End the claim of an effect with the result that its worker reported."""
    name, named = event.requirement_id, event.claim
    claim = proposal.claims.get(name)
    if (None if claim is None else claim.reference) != named:
        held = "no worker has claimed it" if claim is None else f"it is claimed with token {claim.token}"
        raise _bad_claim(proposal, event, f"the result of effect {name} {_of(named)}, but {held}")
    if claim is not None:
        _end_claim(proposal, name, claim, is_answered=True)


def _end_claim(proposal: Proposal, name: str, claim: EffectClaimed, *, is_answered: bool) -> None:
    del proposal.claims[name]
    proposal.ended_claims[claim.token] = EndedClaim(name, claim.reference, is_answered, claim.subject)


def _of(named: ClaimReference | None) -> str:
    return "names no claim" if named is None else f"names the claim with token {named.token} of {named.worker}"


def _bad_claim(proposal: Proposal, event: Event, why: str) -> Exception:
    return contradiction(proposal, event, why, ErrorCode.BAD_CLAIM)


def _fulfilled(proposal: Proposal, event: EffectFulfilled) -> None:
    require(proposal, "executing", event)
    if event.requirement_id in proposal.journal:
        raise contradiction(proposal, event, f"effect {event.requirement_id} was fulfilled before")
    if event.looked_up and event.requirement_id not in proposal.in_doubt:
        raise contradiction(proposal, event, f"effect {event.requirement_id} was looked up and is not in doubt")
    asked = _under_way(proposal, event)
    _answer_claim(proposal, event)
    proposal.may_linger |= _was_given_up(event.result.error)
    proposal.failures.pop(event.requirement_id, None)
    proposal.requested_at.pop(event.requirement_id, None)
    if asked.requirement.type == ROLLBACK:
        proposal.rollback = event.result
    else:
        proposal.journal[event.requirement_id] = event.result


def _was_given_up(error: ErrorValue | None) -> bool:
    return error is not None and error.code in GIVEN_UP


def _under_way(proposal: Proposal, event: EffectFulfilled | EffectInDoubt) -> EffectRequested:
    asked = proposal.requested.pop(event.requirement_id, None) or proposal.in_doubt.pop(event.requirement_id, None)
    if asked is None:
        raise contradiction(proposal, event, f"effect {event.requirement_id} was not requested")
    return asked


def _retried(proposal: Proposal, event: EffectRetried) -> None:
    require(proposal, "executing", event)
    if event.requirement_id not in proposal.requested:
        raise contradiction(proposal, event, f"effect {event.requirement_id} is not under way")
    _answer_claim(proposal, event)
    proposal.may_linger |= _was_given_up(event.error)
    proposal.failures[event.requirement_id] = event


def _doubted(proposal: Proposal, event: EffectInDoubt) -> None:
    require(proposal, "executing", event)
    name = event.requirement_id
    asked = _under_way(proposal, event)
    claim = proposal.claims.get(name)
    if claim is not None:
        _end_claim(proposal, name, claim, is_answered=False)
    elif asked.offer is not None:
        raise _bad_claim(proposal, event, f"effect {name} is offered and no worker has claimed it")
    proposal.in_doubt[name] = asked


def _resolved(proposal: Proposal, event: EffectResolved) -> None:
    require(proposal, "executing", event)
    asked = proposal.in_doubt.pop(event.requirement_id, None)
    if asked is None:
        raise contradiction(proposal, event, f"effect {event.requirement_id} is not in doubt")
    proposal.requested[event.requirement_id] = asked


def _dropped(proposal: Proposal, event: EffectDropped) -> None:
    proposal.dropped += 1


EFFECT_STEPS: Final[Mapping[type[Event], Callable[[Proposal, Any], None]]] = {
    EffectRequested: _requested,
    EffectClaimed: _claimed,
    EffectExtended: _extended,
    EffectLapsed: _lapsed,
    EffectFulfilled: _fulfilled,
    EffectDropped: _dropped,
    EffectRetried: _retried,
    EffectInDoubt: _doubted,
    EffectResolved: _resolved,
}
"""Steps of the fold of a proposal, by the event."""
