"""Loops whose answer a later item decides although an earlier one fails."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authority.cel.conditions import read_when
from tests.authority.cases import make_case
from tests.support.tables import for_each
from world.errors import RefusedError


def value(text: str, evaluation: int = 2, **given_: Any) -> Any:
    """Return the value of a condition, or the reason of its failure."""
    try:
        return read_when(text, evaluation).value(make_case(given=given_))
    except RefusedError as refused:
        return refused.message


ZERO = "it divides by zero"


@for_each(
    ("text", "expected"),
    [
        ("[1, 2, 3].all(e, 6 / (2 - e) == 6)", False),
        ("[2, 1].exists(e, 6 / (2 - e) == 6)", True),
        ("[2, 1].all(e, 6 / (2 - e) == 6)", ZERO),
        ("[2, 3].exists(e, 6 / (2 - e) == 6)", ZERO),
        ("[2].all(e, 6 / (2 - e) == 6) || true", True),
        ("!([1, 2, 3].all(e, 6 / (2 - e) == 6)) && [2, 1].exists(e, 6 / (2 - e) == 6)", True),
        ("[[2, 1], [2]].exists(l, l.exists(e, 6 / (2 - e) == 6))", True),
        ("[[2, 3], [2, 1, 3]].all(l, l.all(e, 6 / (2 - e) == 6))", False),
        ("[1, 2].exists(e, [0, e].all(i, 2 / i == e))", False),
        ("[2, 1].exists_one(e, 6 / (2 - e) == 6)", ZERO),
        ("[2, 1].filter(e, 6 / (2 - e) == 6) == [1]", ZERO),
        ("[2u, 1u].exists(e, 6u / (e - 2u) == 6u)", ZERO),
        ("[1, 2].all(e, e)", "values of different types do not go together; double(x), int(x), string(x) turn them"),
    ],
)
@pytest.mark.requirement("CARD-policy")
def test_a_later_item_decides_where_an_earlier_one_fails(text: str, expected: Any) -> None:
    assert value(text) == expected


@given(st.lists(st.sampled_from([0, 1, -1]), max_size=40))
@pytest.mark.requirement("CARD-policy")
def test_loops_have_the_answers_of_the_definition(numbers: list[int]) -> None:
    fails = ZERO if 0 in numbers else None
    assert value("intent.input.l.all(i, 1 / i > 0)", l=numbers) == (False if -1 in numbers else fails or True)
    assert value("intent.input.l.exists(i, 1 / i > 0)", l=numbers) == (True if 1 in numbers else fails or False)


def test_a_failure_of_the_history_refuses_whatever_another_item_says() -> None:
    text = """[1, 0].exists(i, i == 0 ? true : history.count({"decision": "maybe"}) > i)"""
    assert "decision" in value(text)


def test_beyond_the_work_the_condition_fails() -> None:
    text = "intent.input.l.all(i, 1 / i > 0)"
    assert value(text, l=[0, *[1] * 9_000, -1]) is False
    assert value(text, l=[0, *[1] * 90_000, -1]) == ZERO
    assert value(text, l=[*[0] * 5_000, -1]) == ZERO


def test_a_loop_that_reads_a_large_value_beside_its_list_fails() -> None:
    text = "intent.input.l.all(i, 1 / i > 0 && size(intent.input.m) > 0 && intent.input.m == intent.input.m)"
    assert value(text, l=[*[0] * 10, -1], m=[0] * 3_000) is False
    assert value(text, l=[*[0] * 10, -1], m=[0] * 30_000) == ZERO


@pytest.mark.requirement("CARD-replay")
def test_a_condition_of_an_earlier_adoption_fails_as_it_did() -> None:
    assert value("[1, 2, 3].all(e, 6 / (2 - e) == 6)", evaluation=1) == ZERO
