"""Why a ruling came out as it did: what every rule said, which one decided, and what was overruled.

It is told from what was recorded: the trace, the policy as it was adopted, the answers of people. The conditions of
policy files are read from the adoption, so that the values they read can be shown without the file. The commands
``explain`` and ``policy ask`` import this.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from authority.human import HUMAN_ANSWER, TIME_LIMIT
from authority.policyfile import LANGUAGE, FileRule, policy_from_text
from world.canonical import canonical_text
from world.errors import Refused
from world.ports import Case

Role = Literal["decided", "overruled", "narrowed", "agreed", "asked", "failed", "silent"]
"""What became of a rule's answer: it decided; a stronger answer went before it; it narrowed what was approved; it said
the same as what decided; it asked people; it failed beside another failure; it had no opinion."""

MAX_SHOWN: Final = 200
"""Characters of a value that the words for people show."""

NO_RULE: Final = "no rule had an opinion: rejected by default"

_STRENGTH: Final[Mapping[str, int]] = {"none": 0, "approve": 1, "narrow": 2, "escalate": 3, "reject": 4, "error": 5}


def explain_trace(
    trace: Sequence[Mapping[str, Any]], policy: Mapping[str, Any] | None, case: Case | None
) -> dict[str, Any]:
    """Return what a trace tells.

    Args:
        trace: of a ruling or a decision, in wire form.
        policy: the description of the policy that judged, as it was adopted.
        case: for the values that conditions read; None leaves them out.

    Returns:
        ``rules``, each with its ``role`` and what else is known of it; ``people``, the answers among the outcomes;
        ``decidedBy``, the names of the outcomes that decided; ``byDefault``, True where there were rules and none had
        an opinion.
    """
    described = {one["rule"]: one for one in (policy or {}).get("rules", ())}
    people = [dict(one) for one in trace if one["rule"] in (HUMAN_ANSWER, TIME_LIMIT)]
    asked = [one for one in trace if one["rule"] not in (HUMAN_ANSWER, TIME_LIMIT)]
    strongest = max((_STRENGTH[one["answer"]] for one in asked), default=0)
    rules = [
        {**one, "role": _role(one, strongest), **_about(one, described.get(one["rule"], {}), case)} for one in asked
    ]
    return {
        "rules": rules,
        "people": people,
        "decidedBy": [one["rule"] for one in trace if one.get("decisive")],
        "byDefault": bool(asked or described) and strongest == 0,
    }


def _role(outcome: Mapping[str, Any], strongest: int) -> Role:
    answer = outcome["answer"]
    strength = _STRENGTH[answer]
    if outcome.get("decisive"):
        return "decided"
    if strength == 0:
        return "silent"
    if answer == "error":
        return "failed"
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


def _file_rule(described: Mapping[str, Any]) -> FileRule | None:
    """Return a rule of a policy file from its description; None for another rule, or one of another version."""
    if described.get("language") != LANGUAGE:
        return None
    entry = {"id": described["rule"], **described.get("parameters", {})}
    try:
        (rule,) = policy_from_text(canonical_text({"name": "one", "rules": [entry]}), "recorded.yaml").rules
    except Refused:
        return None
    return rule if isinstance(rule, FileRule) else None


def reads_computed(policy: Mapping[str, Any] | None) -> bool:
    """Tell whether a condition of a policy reads what only the domain makes, such as computed values."""
    for described in (policy or {}).get("rules", ()):
        rule = _file_rule(described)
        if rule is None or rule.condition is None:
            continue
        for read in rule.condition.reading.reads:
            if read.path[:2] == ("base", "computed") or read.path[0] in ("action", "manifest"):
                return True
    return False


def trace_lines(told: Mapping[str, Any]) -> Iterator[str]:
    """Yield the words for people, for what ``explain_trace`` returned."""
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
        if "because" in one and "reads" not in one:
            yield f"              why    {one['because']}"
        if "scope" in one:
            yield f"              within {_shown(one['scope'])}"
        if one.get("to"):
            yield f"              asks   {', '.join(one['to'])}"
    if told["byDefault"]:
        yield f"  default   {NO_RULE}"
    for one in told["people"]:
        mark = "*" if one.get("decisive") else "-"
        reason = f": {one['reason']}" if one.get("reason") else ""
        yield f"  people    {mark} {one['rule']} {one['answer']}{reason} [{one['source']}]"


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"
