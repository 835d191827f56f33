"""Once guards of a flow, as the reference compiler of MEL writes them.

``onceIntent {...}`` is portable as an ``if``: its condition compares a mark below ``$mel.guards.intent`` with the
intent, and its first step sets the mark. A flow in exactly this form is read as the node ``causalGuard`` of newer
compilers: the body runs once in an execution, and the mark is part of the execution instead of the state. The portable
schema keeps its form and its hash. Source: IC-mel, HC-flow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

__all__ = ["GUARDS", "CausalGuard", "read_guard"]

GUARDS: Final = "$mel.guards.intent"
"""Path of the marks in the portable form."""

_INTENT: Final = {"kind": "get", "path": "meta.intentId"}


class CausalGuard(NamedTuple):
    """A once guard.

    Args:
        guard_id: names the mark.
        condition: further condition, or None.
        write: the step that sets the mark in the portable form; it is not run.
    """

    guard_id: str
    condition: Any
    write: Any


def read_guard(node: Any) -> CausalGuard | None:
    """Return the once guard that a flow node is, None where it is another node.

    Args:
        node: a portable node.
    """
    if not isinstance(node, Mapping) or node.get("kind") != "if" or node.keys() != {"kind", "cond", "then"}:
        return None
    compared, condition = _parts(node["cond"])
    body = node["then"]
    if not isinstance(body, Mapping) or body.get("kind") != "seq" or not isinstance(body.get("steps"), list):
        return None
    mark = compared.get("left") if isinstance(compared, Mapping) else None
    path = mark.get("path") if isinstance(mark, Mapping) else None
    if not isinstance(path, str) or not path.startswith(f"{GUARDS}.") or not body["steps"]:
        return None
    guard_id = path.removeprefix(f"{GUARDS}.")
    value = {"kind": "object", "fields": {guard_id: _INTENT}}
    write = {"kind": "patch", "op": "merge", "path": GUARDS, "value": value}
    is_guard = "." not in guard_id and compared == {
        "kind": "neq",
        "left": {"kind": "get", "path": path},
        "right": _INTENT,
    }
    return CausalGuard(guard_id, condition, body["steps"][0]) if is_guard and body["steps"][0] == write else None


def _parts(condition: Any) -> tuple[Any, Any]:
    """Return the comparison with the mark, and the further condition beside it or None."""
    if isinstance(condition, Mapping) and condition.keys() == {"kind", "args"} and condition["kind"] == "and":
        args = condition["args"]
        if isinstance(args, list) and len(args) == 2:
            return args[0], args[1]
    return condition, None
