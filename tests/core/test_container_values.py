"""The functions of expressions on every kind of value, beyond what the vectors hold."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.tables import for_each
from world.core.expressions import collection_functions as containers
from world.core.expressions import numeric_functions as arithmetic
from world.core.expressions import string_functions as texts
from world.core.values import as_array, kind_of, number, same_value, strict_equal, text, tidy, truth
from world.model.canonical_json import canonical_text, digest, sha256_hex
from world.model.identity import catalog_hash, content_id, world_id

TYPES = ["null", *["boolean"] * 2, *["number"] * 3, *["string"] * 3, *["array"] * 2, *["object"] * 2]
VALUES: list[Any] = [None, True, False, 0, 2, -1.5, "", "ab", "2", [], [1, [2]], {}, {"a": 1, "2": [0]}]


@pytest.mark.requirement("HC-flow")
@for_each(
    ("function", "answers"),
    [
        (containers.size, [0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 2, 0, 2]),
        (containers.first, [None] * 10 + [1, None, None]),
        (containers.last, [None] * 10 + [[2], None, None]),
        (containers.reverse, [[]] * 10 + [[[2], 1], [], []]),
        (containers.unique, [[]] * 10 + [[1, [2]], [], []]),
        (containers.flat, [[]] * 10 + [[1, 2], [], []]),
        (containers.sorted_keys, [[]] * 10 + [["0", "1"], [], ["2", "a"]]),
        (containers.values, [[]] * 10 + [[1, [2]], [], [[0], 1]]),
        (containers.entries, [[]] * 10 + [[["0", 1], ["1", [2]]], [], [["2", [0]], ["a", 1]]]),
        (
            containers.type_name,
            TYPES,
        ),
        (as_array, [[]] * 10 + [[1, [2]], [], []]),
        (number, [0, 1, 0, 0, 2, -1.5, 0, 0, 2, 0, 0, 0, 0]),
        (kind_of, [None] * 13),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_function_answers_for_every_kind_of_value(function: Any, answers: list[Any]) -> None:
    found = [function(value) for value in VALUES]
    assert all(map(same, found, answers)), found
    assert len(found) == len(answers)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


@pytest.mark.requirement("HC-flow")
@pytest.mark.parametrize("kind", [None, 5, [], {"a": 1}])
def test_a_kind_that_is_no_text_is_none(kind: Any) -> None:
    assert kind_of({"kind": "lit"}) == "lit"
    assert kind_of({"kind": kind}) is None


@pytest.mark.requirement("HC-flow")
def test_an_element_or_member_is_taken_by_number_or_name() -> None:
    array, table = ["a", "b"], {"x": 1, "0": 2}
    for index, value in [(0, "a"), (1, "b"), (2, None), (-1, None), (0.5, None), (1.0, "b"), ("1", "b"), (True, "b"),
                         (None, "a"), ("x", "a")]:  # fmt: skip
        assert containers.at(array, index) == value, index
    for name, member in [("x", 1), ("0", 2), (0, None), ("y", None), (None, None), (["x"], None)]:
        assert containers.at(table, name) == member, name
    assert [containers.at(value, 0) for value in ("ab", 5, None)] == [None, None, None]


@pytest.mark.requirement("HC-flow")
def test_parts_of_an_array_are_counted_from_both_ends() -> None:
    array = [1, 2, 3, 4]
    for bounds, expected in [
        ((0,), [1, 2, 3, 4]), ((2,), [3, 4]), ((-1,), [4]), ((-9,), [1, 2, 3, 4]), ((9,), []), ((1, 3), [2, 3]),
        ((1, -1), [2, 3]), ((-3, -1), [2, 3]), ((3, 1), []), ((0, 9), [1, 2, 3, 4]), ((1, 1), []), ((0, 0), []),
        ((4, 4), []), ((-4, 1), [1]), ((0, -4), []), ((0, None), []), ((1.9, 3.9), [2, 3]),
        ((float("-inf"), float("inf")), [1, 2, 3, 4]), ((float("nan"), 2), [1, 2]),
    ]:  # fmt: skip
        assert containers.slice_array(array, *bounds) == expected, bounds
    assert containers.slice_array("ab", 0) == []


@pytest.mark.requirement("HC-flow")
def test_objects_are_picked_merged_and_made() -> None:
    table = {"a": 1, "b": None, "2": 3}
    assert containers.pick(table, ["a", "b", "c", 2, None]) == {"a": 1, "b": None}
    assert containers.omit(table, ["a", "c", 2, None]) == {"b": None, "2": 3}
    assert containers.pick([1], ["0"]) == containers.omit([1], ["0"]) == {}
    assert containers.pick(table, "a") == {}
    assert containers.omit(table, "a") == table
    assert containers.merge([table, None, {"a": 5}, [1], "x"]) == {"a": 5, "b": None, "2": 3}
    assert [containers.has_key(table, key) for key in ("a", "b", "c", 2, 2.0, None)] == [
        True, True, False, True, True, False,
    ]  # fmt: skip
    assert not containers.has_key(["a"], 0)
    pairs = [["a", 1], ["b"], "cd", ["a", 2], [3, 4, 5], {"0": "x", "1": "y"}]
    assert containers.from_entries(pairs) == {"a": 2, "3": 4}
    assert containers.from_entries({"a": 1}) == {}
    assert (containers.member(table, "a"), containers.member([1], "0"), containers.member(table, "z")) == (
        1,
        None,
        None,
    )
    assert containers.append([1], [2, [3]]) == [1, 2, [3]]
    assert containers.append(None, [2]) == [2]
    assert containers.sorted_keys({"ﬃ": 1, "😀": 2, "z": 3}) == ["z", "😀", "ﬃ"]  # UTF-16 order
    nan = float("nan")
    assert len(containers.unique([nan, nan, 1, 1.0, True, "1", None, None])) == 5
    assert containers.includes([nan, "a"], nan)
    assert not containers.includes("ab", "a")


@pytest.mark.requirement("HC-flow")
def test_texts_are_searched_and_cut() -> None:
    assert texts.split("a,b,,c", ",") == ["a", "b", "", "c"]
    assert texts.split("a😀", "") == ["a", "\ud83d", "\ude00"]
    assert texts.split("", "") == [""]
    assert texts.replace_first("abab", "b", "x") == "axab"
    assert texts.replace_first("abab", "z", "x") == "abab"
    assert texts.replace_first("ab", "", "x") == "xab"
    assert texts.replace_first("bab", "b", "") == "ab"
    assert [texts.index_of("a😀b", part) for part in ("a", "😀", "b", "z", "")] == [0, 1, 3, -1, 0]
    assert (texts.starts_with("ab", "a"), texts.starts_with("ab", "b")) == (True, False)
    assert (texts.ends_with("ab", "b"), texts.ends_with("ab", "a")) == (True, False)
    assert (texts.contains("abc", "b"), texts.contains("abc", "x")) == (True, False)
    assert texts.concat(["a", None, 1, True]) == "a1true"
    assert texts.concat([[1], None, 2, ["x"], {"a": 1}]) == [1, 2, "x", {"a": 1}]
    assert (texts.text_length("a😀"), texts.length("ab"), texts.length("é")) == (3, 2, 1)
    assert (texts.trim("\u00a0\t a \ufeff"), texts.lower("AÉ"), texts.upper("aé")) == ("a", "aé", "AÉ")


@pytest.mark.requirement("HC-flow")
@for_each(
    ("value", "expected"),
    [
        ("12", 12), (" 12 ", 12), ("-3", -3), ("+3", 3), ("1.5x", 1.5), (".5", 0.5), ("5.", 5), ("1e3", 1000),
        ("1e", 1), ("x1", 0), ("", 0), ("-", 0), ("0x10", 0), ("Infinity", float("inf")),
        ("-Infinity", float("-inf")), ("1e400", float("inf")), (2**53, 2**53), (2**53 + 1, float(2**53)),
        (-(2**53), -(2**53)), (True, 1), (None, 0),
    ],
)  # fmt: skip
def test_a_value_counts_as_a_number(value: Any, expected: float) -> None:
    assert same(number(value), expected)


@pytest.mark.requirement("HC-flow")
def test_doubles_are_integers_where_they_can_be() -> None:
    limit = float(2**53)
    for value, expected in [(2.0, 2), (limit, 2**53), (-limit, -(2**53)), (0.0, 0), (1.5, 1.5), (limit * 2, limit * 2)]:
        assert same(tidy(value), expected)
    assert str(tidy(-0.0)) == "-0.0"
    assert str(tidy(float("inf"))) == "inf"


@pytest.mark.requirement("HC-flow")
def test_truth_equality_and_text_of_every_kind() -> None:
    assert [truth(value) for value in VALUES] == [
        False, True, False, False, True, True, False, True, True, True, True, True, True,
    ]  # fmt: skip
    assert [text(value) for value in VALUES[:9]] == ["", "true", "false", "0", "2", "-1.5", "", "ab", "2"]
    for at, left in enumerate(VALUES):
        for other, right in enumerate(VALUES):
            assert strict_equal(left, right) is (at == other and not isinstance(left, (list, dict))) or at == other
            if at != other:
                assert not same_value(left, right)
    assert strict_equal(1, 1.0)
    assert not strict_equal(1, True)
    assert not strict_equal(float("nan"), float("nan"))
    assert same_value(float("nan"), float("nan"))


@pytest.mark.requirement("HC-flow")
def test_arithmetic_is_total() -> None:
    for function in (arithmetic.div, arithmetic.mod):
        assert function(1, 0) is None
        assert function("x", None) is None
    assert (arithmetic.div(7, 2), arithmetic.mod(7, 2), arithmetic.mod(-7, 2)) == (3.5, 1, -1)
    assert (arithmetic.power(2, 10), arithmetic.absolute(-2), arithmetic.negate(2)) == (1024, 2, -2)
    assert [arithmetic.round_half_up(value) for value in (0.5, -0.5, 1.5, 2.4, -1.5)] == [1, 0, 2, 2, -1]
    assert [arithmetic.floor(value) for value in (1.5, -1.5, 2)] == [1, -2, 2]
    assert [arithmetic.ceil(value) for value in (1.5, -1.5, 2)] == [2, -1, 2]
    assert arithmetic.root(9) == 3
    assert arithmetic.root(-1) is None
    assert arithmetic.sum_array([1, "2", None, True]) == 4
    assert (arithmetic.min_array([3, 1, 2]), arithmetic.max_array([3, 1, 2])) == (1, 3)
    assert (arithmetic.min_array([]), arithmetic.max_array("x")) == (None, None)
    assert (arithmetic.least([3, 1]), arithmetic.greatest([3, 1])) == (1, 3)
    pairs = [(1, 2), (2, 1), (1, 1), ("1", 2), (None, 0)]
    assert [arithmetic.lt(*pair) for pair in pairs] == [True, False, False, True, False]
    assert [arithmetic.lte(*pair) for pair in pairs] == [True, False, True, True, True]
    assert [arithmetic.gt(*pair) for pair in pairs] == [False, True, False, False, False]
    assert [arithmetic.gte(*pair) for pair in pairs] == [False, True, True, False, True]


@pytest.mark.requirement("INV-AC2", "INT-7.4.4a")
def test_the_hash_of_a_catalog_is_that_of_its_definition_whatever_stands_in_it() -> None:
    values: list[Any] = ["a", "é", "", 1, True, 1.0, None, ["x"], {"k": 1}]
    for action in values:
        for status in ("available", "unknown", "unavailable", 5, None):
            for reason in values:
                entry = {"type": action, "status": status, "reason": reason if status == "unknown" else None}
                pruning = {"policy": "drop_unavailable", "includeUnknown": True, "sort": "type_lex", "maxActions": None}
                told = f"h:{canonical_text([entry, entry])}:{canonical_text(pruning)}"
                given = {"type": action, "status": status, "reason": reason}
                assert catalog_hash("h", [given, given]) == sha256_hex(told.encode())


@pytest.mark.requirement("HC-flow")
@pytest.mark.parametrize("beyond", [0, 1, 2, 3, 2**20])
def test_results_beyond_what_a_double_holds_exactly_are_doubles(beyond: int) -> None:
    most = 2**53
    kind: Any = int if beyond == 0 else float
    for found, exact in [
        (arithmetic.add(most, beyond), most + beyond),
        (arithmetic.sub(-most, beyond), -most - beyond),
        (arithmetic.add(-most, -beyond), -most - beyond),
        (arithmetic.sum_array([most, beyond]), most + beyond),
    ]:
        assert (type(found), found) == (kind, kind(exact))
    for left, right, kind in [
        (2**26, 2**27, int), (2**27, 2**27, float), (-(2**26), 2**27, int), (-(2**27), 2**27, float),
        (3, 3002399751580331, float), (3, 3002399751580330, int),
    ]:  # fmt: skip
        found = arithmetic.mul(left, right)
        assert (type(found), found) == (kind, kind(left * right))
    zeros: list[tuple[float, float, str]] = [
        (0, 5, "0"),
        (0, -5, "-0.0"),
        (-5, 0, "-0.0"),
        (-0.0, -5, "0"),
        (0, 0, "0"),
    ]
    for one, other, shown in zeros:
        assert str(arithmetic.mul(one, other)) == shown
    assert str(arithmetic.negate(0)) == "-0.0"
    assert str(arithmetic.sub(0, 0)) == "0"


@pytest.mark.requirement("WP-world")
def test_the_ids_of_worlds_are_those_of_their_definition_whatever_the_hashes_are() -> None:
    for schema in ("ab12", 'a"b', "é", "a b", ""):
        for state in ("cd34", 'c"d', "ü", "\\", ""):
            assert content_id(schema, state) == digest({"schemaHash": schema, "snapshotHash": state})
            for parent in (None, "ef56", 'e"f', ""):
                assert world_id(schema, state, parent) == digest(
                    {"parentWorldId": parent, "schemaHash": schema, "snapshotHash": state}
                )
