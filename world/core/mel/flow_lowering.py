"""Lowering of MEL statements to the flows of the portable schema.

A body of one statement is that statement's node; any other body is a ``seq``. ``include`` is expanded: the body of the
flow takes its place, with the arguments in place of the parameters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from lark import Token

from world.core.execution import MAX_FLOW_DEPTH
from world.core.expressions.expression import MAX_EXPRESSION_NODES
from world.core.flows.causal_guard import GUARDS
from world.core.mel.diagnostics import suggestion
from world.core.mel.expression_lowering import ExpressionLowering, NameScope
from world.core.mel.literals import pair_key, text_of
from world.core.mel.parsing import Node, children, is_token, span_of, trees
from world.core.mel.patch_lowering import lower_patch, path_of_expression, static_path
from world.core.mel.rules import condition_fault
from world.core.mel.sugar import binary, get, literal
from world.core.mel.type_lowering import field_parts

__all__ = ["INTENT_ID", "FlowLowering", "guard_id"]

Flow = dict[str, Any]
Expression = dict[str, Any]

INTENT_ID: Final = "meta.intentId"
"""Path of the id of the intent."""

MAX_INCLUDES: Final = 16
"""Levels of flows that include each other."""

_PATHS: Final = ("into", "pass", "fail")
_INLINE: Final = ("array.map", "array.filter")
WAITING: Final = ("waiting", "awaiting", "pending", "on hold", "wait for")
_IN_FLOW: Final = {"once": "E017", "once_intent": "E018", "patch_set": "E019", "patch_unset": "E019",
                   "patch_merge": "E019", "effect": "E020"}  # fmt: skip


def guard_id(action: str, index: int) -> str:
    """Return the id of an action's n-th ``onceIntent``, counted from 0 in the order of the source."""
    return hashlib.sha256(f"{action}:{index}:intent".encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class StatementPlace:
    """Where a statement is.

    Args:
        names: what names mean there.
        is_guarded: whether it is inside of a guard.
        flows: names of the flows that are being expanded.
        depth: number of blocks around it.
    """

    names: NameScope
    is_guarded: bool = False
    flows: tuple[str, ...] = ()
    depth: int = 0


class FlowLowering:
    """Lowers the statements of one action.

    Args:
        action: its name.
        flows: the declared flows by name.
        expressions: lowers the expressions.
    """

    def __init__(self, action: str, flows: Mapping[str, Node], expressions: ExpressionLowering) -> None:
        """Create a lowering."""
        self.action = action
        self.flows = flows
        self.expressions = expressions
        self.guards = 0
        self.unguarded: list[tuple[str, Node]] = []
        self.alternatives: list[Token] = []
        self._nodes = 0

    def lower(self, block: Node, body: StatementPlace) -> Flow:
        """Return the flow of a block."""
        steps: list[Flow] = []
        if body.depth >= MAX_FLOW_DEPTH:
            return self._fail(block, "E_LIMIT", f"Statements are nested deeper than {MAX_FLOW_DEPTH} levels")
        body = replace(body, depth=body.depth + 1)
        for statement in trees(block, "statement"):
            node = trees(statement)[0]
            self._nodes += 1
            if self._nodes > MAX_EXPRESSION_NODES:
                self._fail(node, "E_LIMIT", f"An action has at most {MAX_EXPRESSION_NODES} statements")
                break
            included = self._include(node, body) if node.data == "include" else None
            steps += included if included is not None else [self._statement(node, body)]
        return steps[0] if len(steps) == 1 else {"kind": "seq", "steps": steps}

    def _fail(self, node: Node | Token, code: str, message: str, *, hint: str = "") -> Flow:
        self.expressions.fail(node, code, message, hint=hint)
        return {"kind": "seq", "steps": []}

    def _statement(self, node: Node, body: StatementPlace) -> Flow:
        name = str(node.data)
        if body.flows and name in _IN_FLOW:
            return self._fail(node, _IN_FLOW[name], f"{name.partition('_')[0]} is not allowed in a flow")
        if not body.is_guarded and name.partition("_")[0] in ("patch", "effect", "fail", "stop"):
            self.unguarded.append((name.partition("_")[0], node))
        return _STATEMENTS[name](self, node, body)

    # Guards

    def condition(self, node: Node, names: NameScope) -> Expression:
        """Return the lowered condition of a guard or clause."""
        lowered = self.expressions.lower(node, names)
        fault = condition_fault(lowered, names.types)
        if fault is not None:
            self._fail(node, *fault, hint="Write a comparison, or isNotNull(...).")
        return lowered

    def _when(self, node: Node, body: StatementPlace) -> Flow:
        parts = trees(node)
        inner = replace(body, is_guarded=True)
        found = {
            "kind": "if",
            "cond": self.condition(parts[0], body.names),
            "then": self.lower(parts[1], inner),
        }
        if len(parts) > 2:
            self.alternatives += children(node, "ELSE")
            deeper = replace(body, depth=body.depth + 1)
            is_block = parts[2].data == "block" or deeper.depth >= MAX_FLOW_DEPTH
            found["else"] = (
                self.lower(parts[2], replace(inner, depth=deeper.depth)) if is_block else self._when(parts[2], deeper)
            )
        return found

    def _once(self, node: Node, body: StatementPlace) -> Flow:
        path, *condition, block = trees(node)
        marker = static_path(path, self.expressions, body.names)
        if marker is None:
            return {"kind": "seq", "steps": []}
        spec = body.names.types.of(get(marker))
        if spec not in (None, "string"):
            self._fail(path, "E_TYPE_MISMATCH", f"The marker of once is of type string | null, got {spec}")
        write = {"kind": "patch", "op": "set", "path": marker, "value": get(INTENT_ID)}
        return self._guarded(get(marker), write, condition, block, body)

    def _once_intent(self, node: Node, body: StatementPlace) -> Flow:
        *condition, block = trees(node)
        name = guard_id(self.action, self.guards)
        self.guards += 1
        value = {"kind": "object", "fields": {name: get(INTENT_ID)}}
        write = {"kind": "patch", "op": "merge", "path": GUARDS, "value": value}
        return self._guarded(get(f"{GUARDS}.{name}"), write, condition, block, body)

    def _guarded(
        self, marker: Expression, write: Flow, condition: list[Node], block: Node, body: StatementPlace
    ) -> Flow:
        """Return the flow of a block that runs once for each intent; the write of its marker comes first."""
        guard = binary("neq", marker, get(INTENT_ID))
        if condition:
            guard = binary("and", guard, self.condition(condition[0], body.names))
        inner = self.lower(block, replace(body, is_guarded=True))
        is_seq = inner["kind"] == "seq" and len(trees(block, "statement")) != 1
        steps = inner["steps"] if is_seq else [inner]
        if steps and steps[0] == write:
            steps = steps[1:]  # an older grammar asked for the write in the source
        return {"kind": "if", "cond": guard, "then": {"kind": "seq", "steps": [write, *steps]}}

    # Changes

    def _patch(self, node: Node, body: StatementPlace) -> Flow:
        path, *values = trees(node)
        op = str(node.data).removeprefix("patch_")
        names = replace(body.names, is_patch_value=True)
        value = self.expressions.lower(values[0], names) if values else None
        return lower_patch(path, op, value, self.expressions, body.names)

    def _effect(self, node: Node, body: StatementPlace) -> Flow:
        dotted, *arguments = trees(node)
        name = dotted_name(dotted)
        found: Flow = {"kind": "effect", "type": name}
        if not arguments:
            return found
        (given,) = arguments
        if given.data != "object" or trees(given, "spread"):
            return self._fail(
                given, "E_TYPE_MISMATCH", "An effect takes an object of named arguments", hint="Write {}."
            )
        is_walk = name.startswith(("array.", "record."))
        params: dict[str, Expression] = {}
        for pair in trees(given, "pair"):
            key, value = pair_key(pair), trees(pair)[0]
            if key in params:
                self._fail(pair, "E_DUPLICATE_FIELD", f"Duplicate field {key!r}")
            names = replace(body.names, in_item=is_walk and key in ("where", "select", "by"))
            params[key] = self._argument(key, value, names)
        if is_walk and name not in _INLINE and any(one in params for one in ("where", "select", "by")):
            message = f"{name} is requested from a handler of the host, and $item is null in its arguments"
            hint = "The engine itself computes array.map and array.filter; or set the place to an expression."
            self.expressions.found.add("W_HOST_EFFECT", message, span_of(dotted), hint=hint, is_warning=True)
        return found | {"params": params}

    def _argument(self, key: str, node: Node, names: NameScope) -> Expression:
        path = path_of_expression(node) if key in _PATHS else None
        if path is None or str(path.children[0]) not in names.state:
            return self.expressions.operand(node, names)
        found = static_path(path, self.expressions, names)
        return literal(found)

    # Ends

    def _fail_statement(self, node: Node, body: StatementPlace) -> Flow:
        code = text_of(children(node, "STRING")[0])
        if not code:
            return self._fail(node, "E_TYPE_MISMATCH", "fail expects a code that is not empty")
        found: Flow = {"kind": "fail", "code": code}
        for message in trees(node):
            found["message"] = self.expressions.lower(message, body.names)
        return found

    def _stop(self, node: Node, body: StatementPlace) -> Flow:
        tokens = children(node, "STRING")
        reason = text_of(tokens[0]) if tokens else None
        if reason is not None and any(word in reason.lower() for word in WAITING):
            message = "stop message suggests waiting/pending - use 'Already processed' style instead"
            self._fail(tokens[0], "E008", message)
        return {"kind": "halt"} | ({} if reason is None else {"reason": reason})

    # Composition

    def _include(self, node: Node, body: StatementPlace) -> list[Flow] | None:
        """Return the steps of an included flow."""
        token, arguments = children(node, "NAME")[0], trees(trees(node, "arguments")[0])
        name = str(token)
        if body.is_guarded:
            self._fail(node, "E016", "include is a statement of an action or a flow, and of no guard")
        elif name not in self.flows:
            hint = suggestion(name, self.flows)
            self._fail(token, "E015", f"Include target {name!r} is not a declared flow", hint=hint)
        elif name in body.flows:
            self._fail(token, "E013", f"Circular include: {' -> '.join([*body.flows, name])}")
        elif len(body.flows) >= MAX_INCLUDES:
            self._fail(token, "E014", f"Flows include each other deeper than {MAX_INCLUDES} levels")
        else:
            return self._expanded(token, name, arguments, body)
        return []

    def _expanded(self, token: Token, name: str, arguments: list[Node], body: StatementPlace) -> list[Flow]:
        flow = self.flows[name]
        self.expressions.reads.append((span_of(token), f"flow {name}"))
        wanted = [text_of(field_parts(one)[0]) for one in trees(trees(flow, "params")[0], "param")]
        if len(wanted) != len(arguments):
            message = f"Flow {name!r} expects {len(wanted)} argument{'s' * (len(wanted) != 1)}, got {len(arguments)}"
            self._fail(token, "E023", message)
            return []
        given = [self.expressions.lower(one, body.names) for one in arguments]
        if any(_is_large(one) for one in given):
            self._fail(token, "E_LIMIT", f"An argument has more than {MAX_EXPRESSION_NODES} nodes when it is expanded")
            return []
        names = replace(body.names, params=dict(zip(wanted, given, strict=True)))
        inner = self.lower(trees(flow, "block")[0], replace(body, names=names, flows=(*body.flows, name)))
        is_seq = inner["kind"] == "seq"
        return list(inner["steps"]) if is_seq else [inner]

    def _block(self, node: Node, body: StatementPlace) -> Flow:
        inner = self.lower(node, body)
        alone = trees(node, "statement")
        is_seq = inner["kind"] == "seq" and not (len(alone) == 1 and trees(alone[0])[0].data in ("block", "annotation"))
        return inner if is_seq else {"kind": "seq", "steps": [inner]}

    def _annotation(self, node: Node, body: StatementPlace) -> Flow:
        value = self.expressions.raw(node)
        if not isinstance(value, dict):
            if value is not None:
                self._fail(node, "E_SCHEMA", "@schema among statements holds a node of a flow, an object")
            return {"kind": "seq", "steps": []}
        return value


def _is_large(node: Expression) -> bool:
    waiting: list[Any] = [node]
    count = 0
    while waiting and count <= MAX_EXPRESSION_NODES:
        one = waiting.pop()
        count += 1
        if isinstance(one, dict):
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)
    return count > MAX_EXPRESSION_NODES


def dotted_name(node: Node) -> str:
    """Return the name of an action, a computed value or an effect."""
    return ".".join(text_of(one) for one in children(node) if is_token(one, "NAME", "STRING"))


_STATEMENTS: Final[dict[str, Callable[[FlowLowering, Node, StatementPlace], Flow]]] = {
    "when": FlowLowering._when,
    "once": FlowLowering._once,
    "once_intent": FlowLowering._once_intent,
    "patch_set": FlowLowering._patch,
    "patch_unset": FlowLowering._patch,
    "patch_merge": FlowLowering._patch,
    "effect": FlowLowering._effect,
    "fail": FlowLowering._fail_statement,
    "stop": FlowLowering._stop,
    "block": FlowLowering._block,
    "annotation": FlowLowering._annotation,
}
