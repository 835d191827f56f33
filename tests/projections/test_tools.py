"""Catalogs as tools of language models: safe names that lead back, schemas of objects, and calls as intents."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from projections.catalog import CatalogProjector, CatalogRequest, Pruning
from projections.descriptors import ActionDescriptor
from projections.tools import ToolSet, action_type, tool_name, tools_of
from world.errors import RefusedError
from world.model.canonical_json import canonical_text
from world.model.immutable_json import FrozenDict
from world.model.snapshot import SnapshotView

SAFE = re.compile(r"[A-Za-z0-9_-]{1,64}")
TYPES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=80)
TRICKY = st.text(st.sampled_from("ab._-xh0_"), min_size=1, max_size=80)


def tools(*actions: ActionDescriptor, **pruning: Any) -> ToolSet:
    view = SnapshotView(FrozenDict(), FrozenDict())
    asked = CatalogRequest("s", view, None, actions, pruning=Pruning.read(pruning))
    return tools_of(CatalogProjector().project_action_catalog(asked))


@pytest.mark.parametrize(
    ("action", "name"),
    [
        ("todo.add", "todo-add"),
        ("stock_count.set-all", "stock__count-set_-all"),
        ("sell", "sell"),
        ("a b/c", "a_x20_b_x2f_c"),
        ("é😀", "_xe9__x1f600_"),
        ("_x20_", "__x20__"),
    ],
)
def test_a_name_shows_the_type_and_leads_back_to_it(action: str, name: str) -> None:
    assert tool_name(action) == name
    assert action_type(name) == action


@given(TYPES | TRICKY)
def test_every_type_has_a_safe_name_and_a_short_one_leads_back(action: str) -> None:
    name = tool_name(action)
    assert SAFE.fullmatch(name)
    back = action_type(name)
    assert back in (action, None)
    assert back == action or name[-34:-32] == "_h"


@given(TYPES | TRICKY, TYPES | TRICKY)
def test_different_types_have_different_names(one: str, other: str) -> None:
    assert (tool_name(one) == tool_name(other)) is (one == other)


@given(st.text(st.sampled_from("ab_-xh019f"), max_size=64))
def test_a_name_that_leads_to_a_type_is_that_types_name(name: str) -> None:
    action = action_type(name)
    assert action is None or tool_name(action) == name


@pytest.mark.parametrize("name", ["", "_", "a_", "_q", "_x_", "_x61_", "_x110000_", "_xG_", "a.b", "_x041_", "a b"])
def test_what_is_no_tools_name_leads_nowhere(name: str) -> None:
    assert action_type(name) is None


def test_a_long_type_is_cut_and_keeps_its_own_name() -> None:
    long = [f"{'a' * 100}.{number}" for number in range(50)] + ["_" * 63 + "a", "_" * 63 + "b", "é" * 20]
    names = [tool_name(action) for action in long]
    assert len(set(names)) == len(long)
    assert all(SAFE.fullmatch(name) and action_type(name) is None for name in names)
    found = tools(*(ActionDescriptor(action) for action in long))
    assert found.names == dict(zip(names, long, strict=True)) == {name: found.tools[name].action for name in names}


def test_a_catalog_becomes_definitions_and_a_table_that_leads_back() -> None:
    shape = {"type": "object", "properties": {"by": {"type": "number"}}, "required": ["by"]}
    found = tools(
        ActionDescriptor("count.add", "Add", "Adds to the count.", shape),
        ActionDescriptor("count.name", "Name it", None, {"type": "string"}),
        ActionDescriptor("count.reset", available={"kind": "get", "path": "meta.actor.kind"}),
        ActionDescriptor("count.stop", available={"kind": "lit", "value": False}),
        policy="mark_only",
    )
    assert json.loads(canonical_text(found.to_wire())) == {
        "catalogHash": found.catalog_hash,
        "tools": [
            {"name": "count-add", "description": "Adds to the count.", "input_schema": shape},
            {
                "name": "count-name",
                "description": "Name it",
                "input_schema": {
                    "type": "object",
                    "properties": {"input": {"type": "string"}},
                    "required": ["input"],
                    "additionalProperties": False,
                },
            },
            {
                "name": "count-reset",
                "description": "count.reset. Whether this is available now is decided when it is called.",
                "input_schema": {"type": "object", "properties": {}},
            },
        ],
        "names": {"count-add": "count.add", "count-name": "count.name", "count-reset": "count.reset"},
    }


def test_references_within_a_schema_still_lead_to_what_they_named_when_it_is_wrapped() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}, "$ref": {"$ref": "#/definitions/no"}}}
    shape = {
        "type": "array",
        "prefixItems": [{"type": "string", "default": {"$ref": "#"}}, {"type": "integer"}],
        "items": {"anyOf": [{"$ref": "#"}, {"$ref": "#/$defs/Node"}, {"$ref": "#/prefixItems/1"}]},
        "$defs": {"Node": {**node, "additionalProperties": False}},
        "definitions": {"no": {"const": {"$ref": "#"}}},
    }
    (tool,) = tools(ActionDescriptor("a", input_schema=shape)).tools.values()
    alone, wrapped = Draft202012Validator(shape), Draft202012Validator(json.loads(canonical_text(tool.input_schema)))
    for value, is_good in [
        (["x", 1, 2], True),
        (["x", 1, {"next": {"next": {}}}], True),
        (["x", 1, {"$ref": {"$ref": "#"}}], True),
        (["x", 1, ["y", 2, ["z"]]], True),
        (["x", 1, ["y", "z"]], False),
        (["x", 1, {"next": 1}], False),
        (["x", 1, "y"], False),
    ]:
        assert alone.is_valid(value) is is_good
        assert wrapped.is_valid({"input": value}) is is_good


def test_a_recursive_object_is_no_member_and_its_definitions_stay() -> None:
    node = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}}
    shape = {"$ref": "#/$defs/Node", "$defs": {"Node": node}, "title": "A tree"}
    (tool,) = tools(ActionDescriptor("a", input_schema=shape)).tools.values()
    assert tool.takes == "object"
    assert tool.input_schema["type"] == "object"
    check = Draft202012Validator(json.loads(canonical_text(tool.input_schema)))
    assert check.is_valid({"kids": [{"kids": []}]})
    assert not check.is_valid({"kids": [{"kids": 1}]})


def test_a_schema_may_be_a_boolean_and_nothing_else_that_is_no_object() -> None:
    free, never = tools(ActionDescriptor("a", input_schema=True), ActionDescriptor("b", input_schema=False)).tools
    assert (free, never) == ("a", "b")
    (tool,) = tools(ActionDescriptor("b", input_schema=False)).tools.values()
    assert not Draft202012Validator(json.loads(canonical_text(tool.input_schema))).is_valid({"input": 1})
    with pytest.raises(RefusedError, match="must be a JSON Schema"):
        ActionDescriptor("a", input_schema=[1])


def test_a_call_of_a_tool_is_an_intents_body() -> None:
    found = tools(
        ActionDescriptor("a.object", input_schema={"type": "object"}),
        ActionDescriptor("a.text", input_schema={"type": "string"}),
        ActionDescriptor("a.free", input_schema={}),
        ActionDescriptor("a.none"),
    )
    assert found.body("a-object", {"x": 1}).to_wire() == {"type": "a.object", "input": {"x": 1}}
    assert found.body("a-object", {}).to_wire() == {"type": "a.object", "input": {}}
    assert found.body("a-text", {"input": "hello"}).to_wire() == {"type": "a.text", "input": "hello"}
    assert found.body("a-text").to_wire() == {"type": "a.text"}
    assert found.body("a-free", {"input": [1]}).to_wire() == {"type": "a.free", "input": [1]}
    assert found.body("a-none", {}).to_wire() == {"type": "a.none"}
    assert found.body("a-none", {"x": 1}).to_wire() == {"type": "a.none", "input": {"x": 1}}


def test_a_call_of_no_tool_is_refused() -> None:
    found = tools(ActionDescriptor("a"))
    with pytest.raises(RefusedError) as caught:
        found.body("b", {})
    assert (caught.value.code, caught.value.details["names"]) == ("UNKNOWN_TOOL", ["a"])
    with pytest.raises(RefusedError, match="must be an object"):
        found.body("a", [1])  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match="there are: none"):
        tools().body("a")
