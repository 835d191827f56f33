"""Printer of portable expressions as MEL.

What MEL has no words for, or would refuse by one of its rules, is printed as ``@schema(...)`` with the node as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from world.core.expressions.expression import OPERAND_LISTS, OPERANDS
from world.core.mel.functions import ITERATIONS, NAMES, OPERATORS, arity_fault
from world.core.mel.literals import quoted
from world.core.mel.rules import Types, node_fault, raw_node
from world.core.values import kind_of
from world.model.canonical_json import canonical_text
from world.model.paths import format_path, parse_path

__all__ = ["ExpressionPrinter", "PrintedNames", "is_name", "json_text", "key_text"]

_NAME: Final = re.compile(r"[^\W\d]\w*")
_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VALUES: Final = ("true", "false", "null")
_SYMBOLS: Final = {kind: symbol for symbol, kind in OPERATORS.items()}
_LEVELS: Final = {
    **dict.fromkeys(("eq", "neq"), 5), **dict.fromkeys(("gt", "gte", "lt", "lte"), 6),
    **dict.fromkeys(("add", "sub"), 7), **dict.fromkeys(("mul", "div", "mod"), 8), "and": 4, "or": 3,
}  # fmt: skip
_TERNARY, _NULLISH, _OR, _UNARY, _POSTFIX = 1, 2, 3, 9, 10


def is_name(text: str) -> bool:
    """Return whether a text can be written as a name of MEL."""
    return bool(_NAME.fullmatch(text)) and text not in _VALUES


def key_text(key: str) -> str:
    """Return a key of an object as it is written."""
    return key if _KEY.fullmatch(key) else quoted(key)


def json_text(value: Any) -> str:
    """Return a JSON value as a literal of MEL."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{key_text(key)}: {json_text(one)}" for key, one in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(json_text, value))}]"
    return quoted(value) if isinstance(value, str) else canonical_text(value)


@dataclass(frozen=True, slots=True)
class PrintedNames:
    """What names mean where an expression is printed.

    Args:
        state: names of the state's fields.
        computed: short names of the computed values.
        types: of the names.
        params: names of the parameters that are declared.
        place: as in ``world.core.mel.expression_lowering``.
        in_item: whether ``$item`` is an element.
    """

    state: frozenset[str]
    computed: frozenset[str]
    types: Types
    params: frozenset[str] = field(default=frozenset())
    place: str = "action"
    in_item: bool = False


class ExpressionPrinter:
    """Prints the expressions of one place."""

    def __init__(self, names: PrintedNames) -> None:
        """Create a printer.

        Args:
            names: what names mean there.
        """
        self.names = names

    def text(self, node: Any, level: int = _TERNARY) -> str:
        """Return an expression, in brackets where it binds weaker than ``level``."""
        printed = self._printed(node)
        if printed is None or self._breaks_a_rule(node):
            return self.raw(node)
        text, own = printed
        return text if own >= level else f"({text})"

    def raw(self, node: Any) -> str:
        """Return a node as it is; no rule of MEL concerns it."""
        raw_node(node, self.names.types)
        return f"@schema({json_text(node)})"

    def _breaks_a_rule(self, node: Any) -> bool:
        return node_fault(node, self.names.types, in_computed=self.names.place == "computed") is not None

    def _printed(self, node: Any) -> tuple[str, int] | None:
        """Return the text and the level of a node; None where MEL has no words for it."""
        kind = kind_of(node)
        if kind is None:
            return None
        if kind == "lit":
            return self._literal(node)
        if kind == "get":
            return self._get(node)
        if kind == "object":
            return self._object(node)
        if kind == "field":
            return self._field(node)
        operands = _operands(node, kind)
        return None if operands is None else self._operation(kind, operands)

    def _literal(self, node: Mapping[str, Any]) -> tuple[str, int] | None:
        if node.keys() != {"kind", "value"} or isinstance(node["value"], Mapping):
            return None
        value = node["value"]
        is_negative = isinstance(value, (int, float)) and not isinstance(value, bool) and value < 0
        return json_text(value), _UNARY if is_negative else _POSTFIX

    def _object(self, node: Mapping[str, Any]) -> tuple[str, int] | None:
        if node.keys() != {"kind", "fields"} or not isinstance(node["fields"], Mapping):
            return None
        inner = ", ".join(f"{key_text(key)}: {self.text(one)}" for key, one in node["fields"].items())
        return (f"{{ {inner} }}" if inner else "{}"), _POSTFIX

    def _field(self, node: Mapping[str, Any]) -> tuple[str, int] | None:
        if node.keys() != {"kind", "object", "property"} or not isinstance(node["property"], str):
            return None
        name, value = node["property"], node["object"]
        inner = self.text(value, _POSTFIX)
        if kind_of(value) == "get" or not is_name_part(name):
            return f"field({inner}, {quoted(name)})", _POSTFIX
        return f"{inner}.{name}", _POSTFIX

    # Paths

    def _get(self, node: Mapping[str, Any]) -> tuple[str, int] | None:
        path = node.get("path")
        if node.keys() != {"kind", "path"} or not isinstance(path, str) or not path:
            return None
        return self._path(path) or f"get({quoted(path)})", _POSTFIX

    def _path(self, path: str) -> str | None:
        segments = parse_path(path)
        if format_path(segments) != path if segments != ("",) else True:
            return None
        root, rest = segments[0], segments[1:]
        if not all(map(is_name_part, rest)):
            return None
        names = self.names
        if root == "input":
            return self._input(rest)
        if root == "meta":
            is_known = names.place == "action" or (names.place == "available" and rest[:1] == ("actor",))
            return ".".join(["$meta", *rest]) if rest and is_known else None
        if root in ("$item", "$index", "$array"):
            return path if names.in_item else None
        if path in ("$system.uuid", "$system.timestamp"):
            shown = "$runtime.random.uuid" if path == "$system.uuid" else "$runtime.time.timestamp"
            return shown if names.place == "action" else None
        words = rest if root == "computed" else segments
        if not words or not is_name(words[0]) or words[0] in names.params:
            return None
        is_computed = any(".".join(words[:size]) in names.computed for size in range(1, len(words) + 1))
        is_meant = is_computed if root == "computed" else not is_computed and root in names.state
        return ".".join(words) if is_meant else None

    def _input(self, rest: tuple[str, ...]) -> str | None:
        if rest and rest[0] in self.names.params and is_name(rest[0]):
            return ".".join(rest)
        if self.names.place != "action":
            return None
        spec = self.names.types.input
        is_known = not rest or spec is None or spec.fields is None or rest[0] in spec.fields
        return ".".join(["$input", *rest]) if is_known else None

    # Operations

    def _operation(self, kind: str, operands: list[Any]) -> tuple[str, int] | None:
        if kind in _SYMBOLS and len(operands) == 2:
            level = _LEVELS[kind]
            left, right = self.text(operands[0], level), self.text(operands[1], level + 1)
            return f"{left} {_SYMBOLS[kind]} {right}", level
        if kind == "coalesce" and len(operands) == 2:
            return f"{self.text(operands[0], _NULLISH)} ?? {self.text(operands[1], _OR)}", _NULLISH
        if kind == "if":
            condition, then, otherwise = operands
            return f"{self.text(condition, _NULLISH)} ? {self.text(then)} : {self.text(otherwise)}", _TERNARY
        if kind == "at":
            return f"{self.text(operands[0], _POSTFIX)}[{self.text(operands[1])}]", _POSTFIX
        if kind == "not":
            return f"!{self.text(operands[0], _UNARY)}", _UNARY
        if kind == "neg" and not (kind_of(operands[0]) == "lit" and isinstance(operands[0].get("value"), (int, float))):
            return f"-{self.text(operands[0], _UNARY)}", _UNARY
        return self._call(kind, operands)

    def _call(self, kind: str, operands: list[Any]) -> tuple[str, int] | None:
        name = NAMES.get(kind)
        if (
            name is None
            or arity_fault(name, len(operands)) is not None
            or (kind in ("min", "max") and len(operands) < 2)
        ):
            return None
        inner = self
        texts = []
        for at, one in enumerate(operands):
            if at and name in ITERATIONS:
                inner = ExpressionPrinter(replace(self.names, in_item=True))
            texts.append(inner.text(one))
        return f"{name}({', '.join(texts)})", _POSTFIX


def is_name_part(text: str) -> bool:
    """Return whether a text can be written behind a dot."""
    return bool(_NAME.fullmatch(text))


def _operands(node: Mapping[str, Any], kind: str) -> list[Any] | None:
    """Return the operands of a node in the order of a call; None where it has other members."""
    names = [name.removesuffix("?") for name in OPERANDS.get(kind, ()) if name.removesuffix("?") in node]
    listed = OPERAND_LISTS.get(kind)
    if node.keys() != {"kind", *names, *([listed] if listed else [])}:
        return None
    if any(node[name] is None for name in names) or (listed and not isinstance(node[listed], list)):
        return None
    return [*(node[name] for name in names), *(node[listed] if listed else [])]
