"""Schemas are refused with all their faults, and a good one is compiled as it stands."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables import for_each
from world.core import DomainSchema, load_schema
from world.core.dependency_order import circles, computed_order
from world.core.expressions.expression import MAX_EXPRESSION_DEPTH, MAX_EXPRESSION_NODES
from world.core.expressions.expression_ast import check_expression, dependencies
from world.core.fields import check_value, read_field, secret_literals
from world.core.schema import ComputedSpec
from world.errors import RefusedError
from world.model.identity import schema_hash


def lit(value: Any) -> dict[str, Any]:
    return {"kind": "lit", "value": value}


def get(path: str) -> dict[str, Any]:
    return {"kind": "get", "path": path}


def schema(**parts: Any) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "id": "urn:test:schema",
        "version": "1.0.0",
        "state": {
            "fields": {
                "count": {"type": "number", "required": True, "default": 0},
                "user": {"type": "object", "default": {}, "fields": {"name": {"type": "string"}}},
                "items": {
                    "type": "array",
                    "default": [],
                    "items": {"type": "object", "fields": {"done": {"type": "boolean"}}},
                },
                "bag": {"type": "object", "default": {}},
                "list": {"type": "array", "default": []},
            }
        },
        "actions": {"go": {"flow": {"kind": "seq", "steps": []}}},
    }
    return whole | parts


def flow(node: Any, **action: Any) -> dict[str, Any]:
    return schema(actions={"go": {"flow": node, **action}})


def patch(path: str, value: Any = None, op: str = "set") -> dict[str, Any]:
    return {"kind": "patch", "op": op, "path": path, "value": lit(1) if value is None else value}


def faults(portable: Any) -> list[tuple[str, str]]:
    with pytest.raises(RefusedError) as caught:
        load_schema(portable)
    assert caught.value.code == "INVALID_SCHEMA"
    assert all(fault["message"] for fault in caught.value.details["faults"])
    return [(fault["code"], fault["path"]) for fault in caught.value.details["faults"]]


@pytest.mark.requirement("IC-action")
def test_a_schema_is_read_with_its_actions_and_hash() -> None:
    loaded = load_schema(schema())
    assert isinstance(loaded, DomainSchema)
    assert loaded.hash == schema_hash(schema()) == loaded.portable["hash"]
    assert loaded.actions["go"].input is None
    assert load_schema(loaded.portable).hash == loaded.hash


def test_a_schema_that_names_another_hash_is_refused() -> None:
    assert faults(schema(hash="0" * 64)) == [("HASH_MISMATCH", "$.hash")]


def test_dollar_fields_are_no_part_of_the_hash() -> None:
    more = schema()
    more["state"]["fields"]["$host"] = {"type": "object", "default": {}}
    assert schema_hash(more) == schema_hash(schema())
    assert faults(more) == [("SCHEMA_ERROR", "$.state.fields.$host")]
    assert load_schema(more, 2).hash == load_schema(schema()).hash


def test_every_fault_is_named_at_once() -> None:
    bad = schema(
        id="no uri",
        version="1",
        extra=1,
        actions={
            "a": {"flow": patch("nosuch", {"kind": "nope"}), "availible": lit(True)},
            "b": {"flow": {"kind": "call", "flow": "missing"}},
        },
    )
    assert set(faults(bad)) == {
        ("SCHEMA_ERROR", "$.id"),
        ("SCHEMA_ERROR", "$.version"),
        ("SCHEMA_ERROR", "$.extra"),
        ("SCHEMA_ERROR", "$.actions.a.availible"),
        ("V-003", "$.actions.a.flow.path"),
        ("SCHEMA_ERROR", "$.actions.a.flow.value"),
        ("V-004", "$.actions.b.flow"),
    }


@pytest.mark.requirement("HC-flow")
@for_each(
    ("node", "code", "path"),
    [
        ({"kind": "while"}, "SCHEMA_ERROR", "$.actions.go.flow"),
        ("seq", "SCHEMA_ERROR", "$.actions.go.flow"),
        ({"kind": "seq"}, "SCHEMA_ERROR", "$.actions.go.flow"),
        ({"kind": "seq", "steps": [{"kind": "x"}]}, "SCHEMA_ERROR", "$.actions.go.flow.steps[0]"),
        ({"kind": "if", "cond": lit(1)}, "SCHEMA_ERROR", "$.actions.go.flow"),
        ({"kind": "patch", "op": "move", "path": "count"}, "SCHEMA_ERROR", "$.actions.go.flow"),
        ({"kind": "patch", "op": "set", "path": "count"}, "SCHEMA_ERROR", "$.actions.go.flow"),
        (patch("computed.x"), "V-003", "$.actions.go.flow.path"),
        (patch("items.x.done"), "V-003", "$.actions.go.flow.path"),
        (patch("list.0"), "V-003", "$.actions.go.flow.path"),
        (patch("$mel.guards.x"), "V-003", "$.actions.go.flow.path"),
        (patch("user.age"), "V-003", "$.actions.go.flow.path"),
        (patch("count", get("user.age")), "V-003", "$.actions.go.flow.value"),
        (patch("count", {"kind": "add", "left": lit(1)}), "SCHEMA_ERROR", "$.actions.go.flow.value"),
        (patch("count", {"kind": "and", "args": lit(1)}), "SCHEMA_ERROR", "$.actions.go.flow.value"),
        (patch("count", {"kind": "get"}), "SCHEMA_ERROR", "$.actions.go.flow.value"),
        (
            patch("count", {"kind": "not", "arg": {"kind": "x"}}),
            "SCHEMA_ERROR",
            "$.actions.go.flow.value.arg",
        ),
        ({"kind": "effect"}, "SCHEMA_ERROR", "$.actions.go.flow"),
        ({"kind": "effect", "type": "array.map", "params": {}}, "SCHEMA_ERROR", "$.actions.go.flow"),
        ({"kind": "effect", "type": "x", "params": {"a": 1}}, "SCHEMA_ERROR", "$.actions.go.flow.params.a"),
        ({"kind": "call", "flow": "nobody"}, "V-004", "$.actions.go.flow"),
        ({"kind": "call", "flow": "go"}, "V-005", "$.actions.go"),
        ({"kind": "fail"}, "SCHEMA_ERROR", "$.actions.go.flow"),
        ({"kind": "halt", "reason": 1}, "SCHEMA_ERROR", "$.actions.go.flow"),
    ],
)
def test_a_malformed_flow_is_refused(node: Any, code: str, path: str) -> None:
    assert (code, path) in faults(flow(node))


@for_each(
    "node",
    [
        patch("items.3.done", lit(True)),
        patch("bag.any.where"),
        patch("user", lit({"name": "x"}), "merge"),
        patch("count", get("items.length")),
        patch("count", get("items.0.done")),
        patch("count", get("meta.intentId")),
        patch("count", get("system.lastError.code")),
        patch("count", get("$system.timestamp")),
        patch("count", get("input.anything")),
        patch("list", {"kind": "map", "array": get("items"), "mapper": get("$item.done")}),
        {"kind": "if", "cond": get("count"), "then": {"kind": "halt"}, "else": None},
        {"kind": "fail", "code": "X", "message": lit("no")},
    ],
)
def test_a_good_flow_is_accepted(node: Any) -> None:
    load_schema(flow(node))


def test_availability_must_not_read_the_input() -> None:
    assert faults(flow({"kind": "halt"}, available=get("input.x"))) == [("V-003", "$.actions.go.available")]


def test_an_action_has_a_flow_or_python_and_not_both() -> None:
    for action in ({}, {"flow": {"kind": "halt"}, "python": {"name": "f", "version": "1"}}):
        assert faults(schema(actions={"go": action})) == [("SCHEMA_ERROR", "$.actions.go")]
    assert ("SCHEMA_ERROR", "$.actions.go.python") in faults(schema(actions={"go": {"python": {"name": "f"}}}))


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"type": "text"}, ".type"),
        ({}, ".type"),
        ({"type": {"enum": []}}, ".type"),
        ({"type": "string", "requird": True}, ".requird"),
        ({"type": "string", "required": 1}, ".required"),
        ({"type": "string", "fields": {}}, ".fields"),
        ({"type": "object", "fields": []}, ".fields"),
        ({"type": "object", "items": {"type": "string"}}, ".items"),
        ({"type": "array", "items": 5}, ".items"),
        ({"type": "number", "default": "x"}, ".default"),
        ({"type": "object", "fields": {"a": {"type": "bad"}}}, ".fields.a.type"),
    ],
)
def test_a_malformed_field_is_refused(spec: Any, path: str) -> None:
    bad = schema()
    bad["state"]["fields"]["f"] = spec
    assert ("SCHEMA_ERROR", f"$.state.fields.f{path}") in faults(bad)


@pytest.mark.parametrize("name", ["meta", "system", "input", "computed", ""])
def test_a_field_cannot_take_a_name_that_paths_need(name: str) -> None:
    bad = schema()
    bad["state"]["fields"][name] = {"type": "string", "default": ""}
    assert faults(bad) == [("SCHEMA_ERROR", f"$.state.fields.{name}")]


@pytest.mark.requirement("HC-flow")
def test_computed_values_form_no_circle_and_the_circle_is_named() -> None:
    fields = {
        f"computed.{a}": {"deps": [f"computed.{b}"], "expr": get(f"computed.{b}")}
        for a, b in [("a", "b"), ("b", "c"), ("c", "a")]
    }
    with pytest.raises(RefusedError) as caught:
        load_schema(schema(computed={"fields": fields}))
    (fault,) = caught.value.details["faults"]
    assert fault["code"] == "V-002"
    assert "computed.a -> computed.b -> computed.c -> computed.a" in fault["message"]


def test_a_computed_value_reads_only_what_it_declares() -> None:
    def computed(expr: Any, deps: list[str]) -> dict[str, Any]:
        return schema(computed={"fields": {"computed.x": {"deps": deps, "expr": expr}}})

    load_schema(computed(get("user.name"), ["user"]))
    for expr, deps in [
        (get("user.name"), ["count"]),
        (get("input.x"), []),
        (get("meta.timestamp"), []),
        (get("$system.uuid"), []),
        (lit(1), ["nosuch"]),
    ]:
        assert [code for code, _ in faults(computed(expr, deps))] == ["V-001"]


def test_an_expression_that_is_too_deep_is_refused() -> None:
    deep: Any = lit(1)
    for _ in range(MAX_EXPRESSION_DEPTH - 1):
        deep = {"kind": "not", "arg": deep}
    assert check_expression(deep) == []
    deeper = {"kind": "not", "arg": deep}
    assert [path for path, _ in check_expression(deeper)] == ["$"]
    assert faults(flow(patch("count", deeper))) == [("SCHEMA_ERROR", "$.actions.go.flow.value")]


def test_an_expression_of_too_many_nodes_is_refused() -> None:
    wide: dict[str, Any] = {"kind": "and", "args": [lit(True)] * (MAX_EXPRESSION_NODES - 1)}
    assert check_expression(wide) == []
    wide["args"].append(lit(True))
    assert [path for path, _ in check_expression(wide)] == ["$"]


@pytest.mark.parametrize("wrong", [None, 5, [], {}, {"actions": 1, "state": 2, "computed": 3}])
def test_what_is_no_schema_is_refused_and_nothing_else_raised(wrong: Any) -> None:
    assert faults(wrong)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "seq", "get", "count", "string"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["kind", "steps", "path", "value", "op", "args", "fields", "type"]), inner)
    ),
    max_leaves=12,
)


@given(JSON, JSON, JSON, JSON)
def test_any_json_is_read_or_refused_but_never_raises_otherwise(node: Any, state: Any, spec: Any, expr: Any) -> None:
    portable = schema(
        actions={"go": {"flow": node, "available": expr, "input": spec}},
        computed={"fields": {"computed.x": {"deps": ["count"], "expr": expr}}},
    )
    portable["state"] = {"fields": {"count": {"type": "number"}, "f": state}}
    with contextlib.suppress(RefusedError):
        assert load_schema(portable).id == portable["id"]


@given(st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdef"), max_size=3)))
def test_computed_values_stand_behind_what_they_depend_on(edges: dict[str, list[str]]) -> None:
    specs = [ComputedSpec(name, tuple(deps), (), ()) for name, deps in edges.items()]
    order = [spec.name for spec in computed_order(specs)]
    assert sorted(order) == sorted(edges)
    if not circles(edges):
        for name, deps in edges.items():
            assert all(order.index(dep) < order.index(name) for dep in deps if dep in edges)


@pytest.mark.requirement("IC-validate")
@for_each(
    ("spec", "value", "paths"),
    [
        ({"type": "object", "fields": {"a": {"type": "string", "required": True}}}, {}, [".a"]),
        ({"type": "object", "fields": {"a": {"type": "string"}}}, {"a": None}, []),
        ({"type": "object", "fields": {"a": {"type": "string"}}}, {"b": 1}, [".b"]),
        ({"type": "array", "items": {"type": "number"}}, [1, "2", None], ["[1]", "[2]"]),
        ({"type": {"enum": ["a", None, 1]}}, None, []),
        ({"type": {"enum": ["a", 1]}}, True, [""]),
        ({"type": "number"}, True, [""]),
        ({"type": "number"}, float("nan"), [""]),
        ({"type": "boolean"}, 1, [""]),
        ({"type": "null"}, 0, [""]),
        ({"type": "any"}, {"x": [1]}, []),
        ({"type": "any", "secret": True}, "${secret:KEY}", []),
        ({"type": "any", "secret": True}, "as it is", [""]),
        ({"type": "object", "fields": {"s": {"type": "string", "secret": True}}}, {"s": "as it is"}, [".s"]),
        (
            {"type": "object", "fields": {"l": {"type": "array", "items": {"type": {"enum": [1]}}}}},
            {"l": [1, 2]},
            [".l[1]"],
        ),
    ],
)
def test_an_inputs_faults_are_named_by_their_paths(spec: Any, value: Any, paths: list[str]) -> None:
    found: list[tuple[str, str]] = []
    field = read_field(spec, "$", found)
    assert not found
    assert [fault.path for fault in check_value(field, value, state=False)] == paths


@pytest.mark.requirement("IC-validate")
def test_literals_in_secret_fields_are_found_at_every_depth() -> None:
    secret = {"type": "string", "secret": True}
    rows = {"type": "array", "items": {"type": "object", "fields": {"pin": secret, "name": {"type": "string"}}}}
    spec = read_field({"type": "object", "fields": {"key": secret, "rows": rows, "none": rows}}, "$", [])
    given = {"key": "a", "rows": [{"pin": "${secret:PIN}", "name": "b"}, {"pin": "c"}], "none": None, "more": 1}
    assert list(secret_literals(spec, given)) == ["input.key", "input.rows[1].pin"]
    assert list(secret_literals(spec, 5)) == []


@pytest.mark.requirement("INT-7.4.2e")
@pytest.mark.parametrize(
    ("expression", "reads"),
    [
        ({"kind": "append", "array": get("a"), "items": [get("b"), get("c")]}, {"a", "b", "c"}),
        ({"kind": "field", "object": get("a"), "property": "x"}, {"a"}),
        ({"kind": "if", "cond": get("a"), "then": get("b"), "else": get("c")}, {"a", "b", "c"}),
        ({"kind": "coalesce", "args": [get("a"), get("b")]}, {"a", "b"}),
        ({"kind": "map", "array": get("a"), "mapper": get("b")}, {"a", "b"}),
    ],
)
def test_the_dependencies_of_an_expression_are_those_of_all_its_operands(expression: Any, reads: set[str]) -> None:
    assert dependencies(expression) == reads
