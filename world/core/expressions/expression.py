"""Compiler of expressions from JSON to closures.

One evaluator serves availability, computed values, flows and rules. It is total: a missing path, a division
by zero and an index out of bounds are null (HC-flow). Malformed nodes are found by
``world.core.expressions.expression_ast`` when a schema or a policy is loaded; compiled without that check, a malformed
node is an error value when it is evaluated.

Source: design section 4; INT-3.4a.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from world.core.expressions import collection_functions as containers
from world.core.expressions import numeric_functions as arithmetic
from world.core.expressions import string_functions as texts
from world.core.expressions.scope import Scope
from world.core.values import ExpressionError, as_array, kind_of, number, strict_equal, text, truth
from world.model.immutable_json import thaw
from world.model.paths import Segments, look_up, parse_path

__all__ = [
    "KINDS",
    "MAX_EXPRESSION_DEPTH",
    "MAX_EXPRESSION_NODES",
    "OPERANDS",
    "OPERAND_LISTS",
    "Evaluate",
    "compile_expression",
]

Evaluate = Callable[[Scope], Any]
Compile = Callable[[Mapping[str, Any], "_Compiler"], Evaluate]

MAX_EXPRESSION_DEPTH: Final = 100
"""Maximum depth of nodes in one expression."""

MAX_EXPRESSION_NODES: Final = 10_000
"""Maximum number of nodes in one expression."""

# Kinds whose operands are all evaluated and handed to one function: operand names, then the function.
_PLAIN: Final[dict[str, tuple[tuple[str, ...], Callable[..., Any]]]] = {
    "eq": (("left", "right"), strict_equal),
    "neq": (("left", "right"), lambda left, right: not strict_equal(left, right)),
    "gt": (("left", "right"), arithmetic.gt),
    "gte": (("left", "right"), arithmetic.gte),
    "lt": (("left", "right"), arithmetic.lt),
    "lte": (("left", "right"), arithmetic.lte),
    "not": (("arg",), lambda value: not truth(value)),
    "add": (("left", "right"), arithmetic.add),
    "sub": (("left", "right"), arithmetic.sub),
    "mul": (("left", "right"), arithmetic.mul),
    "div": (("left", "right"), arithmetic.div),
    "mod": (("left", "right"), arithmetic.mod),
    "pow": (("base", "exponent"), arithmetic.power),
    "abs": (("arg",), arithmetic.absolute),
    "neg": (("arg",), arithmetic.negate),
    "floor": (("arg",), arithmetic.floor),
    "ceil": (("arg",), arithmetic.ceil),
    "round": (("arg",), arithmetic.round_half_up),
    "sqrt": (("arg",), arithmetic.root),
    "sumArray": (("array",), arithmetic.sum_array),
    "minArray": (("array",), arithmetic.min_array),
    "maxArray": (("array",), arithmetic.max_array),
    "substring": (("str", "start", "end?"), texts.substring),
    "trim": (("str",), texts.trim),
    "toLowerCase": (("str",), texts.lower),
    "toUpperCase": (("str",), texts.upper),
    "strLen": (("str",), texts.text_length),
    "startsWith": (("str", "prefix"), texts.starts_with),
    "endsWith": (("str", "suffix"), texts.ends_with),
    "strIncludes": (("str", "search"), texts.contains),
    "indexOf": (("str", "search"), texts.index_of),
    "replace": (("str", "search", "replacement"), texts.replace_first),
    "split": (("str", "delimiter"), texts.split),
    "len": (("arg",), containers.size),
    "at": (("array", "index"), containers.at),
    "first": (("array",), containers.first),
    "last": (("array",), containers.last),
    "reverse": (("array",), containers.reverse),
    "unique": (("array",), containers.unique),
    "flat": (("array",), containers.flat),
    "slice": (("array", "start", "end?"), containers.slice_array),
    "includes": (("array", "item"), containers.includes),
    "keys": (("obj",), containers.sorted_keys),
    "values": (("obj",), containers.values),
    "entries": (("obj",), containers.entries),
    "hasKey": (("obj", "key"), containers.has_key),
    "pick": (("obj", "keys"), containers.pick),
    "omit": (("obj", "keys"), containers.omit),
    "fromEntries": (("entries",), containers.from_entries),
    "typeof": (("arg",), containers.type_name),
    "isNull": (("arg",), lambda value: value is None),
    "toString": (("arg",), text),
    "toNumber": (("arg",), number),
    "toBoolean": (("arg",), truth),
}

# Kinds with one list of operands, all evaluated.
_LISTED: Final[dict[str, tuple[str, Callable[[list[Any]], Any]]]] = {
    "min": ("args", arithmetic.least),
    "max": ("args", arithmetic.greatest),
    "concat": ("args", texts.concat),
    "merge": ("objects", containers.merge),
}

# Kinds that iterate over an array with an inner expression: the name of that expression.
_WALKS: Final = {
    "filter": "predicate",
    "find": "predicate",
    "every": "predicate",
    "some": "predicate",
    "map": "mapper",
}


def compile_expression(expression: Any, *, computed: bool = False) -> Evaluate:
    """Compile an expression into a function of a scope.

    The function raises ``ExpressionError`` where an error value is due: ``INTERNAL_ERROR`` for a malformed
    node, ``LIMIT_EXCEEDED`` past a bound, ``PATH_NOT_FOUND`` for input in a computed value.

    Args:
        expression: the node, as in a schema.
        computed: true for a computed value's expression, which must not read the input.
    """
    return _Compiler(computed=computed).compile(expression)


class _Compiler:
    def __init__(self, *, computed: bool) -> None:
        self.computed = computed
        self.depth = 0

    def compile(self, node: Any) -> Evaluate:
        if self.depth >= MAX_EXPRESSION_DEPTH:
            return _failing("LIMIT_EXCEEDED", f"An expression is nested deeper than {MAX_EXPRESSION_DEPTH} levels.")
        kind = kind_of(node)
        self.depth += 1
        try:
            if kind in _PLAIN:
                return self._plain(node, *_PLAIN[kind])
            if kind in _LISTED:
                return self._listed(node, *_LISTED[kind])
            if kind in _SPECIAL:
                return _SPECIAL[kind](node, self)
        except (KeyError, TypeError, AttributeError):
            return _failing("INTERNAL_ERROR", f"Malformed expression of kind {kind}.")
        finally:
            self.depth -= 1
        return _failing("INTERNAL_ERROR", f"Unknown expression kind: {kind}")

    def _plain(self, node: Mapping[str, Any], names: tuple[str, ...], call: Callable[..., Any]) -> Evaluate:
        parts = [self.compile(node[name]) for name in _present(node, names)]
        if len(parts) == 1:
            (one,) = parts
            return lambda scope: call(one(scope))
        if len(parts) == 2:
            left, right = parts
            return lambda scope: call(left(scope), right(scope))
        return lambda scope: call(*[part(scope) for part in parts])

    def _listed(self, node: Mapping[str, Any], name: str, call: Callable[[list[Any]], Any]) -> Evaluate:
        parts = self.compile_all(node[name])
        return lambda scope: call([part(scope) for part in parts])

    def compile_all(self, nodes: Any) -> list[Evaluate]:
        if not isinstance(nodes, list):
            raise TypeError
        return [self.compile(node) for node in nodes]


def _present(node: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        if not name.endswith("?"):
            yield name
        elif node.get(name[:-1]) is not None:
            yield name[:-1]


def _failing(code: str, message: str) -> Evaluate:
    def fail(_: Scope) -> Any:
        raise ExpressionError(code, message)

    return fail


def _literal(node: Mapping[str, Any], _: _Compiler) -> Evaluate:
    value = thaw(node.get("value"))  # plain, so that a literal array equals no array of the state
    return lambda _: value


def _get(node: Mapping[str, Any], compiler: _Compiler) -> Evaluate:
    path: str = node["path"]
    root, _, rest = path.partition(".")
    if root == "computed" and rest:
        return lambda scope: _computed(scope.computed, path)
    if root == "input":
        if compiler.computed:
            message = f"Input path is not available during computed expression evaluation: {path}"
            return _failing("PATH_NOT_FOUND", message)
        segments = parse_path(rest)
        return (lambda scope: look_up(scope.input, segments)) if rest else (lambda scope: scope.input)
    if root in _ROOTS:
        return _ROOTS[root](parse_path(rest))
    return _get_data(parse_path(path))


def _get_data(segments: Segments) -> Evaluate:
    if len(segments) == 1:
        (name,) = segments
        return lambda scope: scope.data.get(name)
    return lambda scope: look_up(scope.data, segments)


def _computed(values: Mapping[str, Any], path: str) -> Any:
    """Return a computed value by its full name, or a member of one."""
    if path in values:
        return values[path]
    name, _, rest = path.rpartition(".")
    inner: tuple[str, ...] = (rest,)
    while "." in name:
        if name in values:
            return look_up(values[name], inner)
        name, _, rest = name.rpartition(".")
        inner = (rest, *inner)
    return None


def _get_item(segments: Segments) -> Evaluate:
    if not segments:
        return lambda scope: scope.item
    if len(segments) == 1:
        (name,) = segments
        return lambda scope: item.get(name) if isinstance(item := scope.item, dict) else look_up(item, segments)
    return lambda scope: look_up(scope.item, segments)


def _get_system_value(segments: Segments) -> Evaluate:
    if segments == ("uuid",):
        return Scope.next_id
    if segments == ("timestamp",):
        return lambda scope: _iso(scope.now)
    return lambda _: None


def _iso(now: int) -> str | None:
    try:
        moment = datetime.fromtimestamp(now // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{now % 1000:03d}Z"


def _get_meta(segments: Segments) -> Evaluate:
    if segments == ("intentId",):
        return lambda scope: scope.intent_id
    if segments == ("actionName",):
        return lambda scope: scope.action_id
    return lambda scope: look_up(scope.meta, segments)


_ROOTS: Final[dict[str, Callable[[Segments], Evaluate]]] = {
    "$item": _get_item,
    "$index": lambda _: lambda scope: scope.index,
    "$array": lambda segments: lambda scope: look_up(scope.array, segments),
    "$system": _get_system_value,
    "meta": _get_meta,
    "system": lambda segments: lambda scope: look_up(scope.system, segments),
}


def _and(node: Mapping[str, Any], compiler: _Compiler) -> Evaluate:
    parts = compiler.compile_all(node["args"])
    return lambda scope: all(truth(part(scope)) for part in parts)


def _or(node: Mapping[str, Any], compiler: _Compiler) -> Evaluate:
    parts = compiler.compile_all(node["args"])
    return lambda scope: any(truth(part(scope)) for part in parts)


def _if(node: Mapping[str, Any], compiler: _Compiler) -> Evaluate:
    condition, then, otherwise = (compiler.compile(node[name]) for name in ("cond", "then", "else"))
    return lambda scope: then(scope) if truth(condition(scope)) else otherwise(scope)


def _coalesce(node: Mapping[str, Any], compiler: _Compiler) -> Evaluate:
    parts = compiler.compile_all(node["args"])

    def evaluate(scope: Scope) -> Any:
        for part in parts:
            value = part(scope)
            if value is not None:
                return value
        return None

    return evaluate


def _object(node: Mapping[str, Any], compiler: _Compiler) -> Evaluate:
    fields = [(name, compiler.compile(field)) for name, field in node["fields"].items()]
    return lambda scope: {name: field(scope) for name, field in fields}


def _field(node: Mapping[str, Any], compiler: _Compiler) -> Evaluate:
    value, name = compiler.compile(node["object"]), node["property"]
    return lambda scope: containers.member(value(scope), name)


def _append(node: Mapping[str, Any], compiler: _Compiler) -> Evaluate:
    array, items = compiler.compile(node["array"]), compiler.compile_all(node["items"])
    return lambda scope: containers.append(array(scope), [item(scope) for item in items])


def _walk(scope: Scope, array: Evaluate, inner: Evaluate) -> Iterator[tuple[Any, Any]]:
    """Yield each element with the inner expression's value for it; the outer walk's names return
    afterwards.
    """
    items = as_array(array(scope))
    scope.spend(len(items))
    outer = scope.item, scope.index, scope.array
    try:
        for index, item in enumerate(items):
            scope.item, scope.index, scope.array = item, index, items
            yield item, inner(scope)
    finally:
        scope.item, scope.index, scope.array = outer


def _walking(finish: Callable[[Iterator[tuple[Any, Any]]], Any]) -> Compile:
    def build(node: Mapping[str, Any], compiler: _Compiler) -> Evaluate:
        array, inner = compiler.compile(node["array"]), compiler.compile(node[_WALKS[node["kind"]]])

        def evaluate(scope: Scope) -> Any:
            walk = _walk(scope, array, inner)
            try:
                return finish(walk)
            finally:
                walk.close()  # type: ignore[attr-defined] # a generator, and find, every and some leave it early

        return evaluate

    return build


_SPECIAL: Final[dict[str, Compile]] = {
    "lit": _literal,
    "get": _get,
    "and": _and,
    "or": _or,
    "if": _if,
    "coalesce": _coalesce,
    "object": _object,
    "field": _field,
    "append": _append,
    "filter": _walking(lambda walk: [item for item, kept in walk if truth(kept)]),
    "map": _walking(lambda walk: [value for _, value in walk]),
    "find": _walking(lambda walk: next((item for item, found in walk if truth(found)), None)),
    "every": _walking(lambda walk: all(truth(value) for _, value in walk)),
    "some": _walking(lambda walk: any(truth(value) for _, value in walk)),
}

KINDS: Final = frozenset(_PLAIN) | frozenset(_LISTED) | frozenset(_SPECIAL)
"""All kinds of expression nodes."""

OPERANDS: Final[dict[str, tuple[str, ...]]] = {
    **{kind: names for kind, (names, _) in _PLAIN.items()},
    **{kind: ("array", name) for kind, name in _WALKS.items()},
    "if": ("cond", "then", "else"),
    "field": ("object",),
    "append": ("array",),
}
"""Names of the single operands of each kind; ``?`` behind a name that may be absent."""

OPERAND_LISTS: Final[dict[str, str]] = {
    **{kind: name for kind, (name, _) in _LISTED.items()},
    **dict.fromkeys(("and", "or", "coalesce"), "args"),
    "append": "items",
}
"""Name of the list of operands of each kind that has one."""
