"""Compiler of MEL: source text to the portable schema, or every error.

A domain without ``@schema`` has the form of the reference: ``mel:<name>`` as id, version 1.0.0, its types, and its name
in ``meta``. A domain with ``@schema({id: ...})`` has the form that is usual in YAML: the members that the annotation
names, types in place, and no empty parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lark import Token

from world.core.dependency_order import circles
from world.core.expressions.expression_ast import paths_read
from world.core.fields import FieldSpec, read_field
from world.core.mel.diagnostics import Diagnostic, Diagnostics, SourceText
from world.core.mel.expression_lowering import ExpressionLowering, NameScope
from world.core.mel.flow_lowering import FlowLowering, StatementPlace, dotted_name
from world.core.mel.literals import pair_key, text_of
from world.core.mel.parsing import Node, children, parse_source, span_of, trees
from world.core.mel.rules import Types, default_fault
from world.core.mel.sugar import get
from world.core.mel.type_lowering import TypeLowering, field_parts, without_required
from world.core.state_model.dialect import is_model
from world.errors import RefusedError
from world.model.identity import schema_hash
from world.model.immutable_json import freeze

__all__ = ["CompiledMel", "compile_mel", "dependencies_of"]


@dataclass(slots=True)
class CompiledMel:
    """What became of a source.

    Args:
        source: the text.
        schema: the portable schema with its hash; None where there are errors.
        errors: all errors, in the order of their places.
        warnings: what compiles and may not be meant.
        advice: style that the reference asks for.
        places: span of each part of the schema that a declaration made, by its path.
        reads: spans of names and what they name.
        params: spans of the declared parameters by name.
    """

    source: SourceText
    schema: dict[str, Any] | None = None
    errors: list[Diagnostic] = field(default_factory=list)
    warnings: list[Diagnostic] = field(default_factory=list)
    advice: list[Diagnostic] = field(default_factory=list)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    reads: list[tuple[tuple[int, int], str]] = field(default_factory=list)
    params: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def show(self) -> str:
        """Return all errors for people."""
        return "\n".join(self.source.show(one) for one in self.errors)


def compile_mel(text: str, name: str = "<mel>") -> CompiledMel:
    """Compile a source.

    Args:
        text: the MEL source of one domain.
        name: of its file, for messages.

    Returns:
        The schema or the errors; nothing is raised for any text.
    """
    found = Diagnostics(SourceText(name, text))
    tree = parse_source(found)
    if tree is None:
        found.sort()
        return CompiledMel(found.source, errors=found.errors, warnings=found.warnings)
    return _DomainCompiler(tree, found).compile()


class _DomainCompiler:
    def __init__(self, tree: Node, found: Diagnostics) -> None:
        self.tree = tree
        self.found = found
        self.members = [(member, trees(member)[-1]) for member in trees(tree, "member")]
        self.types_declared = self._declared("type_decl", "type")
        self.flows = self._declared("flow_decl", "flow")
        self.expressions = ExpressionLowering(found)
        self.types = TypeLowering(self.types_declared, found, self.expressions.raw)
        self.compiled = CompiledMel(found.source)
        self.head = self.types.members(tree)

    def _declared(self, kind: str, word: str) -> dict[str, Node]:
        declared: dict[str, Node] = {}
        for _, node in self.members:
            if node.data == kind:
                token = children(node, "NAME")[0]
                self._new(str(token), declared, token, word)
                declared[str(token)] = node if kind == "flow_decl" else trees(node)[0]
        return declared

    def _new(self, name: str, known: Mapping[str, Any], token: Token | Node, word: str) -> None:
        if name in known:
            self.found.add("E_DUPLICATE", f"Duplicate {word} {name!r}", span_of(token))

    def _check_keys(self) -> None:
        """Report the members of literal objects, annotations included, that an earlier member has the name of."""
        for node in self.tree.find_data("object"):
            keys: set[str] = set()
            for pair in trees(node, "pair"):
                key = pair_key(pair)
                if key in keys:
                    self.found.add("E_DUPLICATE_FIELD", f"Duplicate field {key!r}", span_of(pair))
                keys.add(key)

    def compile(self) -> CompiledMel:
        self._check_keys()
        name_token = children(self.tree, "NAME")[0]
        name = str(name_token)
        is_plain = "id" in self.head
        if name.startswith("__"):
            self.found.add("E_RESERVED_NAME", "The name of a domain does not begin with '__'", span_of(name_token))
        self.compiled.places["$"] = span_of(name_token)
        for _, node in self.members:
            if node.data == "context_decl":
                hint = "What comes from outside is given as input."
                self.found.add("E_UNSUPPORTED", "This engine has no external context", span_of(node), hint=hint)
        types = self._types()
        state = self._state()
        schema: dict[str, Any] = {"id": f"mel:{name.lower()}", "version": "1.0.0"}
        if not is_plain:
            schema["types"] = types
        schema["state"] = self.head.get("state", state)
        names = self._names(schema["state"])
        computed = self._computed(names)
        if computed or not is_plain:
            schema["computed"] = {"fields": computed}
        schema["actions"] = self._actions(names, is_plain)
        self._check_flows(names)
        if not is_plain:
            schema["meta"] = {"name": name}
        return self._finished(schema | {key: value for key, value in self.head.items() if key != "state"})

    def _finished(self, schema: dict[str, Any]) -> CompiledMel:
        compiled, found = self.compiled, self.found
        if not found.errors:
            try:
                frozen = freeze(schema)
                compiled.schema = {**schema, "hash": schema_hash(frozen)}
            except RefusedError as refused:
                found.add("E_LIMIT", refused.message.rstrip("."), compiled.places["$"])
        found.sort()
        compiled.errors, compiled.warnings = found.errors, found.warnings
        compiled.reads = sorted({*self.expressions.reads, *self.types.reads})
        return compiled

    # Types and state

    def _types(self) -> dict[str, Any]:
        types: dict[str, Any] = {}
        for name, node in self.types_declared.items():
            definition = self.types.definition(node)
            types[name] = {"name": name, "definition": definition}
        for member, node in self.members:
            if node.data == "type_decl":
                self.types.members(member)
                self.compiled.places[f"$.types.{children(node, 'NAME')[0]}"] = span_of(children(node, "NAME")[0])
        return types

    def _state(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        own: dict[str, Any] = {}
        states = [(member, node) for member, node in self.members if node.data == "state_decl"]
        if states and "state" in self.head:
            self.found.add("E_DUPLICATE", "The state is given by @schema already", span_of(states[0][1]))
        for index, (member, node) in enumerate(states):
            if index:
                self.found.add("E_DUPLICATE", "A domain has one state block", span_of(children(node, "STATE")[0]))
            own |= self.types.members(member)
            for one in trees(node, "field"):
                token = field_parts(one)[0]
                name = text_of(token)
                self._new(name, fields, token, "state field")
                fields[name] = self._field(one, name)
                self.compiled.places[f"$.state.fields.{name}"] = span_of(token)
        return {"fields": fields, **own}

    def _field(self, node: Node, name: str) -> dict[str, Any]:
        token, is_optional, kind, default = field_parts(node)
        definition = self.types.definition(kind)
        spec = self.types.spec(definition, kind, is_input=False)
        if is_optional:
            spec = without_required(spec)
        if default is not None:
            spec["default"] = self.types.default_of(default)
            self._check_default(spec, default, name)
        reserved = next((one for one in ("__sys__", "$") if name.startswith(one)), None)
        if reserved is not None:
            self.found.add("E004", f"Identifier starts with reserved prefix {reserved!r}", span_of(token))
        if definition["kind"] == "object" and not is_optional:
            self._advise("W012", "Anonymous object type in state field. Use a named type declaration instead: "
                         "type MyType = { ... }", kind)  # fmt: skip
        return spec | self.types.members(node)

    def _check_default(self, spec: dict[str, Any], node: Node, name: str) -> None:
        try:
            wrong = default_fault(spec, spec["default"])
        except RefusedError as refused:
            self.found.add("E_LIMIT", refused.message.rstrip("."), span_of(node))
            return
        if wrong is not None:
            self.found.add("E_TYPE_MISMATCH", f"Type mismatch: {name}{wrong}", span_of(node))

    def _advise(self, code: str, message: str, node: Node | Token) -> None:
        start, end = span_of(node)
        line, column = self.found.source.position(start)
        self.compiled.advice.append(Diagnostic(code, message, start, end, line, column, is_warning=True))

    def _names(self, state: Any) -> NameScope:
        read: FieldSpec = FieldSpec("any")
        roots: frozenset[str] = frozenset()
        if is_model(state):
            read = read_field(state, "$.state", [])
            properties = state["schema"].get("properties") if isinstance(state["schema"], Mapping) else None
            roots = frozenset(properties if isinstance(properties, Mapping) else ())
        elif isinstance(state, Mapping) and isinstance(state.get("fields"), Mapping):
            read = read_field({"type": "object", "fields": state["fields"]}, "$.state", [])
            roots = frozenset(state["fields"])
        computed = frozenset(dotted_name(trees(node)[0]) for _, node in self.members if node.data == "computed_decl")
        return NameScope(roots, computed, Types(read), "computed")

    # Computed values and actions

    def _computed(self, names: NameScope) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        names.types.computed = expressions = {}
        waiting = [(member, node) for member, node in self.members if node.data == "computed_decl"]
        for member, node in waiting:
            dotted, tree = trees(node)
            name = f"computed.{dotted_name(dotted)}"
            self._new(name, fields, dotted, "computed value")
            self.compiled.places[f"$.computed.fields.{name}"] = span_of(dotted)
            expression = self.expressions.lower(tree, names)
            expressions[name] = expression
            fields[name] = {"deps": dependencies_of(expression), "expr": expression, **self.types.members(member)}
        edges = {name: [one for one in spec["deps"] if isinstance(one, str)] for name, spec in fields.items()
                 if isinstance(spec["deps"], list)}  # fmt: skip
        for circle in circles(edges):
            message = f"Circular computed dependency: {' -> '.join(circle)}"
            self.found.add("E040", message, self.compiled.places[f"$.computed.fields.{circle[0]}"])
        return fields

    def _actions(self, names: NameScope, is_plain: bool) -> dict[str, Any]:
        actions: dict[str, Any] = {}
        for member, node in self.members:
            if node.data == "action_decl":
                dotted = trees(node, "dotted")[0]
                name = dotted_name(dotted)
                self._new(name, actions, dotted, "action")
                if name in self.flows:
                    self.found.add("E022", f"Flow and action share the name {name!r}", span_of(dotted))
                self.compiled.places[f"$.actions.{name}"] = span_of(dotted)
                actions[name] = self._action(node, name, names, is_plain) | self.types.members(member)
        return actions

    def _action(self, node: Node, name: str, names: NameScope, is_plain: bool) -> dict[str, Any]:
        action: dict[str, Any] = {}
        fields = self._params(trees(node, "params")[0])
        given: FieldSpec | None = None
        if fields:
            action["input"] = {"type": "object", "required": True, "fields": fields}
            if is_plain:
                del action["input"]["required"]
            given = read_field(action["input"], "", [])
        types = Types(names.types.state, names.types.computed, given, names.types.raw)
        params = {one: get(f"input.{one}") for one in fields}
        lowering = FlowLowering(name, self.flows, self.expressions)
        gate = self._clauses(node, action, lowering, NameScope(names.state, names.computed, types, "available", params))
        inner = NameScope(names.state, names.computed, types, "action", params)
        flow = lowering.lower(trees(node, "block")[0], StatementPlace(inner))
        action["flow"] = flow if gate is None else _gated(gate, flow)
        for word, statement in lowering.unguarded:
            code = {"patch": "E_UNGUARDED_PATCH", "effect": "E_UNGUARDED_EFFECT", "fail": "E006"}.get(word, "E007")
            message = f"'{word}' is outside of a guard (when, once, or onceIntent); the reference compiler refuses it"
            self._advise(code, message, statement)
        for token in lowering.alternatives:
            self._advise("W_ELSE", "'else' is not in the grammar of the reference compiler, which refuses it", token)
        return action

    def _params(self, node: Node) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for one in trees(node, "param"):
            token, is_optional, kind, _ = field_parts(one)
            name = text_of(token)
            self._new(name, fields, token, "parameter")
            self.compiled.params.setdefault(name, []).append(span_of(token))
            for annotation in trees(one, "annotation"):
                if str(children(annotation)[0]) == "meta":
                    message = "Action-parameter annotations are not part of the current MEL syntax"
                    self.found.add("E054", message, span_of(annotation))
            spec = self.types.spec(self.types.definition(kind), kind, is_input=True)
            fields[name] = (without_required(spec) if is_optional else spec) | self.types.members(one)
        return fields

    def _clauses(
        self, node: Node, action: dict[str, Any], lowering: FlowLowering, names: NameScope
    ) -> dict[str, Any] | None:
        """Lower the gates of an action; the availability becomes a member of it, and the other one is returned."""
        gate: dict[str, Any] | None = None
        seen: list[str] = []
        for clause in trees(node, "clause"):
            word = str(children(clause)[0])
            if word in seen or (word == "available" and seen):
                message = f"'{word} when' appears at most once, and available before dispatchable"
                self.found.add("MEL_PARSER", message, span_of(children(clause)[0]))
            seen.append(word)
            if word == "available":
                hidden = NameScope(names.state, names.computed, names.types, "available")
                self._refuse_params(trees(clause)[0], names, hidden)
                action["available"] = lowering.condition(trees(clause)[0], hidden)
            else:
                place = NameScope(names.state, names.computed, names.types, "dispatchable", names.params)
                gate = lowering.condition(trees(clause)[0], place)
        return gate

    def _refuse_params(self, node: Node, names: NameScope, hidden: NameScope) -> None:
        for one in node.iter_subtrees():
            word = str(one.children[0]) if one.data == "name" else ""
            if word in names.params and word not in hidden.computed and word not in hidden.state:
                message = f"available when cannot use the parameter {word!r}"
                self.found.add("E005", message, span_of(one), hint="Write dispatchable when.")

    def _check_flows(self, names: NameScope) -> None:
        """Lower the flows that no action includes, so that their faults are found, and warn of them."""
        used = {name.removeprefix("flow ") for _, name in self.expressions.reads if name.startswith("flow ")}
        for name, node in self.flows.items():
            token = children(node, "NAME")[0]
            self.compiled.places[f"flow {name}"] = span_of(token)
            params = self._params(trees(node, "params")[0])
            for param in trees(trees(node, "params")[0], "param"):
                word = field_parts(param)[0]
                if text_of(word) in names.state | names.computed | self.types_declared.keys():
                    message = f"Flow parameter {text_of(word)!r} conflicts with a top-level identifier"
                    self.found.add("E021", message, span_of(word))
            if name not in used:
                self.found.add(
                    "W_UNUSED_FLOW", f"No action includes the flow {name!r}", span_of(token), is_warning=True
                )
                values = {one: get(f"input.{one}") for one in params}
                inner = NameScope(names.state, names.computed, names.types, "action", values)
                FlowLowering(name, self.flows, self.expressions).lower(
                    trees(node, "block")[0], StatementPlace(inner, flows=(name,))
                )


def dependencies_of(expression: Any) -> list[str]:
    """Return the paths that an expression reads, in the order of the source."""
    local = ("$item", "$index", "$array", "$system")
    return [path for path in _reads(expression) if path.partition(".")[0] not in local]


def _reads(expression: Any) -> list[str]:
    found: dict[str, None] = {}
    known = paths_read(expression)
    waiting = [expression]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(reversed(node))
        elif isinstance(node, Mapping):
            path = node.get("path")
            if node.get("kind") == "get" and path in known:
                found.setdefault(path)
            elif node.get("kind") != "lit":
                waiting.extend(reversed(list(node.values())))
    return list(found)


def _gated(gate: dict[str, Any], flow: dict[str, Any]) -> dict[str, Any]:
    """Return a flow that fails, before anything else, where an input is not dispatchable."""
    refusal = {"kind": "fail", "code": "INTENT_NOT_DISPATCHABLE"}
    return {"kind": "if", "cond": gate, "then": flow, "else": refusal}
