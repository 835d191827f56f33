"""Listing of policies: which are in force, retired, changed, or only loaded; and the rules of one.

The policy commands and the HTTP API use this module. Source: design section 6; CARD-policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from authority import PolicyRegistry
from authority.policies.policy_diff import rule_summary
from world.errors import RefusedError
from worldprotocol.policy_tools.history import FoundPolicy, PolicyChange, last_of

__all__ = ["list_policies", "loaded_hashes", "show_policy"]


def loaded_hashes(registry: PolicyRegistry, changes: Sequence[PolicyChange]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the hashes of loaded policies by name, and why others could not be loaded.

    Args:
        registry: the loaded policies.
        changes: policy changes of the log; the form in which a policy was last adopted decides that of its hash.
    """
    adopted = {one.name: one.policy for one in changes if one.what == "adopted"}
    found: dict[str, str] = {}
    faults: dict[str, str] = {}
    for name in registry.names():
        try:
            found[name] = str(registry.describe(name, adopted.get(name))["hash"])
        except RefusedError as refused:
            faults[name] = refused.message
    return found, faults


def list_policies(
    changes: Sequence[PolicyChange], loaded: Mapping[str, str], faults: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the policies that are or were adopted and the loaded ones, by name, as JSON.

    Args:
        changes: policy changes of the log.
        loaded: hashes of the loaded policies by name.
        faults: why others could not be loaded, by name or reference.
    """
    adopted = {one.name for one in changes if one.what != "shadowed"}
    listed = [_described(name, last_of(name, changes), loaded.get(name)) for name in sorted(adopted | loaded.keys())]
    return listed + [{**_described(name, None, None), "note": note} for name, note in faults.items()]


def _described(name: str, last: PolicyChange | None, at_hand: str | None) -> dict[str, Any]:
    """Return the state of a policy: ``last`` is its last adoption or retirement."""
    adopted = last.policy_hash if last is not None and last.what == "adopted" else None
    if adopted is not None:
        note = (
            "in force" if adopted == at_hand else "not at hand" if at_hand is None else "changed since it was adopted"
        )
    else:
        note = "not adopted" if last is None else "retired"
    return {
        "name": name,
        "adopted": adopted,
        "atHand": at_hand,
        "note": note,
        "replaced": None if last is None else last.replaced,
        "position": None if last is None else last.position,
    }


def show_policy(found: FoundPolicy) -> dict[str, Any]:
    """Return a policy with its rules as JSON."""
    described = found.description
    return {
        **found.to_wire(),
        "version": described.get("version"),
        "combination": described["combination"],
        "rules": [rule_summary(one) for one in described["rules"]],
    }
