"""Paths, patches and scope patterns."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.tables import for_each
from world.errors import RefusedError
from world.model.immutable_json import FrozenDict, freeze, thaw
from world.model.patch import Patch, apply_patch, apply_patches, merge, scope_allows, set_, unset
from world.model.paths import array_index, format_path, look_up, parse_path
from worldprotocol.testing import strategies as wp

NAMES = st.text(st.sampled_from("ab.\\*0 é😀$"), max_size=6)
SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "x"])
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)
DATA = st.dictionaries(st.sampled_from("abc"), TREES, max_size=3).map(freeze)
PATHS = st.lists(st.sampled_from(["a", "b", "c", "0", "1", "3"]), min_size=1, max_size=4).map(".".join)
PATCHES = wp.patches(at=PATHS, values=TREES, keys=st.sampled_from("abc"))


@given(st.lists(NAMES, max_size=5).map(tuple))
def test_a_formatted_path_reads_back(segments: tuple[str, ...]) -> None:
    assume(segments != ("",))
    assert parse_path(format_path(segments)) == segments


def test_the_single_empty_name_has_no_path() -> None:
    with pytest.raises(RefusedError) as caught:
        format_path(("",))
    assert caught.value.code == "INVALID_PATH"


def test_a_backslash_escapes_a_dot() -> None:
    assert parse_path("o.k\\.dot") == ("o", "k.dot")
    assert parse_path("") == ()
    assert look_up({"o": {"k.dot": 7}}, parse_path("o.k\\.dot")) == 7


@pytest.mark.parametrize("segment", ["", "-1", "01", "1.0", "+1", " 1", "²", "x", "1_0", "9" * 12])
def test_only_plain_digits_are_an_index(segment: str) -> None:
    assert array_index(segment) is None


class Unfit(Exception):
    """A patch that does not fit."""


def descend(place: Any, name: str, *, make: bool) -> Any:
    """Go one name down in a changeable tree; None where an unset finds nothing."""
    if isinstance(place, list):
        if not name.isdigit() or (make and int(name) >= len(place)):
            raise Unfit
        key: Any = int(name)
        if key >= len(place):
            return None
    elif isinstance(place, dict):
        key = name
        place.setdefault(key, None) if make else None
        if key not in place:
            return None
    elif make:
        raise Unfit
    else:
        return None
    if place[key] is None and make:
        place[key] = {}
    return place[key]


def plain_apply(data: Any, patch: Patch) -> Any:
    """Apply a patch the simple way: on a changeable copy."""
    tree = place = thaw(data)
    *way, last = parse_path(patch.path)
    for name in way:
        place = descend(place, name, make=patch.op != "unset")
    if isinstance(place, list) and not last.isdigit():
        raise Unfit
    key: Any = int(last) if isinstance(place, list) else last
    there = descend(place, last, make=False)
    if patch.op == "unset":
        if isinstance(place, dict):
            place.pop(key, None)
        elif isinstance(place, list):
            del place[key : key + 1]
        return tree
    if not isinstance(place, (dict, list)) or (isinstance(place, list) and key > len(place)):
        raise Unfit
    if patch.op == "merge" and not isinstance(there, (dict, type(None))):
        raise Unfit
    value = thaw(patch.value) if patch.op == "set" else {**(there or {}), **thaw(patch.value)}
    place[key if isinstance(place, dict) else slice(key, key + 1)] = value if isinstance(place, dict) else [value]
    return tree


@given(DATA, PATCHES)
def test_a_patch_does_what_it_does_on_a_copy(data: FrozenDict, patch: Patch) -> None:
    before = thaw(data)
    try:
        expected = plain_apply(data, patch)
    except Unfit:
        with pytest.raises(RefusedError):
            apply_patch(data, patch)
    else:
        answer = apply_patch(data, patch)
        assert answer == expected
        assert isinstance(answer, FrozenDict)
    assert data == before


@given(DATA, PATCHES)
def test_what_a_patch_does_not_touch_is_shared(data: FrozenDict, patch: Patch) -> None:
    try:
        answer = apply_patch(data, patch)
    except RefusedError:
        return
    root = parse_path(patch.path)[0]
    assert all(answer[name] is value for name, value in data.items() if name != root)


@pytest.mark.parametrize("path", ["items.x", "items.5.done", "items.-1", "items.length", "n.deep", "items.2.a"])
def test_a_path_never_turns_an_array_or_a_scalar_into_an_object(path: str) -> None:
    data = freeze({"items": [1, 2], "n": 1})
    with pytest.raises(RefusedError) as caught:
        apply_patch(data, set_(path, True))
    assert caught.value.code == "PATH_NOT_FOUND"


def test_set_behind_the_last_element_appends() -> None:
    assert apply_patches(freeze({"a": [1]}), [set_("a.1", 2), set_("a.2", 3)]) == {"a": [1, 2, 3]}


def test_unset_of_an_element_removes_it() -> None:
    assert apply_patch(freeze({"a": [1, 2, 3]}), unset("a.1")) == {"a": [1, 3]}


def test_the_root_can_be_replaced_and_merged_but_not_unset() -> None:
    data = freeze({"a": 1})
    assert apply_patch(data, set_("", {"b": 2})) == {"b": 2}
    assert apply_patch(data, merge("", {"b": 2})) == {"a": 1, "b": 2}
    for patch in (unset(""), set_("", [1])):
        with pytest.raises(RefusedError) as caught:
            apply_patch(data, patch)
        assert caught.value.code == "TYPE_MISMATCH"


def test_merging_many_members_keeps_the_others() -> None:
    members = {f"k{at}": at for at in range(50)}
    assert apply_patch(freeze({"o": {"x": 1}}), merge("o", members)) == {"o": {"x": 1, **members}}


@given(PATCHES)
def test_a_patch_reads_back_from_its_wire_form(patch: Patch) -> None:
    assert Patch.from_wire(patch.to_wire()) == patch


@pytest.mark.parametrize(
    "wire",
    [
        None,
        {},
        {"op": "set", "path": "a"},
        {"op": "unset", "path": "a", "value": 1},
        {"op": "move", "path": "a", "value": 1},
        {"op": "set", "path": 1, "value": 1},
        {"op": "set", "path": "a", "value": 1, "x": 1},
    ],
)
def test_a_malformed_patch_is_refused(wire: Any) -> None:
    with pytest.raises(RefusedError) as caught:
        Patch.from_wire(wire)
    assert caught.value.code == "INVALID_PATCH"


@pytest.mark.requirement("INT-5.3")
@for_each(
    ("patterns", "patch", "allowed"),
    [
        (["data.profile.*"], set_("profile.name", 1), True),
        (["profile.*"], set_("profile.name.first", 1), True),
        (["data.profile.*"], set_("profile", {}), False),
        (["data.profile.*"], unset("profile"), False),
        (["data.profile.*"], set_("", {}), False),
        (["data.profile.*"], set_("profiles.name", 1), False),
        (["data.profile.name"], merge("profile", {"name": 1}), True),
        (["data.profile.name"], merge("profile", {"name": 1, "email": 2}), False),
        (["data.profile.*"], merge("profile", {"name": 1, "email": 2}), True),
        (["data.profile.*"], merge("profile", {}), False),
        (["todos.*.done"], set_("todos.3.done", True), True),
        (["todos.*.done"], set_("todos.3.title", ""), False),
        (["todos.*.done"], set_("todos.3", {}), False),
        (["data.profile"], set_("profile", {}), True),
        (["data.profile"], set_("profile.name", 1), True),
        (["*"], set_("anything.at.all", 1), True),
        (["*"], set_("", {}), False),
        (["data"], set_("", {}), False),
        (["data"], set_("other", 1), False),
        (["data"], set_("data.x", 1), True),
        (["data.data"], set_("data", 1), True),
        (["data.x"], set_("data.x", 1), False),
        (["o.\\\\*"], set_("o.\\\\*", 1), True),
        (["o.\\\\*"], set_("o.*", 1), False),
        (["data.*"], set_("a", 1), True),
        (["a", "b"], merge("", {"a": 1, "b": 2}), True),
        (["o.k\\.dot"], set_("o.k\\.dot", 1), True),
        (["o.k.dot"], set_("o.k\\.dot", 1), False),
        (["o.\\*"], set_("o.*", 1), True),
        (["o.\\*"], set_("o.x", 1), False),
        ([], set_("a", 1), False),
    ],
)
def test_a_scope_pattern_covers_exactly_its_places(patterns: list[str], patch: Patch, allowed: bool) -> None:
    assert scope_allows(patterns, patch) is allowed


def differences(left: Any, right: Any, at: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Return the deepest places at which two trees differ."""
    if isinstance(left, dict) and isinstance(right, dict):
        names = {*left, *right}
        pairs = [(name, left.get(name, ...), right.get(name, ...)) for name in names]
    elif isinstance(left, list) and isinstance(right, list):
        size = max(len(left), len(right))
        padded = ([*tree, *[...] * (size - len(tree))] for tree in (left, right))
        pairs = [(str(index), one, other) for index, (one, other) in enumerate(zip(*padded, strict=True))]
    else:
        return set() if left is right or left == right else {at}
    return set().union(*(differences(one, other, (*at, name)) for name, one, other in pairs))


@pytest.mark.requirement("INT-5.3")
@given(DATA, PATCHES, st.integers(1, 4), st.sets(st.integers(0, 3)), st.booleans())
def test_an_allowed_patch_changes_nothing_outside_its_pattern(
    data: FrozenDict, patch: Patch, length: int, stars: set[int], below: bool
) -> None:
    names = [("*" if at in stars else name) for at, name in enumerate(parse_path(patch.path)[:length])]
    pattern = [*names, "*"] if below else names
    try:
        answer = apply_patch(data, patch)
    except RefusedError:
        return
    if scope_allows([".".join(pattern)], patch):
        for place in differences(data, answer):
            # What was missing on the way, or null, is made; only that may lie above the pattern's own place.
            assert all(wanted in ("*", name) for wanted, name in zip(pattern, place, strict=False)), place
            assert len(place) >= len(pattern) or not look_up(data, place)


def test_removing_an_element_needs_the_whole_array() -> None:
    assert not scope_allows(["items.1"], unset("items.1"))
    assert not scope_allows(["items.1.*"], unset("items.1"))
    assert scope_allows(["items.*"], unset("items.1"))
    assert scope_allows(["items.*.x"], unset("items.1.x"))


def test_a_path_deeper_than_any_data_is_refused():
    from world.errors import RefusedError
    from world.model.immutable_json import MAX_DEPTH
    from world.model.patch import EMPTY, apply_patch, set_, unset

    deep = ".".join("a" * (MAX_DEPTH + 5_000))
    for patch in (set_(deep, 1), unset(deep)):
        with pytest.raises(RefusedError) as refused:
            apply_patch(EMPTY, patch)
        assert refused.value.code == "PATH_NOT_FOUND"
