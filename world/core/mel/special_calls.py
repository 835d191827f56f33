"""Functions of MEL whose arguments are not plain expressions: paths, arms, candidates and collections with ids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from world.core.fields import FieldSpec, field_at
from world.core.mel.literals import NotLiteralError, json_of
from world.core.mel.parsing import Node, children, trees
from world.core.mel.rules import literal_type
from world.core.mel.sugar import BUILDERS, get, match_of, rank_of
from world.core.values import kind_of
from world.model.paths import parse_path

if TYPE_CHECKING:
    from world.core.mel.expression_lowering import ExpressionLowering, NameScope

__all__ = ["CALLS"]

Expression = dict[str, Any]

MAX_ARMS: Final = 50
"""Arms of one ``match``, and candidates of one ``argmax`` or ``argmin``: each is one level of the expression."""


def _arguments(node: Node) -> list[Node]:
    return trees(trees(node, "arguments")[0])


def _name(node: Node) -> str:
    return str(children(node)[0])


def _value(node: Node) -> Any:
    """Return the value of a literal argument, None for anything else."""
    try:
        return json_of(node)
    except NotLiteralError:
        return None


def _get(lowering: ExpressionLowering, node: Node, names: NameScope) -> Expression:
    path = _value(_arguments(node)[0])
    if not isinstance(path, str) or not path:
        return lowering.fail(node, "E_TYPE_MISMATCH", "'get' expects a path, a text that is not empty")
    return get(path)


def _field(lowering: ExpressionLowering, node: Node, names: NameScope) -> Expression:
    value, member = _arguments(node)
    name = _value(member)
    if not isinstance(name, str):
        return lowering.fail(member, "E_TYPE_MISMATCH", "'field' expects the member's name as a text")
    return {"kind": "field", "object": lowering.operand(value, names), "property": name}


def _clamp(lowering: ExpressionLowering, node: Node, names: NameScope) -> Expression:
    arguments = _arguments(node)
    low, high = _value(arguments[1]), _value(arguments[2])
    if literal_type(low) == literal_type(high) == "number" and low > high:
        return lowering.fail(node, "E049", f"clamp() bounds must be in the order lo, hi, got {low} and {high}")
    clamped: Expression = BUILDERS["clamp"](*(lowering.operand(one, names) for one in arguments))
    return clamped


def _match(lowering: ExpressionLowering, node: Node, names: NameScope) -> Expression:
    key, *arms, default = _arguments(node)
    if len(arms) > MAX_ARMS:
        return lowering.fail(node, "E_LIMIT", f"match() takes at most {MAX_ARMS} arms, got {len(arms)}")
    pairs: list[tuple[Any, Expression]] = []
    for arm in arms:
        parts = trees(arm)
        value = _value(parts[0]) if arm.data == "array" and len(parts) == 2 else None
        if arm.data != "array" or literal_type(value) not in ("string", "number", "boolean"):
            message = "match() takes a key, arms [literal, value], and a default value"
            return lowering.fail(arm, "E050", message, hint='Write match(status, ["open", 1], 0).')
        if any(value == other and type(value) is type(other) for other, _ in pairs):
            return lowering.fail(arm, "E051", f"Duplicate match() key {value!r}")
        pairs.append((value, lowering.operand(parts[1], names)))
    return match_of(lowering.operand(key, names), pairs, lowering.operand(default, names))


def _rank(lowering: ExpressionLowering, node: Node, names: NameScope) -> Expression:
    name = _name(node)
    *candidates, tie = _arguments(node)
    if len(candidates) > MAX_ARMS:
        return lowering.fail(node, "E_LIMIT", f"{name}() takes at most {MAX_ARMS} candidates, got {len(candidates)}")
    order = _value(tie)
    if order not in ("first", "last"):
        message = f"{name}() ends with the literal tie-break 'first' or 'last'"
        return lowering.fail(tie, "E052", message)
    rows: list[tuple[Expression, Expression, Expression]] = []
    for one in candidates:
        parts = trees(one)
        if one.data != "array" or len(parts) != 3:
            return lowering.fail(one, "E052", f"{name}() takes candidates [label, eligible, score] and a tie-break")
        label, eligible, score = (lowering.operand(part, names) for part in parts)
        rows.append((label, eligible, score))
    return rank_of(rows, largest=name == "argmax", first=order == "first")


def _by_id(lowering: ExpressionLowering, node: Node, names: NameScope) -> Expression:
    name, arguments = _name(node), _arguments(node)
    if name in ("updateById", "removeById"):
        fault = _transform_fault(name, arguments[0], names)
        if fault is not None:
            return lowering.fail(node, *fault)
    inner = replace(names, is_patch_value=False)
    collection = lowering.operand(arguments[0], names)
    spec = _spec_of(collection, names)
    if spec is not None and spec.fields is not None and "id" not in spec.fields:
        return lowering.fail(arguments[0], "E030", "Collection element type does not have an 'id' field")
    built: Expression = BUILDERS[name](collection, *(lowering.operand(one, inner) for one in arguments[1:]))
    return built


def _transform_fault(name: str, collection: Node, names: NameScope) -> tuple[str, str] | None:
    place = {"available": "E035", "dispatchable": "E048"}.get(names.place)
    if place is not None:
        return place, f"{name}() cannot be used in {names.place} when"
    if not names.is_patch_value:
        return "E031", f"{name}() is the value of a patch, and nothing else"
    if collection.data == "call" and _name(collection) in ("updateById", "removeById"):
        return "E032", "Nested transform primitive"
    root = collection
    while root.data == "member_access":
        root = trees(root)[0]
    if root.data != "name" or _name(root) in {*names.params, *names.computed} or _name(root) not in names.state:
        return "E033", f"The collection of {name}() is a place of the state"
    return None


def _spec_of(node: Expression, names: NameScope) -> FieldSpec | None:
    """Return the spec of an array's elements where it is known."""
    if kind_of(node) != "get" or str(node["path"]).startswith(("$", "computed.", "meta.", "system.", "input")):
        return None
    spec = field_at(names.types.state, parse_path(node["path"]))
    return spec.items if spec is not None else None


CALLS: Final[dict[str, Callable[[ExpressionLowering, Node, NameScope], Expression]]] = {
    "get": _get,
    "field": _field,
    "clamp": _clamp,
    "match": _match,
    "argmax": _rank,
    "argmin": _rank,
    "findById": _by_id,
    "existsById": _by_id,
    "updateById": _by_id,
    "removeById": _by_id,
}
"""Lowering of each of these functions."""
