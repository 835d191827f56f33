"""No condition takes long, whatever it reads: what it could cost is bounded before it is evaluated."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authority.cel.conditions import Condition, read_when
from authority.cel.cost import MAX_COST, TooLargeError, pattern_cost, size_of
from authority.cel.tokens import ConditionError
from tests.authority.cases import make_case
from world.errors import RefusedError

TOO_LONG_S = 5.0
"""A second is what is promised; the rest is for a loaded machine."""

L = "base.data.l"
Made = Callable[[int], Any]


def numbers(count: int) -> list[int]:
    return list(range(count))


def texts(count: int) -> list[str]:
    return [f"{at:040}" for at in range(count)]


def maps(count: int) -> list[Any]:
    return [{"a": at, "b": "x" * 20, "tags": ["p", "q"]} for at in range(count)]


def names(count: int) -> dict[str, Any]:
    return {f"name-{at}": {"of": {"the": at}} for at in range(count)}


WORST: list[tuple[str, Made]] = [
    (f"{L}.map(x, x).size() > 0", texts),
    (f"{L}.map(x, x).filter(x, x.a >= 0).map(x, x.tags).size() > 0", maps),
    (f"{L}.map(x, {L}).size() > 0", numbers),
    (f"{L}.map(x, {L}.map(y, [y, y])).all(z, z.all(y, y == y))", numbers),
    (f"{L}.all(x, {L}.all(y, x + y >= 0 && string(y) != ''))", numbers),
    (
        f"{L}.all(x, {L}.all(y, y.tags.all(t, t in x.tags)) == false)".replace(".all(t, t in x.tags)", " == x.tags"),
        maps,
    ),
    (f"({'+'.join([L] * 60)}).all(x, x in {L})", numbers),
    (f"{L}.all(x, [{L}, {L}, {L}] == [{L}, {L}, {L}])", maps),
    (f"{L}.all(k, {L}[k].of.the >= 0 && {L} == {L})", names),
    (f"{L} == {L}", names),
    (f"{L}.all(x, x.matches('^[a-z]{{1,100}}(foo|bar)+$') == false)", texts),
    (f"{L}.all(x, x.matches('(?i)\\\\w{{1,5}}y') == false)", texts),
    (f"{L}.all(x, timestamp(x) >= timestamp(0) && size([x, x]) == 2)", numbers),
    (" && ".join([f"({L} + {L}).matches('[ab]*a[ab]{1000}c') == false"] * 12), lambda count: "ab" * count),
]


def largest(condition: Condition, made: Made) -> Any:
    """Return about the largest values with which a condition is still evaluated."""
    count, known = 4, made(2)
    while count < 1 << 24:
        value = made(count)
        try:
            sizes = {name: size_of(value) for name in ("_0", "_1", "_2")}
        except TooLargeError:
            break
        if condition._cost.of(sizes) > MAX_COST:
            break
        count, known = count * 5 // 4 + 1, value
    return known


@pytest.mark.requirement("CARD-policy")
@pytest.mark.parametrize(("when", "made"), WORST, ids=[when[:60] for when, _ in WORST])
@pytest.mark.slow
def test_the_worst_that_is_evaluated_takes_about_a_second(when: str, made: Made) -> None:
    condition = read_when(when)
    value = largest(condition, made)
    case = make_case(data={"l": value})
    begun = time.thread_time()
    with contextlib.suppress(RefusedError):
        condition.holds(case)
    assert time.thread_time() - begun < TOO_LONG_S


@pytest.mark.requirement("CARD-policy")
@pytest.mark.parametrize(("when", "made"), WORST[:-1], ids=[when[:60] for when, _ in WORST[:-1]])
@pytest.mark.slow
def test_whatever_is_larger_is_refused_at_once_and_says_what_is_too_large(when: str, made: Made) -> None:
    huge = make_case(data={"l": made(60_000)})
    condition = read_when(when)
    begun = time.thread_time()
    with pytest.raises(RefusedError, match=r"it could take too long, because base\.data\.l") as refused:
        condition.holds(huge)
    assert refused.value.code == "CONDITION_FAILED"
    assert time.thread_time() - begun < TOO_LONG_S


def test_ordinary_conditions_over_large_states_are_evaluated() -> None:
    case = make_case(
        data={"l": numbers(100_000), "todos": maps(2_000), "members": names(4_000)}, given={"to": "name-7"}
    )
    for when in (
        "base.data.l.all(x, x >= 0)",
        "base.data.l.size() == 100000",
        "base.data.todos.exists(t, 'q' in t.tags && t.a == 1999)",
        "intent.input.to in base.data.members && base.data.members[intent.input.to].of.the == 7",
        "base.data.todos.exists_one(t, t.b.startsWith('x') && t.a == 3)",
        "base.data.members.all(name, name.matches('^name-[0-9]{1,6}$'))",
    ):
        assert read_when(when).holds(case), when
    few = make_case(data={"l": numbers(500), "todos": maps(200)})
    assert read_when("base.data.l.all(x, base.data.l.exists(y, y == x))").holds(few)
    assert read_when("base.data.todos.filter(t, t.a > 100).map(t, t.b).size() == 99").holds(few)


@pytest.mark.parametrize(
    "when",
    [
        "[1]" + ".map(a, [a, a])" * 20 + ".size() > 0",
        "['ab']" + ".map(a, a + a)" * 30 + "[0].size() > 0",
        "[[1]]" + ".map(a, a + a + a + a)" * 12 + ".size() > 0",
        "'' .matches('((a{100}){100}){100}')",
        r"''.matches(r'\w{1000}')",
        r"''.matches('\\w{100}\\w{100}(\\w{5}){50}')",
    ],
)
def test_what_grows_by_itself_is_found_when_it_is_read(when: str) -> None:
    with pytest.raises(ConditionError, match="too large"):
        read_when(when)


@pytest.mark.parametrize("when", ["actor.name.matches(intent.input.pattern)", "actor.name.matches('a' + 'b')"])
def test_a_pattern_stands_in_the_condition(when: str) -> None:
    with pytest.raises(ConditionError, match="takes a pattern as one string literal"):
        read_when(when)


VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=200),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=30,
)


def counted(value: Any) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return 1 + sum(map(counted, inner))


def inside(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


@given(VALUES)
def test_sizes_hold_for_all_that_is_in_a_value(value: Any) -> None:
    size, level = size_of(value), [value]
    for known in size[:-1]:
        for one in level:
            assert counted(one) <= known.weight
            assert len(inside(one)) <= known.length
        level = [inner for one in level for inner in inside(one)]


@pytest.mark.parametrize(
    ("small", "large"), [("'a'", "'a{9}'"), ("'a{9}'", "'(a{9}){9}'"), ("'a'", r"r'\w'"), ("'(?x)a'", "'(?x)a {9}'")]
)
def test_a_pattern_costs_what_it_repeats(small: str, large: str) -> None:
    assert pattern_cost(small) < pattern_cost(large)
