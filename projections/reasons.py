"""Why an action is available or is not, in a sentence that names what its predicate read.

For the debug mode of catalogs and for explanations, both of this room.
"""

from __future__ import annotations

from typing import Any, Final

from projections.deciding import Decider, Judged
from projections.descriptors import ActionDescriptor
from world.core import LocalPredicate, compile_expression
from world.model.canonical_json import canonical_text

__all__ = ["values_read", "with_reason"]

MAX_SHOWN: Final = 60
"""Characters of a value in a sentence."""


def with_reason(judged: Judged, decider: Decider) -> Judged:
    """Return what was judged with a sentence in any case."""
    action, told, why = judged
    if action.available is None:
        return action, told, "it has no predicate"
    if isinstance(action.available, LocalPredicate):
        return action, told, why or f"{action.available.name} says {'yes' if told.status == 'available' else 'no'}"
    read = [f"{path} is {_shown(value)}" for path, value in values_read(action, decider).items() if path not in why]
    seen = f" ({', '.join(read)})" if read and told.reason != "indeterminate" else ""
    words = {"available": "the predicate is true", "unavailable": "the predicate is false"}
    return action, told, (why or words.get(told.status, "")) + seen


def values_read(action: ActionDescriptor, decider: Decider) -> dict[str, Any]:
    """Return the values that an expression looks at; what it must not read has none."""
    if action.predicate is None or action.predicate.impure:
        return {}
    scope = decider.scope()
    paths = [path for path in action.predicate.reads if not path.startswith("$")]
    return {path: compile_expression({"kind": "get", "path": path})(scope) for path in paths}


def _shown(value: Any) -> str:
    text = canonical_text(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
