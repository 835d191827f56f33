"""Scope patterns: within, in common, restricted; measured against what scope_allows says of patches."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from authority import intersection, is_within, restrict
from authority.scope import outside
from tests.authority.cases import scope
from tests.support.tables import for_each
from world.errors import RefusedError
from world.model.patch import Patch, format_path, scope_allows, set_
from world.model.scope_patterns import format_pattern, parse_pattern
from world.sizes import MAX_SCOPE_NAMES, MAX_SCOPE_PATTERNS
from worldprotocol.testing import strategies as wp

NAMES = st.sampled_from(["a", "b", "c", "0", "data", "x.y", "*", "\\"])
PIECES = st.sampled_from(["a", "b", "c", "0", "data", "x\\.y", "*", "\\*", "\\\\"])
PATTERNS = st.builds(
    lambda prefix, pieces: prefix + ".".join(pieces),
    st.sampled_from(["", "data."]),
    st.lists(PIECES, min_size=1, max_size=4),
)
LISTS = st.lists(PATTERNS, max_size=4)
PATHS = st.lists(NAMES, max_size=5).map(lambda names: format_path(tuple(names)))
PATCHES = wp.patches(at=PATHS, values=st.just(1), keys=NAMES)


def witness(pattern: str) -> Patch:
    """Return a patch at the place of a pattern, with a name nobody uses for every star."""
    segments = tuple("fresh" if name is None else name for name in parse_pattern(pattern))
    return set_(format_path(segments), 1)


@given(LISTS, LISTS, PATCHES)
def test_what_lies_within_allows_nothing_that_the_whole_forbids(inner, outer, patch):
    beyond = outside(inner, outer)
    kept = [pattern for pattern in inner if pattern not in beyond]
    assert is_within(kept, outer)
    assert not scope_allows(kept, patch) or scope_allows(outer, patch)


@given(LISTS, LISTS)
def test_what_does_not_lie_within_has_a_patch_to_show_for_it(inner, outer):
    for pattern in outside(inner, outer):
        assert scope_allows([pattern], witness(pattern))
        assert not scope_allows(outer, witness(pattern))


@given(LISTS, LISTS, PATCHES)
def test_an_intersection_allows_exactly_what_both_allow(left, right, patch):
    both = scope_allows(left, patch) and scope_allows(right, patch)
    assert scope_allows(intersection(left, right), patch) is both


@given(LISTS, LISTS)
def test_an_intersection_lies_within_both_and_says_nothing_twice(left, right):
    common = intersection(left, right)
    assert is_within(common, left)
    assert is_within(common, right)
    for at, pattern in enumerate(common):
        assert not is_within([pattern], [*common[:at], *common[at + 1 :]])


@given(LISTS, LISTS)
def test_intersecting_is_the_same_from_both_sides(left, right):
    one, other = intersection(left, right), intersection(right, left)
    assert is_within(one, other)
    assert is_within(other, one)


@given(PATTERNS)
def test_a_pattern_written_from_its_names_means_the_same(pattern):
    assert parse_pattern(format_pattern(parse_pattern(pattern))) == parse_pattern(pattern)


@given(LISTS, LISTS, LISTS)
def test_within_is_an_order(first, second, third):
    smaller = intersection(second, third)
    smallest = intersection(first, smaller)
    assert is_within(first, first)
    assert is_within(smallest, smaller)
    assert is_within(smaller, third)
    assert is_within(smallest, third)


@for_each(
    ("inner", "outer", "answer"),
    [
        (["data.profile.name"], ["data.profile.*"], True),
        (["profile.name"], ["data.profile.*"], True),
        (["data.profile.*"], ["data.profile"], True),
        (["data.profile"], ["data.profile.*"], False),
        (["data.profile.*"], ["data.profile.name"], False),
        (["data.todos.*.done"], ["data.todos.*"], True),
        (["data.todos.3"], ["data.todos.*.done"], False),
        (["data.a", "data.b"], ["data.*"], True),
        (["data.a", "other.b"], ["data.a"], False),
        ([], ["data.a"], True),
        (["data.a"], [], False),
        (["data.*"], ["data"], False),
        (["data"], ["data.*"], True),
        (["data"], ["data.data"], True),
        (["data.data.x"], ["data"], True),
    ],
)
def test_patterns_lie_within_others_as_people_expect(inner, outer, answer):
    assert is_within(inner, outer) is answer


@pytest.mark.parametrize(
    ("left", "right", "common"),
    [
        (["data.profile.*"], ["data.*.name"], ("data.profile.name",)),
        (["data.profile.*"], ["profile.name"], ("profile.name",)),
        (["data.a.*", "data.b"], ["data.*"], ("data.a.*", "data.b")),
        (["data.a"], ["data.b"], ()),
        (["data.*.x"], ["data.a.*.z"], ("data.a.x.z",)),
    ],
)
def test_patterns_have_in_common_what_people_expect(left, right, common):
    assert intersection(left, right) == common


def test_a_scope_of_too_many_patterns_is_not_compared():
    many = [f"data.p{number}" for number in range(MAX_SCOPE_PATTERNS + 1)]
    with pytest.raises(RefusedError) as refused:
        is_within(["data.a"], many)
    assert refused.value.code == "SCOPE_TOO_LARGE"
    with pytest.raises(RefusedError):
        intersection(many, ["data.*"])


def test_a_scope_of_too_many_names_is_not_compared():
    deep = [".".join(["*"] * 100 + [f"x{number}"]) for number in range(MAX_SCOPE_NAMES // 100 + 1)]
    with pytest.raises(RefusedError) as refused:
        intersection(["data.a"], deep)
    assert refused.value.code == "SCOPE_TOO_LARGE"


@pytest.mark.requirement("INT-13.3")
def test_restricting_by_nothing_gives_the_scope_itself():
    proposed = scope("data.a")
    assert restrict(proposed, []) is proposed
    assert restrict(None, []) is None


@pytest.mark.requirement("INT-13.3")
def test_restricting_an_unrestricted_scope_gives_the_narrowing_with_its_note():
    narrowing = structs.replace(scope("data.a.*"), note="only a")
    assert restrict(None, [narrowing]) is narrowing
    assert restrict(scope("data.*"), [narrowing]) is narrowing


def test_restricting_several_times_restricts_together():
    narrowed = restrict(None, [scope("data.a.*", "data.b"), scope("data.*.x"), scope("data.a")])
    assert narrowed == scope("data.a.x")
    assert restrict(scope("data.a"), [scope("data.b")]) == scope()


def test_a_list_within_another_is_what_both_have_in_common_however_long_it_is():
    many = tuple(f"data.p{number}" for number in range(MAX_SCOPE_PATTERNS))
    assert intersection(many, ["data.*", "data.*.x"]) == many
    assert intersection(["data.*", "data.*.x"], many) == many


def test_a_common_pattern_too_long_to_be_written_is_refused():
    left = ".".join(["*"] * 40 + ["l" * 300])
    right = ".".join(["r" * 10] * 40)
    with pytest.raises(RefusedError) as refused:
        restrict(scope(left), [scope(right)])
    assert refused.value.code == "INVALID_VALUE"


SMALL = tuple(".".join(names) for length in (1, 2) for names in product(("a", "b", "*"), repeat=length))
PLACES = tuple(names for length in range(4) for names in product(("a", "b", "other"), repeat=length))


def _allowed(patterns):
    """Return the places of a small universe in which these patterns allow to write."""
    return {names for names in PLACES if scope_allows(patterns, set_(format_path(names), 1))}


def test_in_a_small_universe_within_and_intersection_are_what_the_sets_of_places_say():
    lists = [*((one,) for one in SMALL), *combinations(SMALL, 2)]
    allowed = {patterns: _allowed(patterns) for patterns in lists}
    for left, right in product(lists, repeat=2):
        assert is_within(left, right) is (allowed[left] <= allowed[right]), (left, right)
        assert _known(allowed, intersection(left, right)) == allowed[left] & allowed[right], (left, right)


def _known(allowed, patterns):
    key = tuple(sorted(one.removeprefix("data.") for one in patterns))
    if key not in allowed:
        allowed[key] = _allowed(patterns)
    return allowed[key]
