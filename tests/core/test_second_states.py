"""docs/reference/state-model.md says enough: states are checked from it alone, and as the engine checks them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import second_states as second
from tests.core.test_state_model_agreement import NAMES, ROOTS, VALUES, fits, read
from tests.plugins.forms import scaled
from tests.second_forms import Bad
from tests.support.tables import for_each
from world.core.fields import read_field
from world.core.state_model.checking import Checker
from world.core.state_model.dialect import DIALECT, KEYWORDS, read_model
from world.core.validate import check_input
from world.model.immutable_json import freeze

ODD: list[Any] = [
    "2024-02-29T23:59:59Z", "2024-02-29t00:00:00.123456789+23:59", "2024-02-29T00:00:60Z", "2024-02-29T24:00:00Z",
    "2024-02-29T23:60:00Z", "2024-02-29 00:00:00Z", "2024-02-29T00:00:00", "2024-02-29T00:00:00-24:00",
    "2023-02-29T00:00:00Z", "2024-02-29T00:00:00.Z", "2024-02-29T00:00:00+0100", "0000-01-01", "0001-01-01",
    "9999-12-31", "2023-04-31", "2024-1-1", "２０２４-01-01", "0B9F7C1E-3A52-4D7E-9A55-6F1F0C2F8A11",
    "0b9f7c1e3a524d7e9a556f1f0c2f8a11", "{0b9f7c1e-3a52-4d7e-9a55-6f1f0c2f8a11}", "", "a", "ab", "abab", "b", "a\n",
    "\na", "a\nb", "b$",
    "é", "e\u0301", "😀", "😀😀", "${secret:KEY}", "$${secret:KEY}", "x${secret:a.b-c}", "${secret:}",
    "${secret:1}", 0, -0.0, 1, 1.0, -1, 2, 3, 0.1, 0.3, 0.30000000000000004, 0.5, 1e-9, 7.5, 1e20, 3e20, 1e300, 5e-324,
    2**53, -(2**53), True, False, None, [], [1], [1, 2], ["a", 1, None], {}, {"a": 1}, {"a": 1, "b": 2}, {"b": None},
]  # fmt: skip
"""Values at the edges."""
KEYWORDS_ALONE: list[Any] = [
    *({"format": name} for name in ("date", "date-time", "uuid")),
    *({"pattern": one} for one in ("a$", "^a", r"\$", "[$]", ".", "a.b", "(?:ab)+$", "^[^b]*$", "a|b$", "^$")),
    *({f"{side}{what}": n} for side in ("min", "max") for what in ("Length", "Items", "Properties") for n in (0, 1, 2)),
    *({"multipleOf": n} for n in (0.1, 0.3, 1e-9, 3, 1e20, 5e-324)),
    *(
        {name: n}
        for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        for n in (0, 1, 0.3, -1, 1e20, 2**53)
    ),
    *({"type": name} for name in ("string", "integer", "number", "boolean", "null", "array", "object")),
    {"type": ["integer", "string"]},
    *({"const": one} for one in (1, True, None, "a", [1], {"a": 1}, 0)),
    {"enum": [1.0, "a", None]},
    {"type": "string", "secret": True},
    {"prefixItems": [{"type": "integer"}], "items": False},
    {"prefixItems": [{"type": "integer"}], "items": {"type": "integer"}},
    {"prefixItems": [{}, {"type": "string"}]},
    {"items": {"type": "string"}},
    {"required": ["a"]},
    {"properties": {"a": {"type": "integer"}}, "additionalProperties": False},
    {"properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "integer"}},
    {"propertyNames": {"const": "a"}},
    {"anyOf": [{"type": "integer"}, {"maxLength": 1}]},
]
STATES: list[Any] = [
    {}, {"a": 1}, {"a": 1, "$host": {"x": 1}}, {"a": 1, "$": None}, {"a": 1, "b": 2}, {"a": "x"}, {"$host": 1},
    {"a": 1, "$a": 1, "$b": 2}, {"a": 1, "b": {"$x": 1}},
]  # fmt: skip
STATE_SCHEMAS: list[Any] = [
    {"type": "object", "properties": {"a": {"type": "integer"}}, **more}
    for more in (
        {}, {"additionalProperties": False}, {"additionalProperties": {"type": "integer"}}, {"required": ["a"]},
        {"propertyNames": {"pattern": "^[ab]$"}}, {"maxProperties": 2}, {"minProperties": 2},
        {"additionalProperties": {"type": "object", "additionalProperties": False, "properties": {}}},
    )
]  # fmt: skip


@for_each("schema", KEYWORDS_ALONE, ids=str)
def test_each_keyword_accepts_what_the_page_says(schema: Any) -> None:
    for value in ODD:
        assert second.accepts(schema, value, {}) is fits(read(schema), value), value


@pytest.mark.parametrize("schema", STATE_SCHEMAS, ids=str)
def test_members_of_hosts_are_left_out_as_the_page_says(schema: Any) -> None:
    for data in STATES:
        found = next(Checker(is_state=True).faults(read(schema), freeze(data)), None)
        assert second.state_fits({"state": {"dialect": DIALECT, "schema": schema}}, data) is (found is None), data


@given(ROOTS, VALUES)
@settings(max_examples=scaled(400, ci=60))
def test_schemas_accept_what_the_page_says(schema: Any, value: Any) -> None:
    assert second.accepts(schema, value, schema["$defs"]) is fits(read(schema), value)


@given(ROOTS, st.dictionaries(st.sampled_from([*NAMES, "$host", "$"]), VALUES, max_size=4))
def test_states_leave_members_of_hosts_out_as_the_page_says(schema: Any, data: Any) -> None:
    found = next(Checker(is_state=True).faults(read(schema), freeze(data)), None) is None
    assert second.state_fits({"state": {"dialect": DIALECT, "schema": schema}}, data) is found


@given(ROOTS, st.lists(st.sampled_from([*NAMES, "0"]), min_size=1, max_size=3), st.data())
@settings(max_examples=scaled(300, ci=50))
def test_a_fitting_state_that_is_damaged_somewhere_is_judged_alike(
    schema: Any, places: list[str], data: st.DataObject
) -> None:
    """The value at one place below is replaced, so that deep keywords decide."""
    node = read(schema)
    value: Any = data.draw(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4))
    for name in places:
        if isinstance(value, dict) and isinstance(value.get(name), (dict, list)):
            inside = value[name]
            if isinstance(inside, list) and inside:
                inside[0] = data.draw(VALUES | st.sampled_from(ODD))
            elif isinstance(inside, dict):
                inside[data.draw(st.sampled_from(NAMES))] = data.draw(VALUES)
        elif isinstance(value, dict):
            value[name] = data.draw(VALUES)
        assert second.accepts(schema, value, schema["$defs"]) is fits(node, value)


@pytest.mark.parametrize("required", [True, False])
@given(value=st.none() | VALUES)
def test_inputs_are_accepted_as_the_page_says(required: bool, value: Any) -> None:
    model = {"type": "object", "properties": {"a": {"type": "integer", "default": 1}}, "additionalProperties": False}
    spec = {"dialect": DIALECT, "schema": model, "required": required}
    found: list[tuple[str, str]] = []
    read_spec = read_field(freeze(spec), "$", found)
    assert found == []
    assert second.input_fits(spec, value) is (check_input(read_spec, freeze(value)) == [])


def test_the_page_names_every_keyword_and_no_other() -> None:
    page = (second.__file__ or "").replace("tests/second_states.py", "docs/reference/state-model.md")
    with open(page, encoding="utf-8") as file:
        text = file.read()
    table = text.split("| keyword |")[1].split("\n\n")[0]
    first_cells = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| ")]
    named = {
        word.strip("`")
        for cell in first_cells
        for part in [cell.split(":")[0]]
        for word in part.strip("| ").split(", ")
    }
    assert named | {"$defs", "default"} == KEYWORDS


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"title": "x"}, ".title"),
    ({"type": []}, ".type"),
    ({"type": "text"}, ".type"),
    ({"enum": []}, ".enum"),
    ({"enum": [1], "const": 1}, ".const"),
    ({"anyOf": []}, ".anyOf"),
    ({"$ref": "X"}, ".$ref"),
    ({"$ref": "#/$defs/Other"}, ".$ref"),
    ({"$defs": {"X": {"anyOf": [{"$ref": "#/$defs/X"}]}}}, ".$defs.X"),
    ({"properties": {"a": {"$defs": {}}}}, ".properties.a.$defs"),
    ({"required": "a"}, ".required"),
    ({"prefixItems": []}, ".prefixItems"),
    ({"minLength": -1}, ".minLength"),
    ({"maxItems": 1.5}, ".maxItems"),
    ({"multipleOf": 0}, ".multipleOf"),
    ({"minimum": "1"}, ".minimum"),
    ({"pattern": "(?=a)"}, ".pattern"),
    ({"pattern": r"(a)\1"}, ".pattern"),
    ({"format": "email"}, ".format"),
    ({"type": "integer", "default": 0.5}, ".default"),
    ({"secret": True}, ".secret"),
    ({"type": "string", "secret": True, "minLength": 1}, ".secret"),
]
"""Schemas that the page refuses, with the place of the fault."""


@for_each(("schema", "place"), REFUSED)
@pytest.mark.requirement("IC-validate")
def test_what_the_page_refuses_is_refused_with_its_place(schema: Any, place: str) -> None:
    known: dict[str, Any] = {"$defs": {"X": {}}} if "$defs" not in schema else {}
    spec = freeze({"dialect": DIALECT, "schema": {**known, **schema}})
    faults: list[tuple[str, str]] = []
    read_model(spec, "$", faults)
    assert [path for path, _ in faults] == [f"$.schema{place}"]
    together = [("$", "an earlier one")]
    read_field(spec, "$", together)
    assert together == [("$", "an earlier one"), *faults]


@pytest.mark.parametrize(
    ("around", "step"),
    [
        (lambda inner: {"items": inner}, ".items"),
        (lambda inner: {"prefixItems": [inner]}, ".prefixItems[0]"),
        (lambda inner: {"anyOf": [inner]}, ".anyOf[0]"),
        (lambda inner: {"properties": {"a": inner}}, ".properties.a"),
        (lambda inner: {"additionalProperties": inner}, ".additionalProperties"),
        (lambda inner: {"propertyNames": inner}, ".propertyNames"),
    ],
)
def test_schemas_are_nested_up_to_fifty_levels(around: Callable[[Any], Any], step: str) -> None:
    for levels, places in ((50, []), (51, ["$.schema" + step * 50])):
        schema: Any = {}
        for _ in range(levels - 1):
            schema = around(schema)
        faults: list[tuple[str, str]] = []
        read_model(freeze({"dialect": DIALECT, "schema": schema}), "$", faults)
        assert [place for place, _ in faults] == places


def test_a_pattern_that_the_second_implementation_may_read_otherwise_is_not_guessed() -> None:
    with pytest.raises(Bad):
        second.is_matched(r"\d", "1")
