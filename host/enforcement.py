"""Comparison of an action's patches with approvedScope (INT-13.5).

An enforcing host refuses an execution at the first patch outside the scope, before anything is sealed and before any
further effect runs. A trusting host does not check. The operator chooses the mode; every execution records it.
Source: design section 4; INT-5.3, INT-13.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, get_args

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.immutable_json import freeze
from world.model.intent import IntentScope
from world.model.patch import Patch, allows
from world.model.scope_patterns import SCOPE_RULES, compile_scope
from world.model.snapshot import ErrorValue
from world.state.ports import Enforcement

__all__ = ["SCOPE_VIOLATION", "check_enforcement", "first_outside", "scope_violation"]

SCOPE_VIOLATION: Final = "SCOPE_VIOLATION"
"""Error code for a patch outside the approved scope."""


def check_enforcement(given: str) -> Enforcement:
    """Check the name of an enforcement mode and return it.

    Raises:
        RefusedError: ``INVALID_ENFORCEMENT`` for any other text: a typing error must not make a host trusting.
    """
    if given not in get_args(Enforcement):
        raise RefusedError(
            ErrorCode.INVALID_ENFORCEMENT,
            f"Unknown enforcement mode {given!r}; use 'enforcing' or 'trusting'.",
            enforcement=str(given),
        )
    return "trusting" if given == "trusting" else "enforcing"


def first_outside(scope: IntentScope | None, patches: Iterable[Patch], rules: int = SCOPE_RULES) -> Patch | None:
    """Return the first patch outside the scope, or None.

    Args:
        scope: approvedScope; None, and a scope without paths, is no restriction. An empty list of paths allows nothing.
        patches: in the order in which they were made.
        rules: version of the scope rules (``world.model.scope_patterns``).
    """
    if scope is None or scope.allowed_paths is None:
        return None
    allowed = compile_scope(scope.allowed_paths, rules)
    return next((patch for patch in patches if not allows(allowed, patch)), None)


def scope_violation(scope: IntentScope, patch: Patch, *, action: str, now: int) -> ErrorValue:
    """Return the error value of a patch outside its scope; it names the path and the patterns.

    Args:
        scope: approvedScope.
        patch: the first one outside.
        action: the action that made the patch, or whose effect did.
        now: the execution's frozen time, ms since 1970.
    """
    patterns = list(scope.allowed_paths or ())
    shown = ", ".join(patterns) or "nothing at all"
    where = repr(patch.path) if patch.path else "the whole data"
    message = f"The action {action!r} wants to {patch.op} {where}, outside of what was approved: {shown}."
    context = freeze({"op": patch.op, "path": patch.path, "allowedPaths": patterns})
    return ErrorValue.at(SCOPE_VIOLATION, message, action, patch.path, now, context)
