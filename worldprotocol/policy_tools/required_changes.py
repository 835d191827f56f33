"""Counterfactual explanation of a ruling: the rules that would have to answer differently for an approval.

The rules are determined from the trace by ``authority.policies.combine``. For rules in policy files, the explanation
also lists the parts of their conditions that would have to change, with their recorded values. For rules in code it
lists only the rule. ``worldprotocol.policy_tools.explain`` uses this module.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from authority.cel.conditions import Condition
from authority.people.questions import ANYBODY, APPROVALS, OF_PEOPLE, TIME_LIMIT, Question, asked_at, questions_of
from authority.policies.combine import combine
from authority.policies.opinions import Approve, Escalate, Narrow, Reject, RuleFault, RuleResult
from authority.policies.policy_file import FileRule
from world.errors import RefusedError
from world.model.decision import ENGINE, HUMAN_ANSWER, RuleOutcome, Ruling
from world.model.intent import IntentScope
from world.state.ports import Case

_APPROVED: Final = frozenset({"approve", "approved"})
_AGREED: Final = frozenset({"approve", "narrow"})

Rules = Mapping[str, FileRule]


def changes(
    ruling: Mapping[str, Any],
    proposed: IntentScope | None,
    rules: Rules,
    case: Case | None,
    forbidding: Collection[str] = (),
    proposer: str = "",
) -> dict[str, Any] | None:
    """Return the changes that would be required for an approval.

    Args:
        ruling: a ruling or a decision, in wire form.
        proposed: the scope that the intent proposed.
        rules: the rules of policy files among those of the trace, by name.
        case: the recorded case; None leaves out the needs of conditions.
        forbidding: names of further rules that never approve.
        proposer: id of the proposing actor, which has no vote.

    Returns:
        None for an approval. Otherwise ``silence``: rules that must all not apply; ``silenceOneOf``: narrowing rules of
        which one must not apply; ``matchOneOf``: rules of which one must approve; ``people``: per question the number
        of approvals ``needed`` and the actors ``of`` that can give them; ``outside``: the reason of a rejection that
        did not result from the rules. Rules have the ``needs`` of their conditions.
    """
    if ruling.get("verdict", ruling.get("decision")) in _APPROVED:
        return None
    trace = [RuleOutcome.from_wire(one) for one in ruling.get("trace", ())]
    outcomes = [one for one in trace if one.rule != ENGINE]
    is_overruled = len(outcomes) < len(trace)
    has_people = any(one.rule in OF_PEOPLE for one in outcomes) or ruling.get("verdict") == "wait"
    asked = [one for one in outcomes if one.rule not in OF_PEOPLE]
    has_rules = bool(asked) or ruling.get("policyHash") is not None
    reason = str(ruling.get("reason", ""))
    combined = combine([heard_of(one) for one in asked], proposed)
    if is_overruled and (len(asked) < len(outcomes) or combined.verdict != "reject"):
        return {"outside": reason}
    silent = _silent(asked, lacks_voter=combined.verdict == "wait" and not has_people)
    found, after = _of_rules(asked, silent, proposed, _Known(rules, case, forbidding), approves=has_rules)
    if has_people:
        found |= _of_people(ruling, outcomes, proposer)
    elif after == "wait":
        found["people"] = _escalations(asked, proposer)
    if is_overruled or not (has_people or has_rules):
        found["outside"] = reason
    return {name: value for name, value in found.items() if value or name == "matchOneOf"}


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of the rules of a trace: those of policy files, the case, and those that never approve."""

    rules: Rules
    case: Case | None
    forbidding: Collection[str]

    def otherwise(self, outcome: RuleOutcome, *, holds: bool) -> dict[str, Any]:
        """Return a rule that must answer differently."""
        return _otherwise(outcome, self.rules.get(outcome.rule), self.case, holds=holds)


def _silent(asked: Sequence[RuleOutcome], *, lacks_voter: bool) -> list[int]:
    """Return the rules that must not apply by their own answers."""
    if lacks_voter:  # an escalation that no actor can vote on
        return [at for at, one in enumerate(asked) if one.decisive]
    return [at for at, one in enumerate(asked) if one.answer in ("reject", "error")]


def _of_rules(
    asked: Sequence[RuleOutcome], silent: list[int], proposed: IntentScope | None, known: _Known, *, approves: bool
) -> tuple[dict[str, Any], str]:
    """Return the changes of rules, and the verdict after them."""
    silent, one_of, left = _in_the_way([heard_of(one) for one in asked], silent, proposed)
    after = combine(left, proposed)
    found: dict[str, Any] = {
        "silence": [known.otherwise(asked[at], holds=False) for at in silent],
        "silenceOneOf": [known.otherwise(asked[at], holds=False) for at in one_of],
    }
    if after.answer == "none" and approves:
        approving = _approving(asked, left, proposed, known.rules)
        matching = [asked[at] for at in approving if asked[at].rule not in known.forbidding]
        found["matchOneOf"] = [known.otherwise(one, holds=True) for one in matching]
    return found, after.verdict


def _escalations(asked: Sequence[RuleOutcome], proposer: str) -> list[dict[str, Any]]:
    """Return the approvals that each escalating rule would ask for."""
    return [
        {"rule": one.rule, **_missing(Question.put(one.to, one.quorum, proposer))}
        for one in asked
        if one.answer == "escalate"
    ]


def _in_the_way(
    heard: list[RuleResult], silent: list[int], proposed: IntentScope | None
) -> tuple[list[int], list[int], list[RuleResult]]:
    """Return the rules that must not apply, narrowing rules of which one must not, and the remaining opinions."""
    left = _without(heard, silent)
    after = combine(left, proposed)
    if not after.is_empty:
        return silent, [], left
    one_of = [at for at in after.decisive if not combine(_without(left, [at]), proposed).is_empty]
    more = [] if one_of else list(after.decisive)
    return [*silent, *more], one_of, _without(left, one_of[:1] or after.decisive)


def heard_of(outcome: RuleOutcome) -> RuleResult:
    """Return a rule's opinion from its outcome in a trace."""
    if outcome.answer == "approve":
        return Approve(outcome.reason)
    if outcome.answer == "reject":
        return Reject(outcome.reason)
    if outcome.answer == "escalate":
        return Escalate(outcome.to, outcome.reason)
    if outcome.answer == "narrow" and outcome.scope is not None:
        return Narrow(outcome.scope, outcome.reason)
    return None if outcome.answer == "none" else RuleFault(outcome.reason)


def _without(heard: Sequence[RuleResult], silent: Sequence[int]) -> list[RuleResult]:
    return [None if at in silent else one for at, one in enumerate(heard)]


def _approving(
    asked: Sequence[RuleOutcome], left: Sequence[RuleResult], proposed: IntentScope | None, rules: Rules
) -> Iterator[int]:
    """Yield the rules without opinion that would approve if they applied; rules in code are assumed to approve."""
    for at, one in enumerate(asked):
        if one.answer != "none":
            continue
        rule = rules.get(one.rule)
        opinion: RuleResult = Approve()
        if rule is not None:
            if rule.entry.verdict not in _AGREED:
                continue
            opinion = Narrow(rule.entry.scope) if rule.entry.scope else opinion
        if (
            combine([opinion if place == at else heard for place, heard in enumerate(left)], proposed).verdict
            == "approve"
        ):
            yield at


def _otherwise(outcome: RuleOutcome, rule: FileRule | None, case: Case | None, *, holds: bool) -> dict[str, Any]:
    """Return a rule that must answer differently, with the known requirements for that."""
    found: dict[str, Any] = {"rule": outcome.rule, "source": outcome.source, "was": outcome.answer}
    if rule is None or case is None:
        return found
    if not rule.is_for(case):
        found["target"] = {
            name: list(value)
            for name, value in (("actions", rule.entry.actions), ("actors", rule.entry.actors))
            if value
        }
    if rule.condition is not None:
        needed = needs(rule.condition, case, wanted=holds)
        if needed is not None:
            found["needs"] = needed
    elif not holds:
        found["always"] = True
    return found


def needs(condition: Condition, case: Case, *, wanted: bool) -> dict[str, Any] | None:
    """Return the changes that make a condition hold, or not hold.

    Args:
        condition: the condition.
        case: the recorded case.
        wanted: the required result of the condition.

    Returns:
        None where the condition has the required result. ``{"part", "was", "wanted"}`` for an indivisible part, where
        ``was`` is true, false, or null for a part that failed, with ``why``; ``{"allOf": [...]}`` or
        ``{"oneOf": [...]}`` for several parts.
    """
    was, why = _state(condition, case)
    if was is wanted:
        return None
    joint, parts = condition.parts()
    if condition.is_too_large(case):
        parts = []
    if (joint == "&&") is not wanted:  # one part is enough, unless a preceding part always fails
        end = next((at for at, part in enumerate(parts) if part.fails_for_good(case)), len(parts))
        parts = parts[: end + 1]
    open_ = [one for part in parts if (one := needs(part, case, wanted=wanted)) is not None]
    if not open_:
        needed = {"part": condition.text, "was": was, "wanted": wanted}
        return {**needed, "why": why} if why else needed
    if len(open_) == 1:
        return open_[0]
    return {"allOf" if (joint == "&&") is wanted else "oneOf": open_}


def _state(condition: Condition, case: Case) -> tuple[bool | None, str]:
    try:
        return condition.holds(case), ""
    except (RefusedError, OverflowError) as error:
        return None, str(error)


def _of_people(ruling: Mapping[str, Any], outcomes: Sequence[RuleOutcome], proposer: str) -> dict[str, Any]:
    """Return the missing approvals by the last questions; votes on earlier questions do not count."""
    late = next((one for one in outcomes[-1:] if one.rule == TIME_LIMIT), None)
    trace = tuple(one for one in outcomes if one.rule != TIME_LIMIT)
    questions = questions_of(Ruling("wait", "", "", trace=trace, ask=tuple(ruling.get("ask", ()))), proposer)
    if ruling.get("verdict") == "wait":
        return {"people": [_missing(one) for one in questions if one.is_open]}
    if late is not None:
        known = [{**_missing(one), "inTime": True} for one in questions if one.is_open and one.seats]
        return {"people": known or [{"needed": 1, "of": [], "inTime": True, "reason": late.reason}]}
    if all(one.decided != "lost" for one in questions):
        return {"outside": str(ruling.get("reason", ""))}
    answers = [one for one in trace[asked_at(trace) or 0 :] if one.rule == HUMAN_ANSWER]
    return {"people": [_missing(one, answers) for one in questions if one.decided != "approved"]}


def _missing(question: Question, answers: Sequence[RuleOutcome] = ()) -> dict[str, Any]:
    """Return the number of missing approvals and their possible voters, with the votes against."""
    of = question.pending if question.is_open else [one.holder for one in question.seats if one.vote not in APPROVALS]
    missing: dict[str, Any] = {"needed": question.needed - len(question.approved_by), "of": list(of)}
    said = [
        {"source": one.source, "was": one.answer}
        for one in answers
        if one.answer in ("reject", "abstain") and (ANYBODY in of or one.source.partition(":")[2] in of)
    ]
    return {**missing, "said": said} if said else missing


def change_lines(found: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the lines of text for people, from the result of ``changes``."""
    if found is None:
        return
    if "outside" in found:
        yield f"  change    it is not the rules that are in the way, but: {found['outside']}"
    if found.get("silence"):
        yield "  change    to be approved, each of these would have to say nothing:"
        yield from _rules(found["silence"])
    if found.get("silenceOneOf"):
        yield "  change    one of these would have to say nothing, or leave something to write:"
        yield from _rules(found["silenceOneOf"])
    if "matchOneOf" in found:
        if found["matchOneOf"]:
            yield "  change    one of these would have to approve:"
            yield from _rules(found["matchOneOf"])
        else:
            yield "  change    no rule of the policy approves anything like it"
    for one in found.get("people", ()):
        yield f"  change    {_missing_words(one)}"


def _missing_words(one: Mapping[str, Any]) -> str:
    if not one["of"]:  # a question of a binding without any answer
        return f"an approval would have had to come in time; {one['reason']}"
    voters = ", ".join("any human" if name == ANYBODY else name for name in one["of"])
    few = "" if one["needed"] == len(one["of"]) else f"{'one' if one['needed'] == 1 else one['needed']} of "
    words = f"{few}{voters} would have to approve"
    if one.get("inTime"):
        words = f"{few}{voters} would have had to approve in time"
    said = ", ".join(f"{answer['source']} said {answer['was']}" for answer in one.get("said", ()))
    return f"{words}; {said}" if said else words


def _rules(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for one in found:
        always = ": it says so of every such case" if one.get("always") else ""
        yield f"            - {one['rule']} [{one['source']}]{always}"
        for name, patterns in one.get("target", {}).items():
            yield f"                it is for {name} {', '.join(patterns)}"
        if "needs" in one:
            yield from _needs(one["needs"], "                ")


def _needs(needed: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, words in (("allOf", "all of:"), ("oneOf", "one of:")):
        if name in needed:
            yield f"{indent}{words}"
            for one in needed[name]:
                yield from _needs(one, f"{indent}  ")
    if "part" in needed:
        state = f"failed: {needed['why']}" if needed["was"] is None else f"was {str(needed['was']).lower()}"
        yield f"{indent}{needed['part']} would be {str(needed['wanted']).lower()} ({state})"
