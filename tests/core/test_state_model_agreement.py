"""The checker agrees with ``jsonschema`` on random schemas, and its check of a change with one of the whole."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st

from tests.plugins.forms import scaled
from world.core.state_model.checking import NEW, Checker, Touched
from world.core.state_model.dialect import DIALECT, SchemaNode, read_model
from world.errors import RefusedError
from world.model.immutable_json import FrozenDict, freeze, thaw
from world.model.patch import Patch, apply_patch
from world.model.paths import format_path

pytestmark = pytest.mark.slow

NAMES = ["a", "b", "a.b", "0", "1", "kind"]
TEXTS = ["", "a", "ab", "abc", "kind", "2024-02-29", "2023-02-29", "0b9f7c1e-3a52-4d7e-9a55-6f1f0c2f8a11", "é"]
SCALARS = (
    st.none() | st.booleans() | st.integers(-4, 13) | st.sampled_from([0.5, 1.0, -0.25, 2.5]) | st.sampled_from(TEXTS)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)


def _members(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"type": st.just("object")},
        optional={
            "properties": st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
            "required": st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
            "additionalProperties": st.booleans() | inner,
            "propertyNames": st.sampled_from([{"maxLength": 1}, {"enum": ["a", "b"]}, {"pattern": "^a"}]),
            "minProperties": st.integers(0, 2),
            "maxProperties": st.integers(1, 3),
        },
    )


def _elements(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"type": st.just("array")},
        optional={
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "items": st.booleans() | inner,
            "minItems": st.integers(0, 2),
            "maxItems": st.integers(1, 3),
        },
    )


LEAVES = st.one_of(
    st.just({}),
    st.sampled_from(["string", "number", "integer", "boolean", "null"]).map(lambda kind: {"type": kind}),
    st.just({"type": ["string", "null"]}),
    st.builds(lambda values: {"enum": values}, st.lists(VALUES, min_size=1, max_size=3)),
    st.builds(lambda value: {"const": value}, SCALARS),
    st.sampled_from(["#/$defs/X", "#/$defs/Y"]).map(lambda name: {"$ref": name}),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["number", "integer"])},
        optional={
            "minimum": st.integers(-3, 5),
            "maximum": st.sampled_from([1, 2.5, 12]),
            "exclusiveMinimum": st.sampled_from([-1, 0.5]),
            "exclusiveMaximum": st.integers(0, 13),
            "multipleOf": st.sampled_from([1, 2, 0.5, 0.25, 3]),
        },
    ),
    st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={
            "minLength": st.integers(0, 3),
            "maxLength": st.integers(0, 3),
            "pattern": st.sampled_from(["a", "^a", "b$", "^[a-c]*$", "[0-9]{4}"]),
            "format": st.sampled_from(["date", "uuid"]),
        },
    ),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: (
        _members(inner) | _elements(inner) | st.lists(inner, min_size=1, max_size=3).map(lambda few: {"anyOf": few})
    ),
    max_leaves=8,
)
INSIDE = _members(SCHEMAS) | _elements(SCHEMAS)
ROOTS = st.builds(lambda root, x, y: {**root, "$defs": {"X": x, "Y": y}}, _members(SCHEMAS), INSIDE, INSIDE)


def read(schema: Any) -> SchemaNode:
    faults: list[tuple[str, str]] = []
    node = read_model(freeze({"dialect": DIALECT, "schema": schema}), "$", faults)
    assert faults == []
    return node


def fits(node: SchemaNode, value: Any) -> bool:
    return next(Checker().faults(node, freeze(value)), None) is None


def by_library(schema: Any) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker(["date", "uuid"]))


@given(ROOTS, VALUES)
def test_the_checker_accepts_what_the_library_accepts(schema: Any, value: Any) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    assert fits(read(schema), value) is by_library(schema).is_valid(value)


@given(ROOTS, st.data())
def test_the_checker_and_the_library_agree_near_values_that_fit(schema: Any, data: st.DataObject) -> None:
    """A value is drawn, and its members are changed until it fits, so that deep keywords decide."""
    validator, node = by_library(schema), read(schema)
    value = data.draw(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4))
    for _ in range(6):
        found = next(validator.iter_errors(value), None)
        assert fits(node, value) is (found is None)
        place = [] if found is None else list(found.absolute_path)
        if not place:
            return
        inside: Any = value
        for step in place[:-1]:
            inside = inside[step]
        inside[place[-1]] = data.draw(VALUES)


PATHS = st.lists(st.sampled_from([*NAMES, "2"]), min_size=1, max_size=3).map(lambda names: format_path(tuple(names)))
PATCHES = st.one_of(
    st.builds(Patch, st.just("set"), PATHS, VALUES),
    st.builds(Patch, st.just("unset"), PATHS),
    st.builds(Patch, st.just("merge"), PATHS, st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=2)),
)


@given(ROOTS, st.data())
@settings(max_examples=scaled(300, ci=60))
def test_the_check_of_a_change_finds_a_fault_where_the_check_of_the_whole_does(
    schema: Any, data: st.DataObject
) -> None:
    node, checker = read(schema), Checker()
    base = freeze(data.draw(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4)))
    assume(next(checker.faults(node, base), None) is None)
    for _ in range(4):
        touched, after = Touched(), base
        for patch in data.draw(st.lists(PATCHES, min_size=1, max_size=4)):
            try:
                after = apply_patch(after, patch)
            except RefusedError:
                continue
            touched.note(patch)
            note(str(patch))
        found = list(checker.faults(node, after, base, touched))
        whole = list(Checker().faults(node, after, NEW))
        assert bool(found) is bool(whole), (thaw(base), thaw(after), found, whole)
        if not found:
            assert isinstance(after, FrozenDict)
            base = after
