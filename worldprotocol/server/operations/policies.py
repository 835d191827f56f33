"""Operations on policies: those in force, and the versions of one with what changed and their use."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Final

from fastapi import Path, Query

from authority.policies.policy_diff import differences, rule_summary
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.proposal_events import DecisionMade
from world.read_models.decoding import decoded
from worldprotocol.analysis.shadow_results import shadows_of
from worldprotocol.policy_tools.history import PolicyChange, changes_of, last_of
from worldprotocol.policy_tools.listing import list_policies as listed_policies
from worldprotocol.policy_tools.listing import loaded_hashes
from worldprotocol.server.call import Authorized, Call, answer
from worldprotocol.server.operation_table import handles
from worldprotocol.server.operations.past import At

RECENT: Final = 10_000
"""Events at the end of the log in which the use of a policy is counted."""

MAX_HISTORY: Final = 200
"""Adoptions and retirements that an answer lists, the newest ones."""

MAX_LINES: Final = 200
"""Disagreements that an answer lists; all are counted."""

_HASH: Final = "^[0-9a-f]{6,64}$"


@handles("policies.list")
async def list_policies(call: Authorized, at: At = None) -> Any:
    """List the policies in force with their rules, the state of every known one, and the newest changes.

    `states` has adopted, retired and loaded policies by name; `history` adoptions, retirements and shadow policies.
    """

    def run() -> dict[str, Any]:
        realm, view = call.hosted.realm, call.view_at(at)
        changes = changes_of(realm, view.position)
        policies = [
            {"name": one.name, "policyHash": one.policy_hash, "adoptedAt": one.at, "by": one.by, "policy": one.policy}
            for one in view.policies.values()
        ]
        return {
            "policies": policies,
            "states": listed_policies(changes, *loaded_hashes(realm._composed.policies, changes)),
            "history": [one.to_wire() for one in changes[-MAX_HISTORY:]],
        }

    return answer(await call.run(run))


@handles("policies.read")
async def read_policy(
    call: Authorized,
    named: Annotated[
        str,
        Path(
            alias="named",
            min_length=1,
            max_length=1_100,
            description="Name of a policy, NAME@HASH, or the hash of a version; a hash may be shortened.",
        ),
    ],
    against: Annotated[str | None, Query(pattern=_HASH, description="Compare with this version.")] = None,
    at: At = None,
) -> Any:
    """Return a version of a policy: its rules with their use in the newest events, and its differences from another.

    Without `against` it is compared with the version before it.
    """

    def run() -> dict[str, Any]:
        realm = call.hosted.realm
        size = call.moment(at).position
        changes = changes_of(realm, size)
        shown = _named(named, changes)
        name = shown.name
        earlier = _before(shown, changes) if against is None else _found(against, changes, name)
        after = max(0, size - RECENT)
        last = last_of(name, changes)
        in_force = last is not None and last.what == "adopted" and last.policy_hash == shown.policy_hash
        described = shown.policy or {}
        return {
            "name": name,
            "hash": shown.policy_hash,
            "isInForce": in_force,
            "version": described.get("version"),
            "combination": described["combination"],
            "history": _history(name, changes)[:MAX_HISTORY],
            "rules": [rule_summary(one) for one in described["rules"]],
            "use": {"after": after, "upto": size, **_use(call, shown.policy_hash, after, size)},
            "against": None if earlier is None else earlier.policy_hash,
            "differences": [] if earlier is None else differences(earlier.policy or {}, described),
            "shadows": {"after": after, "upto": size, **_shadows(call, after, size)},
        }

    return answer(await call.run(run))


def _named(named: str, changes: Sequence[PolicyChange]) -> PolicyChange:
    """Return the last record of the policy that a text names; a name is the version in force, else the last one.

    Raises:
        RefusedError: ``UNKNOWN_POLICY``, ``AMBIGUOUS``.
    """
    recorded = [one for one in changes if one.policy is not None and one.name == named]
    if recorded:
        last = last_of(named, changes)
        in_force = last if last is not None and last.what == "adopted" else None
        return in_force or ([one for one in recorded if one.what == "adopted"] or recorded)[-1]
    name, sign, prefix = named.rpartition("@")
    wanted = prefix if sign else named
    if not re.fullmatch(_HASH, wanted):
        raise RefusedError(
            ErrorCode.UNKNOWN_POLICY,
            f"The log has no policy {named[:80]!r}; give its name, NAME@HASH or a hash. `GET /policies` lists them.",
        )
    return _found(wanted, changes, name if sign else None)


def _found(policy_hash: str, changes: Sequence[PolicyChange], name: str | None = None) -> PolicyChange:
    """Return the last record of a version.

    Raises:
        RefusedError: ``UNKNOWN_POLICY``, ``AMBIGUOUS``.
    """
    fits = [one for one in changes if one.policy is not None and one.policy_hash.startswith(policy_hash)]
    fits = [one for one in fits if name in (None, one.name)]
    if not fits:
        raise RefusedError(
            ErrorCode.UNKNOWN_POLICY,
            f"The log has no {'policy' if name is None else f'version of {name!r}'} with the hash {policy_hash}; "
            "`GET /policies` lists them.",
        )
    if len({one.policy_hash for one in fits}) > 1:
        raise RefusedError(ErrorCode.AMBIGUOUS, f"{policy_hash} begins several hashes; write more of it.")
    return fits[-1]


def _before(shown: PolicyChange, changes: Sequence[PolicyChange]) -> PolicyChange | None:
    """Return the version recorded before another one; None for the first."""
    before: PolicyChange | None = None
    for one in changes:
        if one is shown:
            break
        if one.name == shown.name and one.policy is not None and one.policy_hash != shown.policy_hash:
            before = one
    return before


def _history(name: str, changes: Sequence[PolicyChange]) -> list[dict[str, Any]]:
    """Return the changes of a policy, newest first, each adoption with what it changed."""
    history: list[dict[str, Any]] = []
    before: PolicyChange | None = None
    for one in changes:
        if one.name != name:
            continue
        wire = one.to_wire()
        if one.policy is not None and before is not None and before.policy is not None:
            found = Counter(difference["kind"] for difference in differences(before.policy, one.policy))
            wire["changed"] = dict(found)
        history.append(wire)
        before = one if one.policy is not None else before
    return history[::-1]


def _shadows(call: Call, after: int, upto: int) -> dict[str, Any]:
    """Return the agreement of shadow policies with the rulings in a stretch, the newest disagreement first."""
    wire = shadows_of(call.hosted.realm, None, upto, after=after).to_wire()
    lines = wire["disagreements"][::-1]
    return {**wire, "disagreements": lines[:MAX_LINES], "moreDisagreements": len(lines) > MAX_LINES}


def _use(call: Call, policy_hash: str, after: int, upto: int) -> dict[str, Any]:
    """Count the decisions by a policy, and for each rule its uses, its decisive ones and its errors."""
    decisions = 0
    applied: Counter[str] = Counter()
    decided: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for logged in call.hosted.realm.log.read(after, upto, topics=[DecisionMade.TOPIC], skip_archived=True):
        event = decoded(logged)
        if not isinstance(event, DecisionMade) or event.decision.policy_hash != policy_hash:
            continue
        decisions += 1
        for outcome in event.decision.trace:
            applied[outcome.rule] += outcome.answer != "none"
            decided[outcome.rule] += outcome.decisive
            errors[outcome.rule] += outcome.answer == "error"
    rules = {name: {"applied": applied[name], "decided": decided[name], "errors": errors[name]} for name in applied}
    return {"decisions": decisions, "rules": rules}
