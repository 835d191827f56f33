"""Explanation of a ruling: the outcome of every rule, the deciding rule, and overruled outcomes.

The explanation is derived from the log: the trace, the policy as it was adopted, the answers of people. The conditions
of policy files are read from the adoption, so that the values they read can be shown without the file. The commands
``explain`` and ``policy ask`` use this module.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal

from authority import Policy, rebuilt_rules
from authority.people.questions import NOT_CONFINED, OF_PEOPLE
from authority.policies.policy_file import LANGUAGE, FileRule
from world.errors import RefusedError
from world.model.decision import ENGINE
from world.model.intent import IntentScope
from world.state.ports import Case
from worldprotocol.policy_tools.required_changes import change_lines, changes
from worldprotocol.policy_tools.rule_trace import answered_from
from worldprotocol.terminal_text import visible

Role = Literal["decided", "overruled", "narrowed", "agreed", "asked", "failed", "silent"]
"""Effect of a rule's answer: it decided; a stronger answer overruled it; it narrowed an approval; it agreed with the
deciding answer; it asked people; it failed in addition to another failure; it did not apply."""

MAX_SHOWN: Final = 200
"""Maximum length of a value in the text for people, in characters."""

CEDAR: Final = "cedar"
"""Language of rules in Cedar in policy descriptions; its package is an extra."""

NO_RULE: Final = "no rule had an opinion: rejected by default"

_REJECTED: Final = frozenset({"reject", "rejected"})
_STRENGTH: Final[Mapping[str, int]] = {"none": 0, "approve": 1, "narrow": 2, "escalate": 3, "reject": 4, "error": 5}


def explain_trace(
    ruling: Mapping[str, Any],
    policy: Mapping[str, Any] | None,
    case: Case | None,
    proposed: IntentScope | None,
    *,
    at_hand: Policy | None = None,
    proposer: str | None = None,
) -> dict[str, Any]:
    """Return the explanation of a trace.

    Args:
        ruling: a ruling or a decision, in wire form.
        policy: the description of the policy that judged, as it was adopted.
        case: provides the values that conditions read; None leaves them out.
        proposed: the scope that the intent proposed.
        at_hand: the loaded policy, where the case is complete: its rules in code are run again, to show the line of
            their answer and their local values (``worldprotocol.policy_tools.rule_trace``).
        proposer: id of the proposing actor; None takes that of the case.

    Returns:
        ``changes``, the counterfactual explanation (``worldprotocol.policy_tools.required_changes``), None for an
        approval and without a ruling; ``rules``, each with its ``role`` and further facts; ``people``, the answers of
        people; ``engine``, the outcome of the engine that overruled the others, or None; ``decidedBy``, the names of
        the deciding outcomes; ``byDefault``, True if there were rules and none of them applied.
    """
    trace: Sequence[Mapping[str, Any]] = ruling.get("trace", ())
    if proposer is None and case is not None:
        proposer = case.actor.actor_id
    described = {one["rule"]: one for one in (policy or {}).get("rules", ())}
    of_files = {name: rule for name, one in described.items() if (rule := _file_rule(one)) is not None}
    people = [dict(one) for one in trace if one["rule"] in OF_PEOPLE]
    engine = next((dict(one) for one in trace if one["rule"] == ENGINE), None)
    asked = [one for one in trace if one["rule"] not in OF_PEOPLE and one["rule"] != ENGINE]
    strongest = max((_STRENGTH[one["answer"]] for one in asked), default=0)
    decided = [one["rule"] for one in trace if one.get("decisive")]
    is_rejected = ruling.get("verdict", ruling.get("decision")) in _REJECTED and not people
    stands = not is_rejected or (engine is None and strongest >= _STRENGTH["reject"])
    rules: list[dict[str, Any]] = []
    for one in asked:
        about = _about(one, described.get(one["rule"], {}), case)
        rules.append({**one, "role": _role(one, strongest, decided, stands=stands), **about})
    if at_hand is not None and case is not None:
        for one in rules:
            rule_trace = answered_from(at_hand, one, case)
            if rule_trace is not None:
                one["answeredFrom"] = rule_trace
    return {
        "rules": rules,
        "people": people,
        "engine": engine,
        "decidedBy": decided,
        "byDefault": bool(asked or described) and strongest == 0 and engine is None,
        "changes": changes(ruling, proposed, of_files, case, _forbidding(described), proposer or "")
        if ruling
        else None,
    }


def _role(outcome: Mapping[str, Any], strongest: int, decided: Sequence[str], *, stands: bool) -> Role:
    """Return the role of an answer; unless the strongest one is valid (``stands``), the others were overruled."""
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
    """Return the facts of the adopted policy about a rule, and the values that its condition read."""
    rendered: dict[str, Any] = {}
    if described.get("description"):
        rendered["description"] = described["description"]
    if described.get("language") == CEDAR and case is not None:
        return rendered | _about_cedar(outcome, described, case)
    rule = _file_rule(described)
    if rule is None:
        return rendered
    if rule.condition is not None:
        rendered["when"] = rule.condition.text
    if case is None:
        return rendered
    is_for = rule.is_for(case)
    if outcome["answer"] == "none":
        rendered["because"] = (
            f"its condition does not hold: {rule.condition.text}"
            if is_for and rule.condition is not None
            else "it is for other actions or actors"
        )
    if is_for and rule.condition is not None:
        rendered["reads"] = rule.condition.values_read(case)
    return rendered


def _forbidding(described: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the names of the Cedar policies with the effect forbid."""
    of_cedar = {name: one for name, one in described.items() if one.get("language") == CEDAR}
    made = {name: rebuilt_rules([one]) for name, one in of_cedar.items()}
    return [name for name, rules in made.items() if any(getattr(rule, "effect", None) == "forbid" for rule in rules)]


def _about_cedar(outcome: Mapping[str, Any], described: Mapping[str, Any], case: Case) -> dict[str, Any]:
    rendered: dict[str, Any] = {}
    if outcome["answer"] == "none":
        rendered["because"] = "its policy is not satisfied"
    for rule in rebuilt_rules([described]):
        values_read = getattr(rule, "values_read", None)
        if values_read is not None:
            rendered["reads"] = values_read(case)
        roundings = getattr(rule, "roundings", None)
        if "because" in rendered and roundings is not None:  # otherwise the rule's reason contains the roundings
            with suppress(RefusedError):
                rendered["because"] = "; ".join((rendered["because"], *roundings(case)))
    return rendered


def _file_rule(described: Mapping[str, Any]) -> FileRule | None:
    """Return a rule of a policy file from its description; None for other rules and other versions."""
    if described.get("language") != LANGUAGE:
        return None
    rules = rebuilt_rules([described])
    return rules[0] if rules and isinstance(rules[0], FileRule) else None


def reads_computed(policy: Mapping[str, Any] | None) -> bool:
    """Return whether a condition of a policy reads values that need the domain, such as computed values."""
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


def trace_lines(rendered: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of text for people, from the result of ``explain_trace``."""
    yield from map(visible, _lines(rendered))


def _lines(rendered: Mapping[str, Any]) -> Iterator[str]:
    for number, one in enumerate(rendered["rules"], 1):
        mark = "*" if one["role"] == "decided" else "-"
        reason = f": {one['reason']}" if one.get("reason") else ""
        yield f"  rule {number:<5}{mark} {one['rule']} {one['answer']}, {one['role']}{reason} [{one['source']}]"
        if one.get("description") and one["description"] != one.get("reason"):
            yield f"              says   {one['description']}"
        if "when" in one:
            yield f"              when   {one['when']}"
        for name, value in one.get("reads", {}).items():
            yield f"              reads  {name} = {_shown(value)}"
        if "because" in one and not {"reads", "when"} <= one.keys():  # otherwise these two lines explain it
            yield f"              why    {one['because']}"
        yield from _again(one.get("answeredFrom"))
        if "scope" in one:
            yield f"              within {_shown(one['scope'])}"
        if one.get("to"):
            quorum = one.get("quorum")
            vote = "" if quorum is None else f" to vote: {quorum.get('threshold', quorum['rule'])}"
            yield f"              asks   {', '.join(one['to'])}{vote}"
    if rendered["byDefault"]:
        yield f"  default   {NO_RULE}"
    for one in [*rendered["people"], *([rendered["engine"]] if rendered["engine"] else [])]:
        mark = "*" if one.get("decisive") else "-"
        reason = f": {one['reason']}" if one.get("reason") else ""
        who = "engine" if one["rule"] in (ENGINE, NOT_CONFINED) else "people"
        yield f"  {who}    {mark} {one['rule']} {one['answer']}{reason} [{one['source']}]"
    yield from change_lines(rendered["changes"])


def _again(rendered: Mapping[str, Any] | None) -> Iterator[str]:
    if rendered is None:
        return
    yield f"              from   line {rendered['line']}: {rendered['code']}"
    for name, value in rendered["values"].items():
        yield f"              where  {name} = {_shown(value)}"
    if "now" in rendered:
        yield f"              note   asked again it answers {rendered['now']}: it is no pure function of its case"


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"
