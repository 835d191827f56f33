"""Checks of the claims of workers on offered effects, of each event against the state before it (HC-journal).

The fold checks that an effect is offered and unclaimed when it is claimed, and that a claim is extended, lapses and is
answered under its own id and token. These checks cover tokens, times and terms.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, get_args

from world.events.claim_events import EffectClaimed, EffectExtended, EffectLapsed
from world.events.execution_events import EffectDropped, EffectInDoubt, EffectRequested, EffectRetried
from world.pipeline.execution_state import ends_at_limit, why_effect_over
from world.state.proposal import Proposal
from world.state.realm_view import ReadableRealm

__all__ = ["CLAIM_TOPICS", "ClaimEvent", "faults_of_claims", "faults_of_offer"]

ClaimEvent = EffectClaimed | EffectExtended | EffectLapsed | EffectInDoubt | EffectDropped | EffectRetried

CLAIM_TOPICS: Final = tuple(kind.TOPIC for kind in get_args(ClaimEvent))
"""Topics of the events that ``faults_of_claims`` checks."""


def faults_of_offer(event: EffectRequested, proposal: Proposal) -> Iterator[str]:
    """Yield the faults of a request as an offer: an offered effect stays offered on the same terms.

    Args:
        event: the request.
        proposal: the proposal before it.
    """
    before, offer = proposal.requested.get(event.requirement.id), event.offer
    terms = offer, event.idempotent
    if before is not None and before.offer is not None and terms != (before.offer, before.idempotent):
        yield f"effect {event.requirement.id} was offered on other terms before"
    if offer is None:
        return
    if event.deadline != 0:
        yield f"an offered effect has the deadline 0, not {event.deadline}"
    if offer.time_limit_ms < 1 or offer.retries < 0 or offer.backoff_ms < 1:
        yield "the terms of the offer are no positive times and a number of retries"


def faults_of_claims(event: ClaimEvent, proposal: Proposal, realm: ReadableRealm, position: int) -> Iterator[str]:
    """Yield the faults of an event about a claim, as sentences.

    Args:
        event: the event.
        proposal: the proposal before it.
        realm: the state before it.
        position: its position in the log.
    """
    asked, claim = proposal.requested.get(event.requirement_id), proposal.claims.get(event.requirement_id)
    if isinstance(event, EffectLapsed | EffectInDoubt) and claim is not None and event.at <= claim.deadline:
        yield f"the deadline of the claim, {claim.deadline}, has not passed"
    ends = isinstance(event, EffectClaimed | EffectExtended | EffectLapsed)
    over = why_effect_over(realm, proposal, asked.requirement) if ends and asked is not None else None
    if isinstance(event, EffectClaimed):
        yield from _of_claim(event, proposal, position)
    elif isinstance(event, EffectExtended):
        if event.deadline < event.at:
            yield f"its deadline {event.deadline} is before the heartbeat"
    elif isinstance(event, EffectLapsed):
        if asked is not None and not asked.idempotent and over is None and not ends_at_limit(asked):
            yield "an effect that is not idempotent is in doubt, and not offered again"
    elif isinstance(event, EffectInDoubt):
        if claim is not None and asked is not None and asked.idempotent:
            yield "an idempotent effect is offered again, and not in doubt"
        elif claim is not None and asked is not None and ends_at_limit(asked):
            yield "the call of a hook or a run ends at its limit, and is not in doubt"
    elif isinstance(event, EffectRetried):
        yield from _of_retry(event, asked, claim)
    else:
        yield from _of_dropped(event, claim)
    if isinstance(event, EffectClaimed | EffectExtended) and over is not None:
        yield f"the execution may make no effect any more ({over[0]})"


def _of_claim(event: EffectClaimed, proposal: Proposal, position: int) -> Iterator[str]:
    failure = proposal.failures.get(event.requirement_id)
    if event.token != position:
        yield f"the token of a claim is its position {position}, not {event.token}"
    attempt = 1 if failure is None else failure.failures + 1
    if event.attempt != attempt:
        yield f"it is attempt {attempt} at the effect, not {event.attempt}"
    if failure is not None and event.at < failure.due:
        yield f"the effect may be claimed again from {failure.due} on"
    if event.deadline < event.at:
        yield f"its deadline {event.deadline} is before the claim"


def _of_dropped(event: EffectDropped, claim: EffectClaimed | None) -> Iterator[str]:
    actor = None if event.verified is None else event.verified.verified_actor
    if claim is not None and claim.reference == event.claim and claim.subject == actor:
        yield f"the result of worker {claim.worker}, which holds the effect, was dropped"


def _of_retry(event: EffectRetried, asked: EffectRequested | None, claim: EffectClaimed | None) -> Iterator[str]:
    if claim is None or asked is None or asked.offer is None:
        return
    if event.failures != claim.attempt:
        yield f"it is failure {claim.attempt} of the effect, not {event.failures}"
    if not asked.idempotent or event.failures > asked.offer.retries:
        yield "no retry of the effect was left"
