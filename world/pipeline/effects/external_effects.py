"""External effects: workers claim what executions offer, extend their claims, and report results (glossary: claim).

A claim has a fencing token, which is the position of its event in the log, and a deadline. The result of an effect is
recorded only under the claim that holds it; every other result is late or forged, and is recorded as dropped, once for
each claim and actor. A claim whose deadline passes lapses: an idempotent effect is offered again, another one is in
doubt. An effect whose execution was cancelled or lost its leases is not offered any more. Source: design section 8;
HC-journal, HC-handlers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import Event
from world.events.claim_events import ClaimReference, EffectClaimed, EffectExtended, EffectLapsed
from world.events.execution_events import EffectDropped, EffectInDoubt, EffectRequested
from world.model.snapshot import EffectAnswer, ErrorValue
from world.pipeline.effect_requests import GRACE_MS, called_effect
from world.pipeline.effects.doubts import look_up_doubts
from world.pipeline.effects.effect_results import FailedAttempt, record_observed, retried, secrets_of
from world.pipeline.execution_state import OUTCOME_UNKNOWN, ends_at_limit, why_effect_over
from world.pipeline.steps import EffectAnswered, Step
from world.pipeline.unit_of_work import UnitOfWork
from world.state.effect_claim import EffectClaim
from world.state.effect_steps import EndedClaim, unclaimed_offers
from world.state.offers import overdue_claim
from world.state.ports import EffectTerms, Performed
from world.state.proposal import Proposal
from world.state.realm_view import ReadableRealm

__all__ = [
    "Lost",
    "Wanted",
    "claim_effect",
    "claim_lost",
    "claimable",
    "complete_effect",
    "drop_completion",
    "extend_claim",
    "lapse_claims",
    "made_with",
    "subject_of",
    "was_answered",
    "why_lost",
    "why_unwanted",
    "withdraw_offers",
]

EXTENSIONS: Final = 10
"""Most extensions of a claim that are recorded within one time limit of its effect."""


# Claiming


class Wanted(NamedTuple):
    """Which offered effects a worker claims.

    Args:
        types: types of effects that it performs; None is all.
        workspaces: ids of the workspaces that it has.
        proposal_id: the only proposal whose effects it claims; None is all but those that the acting actor performs.
    """

    types: Collection[str] | None
    workspaces: Collection[str] = ()
    proposal_id: str | None = None


def claimable(realm: ReadableRealm, wanted: Wanted, now: int) -> Iterator[tuple[Proposal, EffectRequested]]:
    """Yield the offered effects that a worker may claim, in the order in which they were offered.

    Args:
        realm: the state.
        wanted: which effects.
        now: ms since 1970; an effect that is retried may be claimed after its backoff.
    """
    types, workspaces, only = wanted
    for name in realm.offered if only is None else [only] if only in realm.offered else ():
        proposal = realm.proposals[name]
        for asked in unclaimed_offers(proposal):
            offer, requirement = asked.offer, asked.requirement
            if offer is None or (types is not None and requirement.type not in types):
                continue
            if offer.workspace is not None and offer.workspace not in workspaces:
                continue
            if offer.by_actor and only is None:
                continue
            failure = proposal.failures.get(requirement.id)
            if (failure is None or failure.due <= now) and not why_effect_over(realm, proposal, requirement):
                yield proposal, asked


def claim_effect(work: UnitOfWork, wanted: Wanted, *, worker: str, key: str | None = None) -> EffectClaim | None:
    """Claim the effect that was offered first of those that a worker performs; None where none is offered.

    Args:
        work: the unit of work.
        wanted: which effects.
        worker: name of the worker, for the record.
        key: key of the request; a claim in force that it made is returned again.

    Raises:
        RefusedError: ``IDEMPOTENCY_CONFLICT`` where another worker of the actor made a claim with the key.
    """
    subject = subject_of(work)
    made = next((one for one in made_with(work.realm, key) if one.subject == subject), None)
    if made is not None:
        _check_own(made, worker)
        return _claim_of(work, work.realm.proposals[made.proposal_id], made.requirement_id)
    found = next(claimable(work.realm, wanted, work.at), None)
    if found is None:
        return None
    proposal, asked = found
    assert asked.offer is not None
    name = asked.requirement.id
    failure = proposal.failures.get(name)
    claimed = EffectClaimed(
        at=work.at,
        proposal_id=proposal.proposal_id,
        requirement_id=name,
        claim_id=work.ids.new_id(),
        worker=worker,
        token=work.realm.position + 1,
        deadline=work.at + asked.offer.time_limit_ms + GRACE_MS,
        attempt=1 if failure is None else failure.failures + 1,
        key=key,
    )
    work.emit(proposal.proposal_id, work.of_caller(claimed))
    return _claim_of(work, proposal, name)


def made_with(realm: ReadableRealm, key: str | None) -> Iterator[EffectClaimed]:
    """Yield the claims in force that requests with a key made; each actor has keys of its own."""
    if key is not None:
        claims = (one for proposal in realm.proposals.values() for one in proposal.claims.values())
        yield from (one for one in claims if one.key == key)


def _check_own(made: EffectClaimed, worker: str) -> None:
    if made.worker != worker:
        raise RefusedError(
            ErrorCode.IDEMPOTENCY_CONFLICT,
            f"The key {made.key} was used for a claim of another worker; use a new key for each request.",
        )


def subject_of(work: UnitOfWork) -> str | None:
    """Return the actor that the caller of the running command was verified as; None where it was not."""
    return None if work.verified is None else work.verified.verified_actor


def _claim_of(work: UnitOfWork, proposal: Proposal, name: str) -> EffectClaim:
    """Return a claim in force, with what performing its effect needs."""
    asked, claimed = proposal.requested[name], proposal.claims[name]
    assert asked.offer is not None
    return EffectClaim(
        **called_effect(work, proposal, asked.requirement) | {"attempt": claimed.attempt},
        claim_id=claimed.claim_id,
        token=claimed.token,
        deadline=claimed.deadline,
        worker=claimed.worker,
        time_limit_ms=asked.offer.time_limit_ms,
        idempotent=asked.idempotent,
        workspace=asked.offer.workspace,
        subject=claimed.subject,
    )


# Holding a claim


class Lost(NamedTuple):
    """Why a claim does not hold: a code, and a clause for people."""

    why: str
    message: str


def claim_lost(claim: EffectClaim, lost: Lost) -> RefusedError:
    """Return the refusal of a command about a claim that does not hold."""
    return RefusedError(
        ErrorCode.CLAIM_LOST,
        f"Claim {claim.claim_id} of worker {claim.worker} on effect {claim.requirement.type} does not hold: "
        f"{lost.message}. Stop performing it.",
        why=lost.why,
        proposal_id=claim.proposal_id,
        requirement_id=claim.requirement.id,
        token=claim.token,
    )


def _reference(claim: EffectClaim) -> ClaimReference:
    return ClaimReference(claim_id=claim.claim_id, token=claim.token, worker=claim.worker)


def why_lost(realm: ReadableRealm, claim: EffectClaim, subject: str | None) -> Lost | None:
    """Return why a claim does not hold for a caller; None while it holds.

    The code is ``ENDED`` (the effect has a result, or its proposal has ended), ``LAPSED`` (the deadline of the claim
    passed), ``OTHER_CLAIM`` (so it did, and a later claim holds the effect), or ``NOT_HOLDER`` (the log has no such
    claim, or it belongs to another actor).

    Args:
        realm: the state.
        claim: the claim, as the caller names it.
        subject: the actor that the caller was verified as; None where it was not.
    """
    proposal, name, named = realm.proposals.get(claim.proposal_id), claim.requirement.id, _reference(claim)
    if proposal is None:
        return Lost("ENDED", "its proposal has ended")
    held, ended = proposal.claims.get(name), proposal.ended_claims.get(claim.token)
    if held is not None and held.reference == named:
        return None if held.subject == subject else Lost("NOT_HOLDER", "the claim belongs to another actor")
    if ended is None or (ended.requirement_id, ended.claim, ended.subject) != (name, named, subject):
        return Lost("NOT_HOLDER", "the log has no such claim of this actor on the effect")
    if name not in proposal.requested and name not in proposal.in_doubt:
        return Lost("ENDED", "the effect has a result")
    if held is not None:
        return Lost("OTHER_CLAIM", f"worker {held.worker} holds the effect with the larger token {held.token}")
    return Lost("LAPSED", "its deadline passed")


def why_unwanted(realm: ReadableRealm, claim: EffectClaim, subject: str | None) -> Lost | None:
    """Return why a claimed effect is to be given up: ``why_lost``, or why its execution may make no effect any more."""
    lost = why_lost(realm, claim, subject)
    if lost is not None:
        return lost
    proposal = realm.proposals[claim.proposal_id]
    over = why_effect_over(realm, proposal, claim.requirement)
    return None if over is None else Lost(over[0], f"the effect is not wanted any more ({over[1].rstrip('.')})")


def extend_claim(work: UnitOfWork, claim: EffectClaim, *, begins: bool = False) -> EffectClaim:
    """Extend a claim by the effect's time limit from now, and return it with its new deadline.

    An extension by less than a tenth of the time limit is not recorded, so that heartbeats in quick succession do not
    grow the log; nor does one by a clock that is behind the one of the claim.

    Args:
        work: the unit of work.
        claim: the claim, as it was given.
        begins: record it in any case, as the sign that the effect begins.

    Raises:
        RefusedError: ``CLAIM_LOST`` where it does not hold; its ``why`` is that of ``why_lost``, or the code of the
            reason for which the effect is not wanted any more, such as ``CANCELLED``.
    """
    lost = why_unwanted(work.realm, claim, subject_of(work))
    if lost is not None:
        raise claim_lost(claim, lost)
    name = claim.requirement.id
    proposal = work.realm.proposals[claim.proposal_id]
    asked, held = proposal.requested[name], proposal.claims[name]
    assert asked.offer is not None
    deadline = max(held.deadline, work.at + asked.offer.time_limit_ms + GRACE_MS)
    if begins or deadline - held.deadline >= max(1, asked.offer.time_limit_ms // EXTENSIONS):
        extended = EffectExtended(
            at=work.at,
            proposal_id=proposal.proposal_id,
            requirement_id=name,
            claim_id=claim.claim_id,
            token=claim.token,
            deadline=deadline,
        )
        work.emit(proposal.proposal_id, work.of_caller(extended))
    return _claim_of(work, proposal, name)


# Completing


def was_answered(proposal: Proposal, claim: EffectClaim, subject: str | None) -> bool:
    """Return whether a result of this claim is recorded: the acknowledgement of its completion was lost.

    Args:
        proposal: its proposal.
        claim: the claim, as the caller names it.
        subject: the actor that the caller was verified as; None where it was not.
    """
    answered = EndedClaim(claim.requirement.id, _reference(claim), True, subject)
    return proposal.ended_claims.get(claim.token) == answered


def drop_completion(
    work: UnitOfWork, claim: EffectClaim, performed: Performed, lost: Lost, past: Iterable[Event]
) -> None:
    """Record that a result was refused because its claim does not hold; what was observed of it happened all the same.

    It is recorded once for each actor that names a claim which was made; nothing is recorded of an invented one.

    Args:
        work: the unit of work.
        claim: the claim that the completion names.
        performed: the result.
        lost: why the claim does not hold.
        past: the events of its proposal so far, at least ``effect.claimed`` and ``effect.dropped``.
    """
    name, named, subject, was_made = claim.proposal_id, _reference(claim), subject_of(work), False
    for event in past:
        if isinstance(event, EffectClaimed):
            was_made |= (event.requirement_id, event.reference) == (claim.requirement.id, named)
        elif isinstance(event, EffectDropped) and event.claim == named:
            by = None if event.verified is None else event.verified.verified_actor
            if by == subject:
                return
    if not was_made:
        return
    if name in work.realm.proposals and lost.why != "NOT_HOLDER":
        record_observed(work, name, performed)
    dropped = EffectDropped(
        at=work.at,
        proposal_id=name,
        requirement_id=claim.requirement.id,
        reason=f"{lost.why}: {lost.message}",
        claim=named,
    )
    work.emit(name, work.of_caller(dropped))


def complete_effect(work: UnitOfWork, claim: EffectClaim, performed: Performed) -> Iterable[Step]:
    """Journal the result of a claimed effect, or offer it again after a failure that may be temporary.

    Args:
        work: the unit of work.
        claim: a claim that holds (``why_lost``).
        performed: the result.
    """
    proposal, name = work.realm.proposals[claim.proposal_id], claim.requirement.id
    asked, held = proposal.requested[name], proposal.claims[name]
    assert asked.offer is not None
    record_observed(work, proposal.proposal_id, performed)
    offer = asked.offer
    terms = EffectTerms(offer.time_limit_ms, asked.idempotent, retries=offer.retries, backoff_ms=offer.backoff_ms)
    failed = FailedAttempt(asked.requirement, terms, held.attempt, held.reference)
    if performed.retryable and retried(work, proposal, failed, performed):
        return ()
    secrets = secrets_of(performed)
    return (EffectAnswered(proposal, name, performed.result, asked.attempt, secrets, held.reference),)


# Ends without a result


def lapse_claims(work: UnitOfWork) -> Iterator[Step]:
    """End the claims whose deadlines have passed: offer their effects again, or put them in doubt.

    Many are divided among several units (``UnitOfWork.begins``).
    """
    while (overdue := overdue_claim(work.realm, work.at)) is not None:
        if not work.begins():
            return
        proposal, name = overdue
        asked, claim = proposal.requested[name], proposal.claims[name]
        where: dict[str, Any] = {"at": work.at, "proposal_id": proposal.proposal_id, "requirement_id": name}
        ended = _why_ended(work, proposal, asked)
        if asked.idempotent or ended is not None:
            work.emit(proposal.proposal_id, EffectLapsed(**where, claim_id=claim.claim_id, token=claim.token))
            if ended is not None:
                yield _called_off(proposal, asked, ended, work.at)
            continue
        reason = (
            f"The worker {claim.worker} claimed the effect {asked.requirement.type} and did not report its result in "
            "time; it may have happened, and it is not declared idempotent, so it is not offered again."
        )
        work.emit(proposal.proposal_id, EffectInDoubt(**where, reason=reason))
        look_up_doubts(work)


def _why_ended(work: UnitOfWork, proposal: Proposal, asked: EffectRequested) -> tuple[str, str] | None:
    """Return the error's code and message of an effect whose claim lapsed and that ends; None where it does not."""
    over = why_effect_over(work.realm, proposal, asked.requirement)
    if over is not None:
        return over[
            0
        ], f"{over[1]} Its worker did not report; whether {asked.requirement.type} did anything is unknown."
    if ends_at_limit(asked) and not asked.idempotent:
        return OUTCOME_UNKNOWN, "Its time was over, and no result of this call was reported: it failed, or was made."
    return None


def withdraw_offers(work: UnitOfWork, proposal_ids: Iterable[str]) -> Iterator[Step]:
    """Answer offered effects that no worker has claimed, of executions that must make no effect any more, by an error.

    Args:
        work: the unit of work.
        proposal_ids: the executions; those that may go on are left alone.
    """
    for name in proposal_ids:
        proposal = work.realm.proposals.get(name)
        for asked in [] if proposal is None else list(unclaimed_offers(proposal)):
            assert proposal is not None
            over = why_effect_over(work.realm, proposal, asked.requirement)
            if over is not None:
                yield _called_off(proposal, asked, over, work.at)


def _called_off(proposal: Proposal, asked: EffectRequested, over: tuple[str, str], at: int) -> EffectAnswered:
    requirement = asked.requirement
    error = ErrorValue.at(*over, requirement.action_id, requirement.node_path, at)
    return EffectAnswered(proposal, requirement.id, EffectAnswer(error=error), asked.attempt)
