"""Persistent maps have the content and the order of the dictionary whose changes they take over."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from world.model.immutable.persistent_map import PersistentMap, TrackedDict, TrackedOrderedDict, publish_map

KEYS = st.integers(0, 5)
STEP = st.one_of(
    st.tuples(st.just("set"), KEYS),
    st.tuples(st.just("del"), KEYS),
    st.tuples(st.just("pop"), KEYS),
    st.tuples(st.just("setdefault"), KEYS),
    st.tuples(st.just("update"), KEYS),
    st.tuples(st.just("first"), KEYS),
    st.tuples(st.just("publish"), KEYS),
)


@pytest.mark.parametrize("kind", [TrackedDict, TrackedOrderedDict])
@given(steps=st.lists(STEP, max_size=40))
def test_a_published_map_equals_the_dictionary(kind: Any, steps: list[tuple[str, int]]) -> None:
    plain: dict[int, str] = {9: "OLD"}
    tracked, published = kind(plain), PersistentMap(plain)
    before = [(published, list(plain.items()))]
    for number, (what, key) in enumerate(steps):
        for one in (plain, tracked):
            if what == "set":
                one[key] = f"v{number}"
            elif what == "del" and key in one:
                del one[key]
            elif what == "pop":
                one.pop(key, None)
            elif what == "setdefault":
                one.setdefault(key, f"d{number}")
            elif what == "update":
                one.update({key: f"u{number}", key + 1: "u"})
            elif what == "first" and one:
                del one[next(iter(one))]
        if what == "publish":
            published = publish_map(tracked, published, str.upper)
            assert list(published.items()) == [(name, value.upper()) for name, value in plain.items()]
            before.append((published, list(published.items())))
    assert dict(tracked) == plain
    for one, content in before:  # earlier maps do not change
        assert list(one.items()) == content
        assert len(one) == len(content)


def test_a_map_reads_as_a_mapping_and_cannot_be_changed() -> None:
    ordered = PersistentMap(OrderedDict(b=2, a=1))
    assert ordered == {"a": 1, "b": 2}
    assert ordered == {"a": 1, "b": 2}
    assert ordered != {"a": 1}
    assert (list(ordered), list(ordered.values()), list(ordered.items())) == (["b", "a"], [2, 1], [("b", 2), ("a", 1)])
    assert (ordered["a"], ordered.get("a"), ordered.get("c"), ordered.get("c", 5)) == (1, 1, None, 5)
    assert ("a" in ordered, "c" in ordered, len(ordered), bool(PersistentMap())) == (True, False, 2, False)
    assert ordered.keys() == {"a", "b"}
    with pytest.raises(KeyError):
        ordered["c"]
    with pytest.raises(TypeError):
        ordered["a"] = 3  # type: ignore[index]
    assert repr(ordered) == "PersistentMap({'b': 2, 'a': 1})"


def test_a_map_without_changes_is_published_as_it_is() -> None:
    tracked, published = TrackedDict({"a": 1}), PersistentMap({"a": 1})
    assert publish_map(tracked, published, lambda value: value) is published
    tracked["a"] = 2
    assert publish_map(tracked, published, lambda value: value) == {"a": 2}
    assert published == {"a": 1}
    assert (tracked.put, tracked.gone) == ({}, {})


def test_a_tracked_dictionary_keeps_what_was_removed_until_it_is_published() -> None:
    tracked = TrackedDict({"a": 1, "b": 2})
    tracked |= {"c": 3}
    tracked.popitem()
    tracked.clear()
    assert (tracked, tracked.gone) == ({}, {"c": 3, "a": 1, "b": 2})
    with pytest.raises(KeyError):
        tracked.pop("a")
    with pytest.raises(KeyError):
        TrackedOrderedDict({"a": 1}).pop("b")
