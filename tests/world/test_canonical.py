"""Canonical JSON and the frozen trees that carry it."""

from __future__ import annotations

import copy
import enum
import json
import math
import pickle
from collections import OrderedDict
from types import MappingProxyType
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.tables import for_each
from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes, canonical_text, digest, read_json, sha256_hex, utf16_key
from world.model.immutable_json import MAX_DEPTH, FrozenDict, FrozenList, freeze, thaw

# Keys and texts on which orders and escapes differ: surrogate pairs against the private area, control characters.
texts = st.text(max_size=6) | st.sampled_from(
    ["", "a", "A", "é", "\ue000", "\uffff", "\U00010000", "\U0001f600", "\x00", "\x1f", "\x7f", "\u2028", '"\\/', "$"]
)
DOUBLES = [0.0, -0.0, 1.0, 1e-7, 9.999e-6, 1e-5, 1.5e-5, 1e-4, 0.1 + 0.2, 1e14 + 0.5, 1e15, 1e16 + 2]
LARGE_DOUBLES = [1e20, 1e21, 1e22, 1.5e300, 1.7976931348623157e308, 5e-324]
INTEGERS = [2**53 - 1, -(2**53) + 1, 2**53, 2**54, 10**20, -(10**20)]
edges = st.sampled_from([*DOUBLES, *LARGE_DOUBLES, *INTEGERS])
numbers = (
    edges
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.floats(-1e-4, 1e-4)
)
scalars = st.none() | st.booleans() | numbers | texts
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=25,
)
objects = st.dictionaries(texts, json_values, max_size=6)


def doubles(value: Any) -> Any:
    """Return the value as other implementations see it: integers beyond 2^53 are doubles."""
    if isinstance(value, dict):
        return {key: doubles(item) for key, item in value.items()}
    if isinstance(value, list):
        return [doubles(item) for item in value]
    return float(value) if isinstance(value, int) and abs(value) > 2**53 - 1 else value


def same(left: Any, right: Any) -> bool:
    """Compare with types: in Python 1 == True == 1.0."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


def refused(value: Any) -> RefusedError:
    """Return the refusal of a value that has no canonical text."""
    with pytest.raises(RefusedError) as caught:
        canonical_bytes(value)
    assert caught.value.code == "NOT_CANONICAL"
    return caught.value


# The text


@given(json_values)
def test_the_text_is_what_rfc_8785_says(value):
    assert canonical_bytes(value) == rfc8785.dumps(doubles(value))


@given(json_values)
def test_the_text_reads_back_to_the_same_value_and_the_same_text(value):
    text = canonical_bytes(value)
    again = read_json(text)
    assert same(again, freeze(value))
    assert canonical_bytes(again) == text
    assert read_json(text.decode()) == again


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(1e-5)
@example(9.999999999999999e-6)
@example(1e15)
@example(999999999999999.9)
def test_every_double_is_printed_as_ecmascript_prints_it(number):
    assert canonical_bytes(number) == rfc8785.dumps(number)
    assert canonical_bytes([number]) == b"[" + rfc8785.dumps(number) + b"]"


@given(st.lists(texts, unique=True, max_size=12))
def test_members_stand_in_the_order_of_utf_16_code_units(keys):
    expected = sorted(keys, key=lambda key: [*_code_units(key)])
    assert list(json.loads(canonical_text(dict.fromkeys(keys, 1)))) == expected
    assert sorted(keys, key=utf16_key) == expected


def _code_units(text: str) -> list[int]:
    encoded = text.encode("utf-16-be")
    return [int.from_bytes(encoded[at : at + 2], "big") for at in range(0, len(encoded), 2)]


def test_a_surrogate_pair_sorts_before_the_private_area():
    assert canonical_text({"\ue000": 1, "\U0001f600": 2}) == '{"\U0001f600":2,"\ue000":1}'


@for_each(
    ("value", "text"),
    [
        (1.0, "1"),
        (-0.0, "0"),
        (1e20, "100000000000000000000"),
        (10**20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1e-7, "1e-7"),
        (0.00001, "0.00001"),
        ("\x00\b\t\n\f\r\x1f\x7f", '"\\u0000\\b\\t\\n\\f\\r\\u001f\x7f"'),
        ((1, (2,)), "[1,[2]]"),
        ({}, "{}"),
        ([], "[]"),
        (None, "null"),
        (True, "true"),
    ],
)
def test_a_value_has_this_text(value, text):
    assert canonical_text(value) == text


def test_subclasses_of_json_types_are_taken_for_what_they_are():
    class Word(enum.StrEnum):
        YES = "yes"

    class Number(enum.IntEnum):
        TWO = 2

    frozen = freeze(OrderedDict({Word.YES: Number.TWO, "map": MappingProxyType({"a": (1.0,)})}))
    assert same(frozen, freeze({"yes": 2, "map": {"a": [1]}}))
    assert all(type(key) is str for key in frozen)


def test_the_digest_is_the_hash_of_the_text():
    assert digest({"a": 1}) == sha256_hex(b'{"a":1}')
    assert len(digest(None)) == 64


# Refusals


@for_each(
    ("value", "path"),
    [
        (math.nan, "$"),
        ({"a": [1, {"b": math.inf}]}, "$.a[1].b"),
        ({"a": -math.inf}, "$.a"),
        ({"two words": "\ud800"}, '$["two words"]'),
        (["ok", "\udfff"], "$[1]"),
        ({"\ud800": 1}, "$['\\ud800']"),
        ({"n": 2**53 + 1}, "$.n"),
        ({"n": -(2**60)}, "$.n"),
        ({"n": 10**400}, "$.n"),
        ({1: 2}, "$[1]"),
        ({"a": {None: 2}}, "$.a[None]"),
        ({"set": {1}}, "$.set"),
        ([b"bytes"], "$[0]"),
        ({"": object()}, '$[""]'),
    ],
)
def test_what_has_no_canonical_text_is_refused_with_its_path(value, path):
    refusal = refused(value)
    assert refusal.details["path"] == path
    assert path in refusal.message


def test_a_value_that_contains_itself_is_refused():
    value: list[Any] = []
    value.append({"again": value})
    assert refused(value).details["path"].startswith("$[0].again[0].again")


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_the_deepest_value_has_a_text_and_one_level_more_is_refused():
    assert canonical_bytes(nested(MAX_DEPTH)) == b"[" * MAX_DEPTH + b"1" + b"]" * MAX_DEPTH
    refused(nested(MAX_DEPTH + 1))


def test_depth_cannot_be_gathered_by_wrapping_what_is_frozen_already():
    value = freeze(nested(MAX_DEPTH - 1))
    assert canonical_text(freeze({"a": value}))
    refused({"a": {"b": value}})
    refused([[value]])
    outer = freeze({"a": {}})
    with pytest.raises(RefusedError, match="nested deeper"):
        outer.with_item("a", freeze([value]))
    with pytest.raises(RefusedError, match="nested deeper"):
        freeze([1]).with_item(0, freeze([value]))
    with pytest.raises(RefusedError, match="nested deeper"):
        freeze([]).with_appended(freeze([value]))


def test_a_value_that_became_shallow_again_may_be_wrapped_again():
    deep = freeze({"a": nested(MAX_DEPTH - 1)})
    shallow = deep.with_item("a", 1)
    wrapped: Any = shallow
    for _ in range(MAX_DEPTH - 1):
        wrapped = freeze([wrapped])
    assert canonical_text(wrapped).startswith("[" * (MAX_DEPTH - 1) + "{")
    refused([wrapped])
    assert canonical_text(freeze({"x": {}}).with_item("x", shallow.with_item("b", shallow)))


@for_each(
    ("text", "code"),
    [
        ("", "MALFORMED_JSON"),
        ("{", "MALFORMED_JSON"),
        ('{"a":1,"a":2}', "MALFORMED_JSON"),
        ('{"b":{"a":1,"\\u0061":2}}', "MALFORMED_JSON"),
        ("[NaN]", "MALFORMED_JSON"),
        ("-Infinity", "MALFORMED_JSON"),
        ("[1,]", "MALFORMED_JSON"),
        ("\ufeff1", "MALFORMED_JSON"),
        ("9" * 5000, "MALFORMED_JSON"),
        (b"\xff", "MALFORMED_JSON"),
        (b'"\xed\xa0\x80"', "MALFORMED_JSON"),
        ('"a"'.encode("utf-16"), "MALFORMED_JSON"),
        ("1e400", "NOT_CANONICAL"),
        ('"\\ud800"', "NOT_CANONICAL"),
        ("9007199254740993", "NOT_CANONICAL"),
        ("[" * 300 + "]" * 300, "NOT_CANONICAL"),
        ("[" * 100_000, "NOT_CANONICAL"),
    ],
)
def test_text_that_is_no_strict_json_is_refused(text, code):
    with pytest.raises(RefusedError) as caught:
        read_json(text)
    assert caught.value.code == code


def test_a_fault_in_json_text_is_told_with_line_and_column():
    with pytest.raises(RefusedError) as caught:
        read_json('{"a": 1,\n "b" 2}')
    assert (caught.value.details["line"], caught.value.details["column"]) == (2, 6)


@given(st.text() | st.binary())
def test_reading_any_text_gives_a_value_or_a_refusal(text):
    try:
        value = read_json(text)
    except RefusedError:
        return
    assert read_json(canonical_bytes(value)) == value


# Frozen trees


@given(json_values)
def test_freezing_takes_a_copy_and_freezing_again_takes_none(value):
    before = copy.deepcopy(value)
    frozen = freeze(value)
    assert freeze(frozen) is frozen
    assert same(value, before)
    assert canonical_bytes(thaw(frozen)) == canonical_bytes(value)
    if isinstance(value, dict):
        value["new"] = 1
        assert same(frozen, freeze(before))


@given(json_values)
def test_copies_and_pickles_of_frozen_values_are_frozen_and_equal(value):
    frozen = freeze(value)
    assert copy.copy(frozen) is frozen or not isinstance(frozen, (dict, list))
    assert copy.deepcopy(frozen) is frozen or not isinstance(frozen, (dict, list))
    again = pickle.loads(pickle.dumps(frozen))
    assert same(again, frozen)
    assert type(again) is type(frozen)


@given(json_values)
def test_thawing_gives_a_plain_changeable_copy(value):
    plain = thaw(freeze(value))
    assert type(plain) in (dict, list, str, int, float, bool, type(None))
    if isinstance(plain, list):
        plain.append(1)
    elif isinstance(plain, dict):
        plain["new"] = 1


def test_a_key_that_is_no_sound_text_is_refused_by_a_changed_copy():
    for key in (5, None, "\ud800", b"a"):
        with pytest.raises(RefusedError, match="key must be a string"):
            freeze({"a": 1}).with_item(key, 1)


def test_a_bad_value_is_refused_by_a_changed_copy_with_its_path():
    with pytest.raises(RefusedError) as caught:
        freeze({"a": 1}).with_item("b", {"c": math.nan})
    assert caught.value.details["path"] == "$.b.c"
    with pytest.raises(RefusedError) as caught:
        freeze([1]).with_appended([math.nan])
    assert caught.value.details["path"] == "$[1][0]"


def test_an_element_that_is_not_there_cannot_be_replaced():
    with pytest.raises(IndexError):
        freeze([1]).with_item(1, 2)


class ChangedCopies(RuleBasedStateMachine):
    """Changed copies against a plain model: same value, same text, and the one before stays as it was."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = FrozenDict()
        self.model: dict[str, Any] = {}

    @rule(key=texts, value=json_values)
    def put(self, key: str, value: Any) -> None:
        self.change(self.tree.with_item(key, value), {**self.model, key: value})

    @rule(key=texts, size=st.integers(1, 30))
    def put_something_large(self, key: str, size: int) -> None:
        value = {f"k{at}": [at, "x" * 99, {"é": at / 7}] for at in range(size)}
        self.change(self.tree.with_item(key, value), {**self.model, key: value})

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.model)))
        self.change(self.tree.without(key), {name: item for name, item in self.model.items() if name != key})

    @rule(key=texts)
    def take_what_may_not_be_there(self, key: str) -> None:
        after = self.tree.without(key)
        assert after is self.tree or key in self.model
        self.change(after, {name: item for name, item in self.model.items() if name != key})

    @rule(key=texts, value=json_values)
    def append(self, key: str, value: Any) -> None:
        known = self.tree.get(key)
        listed = known if isinstance(known, FrozenList) else FrozenList()
        plain = self.model[key] if isinstance(known, FrozenList) else []
        self.change(self.tree.with_item(key, listed.with_appended(value)), {**self.model, key: [*plain, value]})

    @rule(key=texts, value=json_values, data=st.data())
    def replace_an_element(self, key: str, value: Any, data: st.DataObject) -> None:
        known = self.tree.get(key)
        if not isinstance(known, FrozenList) or not known:
            return
        at = data.draw(st.integers(-len(known), len(known) - 1))
        plain = list(self.model[key])
        plain[at] = value
        self.change(self.tree.with_item(key, known.with_item(at, value)), {**self.model, key: plain})

    @rule(value=json_values)
    def change_a_member_of_something_large(self, value: Any) -> None:
        for key, item in self.tree.items():
            if isinstance(item, FrozenDict) and "k0" in item:
                inner = item.with_item("k0", value)
                self.change(self.tree.with_item(key, inner), {**self.model, key: {**self.model[key], "k0": value}})
                return

    @rule()
    def look(self) -> None:
        assert canonical_bytes(self.tree) == rfc8785.dumps(doubles(self.model))

    def change(self, tree: FrozenDict, model: dict[str, Any]) -> None:
        before = canonical_bytes(thaw(self.tree))
        old = self.tree
        self.tree, self.model = tree, model
        canonical_bytes(tree)
        assert canonical_bytes(thaw(old)) == before
        assert canonical_bytes(old) == before

    @invariant()
    def is_what_it_would_be_if_it_were_made_afresh(self) -> None:
        fresh = freeze(self.model)
        assert same(self.tree, fresh)
        assert canonical_bytes(self.tree) == canonical_bytes(fresh)


TestChangedCopies = ChangedCopies.TestCase
TestChangedCopies.settings = settings(stateful_step_count=20)


@pytest.mark.requirement("INT-6.2.1")
@pytest.mark.parametrize("sign", [1, -1])
def test_whole_doubles_are_integers_up_to_the_last_one_that_is_exact(sign):
    last = 2**53 - 1
    assert type(freeze(float(sign * last))) is int
    assert type(freeze(float(sign * (last + 1)))) is float
