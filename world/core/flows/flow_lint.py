"""Faults of flows and the flows that they call. Used by ``world.core.lint``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from world.core.execution import MAX_FLOW_DEPTH
from world.core.flows.causal_guard import read_guard
from world.core.flows.flow import INLINE_EFFECTS, KINDS
from world.core.values import kind_of

__all__ = ["MAX_FLOW_NODES", "FlowReader"]

MAX_FLOW_NODES: Final = 10_000
"""Maximum number of nodes in one flow."""


class FlowReader:
    """Checker of one flow; reports to ``add`` and collects called flows."""

    def __init__(
        self,
        *,
        expression: Callable[[Any, str], None],
        patchable: Callable[[str], bool],
        flows: set[str],
        add: Callable[[str, str, str], None],
    ) -> None:
        """Create a checker.

        Args:
            expression: checks an expression at a path of the schema.
            patchable: returns whether a patch path names a place of the state.
            flows: actions that can be called.
            add: receives a fault's code, path and sentence.
        """
        self.expression = expression
        self.patchable = patchable
        self.flows = flows
        self.add = add
        self.calls: list[str] = []
        self._nodes = 0
        self._marks: list[Any] = []

    def read(self, node: Any, path: str, depth: int = 0) -> None:
        """Check a node and all below it."""
        self._nodes += 1
        kind = kind_of(node)
        if self._nodes > MAX_FLOW_NODES or depth >= MAX_FLOW_DEPTH:
            if self._nodes <= MAX_FLOW_NODES + 1:
                self._shape(path, f"A flow has at most {MAX_FLOW_NODES} nodes in {MAX_FLOW_DEPTH} levels.")
        elif kind is None or kind not in KINDS:
            self._shape(path, f"Unknown flow kind: {kind!r}.")
        else:
            getattr(self, f"_{kind}")(node, path, depth)

    def _shape(self, path: str, message: str) -> None:
        self.add("SCHEMA_ERROR", path, message)

    def _seq(self, node: Mapping[str, Any], path: str, depth: int) -> None:
        if not isinstance(node.get("steps"), list):
            self._shape(path, "A seq has steps, a list.")
            return
        for index, step in enumerate(node["steps"]):
            self.read(step, f"{path}.steps[{index}]", depth + 1)

    def _if(self, node: Mapping[str, Any], path: str, depth: int) -> None:
        self._operand(node, "cond", path)
        guard = read_guard(node)
        if guard is not None:
            self._marks.append(guard.write)
        if "then" not in node:
            self._shape(path, "An if has a then.")
        for name in ("then", "else"):
            if node.get(name) is not None:
                self.read(node[name], f"{path}.{name}", depth + 1)

    def _patch(self, node: Mapping[str, Any], path: str, _: int) -> None:
        if node.get("op") not in ("set", "unset", "merge"):
            self._shape(path, "A patch's op is one of set, unset and merge.")
        elif node["op"] != "unset":
            self._operand(node, "value", path)
        if not isinstance(node.get("path"), str):
            self._shape(path, "A patch has a path, a text.")
        elif not any(node is mark for mark in self._marks) and not self.patchable(node["path"]):
            self.add("V-003", f"{path}.path", f"The state has no place {node['path']!r}.")

    def _operand(self, node: Mapping[str, Any], name: str, path: str) -> None:
        if name not in node:
            self._shape(path, f"The {node['kind']} lacks {name}.")
        else:
            self.expression(node[name], f"{path}.{name}")

    def _effect(self, node: Mapping[str, Any], path: str, _: int) -> None:
        name, params = node.get("type"), node.get("params", {})
        if not isinstance(name, str) or not name or not isinstance(params, Mapping):
            self._shape(path, "An effect has a type, a text, and params, an object of expressions.")
            return
        for wanted in ("source", INLINE_EFFECTS[name][1], "into") if name in INLINE_EFFECTS else ():
            if wanted not in params:
                self._shape(path, f"{name} lacks {wanted}.")
        for key, value in params.items():
            self.expression(value, f"{path}.params.{key}")

    def _call(self, node: Mapping[str, Any], path: str, _: int) -> None:
        name = node.get("flow")
        if not isinstance(name, str):
            self._shape(path, "A call names a flow.")
        elif name not in self.flows:
            self.add("V-004", path, f"There is no action with a flow called {name!r}.")
        else:
            self.calls.append(name)

    def _halt(self, node: Mapping[str, Any], path: str, _: int) -> None:
        if not isinstance(node.get("reason", ""), (str, type(None))):
            self._shape(path, "A halt's reason is a text.")

    def _fail(self, node: Mapping[str, Any], path: str, _: int) -> None:
        if not isinstance(node.get("code"), str) or not node["code"]:
            self._shape(path, "A fail has a code, a text.")
        if node.get("message") is not None:
            self.expression(node["message"], f"{path}.message")
