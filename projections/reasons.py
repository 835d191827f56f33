"""Reasons of availability as sentences with the values that a predicate read.

For the debug mode of catalogs and for explanations.
"""

from __future__ import annotations

from typing import Any, Final

from projections.availability import Decider, Judged
from projections.descriptors import ActionDescriptor
from world.core import LocalPredicate, compile_expression
from world.model.canonical_json import canonical_text

__all__ = ["values_read", "with_reason"]

MAX_SHOWN: Final = 60
"""Maximum length of a value in a sentence, in characters."""


def with_reason(judged: Judged, decider: Decider) -> Judged:
    """Return a judged action with a reason, never an empty one."""
    action, availability, why = judged
    if action.available is None:
        return action, availability, "it has no predicate"
    if isinstance(action.available, LocalPredicate):
        return action, availability, why or f"{action.available.name} returns {availability.status == 'available'}"
    read = [f"{path} is {_shown(value)}" for path, value in values_read(action, decider).items() if path not in why]
    seen = f" ({', '.join(read)})" if read and availability.reason != "indeterminate" else ""
    words = {"available": "the predicate is true", "unavailable": "the predicate is false"}
    return action, availability, (why or words.get(availability.status, "")) + seen


def values_read(action: ActionDescriptor, decider: Decider) -> dict[str, Any]:
    """Return the values at the paths of an expression; an impure expression has none."""
    if action.predicate is None or action.predicate.impure:
        return {}
    scope = decider.scope()
    paths = [path for path in action.predicate.reads if not path.startswith("$")]
    return {path: compile_expression({"kind": "get", "path": path})(scope) for path in paths}


def _shown(value: Any) -> str:
    text = canonical_text(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
