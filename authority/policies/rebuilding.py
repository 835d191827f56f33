"""Policies made again from what the log says of them.

The adoption of a policy file holds all that its rules say, so the policy can be made again without the file: to judge
a past case by the rules of then, or to show what they read. What comes of it counts only where its hash is the recorded
one, lines and words included. Of a Python rule the log holds no code, only its hash; such a policy must be at hand.
Source: CARD-policy, CARD-replay; design section 6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from authority.policies.policy import Policy
from authority.policies.policy_text import Place, Written
from authority.policies.rules import Rule
from world.errors import RefusedError
from world.model.immutable_json import thaw

__all__ = ["rebuilt_policy", "rebuilt_rules"]

_CEL: Final = "cel"
_CEDAR: Final = "cedar"


def rebuilt_policy(description: Mapping[str, Any], policy_hash: str) -> Policy | None:
    """Return a policy as it was adopted, None where it cannot be made again.

    Args:
        description: of the policy, from its adoption.
        policy_hash: the recorded hash, which the policy that was made must have.
    """
    rules = rebuilt_rules(description.get("rules", ()))
    if not rules:
        return None
    try:
        policy = Policy(description["name"], rules, version=description.get("version"))
    except (RefusedError, KeyError):  # a rule of then would be none today
        return None
    return policy if policy.hash == policy_hash else None


def rebuilt_rules(described: Sequence[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """Return the rules of a policy file from their descriptions; none where one of them is of another kind.

    Args:
        described: as in a policy's description, all of the same language.
    """
    languages = {one.get("language") for one in described}
    if languages not in ({_CEL}, {_CEDAR}):
        return ()
    try:
        return (_of_file if languages == {_CEL} else _of_cedar)(described)
    except (RefusedError, KeyError, TypeError, ValueError):  # another engine wrote it, or its package is not installed
        return ()


def _of_file(described: Sequence[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """Return the rules of a file in TOML or YAML, each on its line."""
    from authority.policies.policy_file import policy_from_written  # its library takes 150 ms to import

    entries = [{"id": one["rule"], **thaw(one.get("parameters", {}))} for one in described]
    lines: dict[Place, int] = {("rules", at): one["line"] for at, one in enumerate(described)}
    written = Written({"name": "recorded", "rules": entries}, lines)
    return policy_from_written(written, described[0]["module"]).rules


def _of_cedar(described: Sequence[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """Return the rules of a Cedar file, each on its line."""
    from authority.policies.cedar import policy_from_cedar  # an extra

    text, line = "", 1
    for one in described:
        gap = "\n" * (one["line"] - line)
        statement = one["parameters"]["policy"]
        text, line = text + gap + statement, one["line"] + statement.count("\n")
    parameters = {one["rule"]: one["parameters"] for one in described}
    values = {name: told["values"] for name, told in parameters.items() if "values" in told}
    return policy_from_cedar(text, described[0]["module"], values=values).rules
