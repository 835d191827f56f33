"""Checks of a portable schema; ``world.core.schema`` lists the rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from world.core.availability import ACTOR, impure_reads
from world.core.declarations.confinement import confinement_faults
from world.core.declarations.resources import manifest_faults
from world.core.dependency_order import circles
from world.core.domain_rules import OWN_NAMES_RULES, RULES
from world.core.expressions.expression_ast import check_expression, dependencies, reads_system
from world.core.fields import ANY, FieldSpec, field_at, read_field
from world.core.flows.flow_lint import FlowReader
from world.core.schema import SchemaFault
from world.core.state_model.dialect import is_model
from world.model.identity import schema_hash
from world.model.paths import parse_path

__all__ = ["is_version", "schema_faults"]

_KEYS: Final = frozenset({"id", "version", "hash", "types", "state", "computed", "actions", "meta", "description"})
_ACTION_KEYS: Final = frozenset(
    {"input", "available", "flow", "python", "label", "description", "manifest", "confinement", "meta"}
)
_COMPUTED_KEYS: Final = frozenset({"deps", "expr", "python", "description"})
_RESERVED: Final = frozenset({"meta", "system", "input", "computed", ""})
_ID: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
_VERSION: Final = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?", re.ASCII)


def is_version(text: object) -> bool:
    """Return whether a value is a semantic version such as 1.0.0."""
    return isinstance(text, str) and _VERSION.fullmatch(text) is not None


def schema_faults(schema: Any, rules: int = RULES) -> list[SchemaFault]:
    """Return every fault of a portable schema; none for a good one.

    Args:
        schema: portable, as JSON.
        rules: version of the rules of the domain (``world.core.domain_rules``).
    """
    if not isinstance(schema, Mapping):
        return [SchemaFault("SCHEMA_ERROR", "$", "A schema is an object.")]
    return _ExpressionReader(schema, rules).read()


class _ExpressionReader:
    def __init__(self, schema: Mapping[str, Any], rules: int) -> None:
        self.schema = schema
        self.rules = rules
        self.faults: list[SchemaFault] = []
        self.state = ANY
        self.computed: Mapping[str, Any] = {}
        self.actions: Mapping[str, Any] = {}

    def read(self) -> list[SchemaFault]:
        self._head()
        self._state()
        computed = self.schema.get("computed", {"fields": {}})
        fields = computed.get("fields") if isinstance(computed, Mapping) else None
        if isinstance(fields, Mapping):
            self.computed = fields
            self._computed()
        else:
            self.add("SCHEMA_ERROR", "$.computed", "computed holds fields, an object.")
        actions = self.schema.get("actions")
        if isinstance(actions, Mapping) and actions:
            self.actions = actions
            self._actions()
        else:
            self.add("SCHEMA_ERROR", "$.actions", "A domain needs at least one action.")
        return self.faults

    def add(self, code: str, path: str, message: str) -> None:
        self.faults.append(SchemaFault(code, path, message))

    def _unknown_keys(self, value: Mapping[str, Any], known: frozenset[str], path: str) -> None:
        for key in value:
            if key not in known:
                self.add("SCHEMA_ERROR", f"{path}.{key}", f"There is no {key!r} here.")

    def _head(self) -> None:
        schema = self.schema
        self._unknown_keys(schema, _KEYS, "$")
        if not isinstance(schema.get("id"), str) or not _ID.fullmatch(schema["id"]):
            self.add("SCHEMA_ERROR", "$.id", "id is a URI such as urn:example:todo, or a UUID.")
        if not is_version(schema.get("version")):
            self.add("SCHEMA_ERROR", "$.version", "version is a semantic version such as 1.0.0.")
        if schema.get("hash") and schema["hash"] != schema_hash(schema):
            self.add(
                "HASH_MISMATCH",
                "$.hash",
                f"The schema's hash is {schema_hash(schema)}, not the one it names.",
            )

    def _state(self) -> None:
        state = self.schema.get("state")
        if is_model(state):
            self._state_model(state)
            return
        if not isinstance(state, Mapping) or not isinstance(state.get("fields"), Mapping):
            self.add("SCHEMA_ERROR", "$.state", "state holds fields, an object of field specs.")
            return
        self._unknown_keys(state, frozenset({"fields", "description"}), "$.state")
        found: list[tuple[str, str]] = []
        self.state = read_field({"type": "object", "fields": state["fields"]}, "$.state", found)
        found.extend(
            (f"$.state.fields.{name}", f"The name {name!r} is taken; a path to it would lead elsewhere.")
            for name in state["fields"]
            if name in _RESERVED or (name.startswith("$") and self.rules >= OWN_NAMES_RULES)
        )
        self._shapes(found)

    def _state_model(self, state: Mapping[str, Any]) -> None:
        found: list[tuple[str, str]] = []
        self.state = read_field(state, "$.state", found)
        model = self.state.model
        if not found and (model is None or model.properties is None or model.types != frozenset({"object"})):
            found.append(("$.state.schema", "The schema of a state is of type object and has properties."))
        for name in (model.properties or {}) if model is not None else ():
            if name in _RESERVED or name.startswith("$"):
                place = f"$.state.schema.properties.{name}"
                found.append((place, f"The name {name!r} is taken; a path to it would lead elsewhere."))
        self._shapes(found)

    def _shapes(self, found: list[tuple[str, str]]) -> None:
        for path, message in found:
            self.add("SCHEMA_ERROR", path, message)

    def _computed(self) -> None:
        for name, spec in self.computed.items():
            path = f"$.computed.fields.{name}"
            if not name.startswith("computed.") or len(name) == len("computed."):
                self.add(
                    "SCHEMA_ERROR",
                    path,
                    "A computed value's name starts with computed., as in computed.openCount.",
                )
            if not isinstance(spec, Mapping) or ("expr" in spec) is ("python" in spec):
                self.add("SCHEMA_ERROR", path, "A computed value has deps and either expr or python.")
                continue
            self._unknown_keys(spec, _COMPUTED_KEYS, path)
            deps = spec.get("deps")
            if not isinstance(deps, list) or not all(isinstance(dep, str) and dep for dep in deps):
                self.add("SCHEMA_ERROR", f"{path}.deps", "deps is a list of paths.")
                continue
            for dep in deps:
                if not self._is_source(dep):
                    self.add(
                        "V-001",
                        f"{path}.deps",
                        f"Nothing in the state or the computed values is called {dep!r}.",
                    )
            if "python" in spec:
                self._python(spec["python"], f"{path}.python")
            else:
                self._computed_expression(spec["expr"], deps, f"{path}.expr")
        self._computed_circles()

    def _computed_expression(self, expression: Any, deps: list[str], path: str) -> None:
        found = check_expression(expression, path)
        self._shapes(found)
        if found:
            return
        if reads_system(expression):
            self.add("V-001", path, "A computed value depends on the data alone; it cannot read $system.")
        for read in sorted(dependencies(expression)):
            if not any(_leads_to(dep, read) for dep in deps):
                self.add("V-001", path, f"The expression reads {read!r}, which deps does not name.")

    def _computed_circles(self) -> None:
        edges = {
            name: [dep for dep in spec["deps"] if isinstance(dep, str)]
            for name, spec in self.computed.items()
            if isinstance(spec, Mapping) and isinstance(spec.get("deps"), list)
        }
        for circle in circles(edges):
            self.add(
                "V-002",
                f"$.computed.fields.{circle[0]}",
                f"Computed values form a circle: {' -> '.join(circle)}.",
            )

    def _is_source(self, path: str) -> bool:
        """Return whether a path names a computed value or a place of the state."""
        if path.startswith("computed."):
            return any(_leads_to(name, path) for name in self.computed)
        return field_at(self.state, parse_path(path)) is not None

    def _python(self, reference: Any, path: str) -> None:
        named = isinstance(reference, Mapping) and reference.keys() == {"name", "version"}
        if not named or not all(isinstance(part, str) and part for part in reference.values()):
            self.add("SCHEMA_ERROR", path, "python names a function: {name, version}, both texts.")

    def _actions(self) -> None:
        edges: dict[str, list[str]] = {}
        for name, spec in self.actions.items():
            path = f"$.actions.{name}"
            if not isinstance(spec, Mapping) or ("flow" in spec) is ("python" in spec):
                self.add("SCHEMA_ERROR", path, "An action has either a flow or python.")
                continue
            self._unknown_keys(spec, _ACTION_KEYS, path)
            edges[name] = list(self._action(spec, path))
        for circle in circles(edges):
            self.add(
                "V-005",
                f"$.actions.{circle[0]}",
                f"Flows call each other in a circle: {' -> '.join(circle)}.",
            )

    def _action(self, spec: Mapping[str, Any], path: str) -> Iterator[str]:
        """Check one action and yield the flows it calls."""
        found: list[tuple[str, str]] = []
        given = read_field(spec["input"], f"{path}.input", found) if spec.get("input") is not None else ANY
        self._shapes(found)
        if spec.get("available") is not None:
            self._available(spec["available"], f"{path}.available")
        if spec.get("manifest") is not None:
            self._manifest(spec["manifest"], f"{path}.manifest", given)
        if spec.get("confinement") is not None:
            for at, message in confinement_faults(spec["confinement"], f"{path}.confinement", given):
                self.add("SCHEMA_ERROR", at, message)
        if "python" in spec:
            self._python(spec["python"], f"{path}.python")
            return
        reader = FlowReader(
            expression=lambda node, at: self._expression(node, at, lambda read: self.reads(read, given)),
            patchable=self._patchable,
            flows={name for name, other in self.actions.items() if isinstance(other, Mapping) and "flow" in other},
            add=self.add,
        )
        reader.read(spec["flow"], f"{path}.flow")
        yield from reader.calls

    def _available(self, expression: Any, path: str) -> None:
        """Check a predicate, which reads neither input nor time (INT-7.4.2b)."""
        self._expression(expression, path, lambda read: self.reads(read, ANY))
        if not check_expression(expression, path):
            for read in impure_reads(expression):
                self.add(
                    "V-003",
                    path,
                    f"Availability depends on data, computed values and {ACTOR} alone; it cannot read {read!r}.",
                )

    def _manifest(self, manifest: Any, path: str, given: FieldSpec) -> None:
        def expression(node: Any, at: str) -> None:
            self._expression(node, at, lambda read: self.reads(read, given))

        for at, message in manifest_faults(manifest, path, expression):
            self.add("SCHEMA_ERROR", at, message)

    def _expression(self, node: Any, path: str, known: Callable[[str], bool]) -> None:
        found = check_expression(node, path)
        self._shapes(found)
        if not found:
            for read in sorted(dependencies(node)):
                if not known(read):
                    self.add("V-003", path, f"There is nothing to read at {read!r}.")

    def reads(self, path: str, given: FieldSpec) -> bool:
        """Return whether an action's expression may read a path."""
        root, _, rest = path.partition(".")
        if root == "input":
            return field_at(given, parse_path(rest)) is not None
        return root in ("meta", "system") or path.startswith("$") or self._is_source(path)

    def _patchable(self, path: str) -> bool:
        segments = parse_path(path)
        if path.startswith("$"):
            return self.rules < OWN_NAMES_RULES and segments[0] != "$host"
        return field_at(self.state, segments, into_free_arrays=False) is not None


def _leads_to(outer: str, path: str) -> bool:
    """Return whether a path equals another one or is below it."""
    return path == outer or path.startswith(f"{outer}.")
