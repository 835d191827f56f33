"""One version of a policy: its rules with their use in a stretch of the log, its history, and what it changed.

The HTTP API uses this module. Source: design section 6; CARD-policy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from authority.policies.policy_diff import differences, rule_summary
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.proposal_events import DecisionMade
from world.read_models.decoding import decoded
from worldprotocol.api.realm import Realm
from worldprotocol.policy_tools.history import PolicyChange, changes_of, last_of

__all__ = ["MAX_HISTORY", "describe_version"]

MAX_HISTORY: Final = 200
"""Adoptions and retirements that a description lists, the newest ones."""

_HASH: Final = "^[0-9a-f]{6,64}$"


def describe_version(realm: Realm, named: str, *, against: str | None, after: int, upto: int) -> dict[str, Any]:
    """Return a version of a policy as JSON.

    Args:
        realm: an open realm.
        named: name of a policy, ``NAME@HASH``, or the hash of a version; a hash may be shortened.
        against: hash of the version that it is compared with; None is the one before it.
        after: position before the events in which its use is counted.
        upto: position of the last event that is looked at.

    Raises:
        RefusedError: ``UNKNOWN_POLICY``, ``AMBIGUOUS``.
    """
    changes = changes_of(realm, upto)
    shown = _named(named, changes)
    name = shown.name
    earlier = _before(shown, changes) if against is None else _found(against, changes, name)
    last = last_of(name, changes)
    described = shown.policy or {}
    return {
        "name": name,
        "hash": shown.policy_hash,
        "isInForce": last is not None and last.what == "adopted" and last.policy_hash == shown.policy_hash,
        "version": described.get("version"),
        "combination": described["combination"],
        "history": _history(name, changes)[:MAX_HISTORY],
        "rules": [rule_summary(one) for one in described["rules"]],
        "use": {"after": after, "upto": upto, **_use(realm, shown.policy_hash, after, upto)},
        "against": None if earlier is None else earlier.policy_hash,
        "differences": [] if earlier is None else differences(earlier.policy or {}, described),
    }


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


def _use(realm: Realm, policy_hash: str, after: int, upto: int) -> dict[str, Any]:
    """Count the decisions by a policy, and for each rule its uses, its decisive ones and its errors."""
    decisions = 0
    applied: Counter[str] = Counter()
    decided: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for logged in realm.log.read(after, upto, topics=[DecisionMade.TOPIC], skip_archived=True):
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
