"""Printer of field specs and type definitions as MEL types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from world.core.mel.expression_printing import is_name, json_text, key_text
from world.core.mel.literals import quoted
from world.core.mel.rules import default_fault, literal_type

__all__ = ["definition_text", "field_text"]

_SHAPE = ("type", "fields", "items")
_NAMED = ("string", "number", "boolean", "any", "object", "array", "null")


def field_text(name: str, spec: Mapping[str, Any], *, is_state: bool = False, is_input: bool = False) -> str:
    """Return a field of the state, of an object or of an input.

    Args:
        name: of the field.
        spec: its field spec.
        is_state: whether it is a field of the state itself, which may have an initializer.
        is_input: whether it is a part of an input, where ``T | null`` is a ``T`` with ``required: false``.
    """
    shape = {key: one for key, one in spec.items() if key in _SHAPE}
    has_start = is_state and "default" in spec and default_fault(shape, spec["default"]) is None
    own = {key: one for key, one in spec.items() if key not in _SHAPE and not (has_start and key == "default")}
    kind = _type_text(shape, is_input)
    is_nullable = is_input and kind is not None and spec.get("required") is False and _takes_null(shape)
    is_optional = spec.get("required") is not True and not is_nullable
    if kind is None:
        kind = f"@schema({json_text(shape)})"
    elif not is_optional:
        del own["required"]
    if is_nullable:
        kind = f"{kind} | null"
    if has_start and _is_null_start(spec) and not kind.startswith("@"):
        kind = f"{kind} | null"  # the same spec: every value of a state may be null
    default = f" = {json_text(spec['default'])}" if has_start else ""
    annotation = f"@schema({json_text(own)}) " if own else ""
    return f"{annotation}{name if is_name(name) else quoted(name)}{'?' if is_optional else ''}: {kind}{default}"


def _is_null_start(spec: Mapping[str, Any]) -> bool:
    """Return whether a field of the state starts as null without null being among its own values."""
    kind = spec.get("type")
    return spec.get("default", 0) is None and isinstance(kind, str) and kind != "null"


def _takes_null(shape: Mapping[str, Any]) -> bool:
    """Return whether ``| null`` behind the type makes an optional field of it; of literals it makes one more."""
    return isinstance(shape["type"], str) and shape["type"] != "null"


def _type_text(spec: Mapping[str, Any], is_input: bool) -> str | None:
    """Return the type of a spec without its other members; None where MEL has no words for it."""
    kind = spec.get("type")
    if isinstance(kind, Mapping):
        return _enum_text(kind) if spec.keys() == {"type"} else None
    if kind == "array" and spec.keys() == {"type", "items"}:
        return _array_text(spec["items"], is_input)
    if kind == "object" and spec.keys() == {"type", "fields"}:
        inner = ", ".join(field_text(name, one, is_input=is_input) for name, one in spec["fields"].items())
        return f"{{ {inner} }}" if inner else "{}"
    return kind if kind in _NAMED and spec.keys() == {"type"} else None


def _array_text(items: Mapping[str, Any], is_input: bool) -> str:
    inner = {key: one for key, one in items.items() if key != "required"}
    text = _type_text(inner, is_input)
    if is_input and text is not None and items.get("required") is False and _takes_null(inner):
        return f"Array<{text} | null>"
    if text is None or items.get("required", True) is not True:
        return f"Array<@schema({json_text(items)})>"
    return f"Array<{text}>" if "required" in items else f"Array<{text}?>"


def _enum_text(kind: Mapping[str, Any]) -> str | None:
    values = kind.get("enum")
    if (
        not isinstance(values, list)
        or values == [None]
        or any(_is_in(one, values[:at]) for at, one in enumerate(values))
    ):
        return None
    if any(isinstance(one, (list, Mapping)) for one in values):
        return None
    return " | ".join(json_text(one) for one in values)


def _is_in(value: Any, others: list[Any]) -> bool:
    return any(value == one and literal_type(value) == literal_type(one) for one in others)


def definition_text(definition: Any, *, known: Mapping[str, Any] | None = None, depth: int = 0) -> str | None:
    """Return a type definition as MEL; None where it is no definition that MEL gives.

    Args:
        definition: the definition.
        known: names of the declared types; None takes any.
        depth: levels around it.
    """
    kind = definition.get("kind") if isinstance(definition, Mapping) else None
    if kind == "primitive" and definition.keys() == {"kind", "type"}:
        return definition["type"] if definition["type"] in _NAMED[:-1] else None
    if kind == "ref" and definition.keys() == {"kind", "name"}:
        return definition["name"] if known is None or definition["name"] in known else None
    return None if depth > 20 else _compound_text(kind, definition, known, depth + 1)


def _compound_text(kind: Any, definition: Any, known: Mapping[str, Any] | None, depth: int) -> str | None:
    if kind == "literal" and definition.keys() == {"kind", "value"}:
        value = definition["value"]
        return None if isinstance(value, (list, Mapping)) else json_text(value)
    if kind == "array" and definition.keys() == {"kind", "element"}:
        inner = definition_text(definition["element"], known=known, depth=depth)
        return None if inner is None else f"Array<{inner}>"
    if kind == "record" and definition.keys() == {"kind", "key", "value"}:
        inner = definition_text(definition["value"], known=known, depth=depth)
        is_known = definition["key"] == {"kind": "primitive", "type": "string"}
        return f"Record<string, {inner}>" if inner is not None and is_known else None
    if kind == "union" and definition.keys() == {"kind", "types"} and isinstance(definition["types"], list):
        parts = [definition_text(one, known=known, depth=depth) for one in definition["types"]]
        is_flat = len(parts) > 1 and not any(one.get("kind") == "union" for one in definition["types"] if one)
        return " | ".join(one for one in parts if one) if is_flat and all(parts) else None
    if kind == "object" and definition.keys() == {"kind", "fields"} and isinstance(definition["fields"], Mapping):
        return _object_text(definition["fields"], known, depth)
    return None


def _object_text(fields: Mapping[str, Any], known: Mapping[str, Any] | None, depth: int) -> str | None:
    parts = []
    for name, one in fields.items():
        if not isinstance(one, Mapping) or one.keys() != {"type", "optional"} or not isinstance(one["optional"], bool):
            return None
        inner = definition_text(one["type"], known=known, depth=depth)
        if inner is None:
            return None
        parts.append(f"{key_text(name)}{'?' if one['optional'] else ''}: {inner}")
    return f"{{ {', '.join(parts)} }}" if parts else "{}"
