"""Domains in YAML: values of YAML 1.2, and faults with their places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from world.core import load_domain
from world.errors import RefusedError
from world.markup import load_yaml


@pytest.mark.parametrize(
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
    ],
)
def test_a_fault_of_yaml_is_told_on_one_line_with_its_place(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "shop.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(RefusedError) as caught:
        load_domain(tmp_path / "shop.yaml")
    assert caught.value.code == "MALFORMED_YAML"
    assert caught.value.message.endswith(f"shop.yaml: This is no YAML: {fault}.")
