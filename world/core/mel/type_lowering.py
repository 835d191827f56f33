"""Lowering of MEL types to type definitions and to field specs of the portable schema.

A type definition has the form of the reference (``types`` of its schemas); a field spec says less: a record is an
object without fields, and what is ``T | null`` is a ``T`` with ``required: false`` (inputs), or may be null as
everything in a state. docs/reference/mel.md has the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from lark import Token

from world.core.fields import MAX_FIELD_DEPTH
from world.core.mel.diagnostics import Diagnostics, suggestion
from world.core.mel.literals import NotLiteralError, json_of, number_of, text_of
from world.core.mel.parsing import Node, children, is_token, span_of, trees

__all__ = ["PRIMITIVES", "TypeLowering", "field_parts"]

Definition = dict[str, Any]
Spec = dict[str, Any]

PRIMITIVES: Final = ("string", "number", "boolean", "any", "object", "array")
"""Types that are not declared; ``any``, ``object`` and ``array`` are those of field specs that say no more."""

_NULL: Final = {"kind": "literal", "value": None}


def field_parts(node: Node) -> tuple[Token, bool, Node, Node | None]:
    """Return name, whether it is optional, type and default of a field or a parameter."""
    name = next(one for one in children(node) if one.type != "OPTIONAL")
    parts = [one for one in trees(node) if one is not None]
    after = [one for one in parts if span_of(one)[0] >= span_of(name)[1]]
    return name, bool(children(node, "OPTIONAL")), after[0], after[1] if len(after) > 1 else None


class TypeLowering:
    """Lowers the types of one domain.

    Args:
        declared: type expressions of the ``type`` declarations by name.
        found: collects the diagnostics.
        raw: returns the value of an annotation ``@schema(...)``.
    """

    def __init__(self, declared: Mapping[str, Node], found: Diagnostics, raw: Callable[[Node], Any]) -> None:
        """Create a lowering."""
        self.declared = declared
        self.found = found
        self.raw = raw
        self.reads: list[tuple[tuple[int, int], str]] = []
        self._definitions: dict[str, Definition] = {}
        self._depth = 0

    def definition(self, node: Node) -> Definition:
        """Return the type definition of a type expression."""
        if self._depth > 2 * MAX_FIELD_DEPTH:
            self.found.add("E_LIMIT", f"A type is nested deeper than {MAX_FIELD_DEPTH} levels", span_of(node))
            return {"kind": "primitive", "type": "any"}
        self._depth += 1
        found = self._definition(node)
        self._depth -= 1
        return found

    def _definition(self, node: Node) -> Definition:
        if node.data == "optional":
            return {"kind": "optional", "type": self.definition(trees(node)[0])}
        if node.data == "union":
            parts = [self.definition(one) for one in trees(node)]
            return parts[0] if len(parts) == 1 else {"kind": "union", "types": parts}
        if node.data == "named_type":
            return self._named(children(node)[0])
        if node.data == "literal_type":
            return _literal_type(node)
        if node.data == "array_type":
            return {"kind": "array", "element": self.definition(trees(node)[0])}
        if node.data == "record_type":
            return self._record(node)
        if node.data == "annotation":
            return {"kind": "schema", "spec": self.raw(node)}
        return self._object(node)

    def _record(self, node: Node) -> Definition:
        key, value = (self.definition(one) for one in trees(node))
        if key != {"kind": "primitive", "type": "string"}:
            self.found.add("E_TYPE_MISMATCH", "The keys of a Record are of type string", span_of(trees(node)[0]))
        return {"kind": "record", "key": key, "value": value}

    def _named(self, token: Token) -> Definition:
        name = str(token)
        if name in self.declared:
            self.reads.append((span_of(token), f"type {name}"))
            return {"kind": "ref", "name": name}
        if name == "null":
            return dict(_NULL)
        if name not in PRIMITIVES:
            hint = suggestion(name, [*PRIMITIVES, "null", "Array", "Record", *self.declared])
            self.found.add("E_UNDEFINED", f"Undefined type {name!r}", span_of(token), hint=hint)
            return {"kind": "primitive", "type": "any"}
        return {"kind": "primitive", "type": name}

    def _object(self, node: Node) -> Definition:
        fields: dict[str, Any] = {}
        for one in trees(node, "field"):
            token, is_optional, kind, default = field_parts(one)
            name = text_of(token)
            if name in fields:
                self.found.add("E_DUPLICATE_FIELD", f"Duplicate field {name!r}", span_of(token))
            fields[name] = {"type": self.definition(kind), "optional": is_optional}
            own = {} if default is None else {"default": self.default_of(default)}
            own |= self.members(one)
            if own:
                fields[name]["schema"] = own
        return {"kind": "object", "fields": fields}

    def members(self, node: Node) -> dict[str, Any]:
        """Return the members that the annotations ``@schema({...})`` in front of a construct add to its schema."""
        own: dict[str, Any] = {}
        for one in trees(node, "annotation"):
            if span_of(one)[0] > span_of(node)[0] and not _is_in_front(node, one):
                continue
            if str(children(one)[0]) == "schema":
                value = self.raw(one)
                if isinstance(value, dict):
                    own |= value
                else:
                    self.found.add("E_SCHEMA", "@schema in front of a declaration holds an object", span_of(one))
            else:
                self._check_meta(one)
        return own

    def _check_meta(self, node: Node) -> None:
        """Check ``@meta(tag, payload)``, which is for tools and no part of the schema."""
        name, arguments = children(node)[0], trees(trees(node, "arguments")[0])
        if str(name) != "meta":
            hint = suggestion(str(name), ["meta", "schema"])
            self.found.add("E053", f"There is no annotation @{name}", span_of(name), hint=hint)
            return
        if not 1 <= len(arguments) <= 2 or arguments[0].data != "literal":
            self.found.add("E055", "@meta expects a tag, a text, and a payload at most", span_of(node))
            return
        for one in arguments:
            try:
                value = json_of(one)
            except NotLiteralError as error:
                self.found.add("E055", "Annotation payloads must be JSON-like literals", span_of(error.node))
                return
            if _levels(value) > 2:
                message = "Annotation payload nesting exceeds the current MEL limit of 2 levels"
                self.found.add("E056", message, span_of(one))

    def default_of(self, node: Node) -> Any:
        """Return the value of an initializer; null, reported, where it is no literal."""
        try:
            return json_of(node)
        except NotLiteralError as error:
            is_system = error.node.data in ("system", "member_access") and "$" in str(error.node)
            code = "E002" if is_system else "E042"
            message = (
                "Dollar namespace values cannot be used in state initializers"
                if is_system
                else "State initializer references non-constant value"
            )
            self.found.add(code, message, span_of(error.node))
            return None

    def spec(self, definition: Definition, node: Node, *, is_input: bool, seen: tuple[str, ...] = ()) -> Spec:
        """Return the field spec of a type definition.

        Args:
            definition: the type.
            node: where diagnostics point.
            is_input: whether it is part of an action's input.
            seen: declared types that this one is part of.
        """
        kind = definition["kind"]
        if kind == "ref":
            return self._ref(definition["name"], node, is_input, seen)
        if kind == "schema":
            return dict(definition["spec"]) if isinstance(definition["spec"], dict) else {"type": "any"}
        if kind == "primitive":
            return {"type": definition["type"], "required": True}
        if kind == "literal":
            value = definition["value"]
            return {"type": "null" if value is None else {"enum": [value]}, "required": True}
        if kind == "optional":
            return without_required(self.spec(definition["type"], node, is_input=is_input, seen=seen))
        if kind == "array":
            items = self.spec(definition["element"], node, is_input=is_input, seen=seen)
            return {"type": "array", "required": True, "items": items}
        if kind == "record":
            self.spec(definition["value"], node, is_input=is_input, seen=seen)
            return {"type": "object", "required": True}
        if kind == "object":
            return {"type": "object", "required": True, "fields": self._fields(definition, node, is_input, seen)}
        return self._union(definition, node, is_input, seen)

    def _fields(self, definition: Definition, node: Node, is_input: bool, seen: tuple[str, ...]) -> Spec:
        fields: Spec = {}
        for name, one in definition["fields"].items():
            spec = self.spec(one["type"], node, is_input=is_input, seen=seen)
            fields[name] = (without_required(spec) if one["optional"] else spec) | one.get("schema", {})
        return fields

    def _ref(self, name: str, node: Node, is_input: bool, seen: tuple[str, ...]) -> Spec:
        if name in seen or len(seen) >= MAX_FIELD_DEPTH:
            message = f"Recursive named type {name!r} cannot be lowered to a field spec"
            self.found.add("E044", message, span_of(node), hint="Use Record<string, T>, or any.")
            return {"type": "any"}
        if name not in self._definitions:
            self._definitions[name] = self.definition(self.declared[name])
        return self.spec(self._definitions[name], node, is_input=is_input, seen=(*seen, name))

    def _union(self, definition: Definition, node: Node, is_input: bool, seen: tuple[str, ...]) -> Spec:
        kinds = [self._resolved(one) for one in definition["types"]]
        if all(one["kind"] == "literal" for one in kinds):
            values = [one["value"] for one in kinds]
            return {"type": {"enum": [one for at, one in enumerate(values) if not _is_in(one, values[:at])]},
                    "required": True}  # fmt: skip
        others = [one for one, kind in zip(definition["types"], kinds, strict=True) if kind != _NULL]
        if len(others) != 1:
            message = "Non-trivial union type cannot be lowered to a field spec"
            hint = "A union holds literals, or one type and null; write any where both are meant."
            self.found.add("E043", message, span_of(node), hint=hint)
            return {"type": "any"}
        spec = self.spec(others[0], node, is_input=is_input, seen=seen)
        return spec | {"required": False} if is_input else spec

    def _resolved(self, definition: Definition) -> Definition:
        for _ in range(MAX_FIELD_DEPTH):
            if definition["kind"] != "ref":
                break
            definition = self.definition(self.declared[definition["name"]])
        return definition


def without_required(spec: Spec) -> Spec:
    """Return a spec of what need not be there."""
    return {key: value for key, value in spec.items() if key != "required"}


def _is_in_front(node: Node, annotation: Node) -> bool:
    for one in node.children:
        if one is annotation:
            return True
        if not (hasattr(one, "data") and one.data == "annotation"):
            return False
    return False


def _is_in(value: Any, others: list[Any]) -> bool:
    return any(value == one and type(value) is type(one) for one in others)


def _literal_type(node: Node) -> Definition:
    token = children(node)[-1]
    if is_token(token, "NUMBER"):
        value: Any = number_of(token) * (-1 if children(node, "MINUS") else 1)
    else:
        value = {"TRUE": True, "FALSE": False, "NULL": None}.get(token.type, text_of(token))
    return {"kind": "literal", "value": value}


def _levels(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max((_levels(one) for one in inner), default=0)
