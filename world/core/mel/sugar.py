"""Functions of MEL that lower to several nodes (``world.core.mel.functions.SUGAR``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from world.core.values import kind_of

__all__ = ["BUILDERS", "array_node", "binary", "choose", "get", "literal", "match_of", "rank_of"]

Expression = dict[str, Any]


def literal(value: Any) -> Expression:
    """Return the node of a JSON value."""
    return {"kind": "lit", "value": value}


def get(path: str) -> Expression:
    """Return the node that reads a path."""
    return {"kind": "get", "path": path}


def binary(kind: str, left: Expression, right: Expression) -> Expression:
    """Return the node of a kind with two operands; ``and`` and ``or`` hold them in a list."""
    if kind in ("and", "or"):
        return {"kind": kind, "args": [left, right]}
    return {"kind": kind, "left": left, "right": right}


def choose(condition: Expression, then: Expression, otherwise: Expression) -> Expression:
    """Return the node of a conditional value."""
    return {"kind": "if", "cond": condition, "then": then, "else": otherwise}


def array_node(items: Sequence[Expression]) -> Expression:
    """Return the node of an array of these elements: a literal, or elements appended to the empty array."""
    if all(kind_of(one) == "lit" for one in items):
        return literal([one["value"] for one in items])
    return {"kind": "append", "array": literal([]), "items": list(items)}


def _one(kind: str, value: Expression) -> Expression:
    return {"kind": kind, "arg": value}


def _find(array: Expression, wanted: Expression) -> Expression:
    return {"kind": "find", "array": array, "predicate": binary("eq", get("$item.id"), wanted)}


def _update(array: Expression, wanted: Expression, changes: Expression) -> Expression:
    changed = {"kind": "merge", "objects": [get("$item"), changes]}
    return {
        "kind": "map",
        "array": array,
        "mapper": choose(binary("eq", get("$item.id"), wanted), changed, get("$item")),
    }


def _remove(array: Expression, wanted: Expression) -> Expression:
    return {"kind": "filter", "array": array, "predicate": _one("not", binary("eq", get("$item.id"), wanted))}


BUILDERS: Final[dict[str, Callable[..., Expression]]] = {
    "isNotNull": lambda value: _one("not", _one("isNull", value)),
    "absDiff": lambda left, right: _one("abs", binary("sub", left, right)),
    "clamp": lambda value, low, high: {
        "kind": "min",
        "args": [{"kind": "max", "args": [value, low]}, high],
    },
    "idiv": lambda left, right: _one("floor", binary("div", left, right)),
    "streak": lambda before, condition: choose(condition, binary("add", before, literal(1)), literal(0)),
    "findById": _find,
    "existsById": lambda array, wanted: _one("not", _one("isNull", _find(array, wanted))),
    "updateById": _update,
    "removeById": _remove,
}
"""Node of each function whose arguments are plain expressions."""


def match_of(key: Expression, arms: Sequence[tuple[Any, Expression]], default: Expression) -> Expression:
    """Return the node of ``match``: nested conditions in the order of the arms."""
    found = default
    for value, result in reversed(arms):
        found = choose(binary("eq", key, literal(value)), result, found)
    return found


def rank_of(
    candidates: Sequence[tuple[Expression, Expression, Expression]], *, largest: bool, first: bool
) -> Expression:
    """Return the node of ``argmax`` and ``argmin`` over (label, eligible, score); null where none is eligible.

    A candidate wins where it is eligible and beats every eligible other one: strictly those before it where the first
    of equals wins and those behind it otherwise.
    """
    found = literal(None)
    for index in reversed(range(len(candidates))):
        label, eligible, score = candidates[index]
        conditions = [eligible]
        for other, (_, also, rival) in enumerate(candidates):
            if other != index:
                is_strict = (other < index) is first
                beats = ("gt" if largest else "lt") if is_strict else ("gte" if largest else "lte")
                conditions.append(binary("or", _one("not", also), binary(beats, score, rival)))
        found = choose({"kind": "and", "args": conditions}, label, found)
    return found
