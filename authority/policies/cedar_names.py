"""Check of the names in a Cedar policy against what the engine passes to Cedar.

Cedar answers false, without an error, to a comparison with an entity or a value of another type, to a test for an
attribute or a tag that no entity has, and to an empty list of actions: such a ``forbid`` would never apply. Cedar's own
validator needs the type of every attribute, and cannot describe inputs and states of any form; so the names that the
engine passes are checked here. The actions of a domain are compared by lint and when a policy is adopted.
Source: design section 6; CARD-policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

from authority.policies.cedar_values import path_of

TYPES: Final[Mapping[str, str]] = {"principal": "Actor", "action": "Action", "resource": "Branch"}
"""Entity types by the variables of a request."""

ATTRIBUTES: Final[Mapping[str, tuple[str, ...]]] = {
    "principal": ("kind", "meta", "name"),
    "action": (),
    "resource": ("computed", "data", "world"),
    "context": ("earlierAttempts", "input", "key", "manifest", "now", "nowMs", "scope"),
}
"""Attributes by the variables of a request."""

ENTITY, TEXT, NUMBER, TRUTH = "an entity", "a text", "a whole number", "a truth value"

_KNOWN: Final[Mapping[tuple[str, ...], str]] = {
    ("principal", "kind"): TEXT,
    ("context", "key"): TEXT,
    ("context", "nowMs"): NUMBER,
    ("resource", "world"): TEXT,
}
"""Types of attributes that every request has."""

_RESULTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "&&", "||", "!", "in", "is", "has", "like"), TRUTH),
    **dict.fromkeys(("contains", "containsAll", "containsAny", "isEmpty"), TRUTH),
    **dict.fromkeys(("+", "-", "*", "neg"), NUMBER),
    "Set": "a set",
    "Record": "a record",
    "decimal": "a decimal",
}
"""Types of the results of expressions."""


def unknown_names(policy: Mapping[str, Any]) -> list[str]:
    """Return the faults of a policy in JSON form, each as a sentence."""
    faults = [*_in_head(policy), *_in_expression(policy.get("conditions", []))]
    return list(dict.fromkeys(faults))


def named_actions(node: Any) -> Iterator[str]:
    """Yield the ids of the actions that a policy in JSON form names."""
    if isinstance(node, Mapping):
        if node.get("type") == "Action" and isinstance(node.get("id"), str):
            yield node["id"]
        node = list(node.values())
    if isinstance(node, list):
        for one in node:
            yield from named_actions(one)


def _in_head(policy: Mapping[str, Any]) -> Iterator[str]:
    for variable in TYPES:
        head = policy[variable]
        if head.get("op") == "in" and head.get("entities") == []:
            yield f"{variable} in [] is never true; name at least one"
        if "entity_type" in head:
            yield from _compared(variable, str(head["entity_type"]))
        for entity in (head.get("entity"), *head.get("entities", ()), (head.get("in") or {}).get("entity")):
            if entity is not None:
                yield from _compared(variable, str(entity["type"]))


def _compared(variable: str | None, kind: str) -> Iterator[str]:
    """Yield the fault of a comparison of a variable with an entity of a type."""
    expected = TYPES.get(variable or "")
    if kind not in TYPES.values():
        yield from _unknown_type(kind)
    elif expected != kind:
        yield f"{variable} is never of the type {kind}; it is of the type {expected}"


def _unknown_type(kind: str) -> Iterator[str]:
    last = kind.rpartition("::")[2]
    hint = f'; write {last}::"..." without a namespace' if last != kind and last in TYPES.values() else ""
    yield f"there is no entity type {kind}; there are {', '.join(TYPES.values())}{hint}"


def _in_expression(node: Any) -> Iterator[str]:
    if isinstance(node, list):
        for one in node:
            yield from _in_expression(one)
    if not isinstance(node, dict):
        return
    for name, inner in node.items():
        yield from _in_part(node, name, inner)
        yield from _in_expression(inner)


def _in_part(node: Mapping[str, Any], name: str, inner: Any) -> Iterator[str]:
    """Yield the faults of one operator, without those of its operands."""
    if name in ("==", "!=", "contains", "containsAll", "containsAny"):
        yield from _whole_decimals(inner["left"], inner["right"])
        yield from _whole_decimals(inner["right"], inner["left"])
    if name in (".", "has"):
        yield from _attribute(node)
    elif name in ("getTag", "hasTag"):
        yield f"{name} finds nothing: no entity here has tags"
    elif name in ("==", "!=", "in"):
        yield from _operands(inner["left"], inner["right"])
        yield from _operands(inner["right"], inner["left"])
        yield from () if name == "in" else _never_equal(inner["left"], inner["right"])
    elif name == "contains":
        faults = [list(_never_equal(item, inner["right"])) for item in inner["left"].get("Set", ())]
        yield from faults[0] if faults and all(faults) else ()
    elif name == "is":
        variable, kind = str(inner["left"].get("Var")), str(inner["entity_type"])
        yield from _compared(variable, kind) if variable in TYPES else _known_type(kind)
        if inner.get("in") is not None:
            yield from _operands(inner["left"], inner["in"])
    elif name == "__entity":
        yield from _known_type(str(inner["type"]))


def _known_type(kind: str) -> Iterator[str]:
    if kind not in TYPES.values():
        yield from _unknown_type(kind)


def _operands(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults of a variable beside entities of other types."""
    variable = one.get("Var")
    if variable not in TYPES:
        return
    compared = other.get("Set", [other])
    if compared == []:
        yield f"{variable} in [] is never true; name at least one"
    for item in compared:
        value = item.get("Value")
        if isinstance(value, dict) and "__entity" in value:
            yield from _compared(variable, str(value["__entity"]["type"]))
        elif item.get("Var") in TYPES and item["Var"] != variable:
            yield f"{variable} and {item['Var']} are never equal, and neither is in the other"


def _never_equal(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fault of comparing values of two types."""
    left, right = _type_of(one), _type_of(other)
    if left is None or right is None or left == right:
        return
    variable = next((side["Var"] for side in (one, other) if side.get("Var") in TYPES), None)
    hint = f'; an entity is compared as {variable} == {TYPES[variable]}::"..."' if variable is not None else ""
    yield f"{left} and {right} are never equal{hint}"


def _whole_decimals(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fault of comparing a decimal without a fraction with a value of the case."""
    if not path_of(other):
        return
    for item in one.get("Set", [one]):
        text = next((str(given.get("Value")) for given in item.get("decimal", ())), "")
        whole, _, fraction = text.partition(".")
        if fraction and not fraction.strip("0"):
            yield f'decimal("{text}") equals no value of a case, where {whole} is a whole number; write {whole}'


def _type_of(node: Mapping[str, Any]) -> str | None:
    """Return the type of an expression's value; None where it depends on the case."""
    value = node.get("Value")
    if value is not None:
        types = ((bool, TRUTH), (int, NUMBER), (str, TEXT), (dict, ENTITY))
        return next((words for kind, words in types if isinstance(value, kind)), None)
    if node.get("Var") in TYPES:
        return ENTITY
    if "." in node:
        return _KNOWN.get(path_of(node))
    return next((_RESULTS[name] for name in node if name in _RESULTS), None)


def _attribute(node: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fault of reading or testing an attribute."""
    path = path_of(node)
    if not path:
        name = (node.get(".") or node.get("has") or {}).get("attr")
        if not _is_of_record(node):
            yield f"it reads {name} of something other than principal, resource and context, which alone are passed"
        return
    known = ATTRIBUTES.get(path[0], ())
    if path[1] not in known:
        close = get_close_matches(path[1], known, n=1)
        hint = f"; did you mean {path[0]}.{close[0]}?" if close else ""
        yield f"{path[0]} has no attribute {path[1]}; it has {', '.join(known) or 'none'}{hint}"


def _is_of_record(node: Mapping[str, Any]) -> bool:
    """Return whether the innermost value of an attribute expression is a record written there."""
    inner = node.get(".") or node.get("has")
    return "Record" in node if inner is None else _is_of_record(inner["left"])
