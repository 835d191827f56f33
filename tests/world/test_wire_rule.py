"""The rule of wire forms: which members an object of JSON has, in which order, and under which names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import pytest

from world.model.immutable_json import FrozenDict
from world.model.record import Record, Shown, WireForm, is_plain

ROOT = Path(__file__).parents[2]
MAX_BY_HAND = 15
PACKAGES = ("world", "authority", "host", "projections", "worldprotocol")


class Part(Record, frozen=True):
    at_ms: int
    note: str | None = None


class Found(Record, frozen=True, omit_defaults=True):
    first: Part | None
    reason: str = ""
    parts: tuple[Part, ...] = ()
    by_name: dict[str, tuple[Part, ...]] | None = None


class Decided(Record, frozen=True, omit_defaults=True):
    verdict: str
    scope: int | None = None
    error: str | None = None
    after: int | None = None
    _kept: int = 0
    SHOWN: ClassVar = {
        "scope": Shown("verdict", "approve", "narrow"),
        "error": Shown(),
        "after": Shown("verdict", "wait", unless=None),
    }


class Listed(WireForm):
    WIRE: ClassVar = "kind count atMs=part.at_ms? note=part.note? last *more"
    kind: ClassVar = "list"
    last = None

    def __init__(self, part: Part | None) -> None:
        self.part = part
        self.more = {"count": 3, "rest": FrozenDict({"a": 1})}

    @property
    def count(self) -> int:
        return 2


def in_order(value: WireForm) -> list[tuple[str, Any]]:
    return list(value.to_wire().items())


def test_members_are_in_the_order_of_the_fields_with_names_in_camel_case_and_absent_ones_are_left_out() -> None:
    assert in_order(Part(3)) == [("atMs", 3)]
    assert in_order(Part(3, "")) == [("atMs", 3), ("note", "")]


def test_where_defaults_are_left_out_all_else_is_there() -> None:
    assert in_order(Found(None)) == [("first", None)]
    whole = Found(Part(1), "why", (Part(2),), {"b": (Part(3),)})
    assert in_order(whole) == [
        ("first", {"atMs": 1}),
        ("reason", "why"),
        ("parts", [{"atMs": 2}]),
        ("byName", {"b": [{"atMs": 3}]}),
    ]
    assert Found.from_wire({"first": {"atMs": 1}, "parts": [{"atMs": 2}]}) == Found(Part(1), parts=(Part(2),))


def test_a_condition_replaces_that_of_the_default() -> None:
    assert in_order(Decided("approve")) == [("verdict", "approve"), ("scope", None), ("error", None)]
    assert in_order(Decided("narrow", 2)) == [("verdict", "narrow"), ("scope", 2), ("error", None)]
    assert in_order(Decided("reject", 2, "no", 9)) == [("verdict", "reject"), ("error", "no")]
    assert in_order(Decided("wait", error="no", after=9))[1:] == [("error", "no"), ("after", 9)]
    assert in_order(Decided("wait")) == [("verdict", "wait"), ("error", None)]


def test_a_list_of_members_names_fields_properties_attributes_of_them_and_objects() -> None:
    assert in_order(Listed(None)) == [("kind", "list"), ("count", 3), ("last", None), ("rest", {"a": 1})]
    assert in_order(Listed(Part(5)))[2] == ("atMs", 5)
    assert "note" not in Listed(Part(5)).to_wire()


@pytest.mark.parametrize(("kind", "plain"), [(Part, False), (Decided, False), (Found, False)])
def test_msgspec_writes_only_what_has_the_same_form(kind: type[Record], plain: bool) -> None:
    assert is_plain(kind) is plain


def test_few_forms_are_written_by_hand() -> None:
    rules = {ROOT / "world/model/record.py", ROOT / "world/model/value.py"}
    paths = {path for package in PACKAGES for path in (ROOT / package).rglob("*.py")} - rules
    by_hand = [path for path in paths for _ in re.findall(r"def to_wire\(", path.read_text(encoding="utf-8"))]
    assert len(by_hand) <= MAX_BY_HAND


def kinds(base: type = WireForm) -> Iterator[type]:
    kind: type
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


def test_every_listed_member_is_an_attribute_of_its_class() -> None:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "WireForm" in (text := path.read_text(encoding="utf-8")) or "(Record" in text:
                import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    lacking = []
    for kind in dict.fromkeys(kinds()):
        known = {*dir(kind), *(name for one in kind.__mro__ for name in inspect.get_annotations(one))}
        for entry in getattr(kind, "WIRE", "").split():
            name = entry.removesuffix("?").rpartition("=")[2].removeprefix("*").split(".")[0]
            if name not in known and f"self.{name}" not in inspect.getsource(kind):
                lacking.append(f"{kind.__qualname__}.{name}")
    assert lacking == []
