"""Types of expressions as far as they are known, and the rules of MEL that the portable schema does not have.

The rules hold for single nodes, so that the printer of schemas applies the same ones: what MEL would refuse is printed
as ``@schema(...)``, which no rule concerns. A type that is not known satisfies every rule.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from world.core.expressions.expression import OPERAND_LISTS, OPERANDS
from world.core.fields import FieldSpec, check_value, field_at, read_field
from world.core.mel.functions import AGGREGATES
from world.core.values import kind_of
from world.model.immutable_json import freeze
from world.model.paths import parse_path

__all__ = ["Types", "condition_fault", "default_fault", "node_fault", "patch_fault", "raw_node"]

_NUMBERS: Final = [
    "add",
    "sub",
    "mul",
    "div",
    "mod",
    "pow",
    "abs",
    "neg",
    "floor",
    "ceil",
    "round",
    "sqrt",
    "min",
    "max",
    "sumArray",
    "minArray",
    "maxArray",
    "strLen",
    "indexOf",
    "len",
    "toNumber",
]
_TEXTS: Final = ["concat", "substring", "trim", "toLowerCase", "toUpperCase", "replace", "typeof", "toString"]
_TRUTHS: Final = [
    "eq",
    "neq",
    "gt",
    "gte",
    "lt",
    "lte",
    "and",
    "or",
    "not",
    "startsWith",
    "endsWith",
    "strIncludes",
    "includes",
    "hasKey",
    "isNull",
    "toBoolean",
    "every",
    "some",
]
_ARRAYS: Final = ["split", "reverse", "unique", "flat", "slice", "append", "filter", "map", "keys", "values", "entries"]
_OBJECTS: Final = ["object", "merge", "pick", "omit", "fromEntries"]
_RESULTS: Final = {
    **dict.fromkeys(_NUMBERS, "number"),
    **dict.fromkeys(_TEXTS, "string"),
    **dict.fromkeys(_TRUTHS, "boolean"),
    **dict.fromkeys(_ARRAYS, "array"),
    **dict.fromkeys(_OBJECTS, "object"),
}
_TAKES: Final = {
    **dict.fromkeys(
        [
            "add",
            "sub",
            "mul",
            "div",
            "mod",
            "pow",
            "abs",
            "neg",
            "floor",
            "ceil",
            "round",
            "sqrt",
            "gt",
            "gte",
            "lt",
            "lte",
            "min",
            "max",
        ],
        "number",
    ),
    **dict.fromkeys(["trim", "toLowerCase", "toUpperCase", "strLen"], "string"),
    **dict.fromkeys(["and", "or", "not"], "boolean"),
}
_BARE: Final = {"minArray": None, "maxArray": None}  # of what the elements are, which is not followed


@dataclass(slots=True)
class Types:
    """Types of the values of names, as far as they are known.

    Args:
        state: the state's spec.
        computed: expressions of the computed values by full name.
        input: spec of the action's input, None without one.
        raw: ids of nodes that were written as ``@schema(...)``.
    """

    state: FieldSpec
    computed: Mapping[str, Any] = field(default_factory=dict)
    input: FieldSpec | None = None
    raw: set[int] = field(default_factory=set)
    _known: dict[str, str | None] = field(default_factory=dict)

    def of(self, node: Any) -> str | None:
        """Return the type of an expression's value, None where it is not known or null is among its values."""
        kind = kind_of(node)
        if kind is None or id(node) in self.raw:
            return None
        if kind == "lit":
            return literal_type(node.get("value"))
        if kind == "get":
            return self._of_path(str(node.get("path")))
        if kind in _BARE:
            return _BARE[kind]
        if kind == "if":
            then = self.of(node.get("then"))
            return then if then == self.of(node.get("else")) else None
        return _RESULTS.get(kind)

    def _of_path(self, path: str) -> str | None:
        if path.startswith("$system."):
            return "string"
        if path.startswith("computed."):
            if path not in self._known:
                self._known[path] = None  # a circle ends here
                self._known[path] = self.of(self.computed.get(path))
            return self._known[path]
        if path.startswith("input."):
            spec = None if self.input is None else field_at(self.input, parse_path(path)[1:])
        elif path.startswith(("$", "meta.", "system.")):
            spec = None
        else:
            spec = field_at(self.state, parse_path(path))
        return _spec_type(spec)


def raw_node(node: Any, types: Types) -> Any:
    """Exempt a node and all below it from the rules; return it."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        types.raw.add(id(one))
        waiting.extend(one.values() if isinstance(one, Mapping) else one if isinstance(one, list) else ())
    return node


def literal_type(value: Any) -> str | None:
    """Return the type of a JSON value, None for null."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object" if isinstance(value, Mapping) else None


def _spec_type(spec: FieldSpec | None) -> str | None:
    if spec is None or spec.type in ("any", "null"):
        return None
    if spec.type == "enum":
        kinds = {literal_type(one) for one in spec.enum}
        return kinds.pop() if len(kinds) == 1 else None
    return spec.type


def _operands(node: Mapping[str, Any]) -> list[Any]:
    kind = node["kind"]
    single = [node[name.removesuffix("?")] for name in OPERANDS.get(kind, ()) if name.removesuffix("?") in node]
    listed = node.get(OPERAND_LISTS.get(kind, ""), ())
    return [*single, *listed]


def node_fault(node: Mapping[str, Any], types: Types, *, in_computed: bool) -> tuple[str, str] | None:
    """Return code and sentence of the rule that a node breaks, None where it breaks none.

    Args:
        node: an expression whose operands have been checked.
        types: of the names.
        in_computed: whether it is part of a computed value.
    """
    kind = node["kind"]
    if kind in AGGREGATES:
        return _aggregate_fault(node, in_computed)
    if kind in ("eq", "neq"):
        wrong = next((one for one in map(types.of, _operands(node)) if one in ("array", "object")), None)
        message = f"{kind} compares null, booleans, numbers and texts alone, got {wrong}"
        return None if wrong is None else ("E_TYPE_MISMATCH", message)
    if kind == "if":
        return condition_fault(node["cond"], types)
    wanted = _TAKES.get(kind)
    wrong = next((one for one in map(types.of, _operands(node)) if one not in (None, wanted)), None)
    if wanted is None or wrong is None:
        return None
    return "E_TYPE_MISMATCH", f"{kind} expects {wanted} operands, got {wrong}"


def _aggregate_fault(node: Mapping[str, Any], in_computed: bool) -> tuple[str, str] | None:
    if not in_computed:
        return "E009", "Primitive aggregation (sum, min, max) only allowed in computed"
    if kind_of(node.get("array")) != "get":
        return "E010", "Primitive aggregation does not allow composition - use direct reference only"
    return None


def condition_fault(node: Any, types: Types) -> tuple[str, str] | None:
    """Return code and sentence for a condition that is known to be no boolean."""
    known = types.of(node)
    return None if known in (None, "boolean") else ("E_TYPE_MISMATCH", f"Condition must be boolean, got {known}")


def patch_fault(path: str, node: Any, types: Types) -> tuple[str, str] | None:
    """Return code and sentence for a value that does not fit the place it is patched to."""
    if path.startswith("$") or id(node) in types.raw:
        return None
    spec = field_at(types.state, parse_path(path), into_free_arrays=False)
    if spec is None or spec.model is not None or spec.type in ("any", "null"):
        return None
    if kind_of(node) == "lit":
        wrong = next(check_value(spec, node.get("value"), state=True), None)
        shown = None if wrong is None else _shown(node.get("value"))
    else:
        known, wanted = types.of(node), _spec_type(spec)
        shown = None if known is None or wanted is None or known == wanted else known
    if shown is None:
        return None
    wanted = spec.type if spec.type != "enum" else " | ".join(_shown(one) for one in spec.enum)
    return "E_TYPE_MISMATCH", f"Patch value for '{path}' must be assignable to {wanted}, got {shown}"


def default_fault(spec: Mapping[str, Any], default: Any) -> str | None:
    """Return why a default does not fit its field spec, None where it does.

    Raises:
        RefusedError: ``NOT_CANONICAL`` for a value that JSON cannot hold.
    """
    faults: list[tuple[str, str]] = []
    read = read_field({key: value for key, value in spec.items() if key != "default"}, "", faults)
    if faults or default is None or (read.type == "object" and default == {}):
        return None  # an empty object is the customary start of an object that is filled later
    wrong = next(check_value(read, freeze(default), state=True), None)
    return None if wrong is None else f"{wrong.path} {wrong.message}"


def _shown(value: Any) -> str:
    if isinstance(value, (list, Mapping)):
        return literal_type(value) or "null"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:37]}..."
