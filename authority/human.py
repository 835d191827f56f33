"""People: who may answer a waiting proposal, what they may say, and what comes of it.

What still waits is read from the ruling itself: its trace holds every escalation and every answer so far.
Each escalation needs an approval by one of those it names; one person may satisfy several. Nobody answers for
a proposal of their own. Whatever people say, the approved scope lies within the proposed one and within every
narrowing that rules or people made before.
Sources: WP-bind, INT-13.3; design section 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from authority.scope import outside, restrict
from authority.words import bounded, listed
from world.decision import HumanAnswer, RuleOutcome, Ruling
from world.errors import Refused
from world.intent import IntentScope
from world.ports import Case

HUMAN_ANSWER: Final = "human answer"
"""What stands for a rule's name where a person spoke; rules' names hold no spaces."""

TIME_LIMIT: Final = "time limit"
"""What stands for a rule's name where the time was over."""

ANYBODY: Final = "*"
"""Among ids of actors: any human."""


@dataclass(frozen=True, slots=True)
class Asking:
    """How a binding asks people.

    Args:
        ask: ids of the actors who may answer; ``*`` is any human.
        timeout_ms: how long to wait, in milliseconds; None is for ever.
        on_timeout: what happens then.
    """

    ask: tuple[str, ...]
    timeout_ms: int | None
    on_timeout: Literal["approve", "reject"]


def can_be_answered(ask: Sequence[str], proposer: str) -> bool:
    """Tell whether anybody but the proposer is asked."""
    return any(actor_id != proposer for actor_id in ask)


def ask_people(case: Case, asking: Asking, authority: str) -> Ruling:
    """Return the ruling of an authority that consists of people alone."""
    if not can_be_answered(asking.ask, case.actor.actor_id):
        return Ruling("reject", authority, NOBODY_ELSE)
    return Ruling(
        "wait",
        authority,
        f"{listed(asking.ask)} decides",
        ask=asking.ask,
        timeout_ms=asking.timeout_ms,
        on_timeout=asking.on_timeout,
    )


NOBODY_ELSE: Final = "only the proposer is asked, and nobody answers for a proposal of their own"
"""Why a proposal is rejected at once when waiting would be in vain."""


def answered(case: Case, asked: Ruling, answer: HumanAnswer) -> Ruling:
    """Return the ruling after a person's answer.

    Args:
        case: the case, as it was judged.
        asked: the ruling that waits.
        answer: approve (as it stands), reject, narrow (with a scope), or ask (keeps it waiting, unchanged).

    Returns:
        ``asked`` itself for ask; a rejection; an approval; or, while other escalations are open, a ruling
        that waits for those and remembers this answer.

    Raises:
        Refused: ``NOT_WAITING``, ``OWN_PROPOSAL``, ``NOT_ASKED``; ``SCOPE_NOT_EXPECTED`` with a scope where
            none belongs; ``SCOPE_MISSING`` or ``SCOPE_NOT_WITHIN`` for a narrowing without patterns or that
            reaches further than what may be approved; ``SCOPE_TOO_LARGE`` or ``INVALID_VALUE`` for one that
            cannot be compared or written.
    """
    _check_waiting(asked)
    _check_person(case, asked, answer)
    _check_scope(case, asked, answer)
    if answer.choice == "ask":
        return asked
    said = _outcome(answer)
    trace = (*_undecided(asked.trace), replace(said, decisive=True))
    if answer.choice == "reject":
        return _ended(asked, "reject", trace, _told(answer, "rejected it"))
    scope = offered_scope(case, trace)  # computed now, so that a scope too large is refused here and not later
    still = _open_asks(trace)
    if still:
        decide = " and ".join(map(listed, still))
        return replace(
            asked,
            reason=f"{_told(answer, 'agreed')} ({decide} decides, too)",
            ask=tuple(dict.fromkeys(actor_id for to in still for actor_id in to)),
            trace=(*asked.trace, said),
        )
    verb = "approved it" if answer.choice == "approve" else "approved it within a narrower scope"
    return _ended(asked, "approve", trace, _told(answer, verb), scope)


def expired(case: Case, asked: Ruling) -> Ruling:
    """Return the ruling when the time is over: what the binding says.

    Raises:
        Refused: ``NOT_WAITING``.
    """
    _check_waiting(asked)
    within = "in time" if asked.timeout_ms is None else f"within {asked.timeout_ms} ms"
    reason = f"{listed(asked.ask)} did not decide {within}"
    outcome = RuleOutcome(TIME_LIMIT, "binding", asked.on_timeout, reason, decisive=True)
    trace = (*_undecided(asked.trace), outcome)
    if asked.on_timeout == "reject":
        return _ended(asked, "reject", trace, reason)
    return _ended(asked, "approve", trace, f"{reason}; its binding approves then", offered_scope(case, trace))


def offered_scope(case: Case, trace: Sequence[RuleOutcome]) -> IntentScope | None:
    """Return what can be approved at most: the proposed scope within all narrowings; None is anything."""
    narrowings = [outcome.scope for outcome in trace if outcome.scope is not None]
    return restrict(case.intent.body.scope_proposal, narrowings)


def _check_waiting(asked: Ruling) -> None:
    if asked.verdict != "wait":
        raise Refused(
            "NOT_WAITING",
            f"This proposal waits for nobody: its ruling is {asked.verdict}.",
            verdict=asked.verdict,
        )


def _check_person(case: Case, asked: Ruling, answer: HumanAnswer) -> None:
    by = answer.by
    if by.actor_id == case.actor.actor_id:
        raise Refused(
            "OWN_PROPOSAL",
            f"{by.actor_id!r} proposed this and cannot answer it; {listed(asked.ask)} can.",
            actor_id=by.actor_id,
            asked=list(asked.ask),
        )
    if not _is_asked(asked.ask, by.kind, by.actor_id):
        raise Refused(
            "NOT_ASKED",
            f"{by.actor_id!r} ({by.kind}) is not asked; {listed(asked.ask)} is.",
            actor_id=by.actor_id,
            asked=list(asked.ask),
        )


def _check_scope(case: Case, asked: Ruling, answer: HumanAnswer) -> None:
    if answer.choice != "narrow":
        if answer.scope is not None:
            raise Refused(
                "SCOPE_NOT_EXPECTED",
                f"The answer is {answer.choice} and carries a scope; to approve less than was proposed, answer narrow.",
            )
        return
    if answer.scope is None or not answer.scope.allowed_paths:
        raise Refused(
            "SCOPE_MISSING",
            "To narrow, name the patterns that may be written, such as data.profile.*; or reject.",
        )
    offered = offered_scope(case, asked.trace)
    if offered is None or offered.allowed_paths is None:
        return
    beyond = outside(answer.scope.allowed_paths, offered.allowed_paths)
    if beyond:
        raise Refused(
            "SCOPE_NOT_WITHIN",
            f"{', '.join(beyond)} reaches further than what can be approved: "
            f"{', '.join(offered.allowed_paths) or 'nothing'}.",
            outside=beyond,
            offered=list(offered.allowed_paths),
        )


def _is_asked(ask: Sequence[str], kind: str, actor_id: str) -> bool:
    return actor_id in ask or (kind == "human" and ANYBODY in ask)


def _open_asks(trace: Sequence[RuleOutcome]) -> list[tuple[str, ...]]:
    """Return whom the escalations ask that nobody they name has approved yet."""
    agreed = [
        outcome.source.partition(":")[::2]
        for outcome in trace
        if outcome.rule == HUMAN_ANSWER and outcome.answer in ("approve", "narrow")
    ]
    return [
        outcome.to
        for outcome in trace
        if outcome.answer == "escalate" and not any(_is_asked(outcome.to, *who) for who in agreed)
    ]


def _outcome(answer: HumanAnswer) -> RuleOutcome:
    choice: Literal["approve", "reject", "narrow"] = answer.choice if answer.choice != "ask" else "reject"
    return RuleOutcome(
        rule=HUMAN_ANSWER,
        source=f"{answer.by.kind}:{answer.by.actor_id}",
        answer=choice,
        reason=bounded(answer.reason),
        scope=answer.scope,
    )


def _undecided(trace: Sequence[RuleOutcome]) -> list[RuleOutcome]:
    """Return the outcomes so far: they led to the question, the answer decides."""
    return [replace(outcome, decisive=False) if outcome.decisive else outcome for outcome in trace]


def _told(answer: HumanAnswer, verb: str) -> str:
    who = f"{answer.by.actor_id} {verb}"
    return f"{who}: {bounded(answer.reason)}" if answer.reason else who


def _ended(
    asked: Ruling,
    verdict: Literal["approve", "reject"],
    trace: tuple[RuleOutcome, ...],
    reason: str,
    scope: IntentScope | None = None,
) -> Ruling:
    return Ruling(
        verdict=verdict,
        authority=asked.authority,
        reason=reason,
        approved_scope=scope,
        trace=trace,
        policy_hash=asked.policy_hash,
    )
