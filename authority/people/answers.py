"""People: who may answer a waiting proposal, what they may say, and what comes of it.

What still waits is read from the ruling itself: its trace holds every question and every answer so far
(``authority.people.questions``). Every question needs its own approval; one person may satisfy several. Nobody answers
for a proposal of their own, also not for somebody who handed a seat on. Whatever people say, the approved scope
lies within the proposed one and within every narrowing that rules or people made. A binding may have further
steps; each asks anew, and there are only so many.
Sources: WP-bind, INT-13.3; design section 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

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
from world.errors import RefusedError
from world.model.decision import HUMAN_ANSWER, REMARKS, HumanAnswer, OnTimeout, Quorum, RuleAnswer, RuleOutcome, Ruling
from world.model.intent import IntentScope
from world.state.ports import Case

MAX_STEPS: Final = 8
"""Further steps that a binding may have."""

MAX_DELEGATIONS: Final = 8
"""How often one seat may be handed on."""

_VERBS: Final = {
    "approve": "agreed",
    "narrow": "agreed",
    "reject": "voted against it",
    "abstain": "abstained",
}


@dataclass(frozen=True, slots=True)
class QuestionSettings:
    """How a binding asks people; a step of its chain asks in the same way.

    Args:
        ask: ids of the actors who may answer; ``*`` is any human.
        timeout_ms: how long to wait, in milliseconds; None is for ever.
        on_timeout: what happens then.
        quorum: how many of them must approve; None is any one.
        then: the further steps; those have none themselves.
    """

    ask: tuple[str, ...]
    timeout_ms: int | None
    on_timeout: OnTimeout
    quorum: Quorum | None = None
    then: tuple[QuestionSettings, ...] = ()


def ask_people(case: Case, asking: QuestionSettings, authority: str) -> Ruling:
    """Return the ruling of an authority that consists of people alone."""
    why = unanswerable(asking.ask, asking.quorum, case.actor.actor_id)
    if why is not None:
        return go_on(case, Ruling("reject", authority, why), asking, ())
    question = Question.put(asking.ask, asking.quorum, case.actor.actor_id)
    return Ruling(
        "wait",
        authority,
        who_decides([question]),
        trace=() if asking.quorum is None else (_put(asking, case),),
        ask=question.pending,
        timeout_ms=asking.timeout_ms,
        on_timeout=asking.on_timeout,
    )


def go_on(case: Case, otherwise: Ruling, asking: QuestionSettings, trace: Sequence[RuleOutcome]) -> Ruling:
    """Return the ruling that asks those of the next step who can answer.

    Args:
        case: the case.
        otherwise: the rejection where there is no such step; its reason says why it has to go on.
        asking: how the binding asks.
        trace: what led to it.
    """
    proposer = case.actor.actor_id
    for step in range(otherwise.step, len(asking.then)):
        one = asking.then[step]
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
    if len(asking.then) > otherwise.step:
        return replace(otherwise, reason=f"{otherwise.reason}; and of no further step can anybody approve it")
    return otherwise


def answered(case: Case, asked: Ruling, answer: HumanAnswer, asking: QuestionSettings | None = None) -> Ruling:
    """Return the ruling after a person's answer.

    Args:
        case: the case, as it was judged.
        asked: the ruling that waits.
        answer: approve (as it stands), reject, narrow (with a scope), abstain (a vote that approves nothing),
            delegate (to another actor), escalate (to the next step); or ask and reply, which keep it waiting,
            unchanged.
        asking: how the binding asks; None has no further steps.

    Returns:
        ``asked`` itself for ask and reply; a rejection; an approval; or, while questions are open, a ruling that
        waits and remembers this answer.

    Raises:
        RefusedError: ``NOT_WAITING``, ``OWN_PROPOSAL``, ``NOT_PROPOSER`` (reply), ``NOT_ASKED``, ``ALREADY_VOTED``;
            ``REASON_MISSING`` (reply, escalate); ``ABSTENTION_REFUSED``, ``DELEGATION_REFUSED``,
            ``NO_FURTHER_STEP``; ``SCOPE_NOT_EXPECTED`` with a scope where none belongs; ``SCOPE_MISSING`` or
            ``SCOPE_NOT_WITHIN`` for a narrowing without patterns or that reaches further than what may be
            approved; ``SCOPE_TOO_LARGE`` or ``INVALID_VALUE`` for one that cannot be compared or written.
    """
    _check_waiting(asked)
    questions = questions_of(asked, case.actor.actor_id)
    _check_person(case, asked, answer, questions)
    _check_scope(case, asked, answer)
    _check_words(case, answer, questions)
    if answer.choice in REMARKS:
        return asked
    if answer.choice == "escalate":
        return _handed_up(case, asked, answer, asking)
    return _counted(case, asked, answer, questions)


def expired(case: Case, asked: Ruling, asking: QuestionSettings | None = None) -> Ruling:
    """Return the ruling when the time is over: what the binding says.

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
    if asked.on_timeout == "reject" or asking is None:
        return rejected
    return go_on(case, rejected, asking, trace)


def offered_scope(case: Case, trace: Sequence[RuleOutcome]) -> IntentScope | None:
    """Return what can be approved at most: the proposed scope within all narrowings; None is anything."""
    narrowings = [outcome.scope for outcome in trace if outcome.scope is not None]
    return restrict(case.intent.body.scope_proposal, narrowings, case.scope_rules)


def _counted(case: Case, asked: Ruling, answer: HumanAnswer, questions: list[Question]) -> Ruling:
    """Return what a vote, or handing it on, comes to."""
    said = _outcome(answer)
    voting = [question for question in questions if question.quorum is not None and question.is_open]
    for question in questions:
        question.take(said)
    told = "; ".join(question.count for question in voting)
    counted = f" ({told})" if told else ""
    trace = (*_undecided(asked.trace), replace(said, decisive=True))
    if any(question.decided == "lost" for question in questions):
        verb = "abstained" if answer.choice == "abstain" else "rejected it"
        return _ended(asked, "reject", trace, _told(answer, verb) + counted)
    scope = offered_scope(case, trace)  # computed now, so that a scope too large is refused here and not later
    if answer.choice == "narrow" and scope is not None and scope.allowed_paths == ():
        return _ended(asked, "reject", trace, _told(answer, "narrowed it") + "; nothing is left that all would approve")
    still = [question for question in questions if question.is_open]
    if still:
        return _waiting(asked, answer, said, still)
    verb = "approved it" if answer.choice == "approve" else "approved it within a narrower scope"
    return _ended(asked, "approve", trace, _told(answer, verb) + counted, scope)


def _waiting(asked: Ruling, answer: HumanAnswer, said: RuleOutcome, still: list[Question]) -> Ruling:
    verb = f"asks {answer.to} to answer" if answer.choice == "delegate" else _VERBS[answer.choice]
    anyone = [listed(question.pending) for question in still if question.quorum is None]
    too = "" if answer.choice == "delegate" else ", too"
    parts = [f"{' and '.join(anyone)} decides{too}"] if anyone else []
    parts += [question.words for question in still if question.quorum is not None]
    return replace(
        asked,
        reason=f"{_told(answer, verb)} ({'; '.join(parts)})",
        ask=tuple(dict.fromkeys(actor_id for question in still for actor_id in question.pending)),
        trace=(*(asked.trace or (_implied(asked),)), said),
    )


def _handed_up(case: Case, asked: Ruling, answer: HumanAnswer, asking: QuestionSettings | None) -> Ruling:
    """Return the ruling of the next step; while somebody can answer, nobody rejects by handing up in vain."""
    trace = (*_undecided(asked.trace or (_implied(asked),)), _outcome(answer))
    raised = _ended(asked, "reject", trace, _told(answer, "handed it up"))
    ruling = raised if asking is None else go_on(case, raised, asking, trace)
    if ruling.verdict != "wait":
        raise RefusedError(
            "NO_FURTHER_STEP",
            f"After this step nobody else can be asked; {listed(asked.ask)} decides: approve, narrow or reject.",
            step=asked.step,
        )
    return ruling


def _put(asking: QuestionSettings, case: Case) -> RuleOutcome:
    """Return the outcome that stands for a question of the binding."""
    question = Question.put(asking.ask, asking.quorum, case.actor.actor_id)
    reason = who_decides([question])
    return RuleOutcome(PEOPLE_ASKED, "binding", "escalate", reason, to=asking.ask, decisive=True, quorum=asking.quorum)


def _implied(asked: Ruling) -> RuleOutcome:
    """Return the question of a ruling whose binding asks any one of its people, and leaves that out of the trace."""
    return RuleOutcome(PEOPLE_ASKED, "binding", "escalate", asked.reason, to=asked.ask, decisive=True)


def _check_waiting(asked: Ruling) -> None:
    if asked.verdict != "wait":
        raise RefusedError(
            "NOT_WAITING",
            f"This proposal waits for nobody: its ruling is {asked.verdict}.",
            verdict=asked.verdict,
        )


def _check_person(case: Case, asked: Ruling, answer: HumanAnswer, questions: Sequence[Question]) -> None:
    by, proposer = answer.by, case.actor.actor_id
    told = {"actor_id": by.actor_id, "asked": list(asked.ask)}
    if answer.choice == "reply":
        if by.actor_id != proposer:
            raise RefusedError("NOT_PROPOSER", f"Only {proposer!r} replies, who proposed this.", actor_id=by.actor_id)
    elif by.actor_id == proposer:
        raise RefusedError(
            "OWN_PROPOSAL",
            f"{by.actor_id!r} proposed this and cannot answer it; {listed(asked.ask)} can.",
            **told,
        )
    elif any(question.is_asked(by.kind, by.actor_id) for question in questions):
        return
    elif any(question.is_open and question.has_voted(by.actor_id) for question in questions):
        raise RefusedError(
            "ALREADY_VOTED",
            f"{by.actor_id!r} has voted, and a vote stays; {listed(asked.ask)} can still vote.",
            **told,
        )
    else:
        raise RefusedError(
            "NOT_ASKED",
            f"{by.actor_id!r} ({by.kind}) is not asked; {listed(asked.ask)} is.",
            **told,
        )


def _check_words(case: Case, answer: HumanAnswer, questions: Sequence[Question]) -> None:
    """Check what belongs to single answers: reasons, votes to abstain from, and whom a seat is handed to."""
    choice, by = answer.choice, answer.by
    if choice in ("reply", "escalate") and not answer.reason.strip():
        raise RefusedError("REASON_MISSING", f"To {choice}, say something in the reason: it is what others go by.")
    is_voter = any(one.quorum is not None and one.is_asked(by.kind, by.actor_id) for one in questions)
    if choice == "abstain" and not is_voter:
        raise RefusedError(
            "ABSTENTION_REFUSED",
            "Nobody votes here, one answer decides: approve, narrow, reject, or leave it to the others.",
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
        "DELEGATION_REFUSED",
        f"{answer.by.actor_id!r} cannot hand the answer on: {why}.",
        actor_id=answer.by.actor_id,
        to=answer.to,
    )


def _check_scope(case: Case, asked: Ruling, answer: HumanAnswer) -> None:
    if answer.choice != "narrow":
        if answer.scope is not None:
            raise RefusedError(
                "SCOPE_NOT_EXPECTED",
                f"The answer is {answer.choice} and carries a scope; to approve less than was proposed, answer narrow.",
            )
        return
    if answer.scope is None or not answer.scope.allowed_paths:
        raise RefusedError(
            "SCOPE_MISSING",
            "To narrow, name the patterns that may be written, such as data.profile.*; or reject.",
        )
    offered = offered_scope(case, _asked_with(asked.trace))
    if offered is None or offered.allowed_paths is None:
        return
    beyond = outside(answer.scope.allowed_paths, offered.allowed_paths, case.scope_rules)
    if beyond:
        raise RefusedError(
            "SCOPE_NOT_WITHIN",
            f"{', '.join(beyond)} reaches further than what can be approved: "
            f"{', '.join(offered.allowed_paths) or 'nothing'}.",
            outside=beyond,
            offered=list(offered.allowed_paths),
        )


def _asked_with(trace: Sequence[RuleOutcome]) -> Sequence[RuleOutcome]:
    """Return what was said before this step's answers: those stand beside each other, whoever came first."""
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
    """Return the outcomes so far: they led to the question, the answer decides."""
    return [replace(outcome, decisive=False) if outcome.decisive else outcome for outcome in trace]


def _told(answer: HumanAnswer, verb: str) -> str:
    who = f"{answer.by.actor_id} {verb}"
    return f"{who}: {bounded(answer.reason)}" if answer.reason else who


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
