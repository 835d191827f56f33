"""Migrations and holds of the second implementation, made from docs/reference/log-format.md alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.second_forms import must

State = Mapping[str, Any]
HELD_IN = {"workspace": ("evaluating",), "effect": ("executing",), "caller": ("evaluating",)}


def adoption_of(proposal: State, ruling: State, domain: State, actors: Mapping[str, State]) -> State:
    """Return the binding of a migration, which is part of the adoption of the domain in force."""
    at, body = proposal["migrates"]
    told = body["input"]
    must((body["type"], proposal["actor"]) == ("domain.migrate", "migration"), "not the intent of a migration")
    must(actors["migration"]["kind"] == "system", "not an intent of a system")
    must(told["from"]["schemaHash"] == domain["previous"], "from another schema")
    must(told["to"]["schemaHash"] == domain["schemaHash"], "to another schema")
    must((at, told["by"]) == (domain["at"], domain["by"]), "not with the adoption")
    versions = told["to"]["version"], told["from"]["version"]
    reason = f"{told['by']} adopted version {versions[0]} in place of {versions[1]}"
    expected = {"verdict": "approve", "authority": "adoption", "reason": reason, "approvedScope": None}
    must(dict(ruling) == expected, "not the ruling of an adoption")
    return {"kind": "adoption", "by": domain["by"]}


def hold_is_possible(
    state: State, schema: str | None, policies: State, sources: State, workspace: str | None = None
) -> None:
    """Compare what a held proposal waits for with what is in force."""
    cause, names, in_force = state["cause"], state["names"], state.get("inForce")
    if cause == "effect":
        must(len(names) == 1 and in_force is None and state.get("atHand") is None, "not one type of effect")
        return
    if cause == "caller":
        must(not names and in_force is None and state.get("atHand") is None, "not a caller")
        return
    if cause == "code":
        must(names and sources and in_force is None and state.get("atHand") is None, "no function that differs")
        return
    known = {"schema": schema, "workspace": workspace}
    expected = known[cause] if cause in known else policies.get(names[0]) if len(names) == 1 else None
    must(in_force is not None and in_force == expected, "not what is in force")
    must(state.get("atHand") != in_force, "nothing differs")
