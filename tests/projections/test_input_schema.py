"""What an action takes, as JSON Schema: whatever fits it passes the core's check, and the core's own inputs fit it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from projections.input_schema import schema_of_field, schema_of_model
from world.core.fields import read_field
from world.core.validate import check_input
from world.model.immutable_json import freeze

SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.5]) | st.sampled_from(["", "a", "b"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
    max_leaves=8,
)
KINDS = st.sampled_from(["string", "number", "boolean", "null", "object", "array", "any"])
ENUMS = st.lists(st.none() | st.booleans() | st.integers(-2, 2) | st.text("ab", max_size=1), min_size=1, max_size=3)


def with_inner(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    fields = st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3)
    return fields.map(lambda given: {"type": "object", "fields": given}) | inner.map(
        lambda items: {"type": "array", "items": items}
    )


def asked_for(spec: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.tuples(spec, st.booleans()).map(lambda both: {**both[0], "required": both[1]})


SPECS = asked_for(
    st.recursive(
        KINDS.map(lambda kind: {"type": kind}) | ENUMS.map(lambda values: {"type": {"enum": values}}),
        lambda inner: with_inner(asked_for(inner)),
        max_leaves=6,
    )
)


def has_null_field(spec: dict[str, Any], value: Any) -> bool:
    """Tell whether an optional field is given as null, which the core lets pass and the schema does not offer."""
    if isinstance(value, dict) and spec.get("fields"):
        return any(
            (value[name] is None and not inner.get("required")) or has_null_field(inner, value[name])
            for name, inner in spec["fields"].items()
            if name in value
        )
    return isinstance(value, list) and "items" in spec and any(has_null_field(spec["items"], item) for item in value)


@given(SPECS, VALUES)
@pytest.mark.requirement("INT-3.4c")
def test_a_value_fits_the_schema_exactly_when_the_core_takes_it(spec: dict[str, Any], value: Any) -> None:
    schema = schema_of_field(spec)
    Draft202012Validator.check_schema(schema)
    fits = Draft202012Validator(schema).is_valid(value)
    required = read_field({**spec, "required": True}, "", [])
    taken = not check_input(required, freeze(value))
    assert taken if fits else not taken or has_null_field(spec, value)


def test_what_takes_anything_has_the_empty_schema() -> None:
    assert schema_of_field(None) == schema_of_field({"type": "any"}) == {}


def test_a_description_is_kept() -> None:
    assert schema_of_field({"type": "string", "description": "a name"}) == {"type": "string", "description": "a name"}


class Inner(BaseModel):
    title: str
    inner: Inner | None = None


class Outer(BaseModel):
    """What is wanted."""

    title: Inner
    titles: dict[str, Inner] = {}
    pair: tuple[int, Inner]
    either: Inner | int = 3


def test_a_models_schema_has_no_titles_but_properties_of_that_name_and_is_closed() -> None:
    schema = schema_of_model(Outer)
    Draft202012Validator.check_schema(schema)
    good = {"title": {"title": "a", "inner": {"title": "b"}}, "pair": [1, {"title": "c"}]}
    validator = Draft202012Validator(schema)
    assert validator.is_valid(good)
    assert validator.is_valid({**good, "titles": {"any": {"title": "d"}}})
    assert not validator.is_valid({**good, "more": 1})
    assert not validator.is_valid({**good, "title": {"title": "a", "more": 1}})
    assert set(schema) == {"$defs", "type", "properties", "required", "additionalProperties", "description"}
    assert schema["$defs"]["Inner"]["properties"]["title"] == {"type": "string"}
