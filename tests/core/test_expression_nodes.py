"""Every kind of expression node: its operands, what is malformed in it, its bounds, and what a path reads."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.tables import for_each
from world.core import Scope, compile_expression
from world.core.expressions.expression import KINDS, MAX_EXPRESSION_DEPTH, OPERAND_LISTS, OPERANDS
from world.core.expressions.expression_ast import check_expression, dependencies, operands, paths_read, reads_system
from world.core.expressions.scope import MAX_ITERATIONS, EvaluationContext
from world.core.expressions.string_functions import MAX_ITEMS, MAX_TEXT, bounded_items, bounded_text
from world.core.values import ExpressionError
from world.model.immutable_json import freeze

TABLE = """
eq left right | neq left right | gt left right | gte left right | lt left right | lte left right | not arg
add left right | sub left right | mul left right | div left right | mod left right | pow base exponent
abs arg | neg arg | floor arg | ceil arg | round arg | sqrt arg | sumArray array | minArray array | maxArray array
substring str start end? | trim str | toLowerCase str | toUpperCase str | strLen str | startsWith str prefix
endsWith str suffix | strIncludes str search | indexOf str search | replace str search replacement
split str delimiter | len arg | at array index | first array | last array | reverse array | unique array
flat array | slice array start end? | includes array item | keys obj | values obj | entries obj | hasKey obj key
pick obj keys | omit obj keys | fromEntries entries | typeof arg | isNull arg | toString arg | toNumber arg
toBoolean arg | filter array predicate | find array predicate | every array predicate | some array predicate
map array mapper | if cond then else | field object | append array
"""
SINGLE = {row.split()[0]: tuple(row.split()[1:]) for line in TABLE.strip().splitlines() for row in line.split(" | ")}
LISTS = dict.fromkeys(("min", "max", "concat", "and", "or", "coalesce"), "args") | {
    "merge": "objects",
    "append": "items",
}
OTHERS: dict[str, dict[str, Any]] = {"lit": {"value": 1}, "get": {"path": "a"}, "object": {"fields": {}}}


def lit(value: Any) -> dict[str, Any]:
    return {"kind": "lit", "value": value}


def get(path: str) -> dict[str, Any]:
    return {"kind": "get", "path": path}


def node_of(kind: str) -> dict[str, Any]:
    """Return a node with every operand, each of which reads a path of its name."""
    node: dict[str, Any] = {"kind": kind, **OTHERS.get(kind, {})}
    node |= {name.removesuffix("?"): get(name.removesuffix("?")) for name in SINGLE.get(kind, ())}
    if kind in LISTS:
        node[LISTS[kind]] = [get("one"), get("two")]
    if kind == "field":
        node["property"] = "x"
    return node


def scope(**more: Any) -> Scope:
    context = {name: more.pop(name) for name in ("intent_id", "action_id", "now", "seed") if name in more}
    data, computed = freeze(more.pop("data", {})), freeze(more.pop("computed", {}))
    return Scope(data, computed=computed, context=EvaluationContext(**context), **more)


def error_of(node: Any) -> tuple[str, str]:
    with pytest.raises(ExpressionError) as caught:
        compile_expression(node)(scope())
    return caught.value.code, caught.value.message


@pytest.mark.requirement("HC-flow")
def test_every_kind_has_its_operands() -> None:
    assert set(SINGLE) | set(LISTS) | set(OTHERS) == KINDS
    assert OPERANDS == SINGLE
    assert OPERAND_LISTS == LISTS


@pytest.mark.requirement("HC-flow", "INT-3.4a")
@for_each("kind", sorted(KINDS))
def test_a_node_lacks_nothing_but_what_may_be_absent(kind: str) -> None:
    node = node_of(kind)
    assert check_expression(node) == []
    optional = {name[:-1] for name in SINGLE.get(kind, ()) if name.endswith("?")}
    for name in sorted(node.keys() - {"kind"}):
        lacking = {key: value for key, value in node.items() if key != name}
        if name in optional:
            assert check_expression(lacking, "$.e") == []
            assert check_expression({**node, name: None}, "$.e") == []
            assert compile_expression({**node, name: None})(scope()) == compile_expression(lacking)(scope())
            continue
        assert [path for path, _ in check_expression(lacking, "$.e")] == ["$.e"]
        assert f"The {kind} expression " in check_expression(lacking, "$.e")[0][1]
        if kind != "lit":
            assert error_of(lacking) == ("INTERNAL_ERROR", f"Malformed expression of kind {kind}.")
        if name not in ("value", "path", "fields", "property", LISTS.get(kind)):
            assert [path for path, _ in check_expression({**node, name: 5}, "$.e")] == [f"$.e.{name}"]
            assert [path for path, _ in check_expression({**node, name: None}, "$.e")] == [f"$.e.{name}"]


@pytest.mark.requirement("INT-7.4.2e")
@for_each("kind", sorted(KINDS))
def test_a_node_reads_what_its_operands_read(kind: str) -> None:
    node = node_of(kind)
    names = [name.removesuffix("?") for name in SINGLE.get(kind, ())]
    names += ["one", "two"] if kind in LISTS else []
    names += ["a"] if kind == "get" else []
    assert dependencies(node) == set(names)
    if kind != "get":
        assert [one["path"] for one in operands(node)] == names


def test_the_names_of_a_walk_and_the_context_are_no_dependencies() -> None:
    paths = ["a", "a.b", "$item.x", "$item", "$index", "$array.0", "$system.time", "$host.x", "input.y"]
    node = {"kind": "concat", "args": [get(path) for path in paths]}
    assert paths_read(node) == set(paths)
    assert dependencies(node) == {"a", "a.b", "$host.x", "input.y"}
    assert reads_system(node)
    assert not reads_system({"kind": "concat", "args": [get("$item.x"), get("system.status")]})
    assert dependencies(lit({"kind": "get", "path": "a"})) == set()
    assert dependencies({"kind": "object", "fields": {"x": get("a"), "y": get("b")}}) == {"a", "b"}
    assert operands(5) == operands({"kind": "none"}) == ()


@for_each(
    ("node", "path", "sentence"),
    [
        (5, "$", "An expression is an object with a kind, not int."),
        ({}, "$", "Unknown expression kind: None."),
        ({"kind": 5}, "$", "Unknown expression kind: 5."),
        ({"kind": "none"}, "$", "Unknown expression kind: 'none'."),
        ({"kind": "add"}, "$", "The add expression lacks left, right."),
        ({"kind": "and", "args": 5}, "$", "The and expression needs a list of args."),
        ({"kind": "lit"}, "$", "The lit expression lacks value."),
        ({"kind": "get", "path": ""}, "$", "The get expression needs a path, a non-empty text."),
        ({"kind": "get", "path": 5}, "$", "The get expression needs a path, a non-empty text."),
        ({"kind": "object", "fields": []}, "$", "The object expression needs fields, an object."),
        ({"kind": "field", "object": lit(1), "property": 5}, "$", "The field expression needs property, a text."),
        ({"kind": "object", "fields": {"x": 5}}, "$.fields.x", "An expression is an object with a kind, not int."),
        ({"kind": "and", "args": [lit(1), 5]}, "$.args[1]", "An expression is an object with a kind, not int."),
        ({"kind": "not", "arg": {"kind": "x"}}, "$.arg", "Unknown expression kind: 'x'."),
    ],
)
def test_every_fault_of_an_expression_has_its_place_and_sentence(node: Any, path: str, sentence: str) -> None:
    assert check_expression(node) == [(path, sentence)]


@pytest.mark.requirement("HC-flow")
def test_what_is_malformed_is_an_error_value_when_it_is_reached() -> None:
    assert error_of({"kind": "none"}) == ("INTERNAL_ERROR", "Unknown expression kind: none")
    assert error_of(5) == ("INTERNAL_ERROR", "Unknown expression kind: None")
    assert error_of({"kind": "and", "args": "ab"}) == ("INTERNAL_ERROR", "Malformed expression of kind and.")
    assert error_of({"kind": "object", "fields": 5}) == ("INTERNAL_ERROR", "Malformed expression of kind object.")
    node = {"kind": "if", "cond": lit(True), "then": lit(1), "else": {"kind": "none"}}
    assert compile_expression(node)(scope()) == 1


@pytest.mark.requirement("HC-flow")
def test_an_expression_has_100_levels_and_no_more() -> None:
    node: Any = lit(True)
    for _ in range(MAX_EXPRESSION_DEPTH - 1):
        node = {"kind": "not", "arg": node}
    assert MAX_EXPRESSION_DEPTH == 100
    assert compile_expression(node)(scope()) is False
    wide = {"kind": "and", "args": [node["arg"], node["arg"]]}  # levels are counted, not nodes
    assert compile_expression(wide)(scope()) is True
    sentence = "An expression is nested deeper than 100 levels."
    assert error_of({"kind": "not", "arg": node}) == ("LIMIT_EXCEEDED", sentence)


@pytest.mark.requirement("HC-flow")
def test_texts_arrays_and_walks_are_bounded_exactly() -> None:
    assert (MAX_TEXT, MAX_ITEMS, MAX_ITERATIONS) == (4_000_000, 1_000_000, 1_000_000)
    half = "x" * (MAX_TEXT // 2)
    assert len(bounded_text([half, half])) == MAX_TEXT
    with pytest.raises(ExpressionError, match="a text of more than 4000000 characters") as caught:
        bounded_text([half, half, "x"])
    assert caught.value.code == "LIMIT_EXCEEDED"
    bounded_items(MAX_ITEMS)
    with pytest.raises(ExpressionError, match="an array of more than 1000000 elements") as caught:
        bounded_items(MAX_ITEMS + 1)
    assert caught.value.code == "LIMIT_EXCEEDED"
    walk = scope()
    walk.spend(MAX_ITERATIONS - 1)
    walk.spend(1)
    with pytest.raises(ExpressionError, match="visits more than 1000000 elements") as caught:
        walk.spend(1)
    assert caught.value.code == "LIMIT_EXCEEDED"


@pytest.mark.requirement("HC-context")
@for_each(
    ("path", "value"),
    [
        ("a", {"b": [7]}),
        ("a.b.0", 7),
        ("computed.total", {"x": {"y": 3}}),
        ("computed.total.x.y", 3),
        ("computed.total.x", {"y": 3}),
        ("computed.no", None),
        ("computed", "own"),
        ("input", {"page": {"n": 2}}),
        ("input.page.n", 2),
        ("system.status", "idle"),
        ("meta.intentId", "intent-1"),
        ("meta.actionName", "act"),
        ("meta.version", 4),
        ("meta.intentId.x", None),
        ("$system.timestamp", "1970-01-01T00:00:05.007Z"),
        ("$system.none", None),
        ("$system", None),
        ("$item", None),
        ("$index", None),
        ("$array", None),
    ],
)
def test_a_path_reads_what_it_names(path: str, value: Any) -> None:
    told = scope(
        data={"a": {"b": [7]}, "computed": "own"},
        computed={"computed.total": {"x": {"y": 3}}},
        input=freeze({"page": {"n": 2}}),
        system=freeze({"status": "idle"}),
        meta=freeze({"version": 4, "intentId": "other"}),
        intent_id="intent-1",
        action_id="act",
        now=5_007,
    )
    assert compile_expression(get(path))(told) == value


def test_a_walk_gives_its_names_back() -> None:
    rows = [{"n": 1, "in": {"m": [10, 20]}}, {"n": 2, "in": {"m": [30]}}]
    inner = {"kind": "map", "array": get("$item.in.m"), "mapper": get("$index")}
    outer = {
        "kind": "object",
        "fields": {
            "before": get("$item.n"),
            "inner": inner,
            "after": get("$item.n"),
            "index": get("$index"),
            "size": {"kind": "len", "arg": get("$array")},
            "first": get("$array.0.n"),
        },
    }
    node = {"kind": "map", "array": get("rows"), "mapper": outer}
    told = scope(data={"rows": rows})
    assert compile_expression(node)(told) == [
        {"before": 1, "inner": [0, 1], "after": 1, "index": 0, "size": 2, "first": 1},
        {"before": 2, "inner": [0], "after": 2, "index": 1, "size": 2, "first": 1},
    ]
    assert (told.item, told.index, told.array, told.budget) == (None, None, None, MAX_ITERATIONS - 5)


@pytest.mark.requirement("HC-flow")
def test_a_walk_ends_with_the_element_that_decides_it() -> None:
    rows = list(range(10))
    for kind, value in (("find", 3), ("some", True)):
        node = {"kind": kind, "array": lit(rows), "predicate": {"kind": "gte", "left": get("$item"), "right": lit(3)}}
        assert compile_expression(node)(scope()) == value
    reached: Any = {"kind": "gt", "left": get("$item"), "right": {"kind": "none"}}
    quick = {"kind": "or", "args": [{"kind": "lt", "left": get("$item"), "right": lit(1)}, reached]}
    for kind, rows in (("some", [0, 1]), ("find", [0, 1])):
        assert compile_expression({"kind": kind, "array": lit(rows), "predicate": quick})(scope()) in (True, 0)


@pytest.mark.parametrize("now", [10**18, -(10**18)])
def test_a_time_that_no_calendar_has_is_null(now: int) -> None:
    assert compile_expression(get("$system.timestamp"))(scope(now=now)) is None


@pytest.mark.requirement("HC-flow")
def test_a_computed_value_cannot_read_the_input() -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_expression(get("input.x"), computed=True)(scope())
    assert caught.value.code == "PATH_NOT_FOUND"
    assert caught.value.message == "Input path is not available during computed expression evaluation: input.x"
