"""What would have to change for a ruling to approve: which rules would have to answer otherwise, and when they would.

Which rules it is follows from the trace alone, by ``authority.combine`` itself. Of rules in policy files it is also
told which parts of their conditions stand in the way, with the values of then. What a rule in code would take is not
guessed. ``worldprotocol.explaining`` imports this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from authority.cel import Condition
from authority.combine import combine
from authority.opinions import Approve, Escalate, Fault, Heard, Narrow, Reject
from authority.policyfile import FileRule
from authority.questions import OF_PEOPLE, PEOPLE_ASKED
from world.decision import RuleOutcome
from world.errors import Refused
from world.intent import IntentScope
from world.ports import Case

_APPROVED: Final = frozenset({"approve", "approved"})
_AGREED: Final = frozenset({"approve", "narrow"})

Rules = Mapping[str, FileRule]


def changes(
    told: Mapping[str, Any], proposed: IntentScope | None, rules: Rules, case: Case | None
) -> dict[str, Any] | None:
    """Return what would have to be otherwise.

    Args:
        told: a ruling or a decision, in wire form.
        proposed: the scope that the intent proposed.
        rules: the rules of policy files among those of the trace, by name.
        case: for the values of then; None leaves out what conditions need.

    Returns:
        None where it was approved. Else ``silence``: rules that all would have to fall silent; ``silenceOneOf``:
        narrowings of which one would; ``matchOneOf``: rules of which one would have to approve; ``people``: whose
        approval is missing; ``outside``: why it was rejected although the rules would not. Rules have what their
        conditions ``need``.
    """
    if told.get("verdict", told.get("decision")) in _APPROVED:
        return None
    outcomes = [RuleOutcome.from_wire(one) for one in told.get("trace", ())]
    people = [one for one in outcomes if one.rule in OF_PEOPLE]
    asked = [one for one in outcomes if one.rule not in OF_PEOPLE]
    heard = [heard_of(one) for one in asked]
    combined = combine(heard, proposed)
    silent = [at for at, one in enumerate(asked) if one.answer in ("reject", "error")]
    is_waiting = told.get("verdict") == "wait"
    if combined.verdict == "wait" and not is_waiting and not people:  # nobody could answer
        silent = [at for at, one in enumerate(asked) if one.decisive]
    left = _without(heard, silent)

    def otherwise(at: int, *, holds: bool) -> dict[str, Any]:
        return _otherwise(asked[at], rules.get(asked[at].rule), case, holds=holds)

    found: dict[str, Any] = {"silence": [otherwise(at, holds=False) for at in silent]}
    after = combine(left, proposed)
    if after.is_empty:
        one_of = [at for at in after.decisive if not combine(_without(left, [at]), proposed).is_empty]
        chosen = one_of or list(after.decisive)
        found["silenceOneOf" if one_of else "silence"] = [
            *([] if one_of else found["silence"]),
            *(otherwise(at, holds=False) for at in chosen),
        ]
        left = _without(left, chosen[:1] if one_of else chosen)
        after = combine(left, proposed)
    if after.answer == "none" and (asked or not people):
        found["matchOneOf"] = [otherwise(at, holds=True) for at in _approving(asked, left, proposed, rules)]
    if after.verdict == "wait" or people or is_waiting:
        found["people"] = list(_people(told, people, asked, is_waiting=is_waiting))
    elif after.verdict == "approve" and combined.verdict == "approve":
        found["outside"] = str(told.get("reason", ""))
    return {name: value for name, value in found.items() if value or name == "matchOneOf"}


def heard_of(outcome: RuleOutcome) -> Heard:
    """Return what a rule said, from its outcome in a trace."""
    if outcome.answer == "approve":
        return Approve(outcome.reason)
    if outcome.answer == "reject":
        return Reject(outcome.reason)
    if outcome.answer == "escalate":
        return Escalate(outcome.to, outcome.reason)
    if outcome.answer == "narrow" and outcome.scope is not None:
        return Narrow(outcome.scope, outcome.reason)
    return None if outcome.answer == "none" else Fault(outcome.reason)


def _without(heard: Sequence[Heard], silent: Sequence[int]) -> list[Heard]:
    return [None if at in silent else one for at, one in enumerate(heard)]


def _approving(
    asked: Sequence[RuleOutcome], left: Sequence[Heard], proposed: IntentScope | None, rules: Rules
) -> Iterator[int]:
    """Yield the silent rules that would bring the approval, if they matched; of code nobody knows, so it may."""
    for at, one in enumerate(asked):
        if one.answer != "none":
            continue
        rule = rules.get(one.rule)
        opinion: Heard = Approve()
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
    """Return a rule that would have to answer otherwise, and what that takes where it is known."""
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
    """Return what would have to be otherwise for a condition to hold, or not to hold; None where it is so.

    Returns:
        ``{"part", "was", "wanted"}`` for a part that is not divided further, where ``was`` is true, false, or null for
        one that failed, with ``why``; ``{"allOf": [...]}`` or ``{"oneOf": [...]}`` for several.
    """
    joint, parts = condition.parts()
    if not parts:
        was, why = _state(condition, case)
        if was is wanted:
            return None
        told = {"part": condition.text, "was": was, "wanted": wanted}
        return {**told, "why": why} if why else told
    each = [needs(part, case, wanted=wanted) for part in parts]
    open_ = [one for one in each if one is not None]
    if (joint == "&&") is wanted:
        return {"allOf": open_} if len(open_) > 1 else next(iter(open_), None)
    return {"oneOf": open_} if len(open_) == len(each) else None


def _state(condition: Condition, case: Case) -> tuple[bool | None, str]:
    try:
        return condition.holds(case), ""
    except (Refused, OverflowError) as error:
        return None, str(error)


def _people(
    told: Mapping[str, Any], people: Sequence[RuleOutcome], asked: Sequence[RuleOutcome], *, is_waiting: bool
) -> Iterator[dict[str, Any]]:
    """Yield whose approval is missing: who is asked, or who said no."""
    if is_waiting:
        yield {"ask": list(told.get("ask", ()))}
        return
    against = [
        one for one in people if one.rule != PEOPLE_ASKED and one.answer not in (*_AGREED, "delegate", "escalate")
    ]
    for one in against:
        yield {"rule": one.rule, "source": one.source, "was": one.answer}
    if not people:
        for one in asked:
            if one.answer == "escalate":
                yield {"rule": one.rule, "ask": list(one.to)}


def change_lines(found: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the words for people."""
    if found is None:
        return
    if "outside" in found:
        yield f"  change    the rules would approve it; in the way is: {found['outside']}"
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
        who = ", ".join("any human" if name == "*" else name for name in one.get("ask", ()))
        yield f"  change    {f'{who} would have to approve' if who else _against(one)}"


def _against(one: Mapping[str, Any]) -> str:
    return f"{one['source']} would have to approve, and said {one['was']} ({one['rule']})"


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
