"""Syntax of expressions: nodes, paths that are read, and faults.

Source: design section 4 (unknown node kinds are refused when a schema is loaded).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from world.core.expressions.expression import KINDS, MAX_EXPRESSION_DEPTH, MAX_EXPRESSION_NODES, OPERAND_LISTS, OPERANDS
from world.core.values import kind_of

__all__ = ["check_expression", "dependencies", "operands", "paths_read", "reads_system"]

_LOCAL: Final = ("$item", "$index", "$array", "$system")


class _AstNode(NamedTuple):
    value: Any
    path: str
    depth: int


def dependencies(expression: Any) -> frozenset[str]:
    """Return the paths that an expression reads, as written.

    ``$item``, ``$index`` and ``$array`` belong to an iteration and ``$system`` to the context; they are left out.
    """
    return frozenset(path for path in paths_read(expression) if path.partition(".")[0] not in _LOCAL)


def paths_read(expression: Any) -> frozenset[str]:
    """Return all paths that an expression reads, iterations and context included."""
    return frozenset(node.value["path"] for node in _walk(expression, "") if _is_get(node.value))


def operands(expression: Any) -> tuple[Any, ...]:
    """Return the direct operands of an expression, in order."""
    return tuple(node.value for node in _children(_AstNode(expression, "", 1))) if kind_of(expression) in KINDS else ()


def reads_system(expression: Any) -> bool:
    """Return whether an expression reads time or ids of the context (``$system``)."""
    return any(_is_get(node.value) and node.value["path"].startswith("$system") for node in _walk(expression, ""))


def check_expression(expression: Any, where: str = "$") -> list[tuple[str, str]]:
    """Return the faults of an expression as pairs of path and sentence.

    Args:
        expression: the node to check.
        where: the expression's own path, a prefix of every returned path.
    """
    faults: list[tuple[str, str]] = []
    for count, node in enumerate(_walk(expression, where)):
        if count >= MAX_EXPRESSION_NODES:
            return [*faults, (where, f"The expression has more than {MAX_EXPRESSION_NODES} nodes.")]
        if node.depth > MAX_EXPRESSION_DEPTH:
            return [*faults, (where, f"The expression is nested deeper than {MAX_EXPRESSION_DEPTH} levels.")]
        fault = _fault(node.value)
        if fault:
            faults.append((node.path, fault))
    return faults


def _walk(expression: Any, where: str) -> Iterator[_AstNode]:
    """Yield every node, outer ones first, except those of literals."""
    waiting = [_AstNode(expression, where, 1)]
    while waiting:
        node = waiting.pop()
        yield node
        if kind_of(node.value) in KINDS:
            waiting.extend(reversed(list(_children(node))))


def _children(node: _AstNode) -> Iterator[_AstNode]:
    value, kind, below = node.value, node.value["kind"], node.depth + 1
    for operand in OPERANDS.get(kind, ()):
        name = operand.removesuffix("?")
        if name in value and not (value[name] is None and name != operand):
            yield _AstNode(value[name], f"{node.path}.{name}", below)
    several = OPERAND_LISTS.get(kind)
    if several is not None and isinstance(value.get(several), list):
        for index, item in enumerate(value[several]):
            yield _AstNode(item, f"{node.path}.{several}[{index}]", below)
    if kind == "object" and isinstance(value.get("fields"), Mapping):
        for key, item in value["fields"].items():
            yield _AstNode(item, f"{node.path}.fields.{key}", below)


def _is_get(value: Any) -> bool:
    return kind_of(value) == "get" and isinstance(value.get("path"), str)


def _fault(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return f"An expression is an object with a kind, not {type(value).__name__}."
    kind = kind_of(value)
    if kind is None or kind not in KINDS:
        return f"Unknown expression kind: {value.get('kind')!r}."
    missing = [name for name in OPERANDS.get(kind, ()) if not name.endswith("?") and name not in value]
    if missing:
        return f"The {kind} expression lacks {', '.join(missing)}."
    if kind in OPERAND_LISTS and not isinstance(value.get(OPERAND_LISTS[kind]), list):
        return f"The {kind} expression needs a list of {OPERAND_LISTS[kind]}."
    return _special_fault(kind, value)


def _special_fault(kind: str, value: Mapping[str, Any]) -> str | None:
    if kind == "lit" and "value" not in value:
        return "The lit expression lacks value."
    if kind == "get" and (not isinstance(value.get("path"), str) or not value["path"]):
        return "The get expression needs a path, a non-empty text."
    if kind == "object" and not isinstance(value.get("fields"), Mapping):
        return "The object expression needs fields, an object."
    if kind == "field" and not isinstance(value.get("property"), str):
        return "The field expression needs property, a text."
    return None
