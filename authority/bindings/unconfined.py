"""Rule W: words lead to a person or into confinement, never to an unconfined approval, harmless ones included.

It holds for actions whose domain declares what states confinement (``world.core.declarations.confinement``), whatever
the binding and the policy are. An approval without confinement becomes a question to the people of the binding, unless
a person gave it, or a rule gave it that compares the declared members of the input with exact texts. Without people
who could be asked, it is a rejection. The question is an outcome of the engine in the trace, so that a recheck asks
it again. Source: docs/agents.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from authority.bindings.binding import Binding
from authority.bindings.policy_rules import PolicyRulesBinding
from authority.people.answers import QuestionSettings, ask_next_step, offered_scope
from authority.people.questions import (
    ANYBODY,
    APPROVALS,
    NOT_CONFINED,
    TIME_LIMIT,
    Question,
    asked_at,
    unanswerable,
    who_decides,
)
from authority.policies.input_conditions import conditions_of
from authority.policies.registry import PolicyRegistry
from world.core.declarations.confinement import ConfinementDeclaration, confinement_of
from world.model.decision import HUMAN_ANSWER, RuleOutcome, Ruling
from world.state.ports import Case

__all__ = ["answered_unconfined", "judged_unconfined"]

SOURCE: Final = "engine"
"""Source of the outcome: it is of no rule and of no person."""

_REMEDY: Final = "let commands run confined, or bind the actor to an authority that asks people"


def judged_unconfined(case: Case, ruling: Ruling, binding: Binding, policies: PolicyRegistry) -> Ruling:
    """Return the ruling on a new case: an unconfined approval is a question, or a rejection.

    Args:
        case: the case.
        ruling: that of the binding.
        binding: the actor's binding.
        policies: the available policies.
    """
    declared = _unconfined(case, ruling)
    if declared is None or _is_of_exact_rule(ruling, binding, policies, declared):
        return ruling
    names = ", ".join(one.rule for one in ruling.trace if one.decisive) or ruling.authority
    why = f"approved by {names}, but not confined"
    if binding.asking is None:
        return _rejected(ruling, f"{why}, and {binding.label} asks no people: {_REMEDY}")
    return _asked(case, ruling, binding.asking, binding.asking.ask, why)


def answered_unconfined(case: Case, ruling: Ruling, settings: QuestionSettings | None) -> Ruling:
    """Return the ruling after an answer, or after the time limit: only a person's approval counts.

    Args:
        case: the case.
        ruling: that after the answer or the time limit.
        settings: how the binding asks people; None where it does not, and after the time limit.
    """
    if _unconfined(case, ruling) is None or _is_approved_by_person(ruling):
        return ruling
    why = f"{ruling.reason}; but it is not confined, and no person approved it"
    if settings is None:
        return _rejected(ruling, why)
    step = settings if ruling.step == 0 else settings.then[ruling.step - 1]
    spoken = {one.source.partition(":")[2] for one in ruling.trace if one.rule == HUMAN_ANSWER}
    left = tuple(one for one in step.ask if one == ANYBODY or one not in spoken)
    any_one = QuestionSettings(step.ask, step.timeout_ms, step.on_timeout, None, settings.then)
    return _asked(case, ruling, any_one, left, why)


def _asked(case: Case, ruling: Ruling, settings: QuestionSettings, to: Sequence[str], why: str) -> Ruling:
    """Return the ruling that asks people in place of an approval; of the next step where none of these can answer."""
    proposer = case.actor.actor_id
    trace = _undecided(ruling.trace)
    fault = unanswerable(to, settings.quorum, proposer) if to else "no other person is asked"
    if fault is not None:
        rejected = _rejected(ruling, f"{why}: {fault}")
        return ask_next_step(case, rejected, settings, rejected.trace)
    question = Question.put(to, settings.quorum, proposer)
    kept = ruling.approved_scope
    outcome = RuleOutcome(
        NOT_CONFINED,
        SOURCE,
        "escalate",
        why,
        scope=None if kept == offered_scope(case, trace) else kept,
        to=tuple(to),
        decisive=True,
        quorum=settings.quorum,
    )
    return Ruling(
        "wait",
        ruling.authority,
        f"{why} ({who_decides([question])})",
        trace=(*trace, outcome),
        policy_hash=ruling.policy_hash,
        ask=question.pending,
        timeout_ms=settings.timeout_ms,
        on_timeout=settings.on_timeout,
        step=ruling.step,
    )


def _rejected(ruling: Ruling, why: str) -> Ruling:
    outcome = RuleOutcome(NOT_CONFINED, SOURCE, "reject", why, decisive=True)
    return Ruling(
        "reject",
        ruling.authority,
        why,
        trace=(*_undecided(ruling.trace), outcome),
        policy_hash=ruling.policy_hash,
        step=ruling.step,
    )


def _unconfined(case: Case, ruling: Ruling) -> ConfinementDeclaration | None:
    """Return the declaration of an approved action that is not confined; None where rule W changes nothing."""
    if ruling.verdict != "approve":
        return None
    declared = confinement_of(case.action)
    return None if declared is None or declared.is_stated(case.intent.body.input) else declared


def _is_of_exact_rule(
    ruling: Ruling, binding: Binding, policies: PolicyRegistry, declared: ConfinementDeclaration
) -> bool:
    """Return whether a rule approved that compares the declared members with exact texts."""
    if type(binding) is not PolicyRulesBinding:
        return False
    approving = {one.rule for one in ruling.trace if one.answer in APPROVALS}
    rules = [rule for rule in policies.get(binding.policy).rules if rule.name in approving]
    return any(conditions_of(rule).are_exact(declared.exact) for rule in rules)


def _is_approved_by_person(ruling: Ruling) -> bool:
    """Return whether a person approved in answer to the last question; a time limit that passed is none."""
    if not ruling.trace or ruling.trace[-1].rule == TIME_LIMIT:
        return False
    since = ruling.trace[asked_at(ruling.trace) or 0 :]
    return any(
        one.rule == HUMAN_ANSWER and one.answer in APPROVALS and one.source.startswith("human:") for one in since
    )


def _undecided(trace: Sequence[RuleOutcome]) -> tuple[RuleOutcome, ...]:
    return tuple(replace(one, decisive=False) if one.decisive else one for one in trace)
