"""Functions of MEL and the expression kinds they lower to.

A function that is named in ``KINDS`` lowers to one node; its operands and its arity are those of the kind in
``world.core.expressions.expression``. ``SUGAR`` lowers to several nodes (``world.core.mel.sugar``).
"""

from __future__ import annotations

from typing import Final

from world.core.expressions.expression import OPERAND_LISTS, OPERANDS

__all__ = ["AGGREGATES", "ITERATIONS", "KINDS", "NAMES", "OPERATORS", "SUGAR", "arity", "arity_fault"]

_SAME: Final = [
    "add",
    "sub",
    "mul",
    "div",
    "mod",
    "neg",
    "abs",
    "floor",
    "ceil",
    "round",
    "sqrt",
    "pow",
    "eq",
    "neq",
    "gt",
    "gte",
    "lt",
    "lte",
    "and",
    "or",
    "not",
    "concat",
    "trim",
    "substring",
    "isNull",
    "coalesce",
    "typeof",
    "toString",
    "toNumber",
    "toBoolean",
    "len",
    "first",
    "last",
    "at",
    "slice",
    "append",
    "includes",
    "filter",
    "map",
    "find",
    "every",
    "some",
    "merge",
    "keys",
    "values",
    "entries",
    "startsWith",
    "endsWith",
    "strIncludes",
    "indexOf",
    "replace",
    "split",
    "reverse",
    "unique",
    "flat",
    "hasKey",
    "pick",
    "omit",
    "fromEntries",
    "min",
    "max",
]

KINDS: Final[dict[str, str]] = {
    **{name: name for name in _SAME},
    "cond": "if",
    "lower": "toLowerCase",
    "upper": "toUpperCase",
    "strlen": "strLen",
    "substr": "substring",
    "sum": "sumArray",
}
"""Kind of the node of each plain function."""

NAMES: Final[dict[str, str]] = {
    **{kind: name for name, kind in KINDS.items() if name != "substr"},
    "minArray": "min",
    "maxArray": "max",
}
"""Function that a kind is printed as."""

SUGAR: Final[dict[str, tuple[int, int | None]]] = {
    "isNotNull": (1, 1),
    "absDiff": (2, 2),
    "clamp": (3, 3),
    "idiv": (2, 2),
    "streak": (2, 2),
    "match": (3, None),
    "argmax": (2, None),
    "argmin": (2, None),
    "findById": (2, 2),
    "existsById": (2, 2),
    "updateById": (3, 3),
    "removeById": (2, 2),
    "get": (1, 1),
    "field": (2, 2),
}
"""Smallest and largest number of arguments of functions that lower to other or several nodes; None is any number."""

ITERATIONS: Final = frozenset({"filter", "map", "find", "every", "some"})
"""Functions whose second argument is evaluated for each element."""

AGGREGATES: Final = frozenset({"sumArray", "minArray", "maxArray"})
"""Kinds that summarize an array."""

OPERATORS: Final[dict[str, str]] = {
    "||": "or", "&&": "and", "==": "eq", "!=": "neq", "<": "lt", "<=": "lte", ">": "gt", ">=": "gte",
    "+": "add", "-": "sub", "*": "mul", "/": "div", "%": "mod",
}  # fmt: skip
"""Kind of each binary operator."""

_AT_LEAST_TWO: Final = frozenset({"append"})


def arity(name: str) -> tuple[int, int | None]:
    """Return the smallest and the largest number of arguments of a function; None is any number."""
    if name in SUGAR:
        return SUGAR[name]
    kind = KINDS[name]
    if kind in OPERAND_LISTS:
        return (2 if name in _AT_LEAST_TWO else 1), None
    operands = OPERANDS[kind]
    return sum(not one.endswith("?") for one in operands), len(operands)


def arity_fault(name: str, given: int) -> str | None:
    """Return the sentence about a wrong number of arguments, None for a right one."""
    low, high = arity(name)
    if given >= low and (high is None or given <= high):
        return None
    if high is None:
        wanted = f"at least {low} argument{'s' * (low != 1)}"
    elif low == high:
        wanted = f"{low} argument{'s' * (low != 1)}"
    else:
        wanted = f"{low} or {high} arguments"
    return f"Function {name!r} expects {wanted}, got {given}"
