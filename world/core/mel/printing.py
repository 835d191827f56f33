"""Printer of portable schemas as MEL.

A printed schema compiles to a schema with the same hash. Members that MEL has no words for are printed as
``@schema({...})`` in front of their declaration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from world.core.fields import read_field
from world.core.mel.compiling import dependencies_of
from world.core.mel.expression_printing import ExpressionPrinter, PrintedNames, is_name, is_name_part, json_text
from world.core.mel.flow_printing import FlowPrinter, gate_of
from world.core.mel.formatting import format_tokens
from world.core.mel.literals import quoted
from world.core.mel.rules import Types
from world.core.mel.type_printing import definition_text, field_text
from world.core.state_model.dialect import is_model
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.immutable_json import thaw

__all__ = ["mel_of_schema"]


def mel_of_schema(portable: Mapping[str, Any]) -> str:
    """Return a schema as formatted MEL.

    Args:
        portable: a schema that ``load_schema`` accepts, with or without its hash.

    Raises:
        RefusedError: ``PYTHON_REQUIRED`` for a schema that names Python functions.
    """
    return format_tokens(_SchemaPrinter({key: one for key, one in thaw(portable).items() if key != "hash"}).text())


class _SchemaPrinter:
    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        self.refuse_python()
        self.is_plain = not _is_reference(schema)
        self.name = schema["meta"]["name"] if not self.is_plain else _name_of(schema["id"])
        state = schema["state"]
        model = is_model(state) or any(field.startswith("__sys__") for field in state["fields"])
        self.fields: dict[str, Any] = {} if model else state["fields"]
        self.is_raw_state = model
        read = read_field(state if is_model(state) else {"type": "object", "fields": state["fields"]}, "", [])
        roots = state["schema"].get("properties", {}) if is_model(state) else state["fields"]
        self.computed: dict[str, Any] = schema.get("computed", {}).get("fields", {})
        self.is_raw_computed = schema.get("computed", {}).keys() - {"fields"} != set()
        short = () if self.is_raw_computed else [one.removeprefix("computed.") for one in self.computed]
        types = Types(read, {one: spec["expr"] for one, spec in self.computed.items()})
        self.names = PrintedNames(frozenset(roots), frozenset(short), types, place="computed")

    def refuse_python(self) -> None:
        fields = self.schema.get("computed", {}).get("fields", {})
        wanted = [one for one, spec in {**fields, **self.schema["actions"]}.items() if "python" in spec]
        if wanted:
            raise RefusedError(
                ErrorCode.PYTHON_REQUIRED,
                f"MEL holds no Python functions, and the schema names some: {', '.join(wanted)}. Write them as "
                "expressions and flows first.",
                names=wanted,
            )

    def text(self) -> str:
        parts = [self._head(), f"domain {self.name} {{"]
        if not self.is_plain:
            parts += [
                f"type {one} = {definition_text(spec['definition'])}" for one, spec in self.schema["types"].items()
            ]
        if not self.is_raw_state:
            parts.append(self._state())
        if not self.is_raw_computed:
            parts += [self._computed(one, spec) for one, spec in self.computed.items()]
        parts += [self._action(one, spec) for one, spec in self.schema["actions"].items()]
        return "\n".join([*parts, "}"])

    def _head(self) -> str:
        head: dict[str, Any] = {}
        if self.is_plain:
            head = {key: one for key, one in self.schema.items() if key not in ("state", "computed", "actions")}
            if "computed" in self.schema and not self.computed:
                head["computed"] = self.schema["computed"]
        if self.is_raw_computed:
            head["computed"] = self.schema["computed"]
        if self.is_raw_state:
            head["state"] = self.schema["state"]
        return _annotation(head)

    def _state(self) -> str:
        own = {key: one for key, one in self.schema["state"].items() if key != "fields"}
        if not self.fields and not own:
            return ""
        fields = "\n".join(field_text(name, spec, is_state=True) for name, spec in self.fields.items())
        return f"{_annotation(own)} state {{\n{fields}\n}}"

    def _computed(self, name: str, spec: dict[str, Any]) -> str:
        own = {key: one for key, one in spec.items() if key not in ("deps", "expr")}
        if spec["deps"] != dependencies_of(spec["expr"]):
            own["deps"] = spec["deps"]
        expression = ExpressionPrinter(self.names).text(spec["expr"])
        return f"{_annotation(own)} computed {_dotted(name.removeprefix('computed.'))} = {expression}"

    def _action(self, name: str, spec: dict[str, Any]) -> str:
        fields = self._params(spec.get("input"))
        own = {key: one for key, one in spec.items() if key not in ("flow", "input", "available")}
        if fields is None and "input" in spec:
            own["input"] = spec["input"]
        given = read_field(spec["input"], "", []) if fields else None
        types = Types(self.names.types.state, self.names.types.computed, given, self.names.types.raw)
        outside = PrintedNames(self.names.state, self.names.computed, types, place="available")
        clauses = ""
        if spec.get("available") is not None:
            clauses = f" available when {FlowPrinter(name, outside).condition(spec['available'])}"
        elif "available" in spec:
            own["available"] = None
        names = PrintedNames(self.names.state, self.names.computed, types, frozenset(fields or ()), "action")
        flow, gate = spec["flow"], gate_of(spec["flow"])
        if gate is not None:
            flow = flow["then"]
            inner = PrintedNames(names.state, names.computed, types, names.params, "dispatchable")
            clauses += f" dispatchable when {FlowPrinter(name, inner).condition(gate)}"
        params = ", ".join(field_text(one, inner, is_input=True) for one, inner in (fields or {}).items())
        body = FlowPrinter(name, names).body(flow)
        return f"{_annotation(own)} action {_dotted(name)}({params}){clauses} {body}"

    def _params(self, given: Any) -> dict[str, Any] | None:
        """Return the fields of an input that is written as parameters; None for any other one."""
        wanted = {"type": "object"} if self.is_plain else {"type": "object", "required": True}
        if not isinstance(given, dict) or {key: one for key, one in given.items() if key != "fields"} != wanted:
            return None
        fields = given.get("fields")
        return fields if isinstance(fields, dict) and fields else None


def _is_reference(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema has the form that the reference gives to a domain without ``@schema``."""
    meta, types = schema.get("meta"), schema.get("types")
    name = meta.get("name") if isinstance(meta, Mapping) and meta.keys() == {"name"} else None
    if not isinstance(name, str) or not is_name(name) or name.startswith("__"):
        return False
    if schema["id"] != f"mel:{name.lower()}" or schema["version"] != "1.0.0" or "computed" not in schema:
        return False
    if not isinstance(types, Mapping) or schema.keys() - {"types"} != {
        "id", "version", "state", "computed", "actions", "meta"
    }:  # fmt: skip
        return False
    return all(_is_type(one, spec, types) for one, spec in types.items())


def _is_type(name: str, spec: Any, types: Mapping[str, Any]) -> bool:
    if not is_name(name) or not isinstance(spec, Mapping) or spec.keys() != {"name", "definition"}:
        return False
    return spec["name"] == name and definition_text(spec["definition"], known=types) is not None


def _name_of(identity: str) -> str:
    last = identity.rstrip("/#").replace("/", ":").rpartition(":")[2]
    words = "".join(one if one.isalnum() else " " for one in last).split()
    name = "".join(one[:1].upper() + one[1:] for one in words)
    return name if is_name(name) and not name.startswith("__") else "Domain"


def _annotation(members: Mapping[str, Any]) -> str:
    return f"@schema({json_text(members)})" if members else ""


def _dotted(name: str) -> str:
    return name if all(map(is_name_part, name.split("."))) and is_name(name.partition(".")[0]) else quoted(name)
