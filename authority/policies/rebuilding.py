"""Reconstruction of policies from their recorded adoptions.

The adoption of a policy file records the content of its rules, so the policy can be reconstructed without the file, to
judge a past case or to show what its rules read. The result is valid only if its hash is the recorded one. Of a Python
rule the log holds only hashes; such a policy must be registered. Source: CARD-policy, CARD-replay; design section 6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from authority.evaluations import EARLIER, evaluation_of
from authority.policies.policy import Policy
from authority.policies.policy_text import ParsedText, Place
from authority.policies.rules import Rule
from world.errors import RefusedError
from world.model.immutable_json import thaw

__all__ = ["rebuilt_policy", "rebuilt_rules"]

_CEL: Final = "cel"
_CEDAR: Final = "cedar"


def rebuilt_policy(description: Mapping[str, Any], policy_hash: str) -> Policy | None:
    """Return a policy as it was adopted, None where it cannot be reconstructed.

    Args:
        description: the description in its adoption.
        policy_hash: the recorded hash, which the reconstructed policy must have.
    """
    rules = rebuilt_rules(description.get("rules", ()), evaluation=evaluation_of(description))
    if not rules:
        return None
    try:
        policy = Policy(description["name"], rules, version=description.get("version")).hashed_like(description)
    except (RefusedError, KeyError):  # a recorded rule that is invalid today
        return None
    return policy if policy.hash == policy_hash else None


def rebuilt_rules(described: Sequence[Mapping[str, Any]], *, evaluation: int = EARLIER) -> tuple[Rule, ...]:
    """Return the rules of a policy file from their descriptions, if possible.

    Args:
        described: the rules of a policy's description.
        evaluation: of their conditions; the earlier one accepts every recorded rule.
    """
    languages = {one.get("language") for one in described}
    if languages not in ({_CEL}, {_CEDAR}):
        return ()
    try:
        return _of_file(described, evaluation) if languages == {_CEL} else _of_cedar(described)
    except (
        RefusedError,
        KeyError,
        TypeError,
        ValueError,
    ):  # written by another engine, or its package is not installed
        return ()


def _of_file(described: Sequence[Mapping[str, Any]], evaluation: int) -> tuple[Rule, ...]:
    """Return the rules of a TOML or YAML file, each on its line."""
    from authority.policies.policy_file import policy_from_written  # its library takes 150 ms to import

    entries = [{"id": one["rule"], **thaw(one.get("parameters", {}))} for one in described]
    lines: dict[Place, int] = {("rules", at): one["line"] for at, one in enumerate(described)}
    written = ParsedText({"name": "recorded", "rules": entries}, lines)
    return policy_from_written(written, described[0]["module"], evaluation=evaluation).rules


def _of_cedar(described: Sequence[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """Return the rules of a Cedar file, each on its line."""
    from authority.policies.cedar import policy_from_cedar  # an extra

    text, line = "", 1
    for one in described:
        gap = "\n" * (one["line"] - line)
        statement = one["parameters"]["policy"]
        text, line = text + gap + statement, one["line"] + statement.count("\n")
    parameters = {one["rule"]: one["parameters"] for one in described}
    values = {name: one["values"] for name, one in parameters.items() if "values" in one}
    return policy_from_cedar(text, described[0]["module"], values=values).rules
