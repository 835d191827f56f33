"""Why a ruling came out as it did: what every rule said, which one decided, and what was overruled.

It is told from what was recorded: the trace, the policy as it was adopted, the answers of people. The conditions of
policy files are read from the adoption, so that the values they read can be shown without the file. The commands
``explain`` and ``policy ask`` import this.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal

from authority import Policy, rebuilt_rules
from authority.people.questions import OF_PEOPLE
from authority.policies.policy_file import LANGUAGE, FileRule
from world.errors import RefusedError
from world.model.decision import ENGINE
from world.model.intent import IntentScope
from world.state.ports import Case
from worldprotocol.policy_tools.required_changes import change_lines, changes
from worldprotocol.policy_tools.rule_trace import answered_from
from worldprotocol.terminal_text import visible

Role = Literal["decided", "overruled", "narrowed", "agreed", "asked", "failed", "silent"]
"""What became of a rule's answer: it decided; a stronger answer went before it; it narrowed what was approved; it said
the same as what decided; it asked people; it failed beside another failure; it had no opinion."""

MAX_SHOWN: Final = 200
"""Characters of a value that the words for people show."""

CEDAR: Final = "cedar"
"""The language of rules in Cedar, as their sources name it; its package is an extra."""

NO_RULE: Final = "no rule had an opinion: rejected by default"

_REJECTED: Final = frozenset({"reject", "rejected"})
_STRENGTH: Final[Mapping[str, int]] = {"none": 0, "approve": 1, "narrow": 2, "escalate": 3, "reject": 4, "error": 5}


def explain_trace(
    told: Mapping[str, Any],
    policy: Mapping[str, Any] | None,
    case: Case | None,
    proposed: IntentScope | None,
    *,
    at_hand: Policy | None = None,
    proposer: str | None = None,
) -> dict[str, Any]:
    """Return what a trace tells.

    Args:
        told: a ruling or a decision, in wire form.
        policy: the description of the policy that judged, as it was adopted.
        case: for the values that conditions read; None leaves them out.
        proposed: the scope that the intent proposed.
        at_hand: the policy itself, where it is at hand and the case is whole: its rules in code are asked again, to
            show by which line they answered and their local values there (``worldprotocol.policy_tools.rule_trace``).
        proposer: the id of the actor whose proposal it is; that of the case, where there is one.

    Returns:
        ``changes``, what would have to be otherwise (``worldprotocol.policy_tools.required_changes``), None where it
        was approved or never judged; ``rules``, each with its ``role`` and what else is known of it; ``people``, the
        answers among the outcomes; ``engine``, the outcome of the engine that overruled all of them, None where it did
        not; ``decidedBy``, the names of the outcomes that decided; ``byDefault``, True where there were rules, none had
        an opinion, and that decided.
    """
    trace: Sequence[Mapping[str, Any]] = told.get("trace", ())
    if proposer is None and case is not None:
        proposer = case.actor.actor_id
    described = {one["rule"]: one for one in (policy or {}).get("rules", ())}
    of_files = {name: rule for name, one in described.items() if (rule := _file_rule(one)) is not None}
    people = [dict(one) for one in trace if one["rule"] in OF_PEOPLE]
    engine = next((dict(one) for one in trace if one["rule"] == ENGINE), None)
    asked = [one for one in trace if one["rule"] not in OF_PEOPLE and one["rule"] != ENGINE]
    strongest = max((_STRENGTH[one["answer"]] for one in asked), default=0)
    decided = [one["rule"] for one in trace if one.get("decisive")]
    is_rejected = told.get("verdict", told.get("decision")) in _REJECTED and not people
    stands = not is_rejected or (engine is None and strongest >= _STRENGTH["reject"])
    rules: list[dict[str, Any]] = []
    for one in asked:
        about = _about(one, described.get(one["rule"], {}), case)
        rules.append({**one, "role": _role(one, strongest, decided, stands=stands), **about})
    if at_hand is not None and case is not None:
        for one in rules:
            again = answered_from(at_hand, one, case)
            if again is not None:
                one["answeredFrom"] = again
    return {
        "rules": rules,
        "people": people,
        "engine": engine,
        "decidedBy": decided,
        "byDefault": bool(asked or described) and strongest == 0 and engine is None,
        "changes": changes(told, proposed, of_files, case, _forbidding(described), proposer or "") if told else None,
    }


def _role(outcome: Mapping[str, Any], strongest: int, decided: Sequence[str], *, stands: bool) -> Role:
    """Return what became of an answer; unless the strongest ``stands``, all that did not decide was overruled."""
    answer = outcome["answer"]
    strength = _STRENGTH[answer]
    if outcome["rule"] in decided:
        return "decided"
    if strength == 0:
        return "silent"
    if answer == "error":
        return "failed"
    if not stands:
        return "overruled"
    if answer == "narrow" and strongest <= _STRENGTH["escalate"]:
        return "narrowed"
    if answer == "approve" and strongest == _STRENGTH["narrow"]:
        return "agreed"
    if strength < strongest:
        return "overruled"
    return "asked" if answer == "escalate" else "agreed"


def _about(outcome: Mapping[str, Any], described: Mapping[str, Any], case: Case | None) -> dict[str, Any]:
    """Return what the adopted policy tells about a rule, and what its condition read."""
    told: dict[str, Any] = {}
    if described.get("description"):
        told["description"] = described["description"]
    if described.get("language") == CEDAR and case is not None:
        return told | _about_cedar(outcome, described, case)
    rule = _file_rule(described)
    if rule is None:
        return told
    if rule.condition is not None:
        told["when"] = rule.condition.text
    if case is None:
        return told
    is_for = rule.is_for(case)
    if outcome["answer"] == "none":
        told["because"] = (
            f"its condition does not hold: {rule.condition.text}"
            if is_for and rule.condition is not None
            else "it is for other actions or actors"
        )
    if is_for and rule.condition is not None:
        told["reads"] = rule.condition.values_read(case)
    return told


def _forbidding(described: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the names of the policies in Cedar that forbid."""
    of_cedar = {name: one for name, one in described.items() if one.get("language") == CEDAR}
    made = {name: rebuilt_rules([one]) for name, one in of_cedar.items()}
    return [name for name, rules in made.items() if any(getattr(rule, "effect", None) == "forbid" for rule in rules)]


def _about_cedar(outcome: Mapping[str, Any], described: Mapping[str, Any], case: Case) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if outcome["answer"] == "none":
        told["because"] = "its policy is not satisfied"
    for rule in rebuilt_rules([described]):
        values_read = getattr(rule, "values_read", None)
        if values_read is not None:
            told["reads"] = values_read(case)
        roundings = getattr(rule, "roundings", None)
        if "because" in told and roundings is not None:  # elsewhere the rule's own reason says it
            with suppress(RefusedError):
                told["because"] = "; ".join((told["because"], *roundings(case)))
    return told


def _file_rule(described: Mapping[str, Any]) -> FileRule | None:
    """Return a rule of a policy file from its description; None for another rule, or one of another version."""
    if described.get("language") != LANGUAGE:
        return None
    rules = rebuilt_rules([described])
    return rules[0] if rules and isinstance(rules[0], FileRule) else None


def reads_computed(policy: Mapping[str, Any] | None) -> bool:
    """Tell whether a condition of a policy reads what only the domain makes, such as computed values."""
    for described in (policy or {}).get("rules", ()):
        if described.get("language") == CEDAR:
            text = str(described.get("parameters", {}).get("policy", ""))
            if "computed" in text or "manifest" in text:
                return True
        rule = _file_rule(described)
        if rule is None or rule.condition is None:
            continue
        for read in rule.condition.reading.reads:
            if read.path[:2] == ("base", "computed") or read.path[0] in ("action", "manifest"):
                return True
    return False


def trace_lines(told: Mapping[str, Any]) -> Iterator[str]:
    """Yield the words for people, for what ``explain_trace`` returned."""
    yield from map(visible, _lines(told))


def _lines(told: Mapping[str, Any]) -> Iterator[str]:
    for number, one in enumerate(told["rules"], 1):
        mark = "*" if one["role"] == "decided" else "-"
        reason = f": {one['reason']}" if one.get("reason") else ""
        yield f"  rule {number:<5}{mark} {one['rule']} {one['answer']}, {one['role']}{reason} [{one['source']}]"
        if one.get("description") and one["description"] != one.get("reason"):
            yield f"              says   {one['description']}"
        if "when" in one:
            yield f"              when   {one['when']}"
        for name, value in one.get("reads", {}).items():
            yield f"              reads  {name} = {_shown(value)}"
        if "because" in one and not {"reads", "when"} <= one.keys():  # else these two say it
            yield f"              why    {one['because']}"
        yield from _again(one.get("answeredFrom"))
        if "scope" in one:
            yield f"              within {_shown(one['scope'])}"
        if one.get("to"):
            quorum = one.get("quorum")
            vote = "" if quorum is None else f" to vote: {quorum.get('threshold', quorum['rule'])}"
            yield f"              asks   {', '.join(one['to'])}{vote}"
    if told["byDefault"]:
        yield f"  default   {NO_RULE}"
    for one in [*told["people"], *([told["engine"]] if told["engine"] else [])]:
        mark = "*" if one.get("decisive") else "-"
        reason = f": {one['reason']}" if one.get("reason") else ""
        who = "engine" if one["rule"] == ENGINE else "people"
        yield f"  {who}    {mark} {one['rule']} {one['answer']}{reason} [{one['source']}]"
    yield from change_lines(told["changes"])


def _again(told: Mapping[str, Any] | None) -> Iterator[str]:
    if told is None:
        return
    yield f"              from   line {told['line']}: {told['code']}"
    for name, value in told["values"].items():
        yield f"              where  {name} = {_shown(value)}"
    if "now" in told:
        yield f"              note   asked again it answers {told['now']}: it is no pure function of its case"


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"
