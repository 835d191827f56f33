"""Domains in YAML: values of YAML 1.2, and faults with their places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.tables import for_each
from world.core import load_domain
from world.errors import RefusedError
from world.markup import load_yaml


@for_each(
    ("text", "value"),
    [
        ("0777", 777),
        ("-09", -9),
        ("0o777", 511),
        ("0x1F", 31),
        ("1e3", 1_000.0),
        (".5", 0.5),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("12:30", "12:30"),
        ("2026-01-31", "2026-01-31"),
        ("yes", "yes"),
        ("off", "off"),
        ("True", True),
        ("~", None),
        ("", None),
    ],
)
def test_a_plain_scalar_has_the_value_of_yaml_1_2(text: str, value: Any) -> None:
    read = load_yaml(f"a: {text}\n")["a"]
    assert (type(read), read) == (type(value), value)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: [", "did not find expected node content at line 2, column 1"),
        ("a: 1\nb: }", "did not find expected node content at line 2, column 4"),
        ("a: !x 1", "could not determine a constructor for the tag '!x' at line 1, column 4"),
        ("a: 1\nb:\n  c: 1\n  'c': 2", "it has the key 'c' a second time at line 4, column 3"),
        ("a: &b {c: 1}\nd: {<<: *b, <<: *b}", "it has the key '<<' a second time at line 2, column 13"),
        ("a: {<<: {c: 1, 'c': 2}}", "it has the key 'c' a second time at line 1, column 16"),
        ("a: [{c: 1, d: 2, c: 3}, {e: 1, e: 2}]", "it has the key 'c' a second time at line 1, column 18"),
        ("1: a\n01: b", "it has the key '01' a second time at line 2, column 1"),
        ("0x10: a\n16: b", "it has the key '16' a second time at line 2, column 1"),
        ("1.5: a\n15e-1: b", "it has the key '15e-1' a second time at line 2, column 1"),
        ("1: a\n1.0: b", "it has the key '1.0' a second time at line 2, column 1"),
        ("true: a\nTrue: b", "it has the key 'True' a second time at line 2, column 1"),
        ("~: a\nnull: b", "it has the key 'null' a second time at line 2, column 1"),
        ("a: !!bool maybe", "'maybe' is no bool at line 1, column 4"),
        ("!!timestamp soon: 1", "'soon' is no timestamp at line 1, column 1"),
    ],
)
def test_a_fault_of_yaml_is_told_on_one_line_with_its_place(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "shop.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(RefusedError) as caught:
        load_domain(tmp_path / "shop.yaml")
    assert caught.value.code == "MALFORMED_YAML"
    assert caught.value.message.endswith(f"shop.yaml: This is no YAML: {fault}.")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (
            "y: &y {k: 1, j: 2}\na: {b: {c: &x {<<: *y, k: 2}}}\nz: {<<: *x, m: 3}",
            {"y": {"k": 1, "j": 2}, "a": {"b": {"c": {"k": 2, "j": 2}}}, "z": {"k": 2, "j": 2, "m": 3}},
        ),
        (
            "a: &x {<<: &y {k: 1}, k: 2}\nb: {<<: [*x, *y], l: 3}",
            {"a": {"k": 2}, "b": {"k": 2, "l": 3}},
        ),
        ("1: a\n'1': b\nfalse: c\n'true': d", {1: "a", "1": "b", False: "c", "true": "d"}),
        ("'<<': 1\na: 2", {"<<": 1, "a": 2}),
    ],
)
def test_keys_are_repeated_where_the_text_repeats_their_values(text: str, value: Any) -> None:
    assert load_yaml(text) == value
