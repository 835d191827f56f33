"""Flows: declarative state transitions, compiled once.

seq, if, patch set|unset|merge, effect, call, halt, fail. They always end: there is no loop, and a call that
would nest deeper than ``MAX_FLOW_DEPTH`` is an error value. In ``if`` only null and false count as false
(unlike in the ``if`` expression). ``array.map`` and ``array.filter`` are computed at once and are no
effects for a host.

Source: HC-flow, design section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from world.core.domain_rules import OWN_NAMES_RULES
from world.core.execution import MAX_FLOW_DEPTH, Execution, StopError
from world.core.expressions.expression import Evaluate, compile_expression
from world.core.flows.causal_guard import CausalGuard, read_guard
from world.core.values import ExpressionError, kind_of, text
from world.errors import RefusedError
from world.model.patch import Patch, PatchOp

__all__ = ["INLINE_EFFECTS", "Flow", "compile_flow"]

Flow = Callable[[Execution, str], None]
"""Runs a node in an execution; the text is where the flow was called from, ``""`` for the action's own."""

INLINE_EFFECTS: Final = {
    "array.map": ("map", "select", "mapper"),
    "array.filter": ("filter", "where", "predicate"),
}
"""Effects that are computed immediately: the expression kind, the parameter for each element, its operand's
name.
"""


def compile_flow(node: Any, at: str, depth: int = 0) -> Flow:
    """Compile a flow node into a function that runs it in an execution.

    Args:
        node: the portable node.
        at: its path, ``actions.<name>.flow`` for an action's own.
        depth: nodes around it.
    """
    kind = kind_of(node)
    if depth >= MAX_FLOW_DEPTH:
        return _failing("LIMIT_EXCEEDED", f"Flow nodes are nested deeper than {MAX_FLOW_DEPTH} levels.", at)
    if kind not in _COMPILERS:
        return _failing("INTERNAL_ERROR", f"Unknown flow kind: {kind}", at)
    try:
        return _COMPILERS[kind](node, at, depth)
    except (KeyError, TypeError, AttributeError):
        return _failing("INTERNAL_ERROR", f"Malformed flow node of kind {kind}.", at)


def _failing(code: str, message: str, at: str) -> Flow:
    return lambda execution, called: execution.fail(code, message, called + at)


def _seq(node: Mapping[str, Any], at: str, depth: int) -> Flow:
    steps = [compile_flow(step, f"{at}.steps[{index}]", depth + 1) for index, step in enumerate(node["steps"])]

    def run(execution: Execution, called: str) -> None:
        for step in steps:
            step(execution, called)

    return run


def _if(node: Mapping[str, Any], at: str, depth: int) -> Flow:
    guard = read_guard(node)
    return _branch(node, at, depth) if guard is None else _causal_guard(guard, node, at, depth)


def _causal_guard(guard: CausalGuard, node: Mapping[str, Any], at: str, depth: int) -> Flow:
    """Return the flow of a once guard; its mark is kept in the execution, and its nodes keep their places.

    Under earlier rules of the domain it is the ``if`` that it is written as, and its mark is in the state.
    """
    whole = compile_expression(node["cond"])
    more = {"kind": "and", "args": [{"kind": "lit", "value": True}, guard.condition]}
    condition = None if guard.condition is None else compile_expression(more)
    given = node["then"]["steps"]
    steps = [compile_flow(step, f"{at}.then.steps[{index}]", depth + 2) for index, step in enumerate(given)]

    def run(execution: Execution, called: str) -> None:
        is_own = execution.schema.rules >= OWN_NAMES_RULES
        if is_own and guard.guard_id in execution.marks:
            return
        asked = condition if is_own else whole
        value = True if asked is None else execution.evaluate(asked, called + at)
        if value is None or value is False:
            return
        if is_own:
            execution.marks.add(guard.guard_id)
        for step in steps[is_own:]:
            step(execution, called)

    return run


def _branch(node: Mapping[str, Any], at: str, depth: int) -> Flow:
    condition = compile_expression(node["cond"])
    then = compile_flow(node["then"], f"{at}.then", depth + 1)
    otherwise = compile_flow(node["else"], f"{at}.else", depth + 1) if node.get("else") is not None else None

    def run(execution: Execution, called: str) -> None:
        value = execution.evaluate(condition, called + at)
        if value is not None and value is not False:
            then(execution, called)
        elif otherwise is not None:
            otherwise(execution, called)

    return run


def _patch(node: Mapping[str, Any], at: str, _: int) -> Flow:
    op: PatchOp = node["op"]
    path: str = node["path"]
    if op == "unset":
        patch = Patch("unset", path)
        return lambda execution, called: execution.apply(patch, called + at)
    if op not in ("set", "merge"):
        raise TypeError
    if "value" not in node:
        return _failing("TYPE_MISMATCH", f"The patch of {path!r} has no value.", at)
    value = compile_expression(node["value"])
    return lambda execution, called: _write(execution, op, path, value, called + at)


def _write(execution: Execution, op: PatchOp, path: str, value: Evaluate, at: str) -> None:
    new = execution.evaluate(value, at)
    try:
        patch = Patch(op, path, new)
    except RefusedError as refused:
        execution.fail("TYPE_MISMATCH", f"The patch of {path!r} does not fit. {refused.message}", at)
    execution.apply(patch, at)


def _effect(node: Mapping[str, Any], at: str, _: int) -> Flow:
    name: str = node["type"]
    params: Mapping[str, Any] = node.get("params") or {}
    if name in INLINE_EFFECTS:
        return _inline(name, params, at)
    compiled = [(key, compile_expression(value)) for key, value in params.items()]

    def run(execution: Execution, called: str) -> None:
        here = called + at
        result = execution.effect(name, {key: execution.evaluate(value, here) for key, value in compiled}, here)
        if result.error is not None:
            raise StopError("error", error=result.error)
        for patch in result.patches:
            execution.apply(patch, here)

    return run


def _inline(name: str, params: Mapping[str, Any], at: str) -> Flow:
    kind, parameter, operand = INLINE_EFFECTS[name]
    missing = [wanted for wanted in ("source", parameter, "into") if wanted not in params]
    if missing:
        return _failing("INVALID_INPUT", f"{name} lacks {', '.join(missing)}.", at)
    value = compile_expression({"kind": kind, "array": params["source"], operand: params[parameter]})
    into = compile_expression(params["into"])

    def run(execution: Execution, called: str) -> None:
        path = execution.evaluate(into, called + at)
        if not isinstance(path, str):
            execution.fail("INVALID_INPUT", f"{name} needs a path in into.", called + at)
        _write(execution, "set", path, value, called + at)

    return run


def _call(node: Mapping[str, Any], at: str, depth: int) -> Flow:
    name: str = node["flow"]

    def run(execution: Execution, called: str) -> None:
        action = execution.schema.actions.get(name)
        if action is None or action.flow is None:
            execution.fail("UNKNOWN_FLOW", f"There is no flow {name!r} to call.", called + at)
        execution.depth += depth + 1
        if execution.depth > MAX_FLOW_DEPTH:
            execution.fail("LIMIT_EXCEEDED", f"Flows call each other deeper than {MAX_FLOW_DEPTH} levels.", called + at)
        action.flow(execution, f"{called}{at}>")
        execution.depth -= depth + 1

    return run


def _halt(_: Mapping[str, Any], __: str, ___: int) -> Flow:
    def run(execution: Execution, called: str) -> None:
        raise StopError("halted")

    return run


def _fail(node: Mapping[str, Any], at: str, _: int) -> Flow:
    code: str = node["code"]
    message = compile_expression(node["message"]) if node.get("message") is not None else None

    def run(execution: Execution, called: str) -> None:
        shown = code
        if message is not None:
            try:
                shown = text(message(execution.scope)) or code
            except ExpressionError:
                shown = code  # an invalid message must not hide the failure
        execution.fail(code, shown, called + at)

    return run


_COMPILERS: Final[dict[str, Callable[[Mapping[str, Any], str, int], Flow]]] = {
    "seq": _seq,
    "if": _if,
    "patch": _patch,
    "effect": _effect,
    "call": _call,
    "halt": _halt,
    "fail": _fail,
}
KINDS: Final = frozenset(_COMPILERS)
"""All kinds of flow nodes."""
