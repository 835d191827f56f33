"""Numbers, texts and equality as expressions see them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from world.core import Scope, compile_expression
from world.core.expressions.numeric_functions import add, div, mod, mul, sub
from world.core.expressions.scope import seeded_fraction, seeded_id
from world.core.expressions.string_functions import substring
from world.core.values import number, number_text, same_value, strict_equal, tidy
from world.model.canonical_json import canonical_bytes, read_json
from world.model.immutable_json import freeze, thaw

SAFE = st.integers(-(2**53), 2**53)
NUMBERS = SAFE | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-1, 1) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=8,
)


@given(st.floats(allow_nan=False, allow_infinity=False).filter(bool) | SAFE)
def test_a_number_is_printed_as_ecmascript_prints_it(value: float) -> None:
    assert number_text(tidy(float(value))) == rfc8785.dumps(float(value)).decode()


@given(NUMBERS, NUMBERS)
def test_arithmetic_is_that_of_doubles(left: float, right: float) -> None:
    one, other = float(left), float(right)
    assert float(add(left, right)) == one + other
    assert float(sub(left, right)) == one - other
    assert same_value(float(mul(left, right)), one * other)
    if other:
        assert float(div(left, right) or 0) == one / other
        assert float(mod(left, right) or 0) == math.fmod(one, other)


@given(NUMBERS, NUMBERS)
def test_results_are_integers_exactly_where_they_can_be(left: float, right: float) -> None:
    for result in (add(left, right), sub(left, right), mul(left, right)):
        if isinstance(result, float) and result.is_integer() and abs(result) <= 2**53:
            assert (result, math.copysign(1, result)) == (0, -1)  # only negative zero stays a double


@given(st.text(max_size=12) | st.text("0123456789.eE+-x Infty", max_size=8))
def test_no_text_counts_as_nan(value: str) -> None:
    assert not math.isnan(number(value))


@given(st.text("a😀é", max_size=8), st.integers(-2, 18), st.integers(-2, 18))
def test_parts_of_a_text_are_counted_in_utf16(value: str, start: int, end: int) -> None:
    units = value.encode("utf-16-le")
    first, last = sorted(min(max(place, 0), len(units) // 2) for place in (start, end))
    assert substring(value, start, end) == units[2 * first : 2 * last].decode("utf-16-le", "surrogatepass")


@given(JSON, JSON)
def test_what_stands_in_the_state_is_equal_by_content_and_type(left: Any, right: Any) -> None:
    one, other = freeze(left), freeze(right)
    assert strict_equal(one, other) is (canonical_bytes(one) == canonical_bytes(other))
    assert strict_equal(one, read_json(canonical_bytes(one)))


@given(JSON)
def test_shared_nodes_and_their_copies_answer_alike(value: Any) -> None:
    shared = freeze(value)
    read = {"kind": "eq", "left": {"kind": "get", "path": "a"}, "right": {"kind": "get", "path": "b"}}
    many = {"kind": "unique", "array": {"kind": "get", "path": "list"}}
    evaluate, unique = compile_expression(read), compile_expression(many)
    for other in (shared, freeze(thaw(shared))):
        scope = Scope(freeze({"a": shared, "b": other, "list": [shared, other]}), computed={})
        assert evaluate(scope) is True
        assert unique(scope) == [shared]


@pytest.mark.requirement("HC-context")
def test_ids_and_chance_follow_from_the_seed() -> None:
    ids = {seeded_id(seed, counter) for seed in ("a", "b", "é\ud800") for counter in range(100)}
    assert len(ids) == 300
    assert all(text[14] == "8" and text[19] in "89ab" and len(text) == 36 for text in ids)
    draws = [seeded_fraction("a", counter) for counter in range(1_000)]
    assert 0.4 < sum(draws) / len(draws) < 0.6
    assert draws == [seeded_fraction("a", counter) for counter in range(1_000)]
