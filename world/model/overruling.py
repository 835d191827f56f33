"""Where the engine overrules a ruling, the trace of the decision says that the engine decided, and no rule.

Rules and people may approve what still must not happen: their policy is not the adopted one, the leases are not free,
the case cannot be made any more. Then one more outcome stands at the end of the trace, and the mark of what decided is
on that one alone. Decisions of version 1 left the marks as the ruling had them; what they mean is told here and nowhere
else. Sources: WP-decision; design section 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from world.model.decision import ENGINE, RuleOutcome, Ruling

Why = Literal["policy in force", "leases", "case"]
"""What the engine went by: the policy is not the adopted one; the leases, or the manifest that asks for them; the case
cannot be made any more."""

_NOT_ADOPTED: Final = (
    "The policy ",
    " at hand is not the one that was adopted; adopt it (`worldctl policy adopt`) or bring the adopted one back.",
)
_OF_LEASES: Final = ("Its manifest was refused (", "What it needs was not free in ", "Its request for leases was ")
_NOTHING_LEFT: Final = ("leave nothing of the proposed scope", "nothing is left that all would approve")


def overruled(ruling: Ruling, why: Why, reason: str) -> Ruling:
    """Return the rejection of what was ruled, by the engine and for a reason of its own."""
    trace = [replace(one, decisive=False) if one.decisive else one for one in ruling.trace if one.rule != ENGINE]
    return Ruling(
        "reject",
        ruling.authority,
        reason,
        trace=(*trace, RuleOutcome(ENGINE, why, "reject", decisive=True)),
        policy_hash=ruling.policy_hash,
        step=ruling.step,
    )


def not_adopted(policy: str | None) -> str:
    """Return why the ruling of a policy does not count that is not the adopted one."""
    return f"{policy!r}".join(_NOT_ADOPTED)


def second_version(wire: dict[str, Any]) -> dict[str, Any]:
    """Return the payload of a ``decision.made`` of version 1 in version 2.

    Rules, people and the engine each speak in words of their own, so the reason of a rejection tells whether what is
    marked in the trace decided, or was overruled. A payload that is none is given back as it is.
    """
    try:
        decision = wire["decision"]
        trace = _trace(decision) if decision["decision"] == "rejected" else []
    except (KeyError, TypeError, AttributeError):
        return wire
    return {**wire, "decision": {**decision, "trace": trace}} if trace else wire


def _trace(decision: Mapping[str, Any]) -> list[dict[str, Any]]:
    trace = decision.get("trace", [])
    why = _overruled_by(decision, [one for one in trace if one.get("decisive")])
    told = [_unmarked(one) if why or _contradicts(one, decision["reason"]) else one for one in trace]
    if why is not None:
        told.append(RuleOutcome(ENGINE, why, "reject", decisive=True).to_wire())
    return told


def _overruled_by(decision: Mapping[str, Any], decisive: list[Mapping[str, Any]]) -> Why | None:
    reason = decision["reason"]
    if reason.startswith(_NOT_ADOPTED[0]) and reason.endswith(_NOT_ADOPTED[1]):
        return "policy in force"
    if not decisive:
        return "leases" if reason.startswith(_OF_LEASES) else None
    if not all(_contradicts(one, reason) for one in decisive):
        return None
    return "case" if decisive[0]["answer"] == "escalate" else "leases"


def _contradicts(outcome: Mapping[str, Any], reason: str) -> bool:
    """Tell whether an outcome, if it had decided, would not have rejected with this reason."""
    answer, rule = outcome["answer"], outcome["rule"]
    if answer == "narrow":
        return reason.startswith(_OF_LEASES) or not any(words in reason for words in _NOTHING_LEFT)
    if answer == "escalate":  # it rejects where nobody can answer, or nobody further when the time is over
        return rule != "time limit" and not reason.startswith(f"{rule}: ")
    return bool(answer == "approve")


def _unmarked(outcome: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in outcome.items() if name != "decisive"}
