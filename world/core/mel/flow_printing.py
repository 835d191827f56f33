"""Printer of portable flows as MEL statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from world.core.fields import field_at
from world.core.flows.causal_guard import GUARDS
from world.core.mel.expression_printing import (
    ExpressionPrinter,
    PrintedNames,
    is_name,
    is_name_part,
    json_text,
    key_text,
)
from world.core.mel.flow_lowering import INTENT_ID, WAITING, guard_id
from world.core.mel.literals import quoted
from world.core.mel.rules import condition_fault, patch_fault
from world.core.mel.sugar import get
from world.core.values import kind_of
from world.model.paths import array_index, format_path, parse_path

__all__ = ["FlowPrinter", "gate_of"]

_REFUSAL: Final = {"kind": "fail", "code": "INTENT_NOT_DISPATCHABLE"}


def gate_of(flow: Any) -> Any:
    """Return the condition of a flow that ``dispatchable when`` made, None for any other flow."""
    is_gated = kind_of(flow) == "if" and flow.keys() == {"kind", "cond", "then", "else"} and flow["else"] == _REFUSAL
    return flow["cond"] if is_gated else None


class FlowPrinter:
    """Prints the statements of one action.

    Args:
        action: its name.
        names: what names mean in it.
    """

    def __init__(self, action: str, names: PrintedNames) -> None:
        """Create a printer."""
        self.action = action
        self.names = names
        self.expressions = ExpressionPrinter(names)
        self.guards = 0

    def body(self, flow: Any) -> str:
        """Return a flow as a block."""
        is_several = kind_of(flow) == "seq" and flow.keys() == {"kind", "steps"} and len(flow["steps"]) != 1
        return self._block(flow["steps"] if is_several else [flow])

    def _block(self, steps: list[Any]) -> str:
        inner = "\n".join(map(self.statement, steps))
        return f"{{\n{inner}\n}}" if inner else "{}"

    def statement(self, node: Any) -> str:
        """Return a node as one statement."""
        printer = _STATEMENTS.get(kind_of(node) or "")
        printed = None if printer is None else printer(self, node)
        return self.expressions.raw(node) if printed is None else printed

    def condition(self, node: Any) -> str:
        """Return a condition; one whose type is known and not boolean is printed as it is."""
        text = self.expressions.text(node)
        return text if condition_fault(node, self.names.types) is None else self.expressions.raw(node)

    def _seq(self, node: dict[str, Any]) -> str | None:
        return self._block(node["steps"]) if node.keys() == {"kind", "steps"} else None

    # Guards

    def _if(self, node: dict[str, Any]) -> str | None:
        if node.keys() - {"else"} != {"kind", "cond", "then"} or ("else" in node and node["else"] is None):
            return None
        once = self._once(node)
        if once is not None:
            return once
        text = f"when {self.condition(node['cond'])} {self.body(node['then'])}"
        if "else" not in node:
            return text
        return f"{text} else {self.body(node['else'])}"

    def _once(self, node: dict[str, Any]) -> str | None:
        """Return the guard that a node was made by, None where it was made by none."""
        then, condition = node["then"], node["cond"]
        if "else" in node or kind_of(then) != "seq" or then.keys() != {"kind", "steps"} or not then["steps"]:
            return None
        marker, extra = _guard_of(condition)
        write, *steps = then["steps"]
        if marker is None or (steps and steps[0] == write):
            return None
        head = self._guard_head(marker, write)
        if head is None:
            return None
        if extra is not None:
            head += f" when {self.condition(extra)}"
        return f"{head} {self._block(steps)}"

    def _guard_head(self, marker: str, write: Any) -> str | None:
        name = guard_id(self.action, self.guards)
        merged = {"kind": "object", "fields": {name: get(INTENT_ID)}}
        if marker == f"{GUARDS}.{name}" and write == {"kind": "patch", "op": "merge", "path": GUARDS, "value": merged}:
            self.guards += 1
            return "onceIntent"
        path = self._target(marker)
        is_write = write == {"kind": "patch", "op": "set", "path": marker, "value": get(INTENT_ID)}
        if path is None or not is_write or self.names.types.of(get(marker)) not in (None, "string"):
            return None
        return f"once({path})"

    # Changes

    def _target(self, path: Any) -> str | None:
        """Return a patch path as it is written; None for one that MEL cannot write."""
        if not isinstance(path, str) or not path or path.startswith("$"):
            return None
        root, *rest = parse_path(path)
        if not is_name(root) or root not in self.names.state or format_path((root, *rest)) != path or "" in rest:
            return None
        if field_at(self.names.types.state, (root, *rest), into_free_arrays=False) is None:
            return None
        return root + "".join(map(_segment_text, rest))

    def _patch(self, node: dict[str, Any]) -> str | None:
        op, target = node.get("op"), self._target(node.get("path"))
        if target is None:
            return None
        if op == "unset":
            return f"patch {target} unset" if node.keys() == {"kind", "op", "path"} else None
        if node.keys() != {"kind", "op", "path", "value"} or op not in ("set", "merge"):
            return None
        value = self.expressions.text(node["value"])
        if op == "set" and patch_fault(node["path"], node["value"], self.names.types) is not None:
            value = self.expressions.raw(node["value"])
        return f"patch {target} {'=' if op == 'set' else 'merge'} {value}"

    def _effect(self, node: dict[str, Any]) -> str | None:
        if node.keys() - {"params"} != {"kind", "type"} or not isinstance(node.get("params", {}), Mapping):
            return None
        name = node["type"]
        is_plain = is_name(name.partition(".")[0]) and all(map(is_name_part, name.split(".")))
        head = f"effect {name if is_plain else quoted(name)}"
        if "params" not in node:
            return f"{head}()"
        inner = ", ".join(f"{key_text(key)}: {self._argument(name, key, one)}" for key, one in node["params"].items())
        return f"{head}({{ {inner} }})" if inner else f"{head}({{}})"

    def _argument(self, effect: str, key: str, value: Any) -> str:
        if key in ("into", "pass", "fail"):
            return self._place(value)
        is_walk = effect.startswith(("array.", "record.")) and key in ("where", "select", "by")
        return ExpressionPrinter(replace(self.names, in_item=True) if is_walk else self.names).text(value)

    def _place(self, value: Any) -> str:
        if kind_of(value) == "lit" and value.keys() == {"kind", "value"}:
            target = self._target(value["value"])
            return target if target is not None else self.expressions.text(value)
        return self.expressions.raw(value)

    # Ends

    def _fail(self, node: dict[str, Any]) -> str | None:
        if node.keys() - {"message"} != {"kind", "code"} or ("message" in node and node["message"] is None):
            return None
        message = f" with {self.expressions.text(node['message'])}" if "message" in node else ""
        return f"fail {quoted(node['code'])}{message}"

    def _halt(self, node: dict[str, Any]) -> str | None:
        if node.keys() == {"kind"}:
            return "stop"
        reason = node.get("reason")
        if node.keys() != {"kind", "reason"} or not isinstance(reason, str):
            return None
        return None if any(word in reason.lower() for word in WAITING) else f"stop {quoted(reason)}"


def _guard_of(condition: Any) -> tuple[str | None, Any]:
    """Return the marker that a guard compares with the intent, and its other condition."""
    extra = None
    if kind_of(condition) == "and" and condition.keys() == {"kind", "args"} and len(condition["args"]) == 2:
        condition, extra = condition["args"]
    if kind_of(condition) != "neq" or condition.get("right") != get(INTENT_ID) or len(condition) != 3:
        return None, None
    left = condition.get("left")
    return (left["path"], extra) if kind_of(left) == "get" and left.keys() == {"kind", "path"} else (None, None)


def _segment_text(segment: str) -> str:
    if array_index(segment) is not None:
        return f"[{segment}]"
    return f".{segment}" if is_name_part(segment) else f"[{json_text(segment)}]"


_STATEMENTS: Final[dict[str, Callable[[FlowPrinter, Any], str | None]]] = {
    "seq": FlowPrinter._seq,
    "if": FlowPrinter._if,
    "patch": FlowPrinter._patch,
    "effect": FlowPrinter._effect,
    "fail": FlowPrinter._fail,
    "halt": FlowPrinter._halt,
}
