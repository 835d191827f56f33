"""Field specs: the allowed JSON values of state fields and inputs.

``{"type": "string" | "number" | "boolean" | "null" | "object" | "array" | "any" | {"enum": [...]},
"required": bool, "default": ..., "fields": {...}, "items": {...}, "description": "...", "secret": bool}``. An object
without ``fields`` is free, an array without ``items`` holds anything (and no path leads into it). A secret field is a
text with a reference to a secret (``world.model.secrets.references``); its value is not shown in faults.

A state or an input may also be written in the dialect of ``world.core.state_model``, ``{"dialect", "schema"}``; its
``FieldSpec`` then has the compiled schema as ``model``, and the rest approximates it.

In a state of field specs null is allowed anywhere, as absent and null are one value to expressions; in an input null is
allowed where a field is not required. Source: IC-validate, HC-snapshot; the flow vectors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from world.core.fields_of import approximate_spec
from world.core.state_model.checking import holds_secrets, literal_paths, places_of, same_place, shown_value
from world.core.state_model.dialect import SchemaNode, is_model, read_model
from world.core.values import strict_equal
from world.model.immutable_json import FrozenList
from world.model.paths import Segments, array_index
from world.model.secrets.references import is_literal

__all__ = [
    "MAX_FIELD_DEPTH",
    "TYPES",
    "FieldSpec",
    "InvalidValue",
    "check_value",
    "field_at",
    "read_field",
    "secret_literals",
]

TYPES: Final = frozenset({"string", "number", "boolean", "null", "object", "array", "any"})
MAX_FIELD_DEPTH: Final = 50
"""Maximum depth of nested field specs."""

_MODEL_KEYS: Final = frozenset({"dialect", "schema", "required", "description"})
_KEYS: Final = frozenset({"type", "required", "default", "fields", "items", "description", "secret"})
_SHARED: Final = 32  # minimum number of elements for which a lookup of earlier checks pays off


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field's spec, read.

    Args:
        type: a name of ``TYPES`` or ``"enum"``.
        required: whether the field must be present where its object is.
        has_default: whether ``default`` counts.
        default: the value at genesis, frozen.
        fields: members of a closed object; None for a free one.
        items: spec of every element; None where any value is allowed.
        enum: the values of an enum.
        secret: whether the value must be a reference to a secret.
        holds_secrets: whether it is secret itself, or a field or element of it is.
        model: the compiled schema of a state or an input in the dialect; None for a field spec.
    """

    type: str
    required: bool = False
    has_default: bool = False
    default: Any = None
    fields: Mapping[str, FieldSpec] | None = None
    items: FieldSpec | None = None
    enum: tuple[Any, ...] = field(default=())
    secret: bool = False
    holds_secrets: bool = False
    model: SchemaNode | None = None


class InvalidValue(NamedTuple):
    """One fault of a value: where it is and what is wrong there."""

    path: str
    message: str


ANY: Final = FieldSpec("any")


def read_field(spec: Any, where: str, faults: list[tuple[str, str]], depth: int = 0) -> FieldSpec:
    """Read a field spec and add its faults to ``faults``; a faulty part counts as
    anything.

    Args:
        spec: the portable form.
        where: the spec's own path in its schema.
        faults: collects ``(path, sentence)``.
        depth: levels above this one.
    """
    if depth >= MAX_FIELD_DEPTH:
        faults.append((where, f"Fields are nested deeper than {MAX_FIELD_DEPTH} levels."))
        return ANY
    if not isinstance(spec, Mapping):
        faults.append((where, "A field spec is an object with a type."))
        return ANY
    if is_model(spec) and depth == 0:
        return _read_model_field(spec, where, faults)
    faults.extend((f"{where}.{key}", "A field spec has no such property.") for key in spec if key not in _KEYS)
    kind, enum = _read_type(spec.get("type"), where, faults)
    if not isinstance(spec.get("required", False), bool):
        faults.append((f"{where}.required", "required is true or false."))
    fields = items = None
    if "fields" in spec:
        fields = _read_fields(spec["fields"], f"{where}.fields", faults, depth)
    if "items" in spec:
        items = read_field(spec["items"], f"{where}.items", faults, depth + 1)
    secret = spec.get("secret", False)
    if not isinstance(secret, bool) or (secret and kind not in ("string", "any")):
        faults.append((f"{where}.secret", "secret is true or false, and true only for type string or any."))
    parts = [*(fields or {}).values(), *([items] if items is not None else [])]
    found = FieldSpec(
        kind,
        spec.get("required") is True,
        "default" in spec,
        spec.get("default"),
        fields,
        items,
        enum,
        secret=secret is True,
        holds_secrets=secret is True or any(part.holds_secrets for part in parts),
    )
    _check_shape(found, where, faults)
    return found


def _read_model_field(spec: Mapping[str, Any], where: str, faults: list[tuple[str, str]]) -> FieldSpec:
    """Read a state or an input in the dialect; the field specs beside its model are an approximation."""
    found: list[tuple[str, str]] = []
    found += [(f"{where}.{key}", "A model has no such property.") for key in spec if key not in _MODEL_KEYS]
    if not isinstance(spec.get("required", False), bool):
        found.append((f"{where}.required", "required is true or false."))
    node = read_model(spec, where, found)
    faults += found
    if found:
        return replace(ANY, model=node)
    approximate = approximate_spec(spec["schema"])
    found_spec = read_field(approximate, where, [])
    return replace(found_spec, required=spec.get("required") is True, holds_secrets=holds_secrets(node), model=node)


def _read_type(kind: Any, where: str, faults: list[tuple[str, str]]) -> tuple[str, tuple[Any, ...]]:
    if isinstance(kind, str) and kind in TYPES:
        return kind, ()
    if isinstance(kind, Mapping) and kind.keys() == {"enum"} and isinstance(kind["enum"], list) and kind["enum"]:
        return "enum", tuple(kind["enum"])
    faults.append((f"{where}.type", f"A type is one of {', '.join(sorted(TYPES))}, or an enum with its values."))
    return "any", ()


def _read_fields(fields: Any, where: str, faults: list[tuple[str, str]], depth: int) -> dict[str, FieldSpec] | None:
    if not isinstance(fields, Mapping):
        faults.append((where, "fields is an object of field specs."))
        return None
    return {name: read_field(spec, f"{where}.{name}", faults, depth + 1) for name, spec in fields.items()}


def _check_shape(spec: FieldSpec, where: str, faults: list[tuple[str, str]]) -> None:
    if spec.fields is not None and spec.type != "object":
        faults.append((f"{where}.fields", "Only an object has fields."))
    if spec.items is not None and spec.type != "array":
        faults.append((f"{where}.items", "Only an array has items."))
    if spec.has_default and spec.default is not None and not (spec.type == "object" and spec.default == {}):
        # an empty object is the customary start of an object that is filled later
        faults.extend(
            (f"{where}.default{fault.path}", fault.message) for fault in check_value(spec, spec.default, state=True)
        )


def field_at(spec: FieldSpec, segments: Segments, *, into_free_arrays: bool = True) -> FieldSpec | None:
    """Return the spec at a path below a field, None for an unknown place.

    Args:
        spec: where the path starts.
        segments: names and indexes.
        into_free_arrays: whether a path may lead into an array without ``items`` (reading may, patching may
            not).
    """
    if spec.model is not None:
        return _model_field_at(spec, spec.model, segments)
    for at, name in enumerate(segments):
        if spec.type == "any" or (spec.type == "object" and spec.fields is None):
            return ANY
        if spec.type == "object" and spec.fields is not None and name in spec.fields:
            spec = spec.fields[name]
        elif spec.type == "array" and array_index(name) is not None and (spec.items or into_free_arrays):
            spec = spec.items or ANY
        elif spec.type == "array" and name == "length" and into_free_arrays and at == len(segments) - 1:
            spec = FieldSpec("number")
        else:
            return None
    return spec


def _model_field_at(spec: FieldSpec, model: SchemaNode, segments: Segments) -> FieldSpec | None:
    """Return the approximate spec at a path of a model, None for an unknown place."""
    is_length = bool(segments) and segments[-1] == "length" and not places_of(model, segments)
    if not segments:
        return spec
    places = places_of(model, segments[:-1] if is_length else segments)
    if not places or (is_length and not any(one.types is None or "array" in one.types for one in _whole(places))):
        return None
    if is_length:
        return FieldSpec("number")
    return field_at(replace(spec, model=None), segments) or ANY


def _whole(places: tuple[SchemaNode, ...]) -> Iterator[SchemaNode]:
    return (inner for one in places for inner in same_place(one))


def check_value(
    spec: FieldSpec, value: Any, *, state: bool, before: Any = None, path: str = ""
) -> Iterator[InvalidValue]:
    """Yield every fault of a value against its spec.

    Args:
        spec: what is allowed.
        value: JSON.
        state: true for the state, in which every value may be null; false for an input.
        before: the earlier valid value of this place; elements shared with it are not checked again.
        path: how faults name the value's place; a dot or bracket leads to inner ones.
    """
    if spec.secret:
        if is_literal(value) or (value is None and spec.required and not state):
            yield InvalidValue(path, "is secret: it must be a text with a reference, ${secret:NAME}")
        return
    if spec.type == "any" or (value is None and state) or value is before is not None:
        return
    kind = spec.type
    if kind == "enum":
        if not any(strict_equal(value, allowed) for allowed in spec.enum):
            yield InvalidValue(path, f"must be one of {', '.join(shown_value(allowed) for allowed in spec.enum)}")
    elif not _is(kind, value):
        yield InvalidValue(path, f"must be {_NOUNS[kind]}, not {shown_value(value)}")
    elif kind == "object" and spec.fields is not None:
        yield from _check_members(spec.fields, value, state, before, path)
    elif kind == "array" and spec.items is not None:
        yield from _check_elements(spec.items, value, state, before, path)


def secret_literals(spec: FieldSpec, value: Any, path: str = "input") -> Iterator[str]:
    """Yield the path of each literal in a secret field of a value."""
    if not spec.holds_secrets:
        return
    if spec.model is not None:
        yield from literal_paths(spec.model, value, path)
        return
    if spec.secret:
        if is_literal(value):
            yield path
    elif isinstance(value, Mapping):
        for name, inner in (spec.fields or {}).items():
            yield from secret_literals(inner, value.get(name), f"{path}.{name}")
    elif isinstance(value, list) and spec.items is not None:
        for index, inner in enumerate(value):
            yield from secret_literals(spec.items, inner, f"{path}[{index}]")


def _check_members(
    fields: Mapping[str, FieldSpec], value: Mapping[str, Any], state: bool, before: Any, path: str
) -> Iterator[InvalidValue]:
    known = before if isinstance(before, dict) else {}
    for name, spec in fields.items():
        inner = f"{path}.{name}"
        if name not in value:
            if spec.required:
                yield InvalidValue(inner, "is required")
        elif value[name] is None and not spec.required:
            continue
        else:
            yield from check_value(spec, value[name], state=state, before=known.get(name), path=inner)
    for name in value:
        if name not in fields:
            yield InvalidValue(f"{path}.{name}", "is not a known field")


def _check_elements(items: FieldSpec, value: list[Any], state: bool, before: Any, path: str) -> Iterator[InvalidValue]:
    shared: set[int] = set()
    if type(before) is FrozenList and len(before) >= _SHARED:
        shared = set(map(id, before))  # the elements live as long as ``before`` does, so their ids are theirs
    for index, item in enumerate(value):
        if id(item) not in shared:
            yield from check_value(items, item, state=state, path=f"{path}[{index}]")


_NOUNS: Final = {
    "string": "a text",
    "number": "a finite number",
    "boolean": "true or false",
    "null": "null",
    "object": "an object",
    "array": "an array",
}


def _is(kind: str, value: Any) -> bool:
    if kind == "string":
        return isinstance(value, str)
    if kind == "number":
        return type(value) is int or (type(value) is float and math.isfinite(value))
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "null":
        return value is None
    return isinstance(value, dict if kind == "object" else list)
