"""Domain schemas: loading and compilation of portable JSON.

``load_schema`` refuses a schema with all its faults at once, each with its code and path:

- ``SCHEMA_ERROR``  a part is missing, unknown or of the wrong shape; unknown expression and flow kinds
- ``HASH_MISMATCH`` the schema names a hash that is not its own
- ``V-001``         a computed value depends on, or reads, what it does not declare or what does not exist
- ``V-002``         computed values depend on each other in a circle
- ``V-003``         a flow or an availability reads or patches a path that the state or the input lacks
- ``V-004``         a flow calls an action that does not exist
- ``V-005``         flows call each other in a circle

Source: design sections 3 and 4; HC-flow, IC-action.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from world.core.availability import read_predicate
from world.core.declarations.resources import ItemSpec, compile_manifest
from world.core.dependency_order import computed_order
from world.core.domain_rules import OWN_NAMES_RULES, RULES
from world.core.expressions.expression import Evaluate, compile_expression
from world.core.fields import ANY, FieldSpec, field_at, read_field
from world.core.flows.flow import Flow, compile_flow
from world.core.state_model.checking import Checker, places_of
from world.core.state_model.dialect import SchemaNode, is_model
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.identity import schema_hash
from world.model.immutable_json import FrozenDict, freeze
from world.model.paths import Segments, parse_path
from world.model.record import Record

__all__ = [
    "ActionSpec",
    "ComputedSpec",
    "DomainSchema",
    "PythonRef",
    "SchemaFault",
    "check_newest",
    "load_schema",
    "unchecked_schema",
]


class SchemaFault(Record, frozen=True):
    """One fault of a schema.

    Args:
        code: which rule is broken.
        path: where in the schema.
        message: one sentence.
    """

    code: str
    path: str
    message: str


@dataclass(frozen=True, slots=True)
class PythonRef:
    """Identity of a Python function in a schema: its name and explicit version."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class ComputedSpec:
    """One computed value.

    Args:
        name: full name, ``computed.openCount``.
        deps: the state paths and computed values it reads.
        roots: the top-level fields among them.
        inner: the computed values among them.
        expression: portable expression, or None for a Python function.
        evaluate: the compiled expression, or None.
        python: the function's identity, or None.
    """

    name: str
    deps: tuple[str, ...]
    roots: tuple[str, ...]
    inner: tuple[str, ...]
    expression: Any = None
    evaluate: Evaluate | None = None
    python: PythonRef | None = None


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """One action (IC-action).

    Args:
        name: the intent type.
        input: spec of the input; None accepts anything.
        available: portable availability expression; None is always available.
        is_available: its compiled form.
        flow: the compiled flow, or None for a Python action.
        python: the function's identity, or None.
        touches: its declared external resources, compiled; empty without any.
        spec: the portable form with label, description and manifest.
    """

    name: str
    input: FieldSpec | None
    available: Any
    is_available: Evaluate | None
    flow: Flow | None
    python: PythonRef | None
    touches: tuple[ItemSpec, ...]
    spec: FrozenDict


@dataclass(frozen=True, slots=True)
class DomainSchema:
    """A domain's schema, read and compiled.

    Args:
        id: URI or UUID of the domain.
        version: semantic version.
        hash: schemaHash.
        state: the data's spec, an object.
        computed: computed values, every one behind those it depends on.
        actions: by name.
        portable: the frozen JSON it was read from, with its hash.
        rules: version of the rules that its adoption recorded; see ``world.core.domain_rules``.
        checker: checks a state in the dialect and counts the places it visits.
    """

    id: str
    version: str
    hash: str
    state: FieldSpec
    computed: tuple[ComputedSpec, ...]
    actions: Mapping[str, ActionSpec]
    portable: FrozenDict
    rules: int = RULES
    checker: Checker = field(default_factory=lambda: Checker(is_state=True), repr=False, compare=False)
    _nodes: dict[str, tuple[SchemaNode, ...]] = field(default_factory=dict, repr=False, compare=False)
    _places: dict[str, FieldSpec | None] = field(default_factory=dict, repr=False, compare=False)

    def place(self, path: str) -> FieldSpec | None:
        """Return the spec at a patch path, None for an unknown place."""
        try:
            return self._places[path]
        except KeyError:
            place = self._find(parse_path(path))
        if len(self._places) >= _MAX_PLACES:
            self._places.clear()
        self._places[path] = place
        return place

    def model_places(self, path: str) -> tuple[SchemaNode, ...]:
        """Return the schemas at a patch path of a state in the dialect, none for an unknown place."""
        known = self._nodes.get(path)
        if known is None:
            if len(self._nodes) >= _MAX_PLACES:
                self._nodes.clear()
            segments = parse_path(path)
            is_tool = self.rules < OWN_NAMES_RULES and path.startswith("$")
            root = self.state.model
            known = (SchemaNode(),) if is_tool or root is None else places_of(root, segments)
            self._nodes[path] = known
        return known

    def _find(self, segments: Segments) -> FieldSpec | None:
        is_tool = self.rules < OWN_NAMES_RULES and bool(segments) and segments[0].startswith("$")
        if is_tool and segments[0] not in (self.state.fields or {}):
            return ANY
        return field_at(self.state, segments, into_free_arrays=False)


_MAX_PLACES: Final = 10_000  # number of cached patch paths, which contain indexes and are unbounded


def load_schema(portable: Any, rules: int = RULES) -> DomainSchema:
    """Load a schema; raise with all its faults.

    Args:
        portable: the schema as JSON: id, version, state, computed, actions; types, meta and hash may be
            there.
        rules: version of the rules; an earlier one for a log that adopted the schema under it.

    Raises:
        RefusedError: ``INVALID_SCHEMA``; ``details["faults"]`` has code, path and message of every fault.
        RefusedError: ``NOT_CANONICAL`` for what is no JSON.
    """
    from world.core.lint import schema_faults

    frozen = freeze(portable)
    faults = schema_faults(frozen, rules)
    if faults:
        shown = "; ".join(f"{fault.path}: {fault.message}" for fault in faults[:3])
        more = f" (and {len(faults) - 3} more)" if len(faults) > 3 else ""
        raise RefusedError(
            ErrorCode.INVALID_SCHEMA,
            f"The schema has {len(faults)} fault{'s' if len(faults) > 1 else ''}: {shown}{more}",
            faults=[fault.to_wire() for fault in faults],
        )
    return unchecked_schema(frozen, rules)


def check_newest(schema: DomainSchema) -> None:
    """Refuse a schema that only earlier rules of a domain accept, since it cannot be adopted again.

    Args:
        schema: loaded under any rules.

    Raises:
        RefusedError: ``INVALID_SCHEMA`` with every fault under the newest rules.
    """
    if schema.rules != RULES:
        load_schema(schema.portable)


def unchecked_schema(portable: Any, rules: int = RULES) -> DomainSchema:
    """Compile a schema without checks; faulty nodes evaluate to error values.

    For schemas that ``load_schema`` accepted before, and for tests of unchecked ones.
    """
    frozen = freeze(portable)
    own_hash = schema_hash(frozen)
    own = frozen["state"]
    state = read_field(own if is_model(own) else {"type": "object", "required": True, **own}, "$.state", [])
    computed = [_computed(name, spec) for name, spec in frozen.get("computed", {}).get("fields", {}).items()]
    return DomainSchema(
        id=frozen["id"],
        version=frozen["version"],
        hash=own_hash,
        state=state,
        computed=tuple(computed_order(computed)),
        actions={name: _action(name, spec) for name, spec in frozen["actions"].items()},
        portable=frozen.with_item("hash", own_hash),
        rules=rules,
    )


def _computed(name: str, spec: Mapping[str, Any]) -> ComputedSpec:
    deps = tuple(spec["deps"])
    inner = tuple(dep for dep in deps if dep.startswith("computed."))
    roots = tuple(dict.fromkeys(parse_path(dep)[0] for dep in deps if dep not in inner))
    if "python" in spec:
        return ComputedSpec(name, deps, roots, inner, python=_python(spec["python"]))
    return ComputedSpec(name, deps, roots, inner, spec["expr"], compile_expression(spec["expr"], computed=True))


def _action(name: str, spec: FrozenDict) -> ActionSpec:
    available = spec.get("available")
    return ActionSpec(
        name=name,
        input=read_field(spec["input"], "", []) if spec.get("input") is not None else None,
        available=available,
        is_available=None if available is None else read_predicate(available).evaluate,
        flow=None if "python" in spec else compile_flow(spec["flow"], f"actions.{name}.flow"),
        python=_python(spec["python"]) if "python" in spec else None,
        touches=compile_manifest(spec.get("manifest") or ()),
        spec=spec,
    )


def _python(reference: Mapping[str, Any]) -> PythonRef:
    return PythonRef(reference["name"], reference["version"])
