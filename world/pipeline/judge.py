"""Judging: a Case for the Authority, its Ruling, answers of people, and time-outs.

Sources: WP-decision, WP-bind, WP-epoch, INT-13.3; design section 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import structs

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.proposal_events import HumanAnswered, HumanTimedOut, ProposalJudged
from world.model.canonical_json import canonical_bytes
from world.model.decision import HUMAN_ANSWER, HumanAnswer, RuleOutcome, Ruling
from world.model.immutable_json import freeze
from world.model.new_names import ANY_HUMAN
from world.model.overruling import overruled
from world.model.scope_patterns import check_number
from world.pipeline.adopted_code.holding import hold, in_force, is_held_back
from world.pipeline.callers import hold_for_caller
from world.pipeline.leasing.klis_settings_in_force import is_arbitrated
from world.pipeline.leasing.proposal_manifest import declared_manifest, needs_of
from world.pipeline.preparation.prepared import prepared_ruling
from world.pipeline.shadowing import shadow
from world.pipeline.steps import Approvable, Decidable, LeftBehind, Step, Submitted
from world.pipeline.unit_budget import DUE_AT_ONCE
from world.pipeline.unit_of_work import UnitOfWork
from world.state.ports import Case, History
from world.state.proposal import Proposal
from world.state.proposal_queues import awaits_caller

NOT_ASKED_AGAIN: Final = "not asked again"
"""Reason of ``proposal.superseded`` where the caller of an approved call did not ask again in its time."""

_VOTES: Final = frozenset({"approve", "narrow", "reject", "abstain"})
"""Answers that count as a vote."""


def judge(work: UnitOfWork, submitted: Submitted) -> Iterable[Step]:
    """Record the ruling on a new proposal, prepared or of a call of the Authority; no step while people are asked.

    A proposal whose policy or action differs from the one in force is held instead
    (``world.pipeline.adopted_code.holding``), whether or not a ruling was prepared.
    """
    proposal, was_held = submitted.proposal, submitted.proposal.held is not None
    if work.same_code is not work.realm.domain and is_held_back(work, proposal):
        return ()
    binding = work.realm.bindings[proposal.submitted.actor.actor_id]
    ready = prepared_ruling(work, proposal.proposal_id, binding=binding)
    is_of_adopted = ready is not None and ready.ruling.policy_hash == ready.policy_hash
    if not is_of_adopted and hold(work, proposal):
        return ()
    if ready is None:
        case = case_of(work, proposal, binding)
        ruling = work.authority.judge(case)
        shadow(work, case)
    else:
        ruling = ready.ruling
        shadow(work, ready.case, ready.shadow_ruling)
    return _record(work, proposal, in_force(work, ruling, binding), binding, is_late=was_held)


def answer(work: UnitOfWork, proposal_id: str, given: HumanAnswer) -> Iterable[Step]:
    """Record a person's answer to a waiting proposal, and the ruling where the answer changes it.

    Raises:
        RefusedError: ``NOT_WAITING`` when no actor is asked, ``NO_OPEN_QUESTION`` for a reply without a question,
            ``DELEGATION_REFUSED`` to an actor that cannot be asked, ``ANSWER_TOO_LARGE``, ``SCOPE_TOO_LARGE``, and what
            the Authority refuses.
    """
    proposal, asked = _waiting(work, proposal_id)
    work.require_actor(given.by.actor_id)
    check_number(0 if given.scope is None else len(given.scope.allowed_paths or ()), "The answer's scope")
    _check_mentioned(work, proposal, given)
    binding = proposal.binding or {}
    ready = prepared_ruling(work, proposal_id, binding=binding, asked=asked)
    if ready is None:
        ruling = work.authority.answer(case_of(work, proposal, binding), asked, given)
    else:
        ruling = ready.ruling
    _check_size(work, ruling, given)
    work.emit(proposal_id, work.of_caller(HumanAnswered(at=work.at, proposal_id=proposal_id, answer=given)))
    if ruling == asked:
        return ()
    is_new_step = ruling.step != asked.step
    deadline = None if is_new_step else proposal.deadline
    return _record(work, proposal, ruling, binding, is_late=True, deadline=deadline)


def _check_size(work: UnitOfWork, ruling: Ruling, given: HumanAnswer) -> None:
    """Keep room for what follows: a time limit that cannot be recorded would hold up everything."""
    limit = work.limits.max_event_bytes // 2
    if len(canonical_bytes(ruling.to_wire())) > limit:
        raise RefusedError(
            ErrorCode.ANSWER_TOO_LARGE,
            f"With this answer the ruling would have more than {limit} bytes; give a shorter reason or fewer patterns, "
            "or raise the limit max_event_bytes.",
            actor_id=given.by.actor_id,
            limit_bytes=limit,
        )


def _check_mentioned(work: UnitOfWork, proposal: Proposal, given: HumanAnswer) -> None:
    """Check what a recheck does not: the delegate, and that a reply has a question.

    Logs exist in which a delegation to ``*`` or to an actor that had voted was recorded; their rulings are rechecked as
    they were made.
    """
    if given.to is not None and (why := _why_no_delegate(work, proposal, given.to)) is not None:
        raise RefusedError(
            ErrorCode.DELEGATION_REFUSED,
            f"{given.by.actor_id!r} cannot hand the answer on: {why}.",
            actor_id=given.by.actor_id,
            to=given.to,
        )
    is_proposer = given.by.actor_id == proposal.submitted.actor.actor_id
    if given.choice == "reply" and is_proposer and not proposal.open_questions:
        raise RefusedError(
            ErrorCode.NO_OPEN_QUESTION, "Every question has been replied to.", actor_id=given.by.actor_id
        )


def _why_no_delegate(work: UnitOfWork, proposal: Proposal, to: str) -> str | None:
    """Return why an actor cannot be asked by a delegation, None where it can."""
    if to == ANY_HUMAN:
        return "`*` means any human, and a seat is handed to one actor"
    if to not in work.realm.actors:
        return f"{to!r} is not registered (`worldctl actor add`)"
    trace = () if proposal.asked is None else proposal.asked.trace
    answers = {outcome.answer for outcome in trace if _is_answer_of(outcome, to)}
    return f"{to!r} has voted on this proposal" if answers & _VOTES else None


def _is_answer_of(outcome: RuleOutcome, actor_id: str) -> bool:
    return outcome.rule == HUMAN_ANSWER and outcome.source.partition(":")[2] == actor_id


def expire(work: UnitOfWork) -> Iterator[Step]:
    """Apply the time-out rule of its binding to every proposal whose deadline for an answer has passed.

    An approved call whose caller did not ask again in its time is superseded.
    """
    due = work.realm.overdue(work.at)
    for proposal in due[DUE_AT_ONCE:]:
        work.realm.wait_again(proposal)
        work.is_unfinished = True
    for proposal in due[:DUE_AT_ONCE]:
        asked, deadline = proposal.asked, proposal.deadline
        assert deadline is not None
        if asked is None:
            if awaits_caller(work.realm.klis, proposal):
                yield LeftBehind(proposal, NOT_ASKED_AGAIN)
            continue
        binding = proposal.binding or {}
        work.emit(
            proposal.proposal_id,
            HumanTimedOut(at=work.at, proposal_id=proposal.proposal_id, deadline=deadline),
        )
        yield from _record(work, proposal, _expired(work, proposal, binding, asked), binding, is_late=True)


def _expired(work: UnitOfWork, proposal: Proposal, binding: Mapping[str, Any], asked: Ruling) -> Ruling:
    """Return the ruling of a time-out; a proposal whose case cannot be made any more is rejected."""
    try:
        return work.authority.expire(case_of(work, proposal, binding), asked)
    except RefusedError as refused:
        return overruled(asked, "case", refused.message)


def case_of(work: UnitOfWork, proposal: Proposal, binding: Mapping[str, Any], history: History | None = None) -> Case:
    """Return the Case of a proposal as of now."""
    submitted = proposal.submitted
    intent = proposal.intent
    spec = work.domain.schema.actions.get(intent.body.type)
    return Case(
        proposal_id=submitted.proposal_id,
        intent=intent,
        actor=submitted.actor,  # as registered: what a caller claims of itself is not believed
        binding=freeze(binding),
        action=None if spec is None else spec.spec,
        base_world=submitted.base_world,
        view=work.snapshot(submitted.base_world).view,
        schema_hash=submitted.schema_hash,
        branch=submitted.branch,
        submitted_at=submitted.at,
        earlier_attempts=submitted.attempt - 1,
        history=history or work.history(submitted.proposal_id),
        manifest=_declared(work, proposal),
        scope_rules=proposal.scope_rules,
    )


def _declared(work: UnitOfWork, proposal: Proposal) -> Mapping[str, Any] | None:
    """Return what the action declares to touch, for rules to read (CARD-policy).

    What cannot be made is rejected by arbitration.
    """
    try:
        scope = declared_manifest(work, proposal)
    except RefusedError:
        return None
    return None if scope is None else freeze({"scope": scope})


def _waiting(work: UnitOfWork, proposal_id: str) -> tuple[Proposal, Ruling]:
    proposal = work.realm.proposals.get(proposal_id)
    asked = None if proposal is None else proposal.asked
    if proposal is None or asked is None:
        raise RefusedError(
            ErrorCode.NOT_WAITING,
            f"Proposal {proposal_id} is not waiting for an answer: it is unknown, decided or superseded. "
            "`worldctl inbox` lists what waits.",
            proposal_id=proposal_id,
        )
    return proposal, asked


def _record(
    work: UnitOfWork,
    proposal: Proposal,
    ruling: Ruling,
    binding: Mapping[str, Any],
    *,
    is_late: bool,
    deadline: int | None = None,
) -> Iterable[Step]:
    """Record a ruling, and return the step to arbitration or to the decision; none while people are asked.

    A ruling that still waits after an answer keeps its deadline; one of a new step of the binding gets a new one. A
    late approval, in a unit after the submission, leaves an attended call to its caller.
    """
    if ruling.verdict != "wait":
        deadline = None
    elif deadline is None and ruling.timeout_ms is not None:
        deadline = work.at + ruling.timeout_ms
    needs = needs_of(work, proposal, ruling) if ruling.verdict == "approve" and is_arbitrated(work) else None
    is_left = is_late and ruling.verdict == "approve" and proposal.submitted.attended is not None
    is_decided = ruling.verdict != "wait" and (needs is None or needs.is_free) and not is_left
    work.emit(
        proposal.proposal_id,
        ProposalJudged(
            at=work.at,
            proposal_id=proposal.proposal_id,
            ruling=structs.replace(ruling, trace=()) if is_decided else ruling,  # the DecisionRecord has the trace
            binding=freeze(binding),
            deadline=deadline,
        ),
    )
    if is_left:
        hold_for_caller(work, proposal)
    if ruling.verdict == "wait" or is_left:
        return ()
    return (Decidable(proposal, ruling),) if needs is None else (Approvable(proposal, ruling, needs),)
