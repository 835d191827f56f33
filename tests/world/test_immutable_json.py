"""Frozen nodes: no change, the canonical text, the depth and the order of members, however a node came about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from tests.support.tables import for_each
from world.errors import RefusedError
from world.model.canonical_json import canonical_text
from world.model.immutable.frozen_text import frozen_text
from world.model.immutable_json import MAX_DEPTH, FrozenDict, FrozenList, freeze, thaw

ODD: list[Any] = [1e21, 1e-7, 5e-324, "é", "😀", -0.0, 1e15, 1.2345678901234568e20, 1e-5, 0.00001234, 2**53 - 1, True]
KEYS = ["a", "b", "é", "ﬃ", "😀", ""]
BIG = "x" * 5_000
OF_A_MODEL = "; of a pydantic model, use model_dump(mode='json')."
LEAVES = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from([*ODD, BIG]) | st.floats(-1, 1)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=10,
)


class Note(BaseModel):
    """A model in place of JSON."""

    text: str


def nested(value: Any, levels: int, kind: str) -> Any:
    for level in range(levels):
        is_list = kind == "list" or (kind == "both" and level % 2)
        value = [value] if is_list else {"a": value}
    return value


@pytest.mark.requirement("WP-hash", "INT-6.2.1")
@for_each("odd", ODD, ids=repr)
@for_each("kind", ["list", "dict", "both"])
def test_the_text_of_a_node_is_canonical_however_deep_its_odd_parts_are(odd: Any, kind: str) -> None:
    for levels in range(1, 5):
        plain = nested(odd, levels, kind)
        assert frozen_text(freeze(plain)) == rfc8785.dumps(plain)
        beside = {"z": 1, "deep": plain, "big": BIG}
        assert frozen_text(freeze(beside)) == rfc8785.dumps(beside)
    for key in KEYS:
        assert frozen_text(freeze({"x": [{key: odd, "b": 1}]})) == rfc8785.dumps({"x": [{key: odd, "b": 1}]})


@given(JSON.filter(lambda value: isinstance(value, dict)), st.sampled_from(KEYS), JSON)
def test_a_changed_object_is_the_one_that_is_made_at_once(value: dict[str, Any], key: str, new: Any) -> None:
    before = freeze(value)
    for is_known in (False, True):
        if is_known:
            frozen_text(before)  # its text, or the pieces of it, are kept now
        changed = before.with_item(key, new)
        whole = freeze({**value, key: new})
        assert changed == whole
        assert list(changed) == list(whole) == sorted(changed, key=lambda name: name.encode("utf-16-be"))
        assert frozen_text(changed) == frozen_text(whole) == rfc8785.dumps(thaw(whole))
        less = before.without(key)
        assert frozen_text(less) == rfc8785.dumps({name: item for name, item in value.items() if name != key})
        assert (less is before) is (key not in value)
        assert frozen_text(before) == rfc8785.dumps(value)


@given(st.lists(JSON, max_size=4), JSON, st.integers(0, 3))
def test_a_changed_array_is_the_one_that_is_made_at_once(value: list[Any], new: Any, at: int) -> None:
    before = freeze(value)
    for is_known in (False, True):
        if is_known:
            frozen_text(before)
        assert frozen_text(before.with_appended(new)) == rfc8785.dumps([*value, new])
        if at < len(value):
            changed = [*value[:at], new, *value[at + 1 :]]
            assert before.with_item(at, new) == freeze(changed)
            assert frozen_text(before.with_item(at, new)) == rfc8785.dumps(changed)
        assert frozen_text(before) == rfc8785.dumps(value)


def test_a_large_node_that_is_changed_again_and_again_has_the_text_of_what_it_holds() -> None:
    plain: dict[str, Any] = {f"k{number:03d}": [number, "é" * (number % 7)] for number in range(200)}
    node = freeze(plain)
    frozen_text(node)
    for step in range(60):
        key = f"k{step * 7 % 250:03d}"
        if step % 3 == 2 and key in plain:
            del plain[key]
            node = node.without(key)
        else:
            plain[key] = {"n": step, "x": "y" * (step * 100)}
            node = node.with_item(key, plain[key])
        assert frozen_text(node) == rfc8785.dumps(plain)
    array: list[list[Any]] = [[number] for number in range(3_000)]
    row = freeze(array)
    frozen_text(row)
    for step in range(20):
        array[step * 11] = ["z" * step * 200]
        row = row.with_item(step * 11, array[step * 11])
        array.append([step])
        row = row.with_appended([step])
        assert frozen_text(row) == rfc8785.dumps(array)


MUTATORS: list[Callable[[Any], object]] = [
    lambda tree: tree.__setitem__("a", 1),
    lambda tree: tree.__delitem__("a"),
    lambda tree: tree.__ior__({"a": 1}),
    lambda tree: tree.clear(),
    lambda tree: tree.pop("a"),
    lambda tree: tree.popitem(),
    lambda tree: tree.setdefault("z", 1),
    lambda tree: tree.update(a=1),
    lambda tree: tree["list"].__setitem__(0, 1),
    lambda tree: tree["list"].__setitem__(slice(0, 1), []),
    lambda tree: tree["list"].__delitem__(0),
    lambda tree: tree["list"].__iadd__([1]),
    lambda tree: tree["list"].__imul__(2),
    lambda tree: tree["list"].append(1),
    lambda tree: tree["list"].extend([1]),
    lambda tree: tree["list"].insert(0, 1),
    lambda tree: tree["list"].remove(3),
    lambda tree: tree["list"].clear(),
    lambda tree: tree["list"].pop(),
    lambda tree: tree["list"].sort(),
    lambda tree: tree["list"].reverse(),
    lambda tree: tree["list"][1].update(b=2),
    lambda tree: tree.__init__({"b": 1}) or tree.pop("a"),
    lambda tree: tree.extra.x,
]


@pytest.mark.requirement("INT-4.2", "INT-10.1")
@for_each("mutate", MUTATORS)
def test_a_frozen_tree_cannot_be_changed(mutate: Callable[[Any], object]) -> None:
    tree = freeze({"a": 1, "list": [3, {"b": 1}]})
    with pytest.raises((TypeError, AttributeError), match=r"is frozen|no attribute 'extra'"):
        mutate(tree)
    assert canonical_text(thaw(tree)) == '{"a":1,"list":[3,{"b":1}]}'


@pytest.mark.requirement("INT-4.2")
def test_every_mutator_that_python_has_is_refused() -> None:
    reading = {"copy", "count", "fromkeys", "get", "index", "items", "keys", "values"}
    kinds: list[tuple[type, type]] = [(FrozenDict, dict), (FrozenList, list)]
    for frozen, plain in kinds:
        methods = {name for name in dir(plain) if not name.startswith("_")} - reading
        methods |= {"__setitem__", "__delitem__"}
        methods |= {"__ior__"} if plain is dict else {"__iadd__", "__imul__"}
        assert {name for name in methods if getattr(frozen, name) is getattr(plain, name)} == set()


@pytest.mark.parametrize("kind", ["list", "dict", "both"])
def test_the_depth_of_a_value_is_bounded_exactly(kind: str) -> None:
    deepest = freeze(nested(1, MAX_DEPTH, kind))
    assert freeze(deepest) is deepest
    for value in (nested(1, MAX_DEPTH + 1, kind), [deepest], {"a": deepest}, (deepest,)):
        with pytest.raises(RefusedError) as caught:
            freeze(value)
        assert caught.value.code == "NOT_CANONICAL"
        assert f"nested deeper than {MAX_DEPTH} levels" in caught.value.message
    almost = freeze(nested(1, MAX_DEPTH - 1, kind))
    assert freeze([almost]) == [almost]
    assert freeze({}).with_item("a", almost) == {"a": almost}
    assert freeze([]).with_appended(almost) == [almost]
    assert freeze([0]).with_item(0, almost) == [almost]
    for change in (
        lambda: freeze({}).with_item("a", deepest),
        lambda: freeze([]).with_appended(deepest),
        lambda: freeze([0]).with_item(0, deepest),
        lambda: freeze({"a": almost}).with_item("b", [almost]),
    ):
        with pytest.raises(RefusedError) as caught:
            change()
        assert (caught.value.code, caught.value.details["path"]) == ("NOT_CANONICAL", "$")
    wide = freeze({"a": almost}).with_item("b", almost)
    assert freeze(nested(wide, 0, kind)) is wide
    with pytest.raises(RefusedError):
        freeze([wide])


def test_what_was_deep_once_may_be_put_deep_when_it_is_shallow_again() -> None:
    deep = freeze(nested(1, MAX_DEPTH - 1, "dict"))
    shallow = freeze({"deep": deep, "x": 1}).without("deep")
    assert freeze(nested(shallow, MAX_DEPTH - 1, "list"))
    replaced = freeze([deep, 1]).with_item(0, 2)
    assert freeze(nested(replaced, MAX_DEPTH - 1, "dict"))
    holder = freeze(nested(1, MAX_DEPTH - 2, "list"))
    assert holder.with_appended(shallow)


@for_each(
    ("value", "where", "sentence"),
    [
        (float("nan"), "$", "nan is no JSON number."),
        ({"a": [1, float("inf")]}, "$.a[1]", "inf is no JSON number."),
        ("\ud800", "$", "the text holds half of a surrogate pair, which UTF-8 cannot carry."),
        ({"a b": "\ud800"}, '$["a b"]', "the text holds half of a surrogate pair, which UTF-8 cannot carry."),
        ({"\ud800": 1}, "$['\\ud800']", "a key holds half of a surrogate pair, which UTF-8 cannot carry."),
        ({5: 1}, "$[5]", "the key 5 is not a string."),
        ({"a": {5: 1}}, "$.a[5]", "the key 5 is not a string."),
        (2**53 + 1, "$", "the integer is beyond 2^53 and no double prints these digits; send it as a string."),
        (-(2**53) - 1, "$", "the integer is beyond 2^53 and no double prints these digits; send it as a string."),
        (10**400, "$", "the integer is beyond 2^53 and no double prints these digits; send it as a string."),
        (
            {"a": {1, 2}},
            "$.a",
            "set is no JSON type; use objects, arrays, strings, numbers, booleans and null.",
        ),
        ([b"x"], "$[0]", "bytes is no JSON type; use objects, arrays, strings, numbers, booleans and null."),
        (
            [Note(text="x")],
            "$[0]",
            "Note is no JSON type; use objects, arrays, strings, numbers, booleans and null" + OF_A_MODEL,
        ),
    ],
)
def test_every_refusal_names_its_place(value: Any, where: str, sentence: str) -> None:
    with pytest.raises(RefusedError) as caught:
        freeze(value)
    assert (caught.value.code, caught.value.details["path"]) == ("NOT_CANONICAL", where)
    assert caught.value.message == f"At {where}: {sentence}"
    for change, place in (
        (lambda: freeze({}).with_item("k", value), f"$.k{where[1:]}"),
        (lambda: freeze({}).with_item("k l", value), f'$["k l"]{where[1:]}'),
        (lambda: freeze([0]).with_item(0, value), f"$[0]{where[1:]}"),
        (lambda: freeze([0]).with_appended(value), f"$[1]{where[1:]}"),
    ):
        with pytest.raises(RefusedError) as caught:
            change()
        assert caught.value.details["path"] == place
    with pytest.raises(RefusedError) as caught:
        freeze(value, "$.input")
    assert caught.value.details["path"] == f"$.input{where[1:]}"


def test_numbers_are_frozen_to_the_form_they_are_printed_in() -> None:
    for given_, frozen in [
        (2.0, 2), (-0.0, 0), (2.0**53 - 1, 2**53 - 1), (2.0**53, 2.0**53),
        (1.5, 1.5), (2.0**54, 2.0**54), (10**20, 1e20),
        (-(10**20), -1e20),
        (2**53 - 1, 2**53 - 1), (2**53, 2.0**53), (1 - 2**53, 1 - 2**53), (-(2**53), -(2.0**53)), (True, True),
    ]:  # fmt: skip
        found = freeze(given_)
        assert (type(found), found) == (type(frozen), frozen)

    class Text(str): ...

    class Number(int): ...

    class Double(float): ...

    for odd, plain in [(Text("a"), "a"), (Number(3), 3), (Double(1.5), 1.5), (Double(2.0), 2)]:
        found = freeze([odd])[0]
        assert (type(found), found) == (type(plain), plain)
    assert type(next(iter(freeze({Text("a"): 1})))) is str
    assert type(freeze((1, 2))) is FrozenList
    assert type(freeze({"a": ()})["a"]) is FrozenList
    assert FrozenDict({"b": 1, "a": 2}) == {"a": 2, "b": 1}
    assert FrozenList(iter([1, 2])) == [1, 2]
