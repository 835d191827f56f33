"""The subset of JSON Schema 2020-12 that a state model is written in, and its compiled form.

Its name in a portable schema is ``urn:worldprotocol:state-model:1``::

    "state": {"dialect": "urn:worldprotocol:state-model:1", "schema": {"type": "object", "properties": {...}}}

The keywords are those of ``KEYWORDS``; any other one is a fault. A ``$ref`` names a definition at the root,
``#/$defs/Name``, and may be recursive. ``format`` is asserted (``world.core.state_model.formats``), ``multipleOf``
holds for the numbers as JSON writes them (0.3 is a multiple of 0.1), and ``default`` has to fit. ``secret``, the one
keyword of its own, marks a text that must be a reference to a secret (``world.model.secrets.references``).

Source: design section 4; JSON Schema 2020-12, Core and Validation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from world.core.state_model.formats import FORMATS, Pattern

__all__ = ["DIALECT", "KEYWORDS", "MAX_MODEL_DEPTH", "SchemaNode", "is_model", "read_model"]

DIALECT: Final = "urn:worldprotocol:state-model:1"
"""Name of the subset."""

MAX_MODEL_DEPTH: Final = 50
"""Maximum depth of nested schemas; a recursive one is a reference."""

_DEFINITIONS: Final = "#/$defs/"
TYPES: Final = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})
_SIZES: Final = {
    "minLength": "string", "maxLength": "string", "minItems": "array", "maxItems": "array",
    "minProperties": "object", "maxProperties": "object",
}  # fmt: skip
_BOUNDS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
KEYWORDS: Final = frozenset(
    {
        "$defs", "$ref", "additionalProperties", "anyOf", "const", "default", "enum", "format", "items", "pattern",
        "prefixItems", "properties", "propertyNames", "required", "secret", "type", *_SIZES, *_BOUNDS,
    }
)  # fmt: skip
"""The keywords of the subset."""


@dataclass(slots=True, eq=False)
class SchemaNode:
    """One compiled schema; a member that is None or empty says nothing.

    Args:
        types: allowed JSON types.
        values: allowed values, of ``enum`` or ``const``.
        properties: named members of an object.
        required: names that an object must have.
        rest: schema of the other members; None allows any, ``is_closed`` none.
        names: schema of the names.
        prefix: schemas of the first elements of an array.
        items: schema of the other elements; None allows any, ``is_complete`` none.
        sizes: bounds of lengths by keyword.
        bounds: bounds of numbers by keyword.
        pattern: searched in a text.
        format: name of the asserted format.
        options: schemas of which one has to accept the value.
        target: the schema that ``$ref`` names.
        is_secret: whether the value must be a reference to a secret.
    """

    types: frozenset[str] | None = None
    values: tuple[Any, ...] | None = None
    properties: dict[str, SchemaNode] | None = None
    required: tuple[str, ...] = ()
    rest: SchemaNode | None = None
    is_closed: bool = False
    names: SchemaNode | None = None
    prefix: tuple[SchemaNode, ...] = ()
    items: SchemaNode | None = None
    is_complete: bool = False
    sizes: dict[str, int] = field(default_factory=dict)
    bounds: dict[str, int | float] = field(default_factory=dict)
    pattern: Pattern | None = None
    format: str | None = None
    options: tuple[SchemaNode, ...] = ()
    target: SchemaNode | None = None
    is_secret: bool = False


def is_model(spec: Any) -> TypeGuard[Mapping[str, Any]]:
    """Return whether a state or an input is written as a model."""
    return isinstance(spec, Mapping) and "dialect" in spec


def read_model(spec: Mapping[str, Any], where: str, faults: list[tuple[str, str]]) -> SchemaNode:
    """Compile the schema of a state or an input.

    Args:
        spec: ``{"dialect", "schema"}``, frozen.
        where: path of the spec in its schema.
        faults: collects ``(path, sentence)``.
    """
    if spec["dialect"] != DIALECT:
        faults.append((f"{where}.dialect", f"The dialect is {DIALECT}; this engine supports no other."))
        return SchemaNode()
    schema = spec.get("schema")
    if not isinstance(schema, Mapping):
        faults.append((f"{where}.schema", "schema is a JSON Schema, an object."))
        return SchemaNode()
    reader = _Reader(faults)
    definitions = schema.get("$defs", {})
    if not isinstance(definitions, Mapping):
        faults.append((f"{where}.schema.$defs", "$defs is an object of schemas."))
        definitions = {}
    reader.named = {name: SchemaNode() for name in definitions}
    for name, inner in definitions.items():
        reader.read(inner, f"{where}.schema.$defs.{name}", into=reader.named[name])
    root = reader.read(schema, f"{where}.schema", is_root=True)
    for name, found in reader.named.items():
        if _is_endless(found):
            faults.append((f"{where}.schema.$defs.{name}", "The definition refers to nothing but itself."))
            found.target, found.options = None, ()
    if not faults:
        reader.check_defaults()
    return root


def _is_endless(node: SchemaNode) -> bool:
    """Return whether a chain of references and alternatives leads back to a node without reading a member."""
    seen: set[int] = set()
    waiting = [one for one in (node.target, *node.options) if one is not None]
    while waiting:
        one = waiting.pop()
        if one is node:
            return True
        if id(one) not in seen:
            seen.add(id(one))
            waiting += [inner for inner in (one.target, *one.options) if inner is not None]
    return False


class _Reader:
    def __init__(self, faults: list[tuple[str, str]]) -> None:
        self.faults = faults
        self.named: dict[str, SchemaNode] = {}
        self.defaults: list[tuple[str, SchemaNode, Any]] = []

    def check_defaults(self) -> None:
        from world.core.state_model.checking import Checker

        for where, node, default in self.defaults:
            fault = next(Checker().faults(node, default), None)
            if fault is not None:
                self.faults.append((f"{where}.default{fault.shown}", f"The default {fault.message}."))

    def add(self, where: str, message: str) -> None:
        self.faults.append((where, message))

    def read(
        self, schema: Any, where: str, *, into: SchemaNode | None = None, depth: int = 0, is_root: bool = False
    ) -> SchemaNode:
        node = SchemaNode() if into is None else into
        if depth >= MAX_MODEL_DEPTH:
            self.add(where, f"Schemas are nested deeper than {MAX_MODEL_DEPTH} levels.")
            return node
        if not isinstance(schema, Mapping):
            self.add(where, "A schema is an object.")
            return node
        for key in schema:
            if key not in KEYWORDS or (key == "$defs" and not is_root):
                self.add(f"{where}.{key}", f"{key!r} is no keyword of {DIALECT}.")
        self._types(schema, where, node)
        self._values(schema, where, node)
        self._members(schema, where, node, depth)
        self._elements(schema, where, node, depth)
        self._numbers(schema, where, node)
        self._texts(schema, where, node)
        if "anyOf" in schema:
            node.options = self._several(schema["anyOf"], f"{where}.anyOf", depth)
        if "$ref" in schema:
            name = schema["$ref"]
            is_local = isinstance(name, str) and name.startswith(_DEFINITIONS)
            node.target = self.named.get(name.removeprefix(_DEFINITIONS)) if is_local else None
            if node.target is None:
                self.add(f"{where}.$ref", f"There is no definition {name!r:.80}; a reference is #/$defs/NAME.")
        if "default" in schema:
            self.defaults.append((where, node, schema["default"]))
        return node

    def _types(self, schema: Mapping[str, Any], where: str, node: SchemaNode) -> None:
        kinds = schema.get("type")
        given: list[Any] = kinds if isinstance(kinds, list) else [kinds]
        if kinds is None and "type" not in schema:
            return
        if given and all(isinstance(one, str) and one in TYPES for one in given):
            node.types = frozenset(given)
        else:
            self.add(f"{where}.type", f"A type is one of {', '.join(sorted(TYPES))}, or a list of them.")

    def _values(self, schema: Mapping[str, Any], where: str, node: SchemaNode) -> None:
        if "enum" in schema:
            if isinstance(schema["enum"], list) and schema["enum"]:
                node.values = tuple(schema["enum"])
            else:
                self.add(f"{where}.enum", "enum is a list of values.")
        if "const" in schema:
            if node.values is None:
                node.values = (schema["const"],)
            else:
                self.add(f"{where}.const", "A schema has enum or const, not both.")
        secret = schema.get("secret", False)
        if not isinstance(secret, bool):
            self.add(f"{where}.secret", "secret is true or false.")
        node.is_secret = secret is True
        if node.is_secret and (schema.get("type") != "string" or not schema.keys() <= {"type", "secret", "default"}):
            self.add(f"{where}.secret", "A secret is of type string and has no constraints: the log holds a reference.")

    def _members(self, schema: Mapping[str, Any], where: str, node: SchemaNode, depth: int) -> None:
        if "properties" in schema:
            given = schema["properties"]
            if isinstance(given, Mapping):
                node.properties = {
                    name: self.read(inner, f"{where}.properties.{name}", depth=depth + 1)
                    for name, inner in given.items()
                }
            else:
                self.add(f"{where}.properties", "properties is an object of schemas.")
        rest = schema.get("additionalProperties", True)
        if isinstance(rest, bool):
            node.is_closed = not rest
        else:
            node.rest = self.read(rest, f"{where}.additionalProperties", depth=depth + 1)
        if "propertyNames" in schema:
            node.names = self.read(schema["propertyNames"], f"{where}.propertyNames", depth=depth + 1)
        required = schema.get("required", [])
        if isinstance(required, list) and all(isinstance(name, str) for name in required):
            node.required = tuple(required)
        else:
            self.add(f"{where}.required", "required is a list of names.")

    def _elements(self, schema: Mapping[str, Any], where: str, node: SchemaNode, depth: int) -> None:
        if "prefixItems" in schema:
            node.prefix = self._several(schema["prefixItems"], f"{where}.prefixItems", depth)
        items = schema.get("items", True)
        if isinstance(items, bool):
            node.is_complete = not items
        else:
            node.items = self.read(items, f"{where}.items", depth=depth + 1)

    def _several(self, given: Any, where: str, depth: int) -> tuple[SchemaNode, ...]:
        if not isinstance(given, list) or not given:
            self.add(where, "A list of schemas is expected, with at least one.")
            return ()
        return tuple(self.read(one, f"{where}[{at}]", depth=depth + 1) for at, one in enumerate(given))

    def _numbers(self, schema: Mapping[str, Any], where: str, node: SchemaNode) -> None:
        for key in _BOUNDS & schema.keys():
            value = schema[key]
            is_number = type(value) is int or (type(value) is float and math.isfinite(value))
            if is_number and (key != "multipleOf" or value > 0):
                node.bounds[key] = value
            else:
                self.add(f"{where}.{key}", f"{key} is a number{' above 0' if key == 'multipleOf' else ''}.")
        for key in _SIZES.keys() & schema.keys():
            value = schema[key]
            if type(value) is int and value >= 0:
                node.sizes[key] = value
            else:
                self.add(f"{where}.{key}", f"{key} is a whole number, 0 or more.")

    def _texts(self, schema: Mapping[str, Any], where: str, node: SchemaNode) -> None:
        if "format" in schema:
            if isinstance(schema["format"], str) and schema["format"] in FORMATS:
                node.format = schema["format"]
            else:
                known = ", ".join(FORMATS)
                self.add(f"{where}.format", f"The format is one of {known}; for another one use a pattern.")
        if "pattern" in schema:
            self._guarded(f"{where}.pattern", lambda: setattr(node, "pattern", Pattern(schema["pattern"])))

    def _guarded(self, where: str, make: Callable[[], None]) -> None:
        try:
            make()
        except (ValueError, TypeError) as error:
            self.add(where, f"This is no pattern of the regex syntax in use (no look-around, no references): {error}")
