"""Lowering of patches: targets with static paths, and targets with keys that are computed.

A patch of the portable schema has a static path. ``patch tasks[id].done = true`` therefore sets ``tasks``, the longest
static part, to a copy in which the one place differs; docs/reference/mel.md describes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lark import Token, Tree

from world.core.fields import FieldSpec, field_at
from world.core.mel.diagnostics import suggestion
from world.core.mel.expression_lowering import ExpressionLowering, NameScope
from world.core.mel.literals import NotLiteralError, json_of
from world.core.mel.parsing import Node, children, is_token, trees
from world.core.mel.rules import patch_fault
from world.core.mel.sugar import array_node, binary, choose, get
from world.model.paths import Segments, array_index, format_path

__all__ = ["PatchTarget", "lower_patch", "static_path", "target_of"]

Expression = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PatchTarget:
    """A place of the state that is patched.

    Args:
        static: the names up to the first computed key.
        rest: what follows: names, and expressions of computed keys.
        spec: the spec at the static part, None where it is not known.
    """

    static: Segments
    rest: tuple[str | Expression, ...]
    spec: FieldSpec | None


def target_of(node: Node, lowering: ExpressionLowering, names: NameScope) -> PatchTarget | None:
    """Return the place that a path names; None, reported, where the state has none."""
    root = children(node, "NAME")[0]
    name = str(root)
    if name not in names.state:
        hint = suggestion(name, names.state)
        if name in names.params or name in names.computed:
            hint = (
                f"{name!r} is a {'parameter' if name in names.params else 'computed value'}; a patch writes the state."
            )
        lowering.fail(root, "E_UNDEFINED", f"Undefined state field {name!r}", hint=hint)
        return None
    lowering.reads.append(((root.start_pos or 0, root.end_pos or 0), f"state {name}"))
    static: list[str] = [name]
    rest: list[str | Expression] = []
    for segment in trees(node, "path_member", "path_index"):
        one = _segment(segment, lowering, names)
        if rest or not isinstance(one, str):
            rest.append(one)
        else:
            static.append(one)
    spec = field_at(names.types.state, tuple(static), into_free_arrays=False)
    if spec is None:
        lowering.fail(node, "E_UNDEFINED", f"The state has no place {format_path(tuple(static))!r}")
        return None
    return PatchTarget(tuple(static), tuple(rest), spec)


def _segment(node: Node, lowering: ExpressionLowering, names: NameScope) -> str | Expression:
    if node.data == "path_member":
        return str(children(node)[0])
    (inner,) = trees(node)
    try:
        value = json_of(inner)
    except NotLiteralError:
        return lowering.operand(inner, names)
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and array_index(str(value)) is not None:
        return str(value)
    lowering.fail(inner, "E_TYPE_MISMATCH", "A key of a path is a text, or an index of 0 or more")
    return "0"


def static_path(node: Node, lowering: ExpressionLowering, names: NameScope) -> str | None:
    """Return a path without computed keys as a patch path; None, reported, for another one."""
    target = target_of(node, lowering, names)
    if target is not None and target.rest:
        lowering.fail(node, "E_TYPE_MISMATCH", "A path without computed keys is expected")
    return None if target is None or target.rest else format_path(target.static)


def lower_patch(
    node: Node, op: str, value: Expression | None, lowering: ExpressionLowering, names: NameScope
) -> Expression:
    """Return the patch node of a path, an operation and a value.

    Args:
        node: the path.
        op: ``set``, ``unset`` or ``merge``.
        value: the lowered value, None for ``unset``.
        lowering: of the expressions in the path.
        names: what they mean.
    """
    target = target_of(node, lowering, names)
    if target is None:
        return {"kind": "patch", "op": "unset", "path": "$"}
    path = format_path(target.static)
    if not target.rest:
        fault = None if value is None or op != "set" else patch_fault(path, value, names.types)
        if fault is not None:
            is_time = value is not None and value.get("path") == "$system.timestamp"
            lowering.fail(node, *fault, hint="The time is a text here (ISO 8601); declare string." if is_time else "")
        return {"kind": "patch", "op": op, "path": path, **({} if value is None else {"value": value})}
    if op == "unset" and _is_array(target.spec, target.rest[:-1]):
        message = "An element of an array cannot be unset by a computed index"
        lowering.fail(node, "E_TYPE_MISMATCH", message, hint="Set the array to a filter of itself.")
    rebuilt = _rebuilt(get(path), target.spec, target.rest, op, value)
    return {"kind": "patch", "op": "set", "path": path, "value": rebuilt}


def _is_array(spec: FieldSpec | None, segments: tuple[str | Expression, ...]) -> bool:
    for one in segments:
        spec = _below(spec, one)
    return spec is not None and spec.type == "array"


def _below(spec: FieldSpec | None, segment: str | Expression) -> FieldSpec | None:
    if spec is None:
        return None
    if spec.type == "array":
        return spec.items
    return (spec.fields or {}).get(segment) if isinstance(segment, str) else None


def _rebuilt(
    current: Expression, spec: FieldSpec | None, rest: tuple[str | Expression, ...], op: str, value: Expression | None
) -> Expression:
    """Return the value of a place with one place below it changed."""
    if not rest:
        assert value is not None
        return {"kind": "merge", "objects": [current, value]} if op == "merge" else value
    segment, *below = rest
    inner_spec, is_last = _below(spec, segment), len(rest) == 1
    key: Expression = {"kind": "lit", "value": segment} if isinstance(segment, str) else segment
    if op == "unset" and is_last:
        return {"kind": "omit", "obj": current, "keys": array_node([key])}
    if spec is not None and spec.type == "array":
        changed = _rebuilt(get("$item"), inner_spec, tuple(below), op, value)
        at = {"kind": "lit", "value": int(segment)} if isinstance(segment, str) and segment.isdigit() else key
        return {
            "kind": "map",
            "array": current,
            "mapper": choose(binary("eq", get("$index"), at), changed, get("$item")),
        }
    if isinstance(segment, str):
        inner: Expression = {"kind": "field", "object": current, "property": segment}
        changed = _rebuilt(inner, inner_spec, tuple(below), op, value)
        return {"kind": "merge", "objects": [current, {"kind": "object", "fields": {segment: changed}}]}
    inner = {"kind": "at", "array": current, "index": key}
    entry = array_node([key, _rebuilt(inner, inner_spec, tuple(below), op, value)])
    return {"kind": "merge", "objects": [current, {"kind": "fromEntries", "entries": array_node([entry])}]}


def path_of_expression(node: Node) -> Node | None:
    """Return an expression as the path it has the form of, None for any other expression."""
    segments: list[Node] = []
    while node.data in ("member_access", "index"):
        inner = trees(node)
        if node.data == "member_access":
            segments.insert(0, Tree("path_member", [children(node)[0]], node.meta))
        else:
            segments.insert(0, Tree("path_index", [inner[1]], node.meta))
        node = inner[0]
    token = children(node)[0] if node.data == "name" else None
    if token is None or not is_token(token, "NAME"):
        return None
    parts: list[Token | Node] = [token, *segments]
    return Tree("path", parts, node.meta)
