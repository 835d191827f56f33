"""Answers of people to waiting proposals, and the rulings that follow.

Open questions are read from the ruling itself: its trace holds every question and every answer
(``authority.people.questions``). Every question needs its own approval; one person may satisfy several. A proposer
never answers for the own proposal, not even as a delegate. The approved scope is always within the proposed one and
within every narrowing of rules and people. A binding may have further steps; each asks a new question, and their number
is bounded. The reasons of rulings are recorded and compared by rechecks; they must not change.
Sources: WP-bind, INT-13.3; design section 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from msgspec.structs import replace

from authority.bounded_text import bounded, listed
from authority.people.questions import (
    PEOPLE_ASKED,
    TIME_LIMIT,
    Question,
    asked_at,
    questions_of,
    unanswerable,
    who_decides,
)
from authority.scope import outside, restrict
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.decision import HUMAN_ANSWER, REMARKS, HumanAnswer, OnTimeout, Quorum, RuleAnswer, RuleOutcome, Ruling
from world.model.intent import IntentScope
from world.state.ports import Case

MAX_DELEGATIONS: Final = 8
"""Maximum number of delegations of one seat."""

_VERBS: Final = {
    "approve": "agreed",
    "narrow": "agreed",
    "reject": "voted against it",
    "abstain": "abstained",
}


@dataclass(frozen=True, slots=True)
class QuestionSettings:
    """Settings of a question of a binding or of one of its steps.

    Args:
        ask: ids of the actors who may answer; ``*`` is any human.
        timeout_ms: time limit in milliseconds; None is unlimited.
        on_timeout: what happens after the time limit.
        quorum: how many of them must approve; None is any one.
        then: the further steps, which have none themselves.
    """

    ask: tuple[str, ...]
    timeout_ms: int | None
    on_timeout: OnTimeout
    quorum: Quorum | None = None
    then: tuple[QuestionSettings, ...] = ()


def ask_people(case: Case, settings: QuestionSettings, authority: str) -> Ruling:
    """Return the ruling of an authority that consists only of people."""
    why = unanswerable(settings.ask, settings.quorum, case.actor.actor_id)
    if why is not None:
        return ask_next_step(case, Ruling("reject", authority, why), settings, ())
    question = Question.put(settings.ask, settings.quorum, case.actor.actor_id)
    return Ruling(
        "wait",
        authority,
        who_decides([question]),
        trace=() if settings.quorum is None else (_put(settings, case),),
        ask=question.pending,
        timeout_ms=settings.timeout_ms,
        on_timeout=settings.on_timeout,
    )


def ask_next_step(case: Case, otherwise: Ruling, settings: QuestionSettings, trace: Sequence[RuleOutcome]) -> Ruling:
    """Return the ruling of the next step whose question can be answered.

    Args:
        case: the case.
        otherwise: the rejection without such a step; its reason says why the next step is needed.
        settings: the settings of the binding.
        trace: the trace so far.
    """
    proposer = case.actor.actor_id
    for step in range(otherwise.step, len(settings.then)):
        one = settings.then[step]
        if unanswerable(one.ask, one.quorum, proposer) is not None:
            continue
        question = Question.put(one.ask, one.quorum, proposer)
        return Ruling(
            "wait",
            otherwise.authority,
            f"{otherwise.reason}; now {who_decides([question])}",
            trace=(*_undecided(trace), _put(one, case)),
            policy_hash=otherwise.policy_hash,
            ask=question.pending,
            timeout_ms=one.timeout_ms,
            on_timeout=one.on_timeout,
            step=step + 1,
        )
    if len(settings.then) > otherwise.step:
        return replace(otherwise, reason=f"{otherwise.reason}; and of no further step can anybody approve it")
    return otherwise


def answered(case: Case, asked: Ruling, answer: HumanAnswer, settings: QuestionSettings | None = None) -> Ruling:
    """Return the ruling after a person's answer.

    Args:
        case: the case, as it was judged.
        asked: the ruling that waits.
        answer: approve (unchanged), reject, narrow (with a scope), abstain (a vote that approves nothing),
            delegate (to another actor), escalate (to the next step); or ask and reply, which keep it waiting,
            unchanged.
        settings: the settings of the binding; None has no further steps.

    Returns:
        ``asked`` itself for ask and reply; a rejection; an approval; or, while questions are open, a ruling that
        waits and holds this answer in its trace.

    Raises:
        RefusedError: ``NOT_WAITING``, ``OWN_PROPOSAL``, ``NOT_PROPOSER`` (reply), ``NOT_ASKED``, ``ALREADY_VOTED``;
            ``REASON_MISSING`` (reply, escalate); ``ABSTENTION_REFUSED``, ``DELEGATION_REFUSED``,
            ``NO_FURTHER_STEP``; ``SCOPE_NOT_EXPECTED`` with a scope in another answer than narrow;
            ``SCOPE_MISSING`` for a narrowing without patterns; ``SCOPE_NOT_WITHIN`` for one that exceeds the scope that
            can be approved; ``SCOPE_TOO_LARGE`` or ``INVALID_VALUE`` for one that cannot be compared or written.
    """
    _check_waiting(asked)
    questions = questions_of(asked, case.actor.actor_id)
    _check_person(case, asked, answer, questions)
    _check_scope(case, asked, answer)
    _check_words(case, answer, questions)
    if answer.choice in REMARKS:
        return asked
    if answer.choice == "escalate":
        return _handed_up(case, asked, answer, settings)
    return _counted(case, asked, answer, questions)


def expired(case: Case, asked: Ruling, settings: QuestionSettings | None = None) -> Ruling:
    """Return the ruling after the time limit, as the binding defines it.

    Raises:
        RefusedError: ``NOT_WAITING``.
    """
    _check_waiting(asked)
    within = "in time" if asked.timeout_ms is None else f"within {asked.timeout_ms} ms"
    reason = f"{listed(asked.ask)} did not decide {within}"
    outcome = RuleOutcome(TIME_LIMIT, "binding", asked.on_timeout, reason, decisive=True)
    trace = (*_undecided(asked.trace), outcome)
    if asked.on_timeout == "approve":
        return _ended(asked, "approve", trace, f"{reason}; its binding approves then", offered_scope(case, trace))
    rejected = _ended(asked, "reject", trace, reason)
    if asked.on_timeout == "reject" or settings is None:
        return rejected
    return ask_next_step(case, rejected, settings, trace)


def offered_scope(case: Case, trace: Sequence[RuleOutcome]) -> IntentScope | None:
    """Return the proposed scope within all narrowings; None is unlimited."""
    narrowings = [outcome.scope for outcome in trace if outcome.scope is not None]
    return restrict(case.intent.body.scope_proposal, narrowings, case.scope_rules)


def _counted(case: Case, asked: Ruling, answer: HumanAnswer, questions: list[Question]) -> Ruling:
    """Return the ruling after a vote or a delegation."""
    outcome = _outcome(answer)
    voting = [question for question in questions if question.quorum is not None and question.is_open]
    for question in questions:
        question.take(outcome)
    counts = "; ".join(question.count for question in voting)
    counted = f" ({counts})" if counts else ""
    trace = (*_undecided(asked.trace), replace(outcome, decisive=True))
    if any(question.decided == "lost" for question in questions):
        verb = "abstained" if answer.choice == "abstain" else "rejected it"
        return _ended(asked, "reject", trace, _with_reason(answer, verb) + counted)
    scope = offered_scope(case, trace)  # computed here so that a scope that is too large is refused here
    if answer.choice == "narrow" and scope is not None and scope.allowed_paths == ():
        return _ended(
            asked, "reject", trace, _with_reason(answer, "narrowed it") + "; nothing is left that all would approve"
        )
    still = [question for question in questions if question.is_open]
    if still:
        return _waiting(asked, answer, outcome, still)
    verb = "approved it" if answer.choice == "approve" else "approved it within a narrower scope"
    return _ended(asked, "approve", trace, _with_reason(answer, verb) + counted, scope)


def _waiting(asked: Ruling, answer: HumanAnswer, said: RuleOutcome, still: list[Question]) -> Ruling:
    verb = f"asks {answer.to} to answer" if answer.choice == "delegate" else _VERBS[answer.choice]
    anyone = [listed(question.pending) for question in still if question.quorum is None]
    too = "" if answer.choice == "delegate" else ", too"
    parts = [f"{' and '.join(anyone)} decides{too}"] if anyone else []
    parts += [question.words for question in still if question.quorum is not None]
    return replace(
        asked,
        reason=f"{_with_reason(answer, verb)} ({'; '.join(parts)})",
        ask=tuple(dict.fromkeys(actor_id for question in still for actor_id in question.pending)),
        trace=(*(asked.trace or (_implied(asked),)), said),
    )


def _handed_up(case: Case, asked: Ruling, answer: HumanAnswer, settings: QuestionSettings | None) -> Ruling:
    """Return the ruling of the next step; raise without one."""
    trace = (*_undecided(asked.trace or (_implied(asked),)), _outcome(answer))
    raised = _ended(asked, "reject", trace, _with_reason(answer, "handed it up"))
    ruling = raised if settings is None else ask_next_step(case, raised, settings, trace)
    if ruling.verdict != "wait":
        raise RefusedError(
            ErrorCode.NO_FURTHER_STEP,
            f"After this step nobody else can be asked; {listed(asked.ask)} decides: approve, narrow or reject.",
            step=asked.step,
        )
    return ruling


def _put(settings: QuestionSettings, case: Case) -> RuleOutcome:
    """Return the trace entry of a question of the binding."""
    question = Question.put(settings.ask, settings.quorum, case.actor.actor_id)
    reason = who_decides([question])
    return RuleOutcome(
        PEOPLE_ASKED, "binding", "escalate", reason, to=settings.ask, decisive=True, quorum=settings.quorum
    )


def _implied(asked: Ruling) -> RuleOutcome:
    """Return the trace entry of a question that the ruling itself leaves out."""
    return RuleOutcome(PEOPLE_ASKED, "binding", "escalate", asked.reason, to=asked.ask, decisive=True)


def _check_waiting(asked: Ruling) -> None:
    if asked.verdict != "wait":
        raise RefusedError(
            ErrorCode.NOT_WAITING,
            f"This proposal does not wait for an answer: its ruling is {asked.verdict}.",
            verdict=asked.verdict,
        )


def _check_person(case: Case, asked: Ruling, answer: HumanAnswer, questions: Sequence[Question]) -> None:
    by, proposer = answer.by, case.actor.actor_id
    details = {"actor_id": by.actor_id, "asked": list(asked.ask)}
    if answer.choice == "reply":
        if by.actor_id != proposer:
            raise RefusedError(
                ErrorCode.NOT_PROPOSER, f"Only the proposer, {proposer!r}, can reply.", actor_id=by.actor_id
            )
    elif by.actor_id == proposer:
        raise RefusedError(
            ErrorCode.OWN_PROPOSAL,
            f"{by.actor_id!r} proposed this and cannot answer it; {listed(asked.ask)} can.",
            **details,
        )
    elif any(question.is_asked(by.kind, by.actor_id) for question in questions):
        return
    elif any(question.is_open and question.has_voted(by.actor_id) for question in questions):
        raise RefusedError(
            ErrorCode.ALREADY_VOTED,
            f"{by.actor_id!r} has voted already, and a vote is final; {listed(asked.ask)} can still vote.",
            **details,
        )
    else:
        raise RefusedError(
            ErrorCode.NOT_ASKED,
            f"{by.actor_id!r} ({by.kind}) is not asked; {listed(asked.ask)} is.",
            **details,
        )


def _check_words(case: Case, answer: HumanAnswer, questions: Sequence[Question]) -> None:
    """Check the reason, the vote and the delegate of an answer."""
    choice, by = answer.choice, answer.by
    if choice in ("reply", "escalate") and not answer.reason.strip():
        raise RefusedError(
            ErrorCode.REASON_MISSING, f"The answer {choice} has no reason; give one, which the other people read."
        )
    is_voter = any(one.quorum is not None and one.is_asked(by.kind, by.actor_id) for one in questions)
    if choice == "abstain" and not is_voter:
        raise RefusedError(
            ErrorCode.ABSTENTION_REFUSED,
            "This question has no vote, one answer decides: approve, narrow, reject, or do not answer.",
        )
    if (choice == "delegate") != (answer.to is not None):
        raise _no_delegation("name the one who answers instead, with delegate and with no other answer", answer)
    if answer.to is not None:
        _check_delegate(case.actor.actor_id, answer, answer.to, questions)


def _check_delegate(proposer: str, answer: HumanAnswer, to: str, questions: Sequence[Question]) -> None:
    by = answer.by.actor_id
    if to == proposer:
        raise _no_delegation(f"{to!r} proposed this", answer)
    own = [(one, seat) for one in questions if one.is_open for seat in one.seats if seat.holder == by]
    own = [(one, seat) for one, seat in own if seat.vote is None]
    if not own:
        raise _no_delegation(f"{by!r} is asked as any human is, and has no place of their own to hand on", answer)
    for question, seat in own:
        if to in seat.chain:
            raise _no_delegation(f"{to!r} was asked before and handed it on", answer)
        if any(other.holder == to for other in question.seats):
            raise _no_delegation(f"{to!r} is asked already", answer)
        if len(seat.chain) > MAX_DELEGATIONS:
            raise _no_delegation(f"it was handed on {MAX_DELEGATIONS} times", answer)


def _no_delegation(why: str, answer: HumanAnswer) -> RefusedError:
    return RefusedError(
        ErrorCode.DELEGATION_REFUSED,
        f"{answer.by.actor_id!r} cannot hand the answer on: {why}.",
        actor_id=answer.by.actor_id,
        to=answer.to,
    )


def _check_scope(case: Case, asked: Ruling, answer: HumanAnswer) -> None:
    if answer.choice != "narrow":
        if answer.scope is not None:
            raise RefusedError(
                ErrorCode.SCOPE_NOT_EXPECTED,
                f"The answer is {answer.choice} and carries a scope; to approve less than was proposed, answer narrow.",
            )
        return
    if answer.scope is None or not answer.scope.allowed_paths:
        raise RefusedError(
            ErrorCode.SCOPE_MISSING,
            "To narrow, name the patterns that may be written, such as data.profile.*; or reject.",
        )
    offered = offered_scope(case, _asked_with(asked.trace))
    if offered is None or offered.allowed_paths is None:
        return
    beyond = outside(answer.scope.allowed_paths, offered.allowed_paths, case.scope_rules)
    if beyond:
        raise RefusedError(
            ErrorCode.SCOPE_NOT_WITHIN,
            f"{', '.join(beyond)} reaches further than what can be approved: "
            f"{', '.join(offered.allowed_paths) or 'nothing'}.",
            outside=beyond,
            offered=list(offered.allowed_paths),
        )


def _asked_with(trace: Sequence[RuleOutcome]) -> Sequence[RuleOutcome]:
    """Return the trace before the answers of this step, which are independent."""
    at = asked_at(trace)
    return [one for one in trace if one.rule != HUMAN_ANSWER] if at is None else trace[:at]


def _outcome(answer: HumanAnswer) -> RuleOutcome:
    return RuleOutcome(
        rule=HUMAN_ANSWER,
        source=f"{answer.by.kind}:{answer.by.actor_id}",
        answer=cast(RuleAnswer, answer.choice),  # a remark is no outcome
        reason=bounded(answer.reason),
        scope=answer.scope,
        to=() if answer.to is None else (answer.to,),
    )


def _undecided(trace: Sequence[RuleOutcome]) -> list[RuleOutcome]:
    """Return the trace without decisive outcomes, since the answer decides."""
    return [replace(outcome, decisive=False) if outcome.decisive else outcome for outcome in trace]


def _with_reason(answer: HumanAnswer, verb: str) -> str:
    text = f"{answer.by.actor_id} {verb}"
    return f"{text}: {bounded(answer.reason)}" if answer.reason else text


def _ended(
    asked: Ruling,
    verdict: str,
    trace: tuple[RuleOutcome, ...],
    reason: str,
    scope: IntentScope | None = None,
) -> Ruling:
    return Ruling(
        verdict="approve" if verdict == "approve" else "reject",
        authority=asked.authority,
        reason=reason,
        approved_scope=scope,
        trace=trace,
        policy_hash=asked.policy_hash,
        step=asked.step,
    )
