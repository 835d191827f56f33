"""Rejections by the engine that overrule a ruling, and their representation in the decision's trace.

The engine rejects an approved proposal when the policy that approved it is not the adopted one, when its leases are
not free, or when the case cannot be constructed any more. The trace then ends with an outcome of the engine, the only
outcome marked decisive. Decisions of version 1 kept the marks of the ruling; ``second_version`` converts them.
Sources: WP-decision; design section 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec.structs import replace

from world.model.decision import ENGINE, RuleOutcome, Ruling

Why = Literal["policy in force", "leases", "case"]
"""Cause of the engine's rejection: the policy is not the adopted one; the leases, or the manifest that requests them;
the case cannot be constructed any more."""

_NOT_ADOPTED: Final = (
    "The policy ",
    " at hand is not the one that was adopted; adopt it (`worldctl policy adopt`) or bring the adopted one back.",
)
_OF_LEASES: Final = ("Its manifest was refused (", "What it needs was not free in ", "Its request for leases was ")
_NOTHING_LEFT: Final = ("leave nothing of the proposed scope", "nothing is left that all would approve")


def overruled(ruling: Ruling, why: Why, reason: str) -> Ruling:
    """Return the engine's rejection in place of a ruling."""
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
    """Return the reason for rejecting a ruling of a policy that is not the adopted one."""
    return f"{policy!r}".join(_NOT_ADOPTED)


def second_version(wire: dict[str, Any]) -> dict[str, Any]:
    """Upcast the payload of a ``decision.made`` event from version 1 to version 2.

    The engine's reasons have texts that differ from those of rules and people, so the reason of a rejection shows
    whether the outcome marked in the trace decided or was overruled. A malformed payload is returned unchanged.
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
    upcast = [_unmarked(one) if why or _contradicts(one, decision["reason"]) else one for one in trace]
    if why is not None:
        upcast.append(RuleOutcome(ENGINE, why, "reject", decisive=True).to_wire())
    return upcast


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
    """Return whether a rejection with this reason excludes that the outcome decided."""
    answer, rule = outcome["answer"], outcome["rule"]
    if answer == "narrow":
        return reason.startswith(_OF_LEASES) or not any(words in reason for words in _NOTHING_LEFT)
    if answer == "escalate":  # an escalation rejects where it has no voter, or no further step after the time limit
        return rule != "time limit" and not reason.startswith(f"{rule}: ")
    return bool(answer == "approve")


def _unmarked(outcome: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in outcome.items() if name != "decisive"}
