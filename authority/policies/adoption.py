"""Checks of a policy before it comes into force.

Refused is what would reject every case or never apply: a rule in Python that names a clock, chance, network or files,
and a Cedar policy that names an action that the domain does not have. ``authority.lint`` reports both earlier.
Source: design section 6; CARD-policy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from difflib import get_close_matches

from authority.policies.policy import Policy
from authority.policies.rule_guard import fault_of, impure_in
from authority.policies.rules import Rule
from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["check_adoptable", "unknown_cedar_actions"]


def check_adoptable(policy: Policy, actions: Collection[str]) -> None:
    """Check a policy against the actions of a domain.

    Args:
        policy: the policy.
        actions: the actions of the domain.

    Raises:
        RefusedError: ``RULE_IMPURE`` with ``rule`` and ``where``; ``INVALID_POLICY`` for an unknown action in Cedar.
    """
    for one in policy.rules:
        for found in impure_in(one):
            raise RefusedError(
                ErrorCode.RULE_IMPURE,
                f"The rule {one.name!r} of the policy {policy.name!r} is not a function of its case: "
                f"{fault_of(found.impurity, found.where).partition(': ')[2]}.",
                policy=policy.name,
                rule=one.name,
                where=found.where,
            )
        for words in unknown_cedar_actions(one, actions):
            raise RefusedError(
                ErrorCode.INVALID_POLICY,
                f"The rule {one.name!r} of the policy {policy.name!r} never applies as written: {words}.",
                policy=policy.name,
                rule=one.name,
            )


def unknown_cedar_actions(rule: Rule, actions: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each action that a Cedar policy names and the domain does not have."""
    named: Collection[str] = getattr(rule, "actions", ()) if type(rule).__name__ == "CedarRule" else ()
    for name in named:
        if name not in actions:
            close = get_close_matches(name, sorted(actions), n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            yield f"the domain has no action {name!r}{hint}"
