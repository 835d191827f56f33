"""What a rule was made with is in its hash, wherever it stands; what cannot be told is refused."""

from __future__ import annotations

import collections
import functools
import logging
import operator
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sized
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, PrivateAttr

from authority import Approve, Policy, rule, source_of
from world.code.value_codec import MAX_DEPTH
from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes


class Limits:
    """An ordinary class."""

    def __init__(self, top: Any) -> None:
        self.top = top


class Slotted:
    __slots__ = ("__hidden", "top")

    def __init__(self, top: Any) -> None:
        self.top = 0
        self.__hidden = top


@dataclass
class Record:
    top: Any

    def __post_init__(self) -> None:
        self.beside = self.top


class Model(BaseModel):
    _top: Any = PrivateAttr(None)


class Table(dict):
    pass


class Kept(Sized):
    @property
    def top(self) -> Any:
        return self.__dict__["kept"]

    def __init__(self, top: Any) -> None:
        self.__dict__["kept"] = top

    def __len__(self) -> int:
        return 1


class Asking:
    """An object that answers to every name, or raises what it likes."""

    def __init__(self, top: Any) -> None:
        self.__dict__["top"] = top

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


class Unwilling:
    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ZeroDivisionError


class Guard:
    """A rule that is an object."""

    name = "guard"

    def __init__(self, limits: Any) -> None:
        self.limits = limits

    def __call__(self, case: Any) -> Approve:
        return Approve()


def private(top: Any) -> Model:
    made = Model()
    made._top = top
    return made


def bare(top: Any) -> Any:
    made = Record(0)
    made.beside = top
    return made


def table(top: Any) -> Table:
    made = Table()
    made.top = top  # type: ignore[attr-defined]
    return made


def of_local_class(top: Any) -> Any:
    class Inside:
        limit = top

        def check(self) -> Any:
            return top

    return Inside()


def attributed(top: Any) -> Any:
    def function() -> None:
        """Hold the value as an attribute."""

    function.top = top  # type: ignore[attr-defined]
    return function


def remembering(top: Any) -> Any:
    return functools.lru_cache(lambda: top)


KINDS: list[Any] = [
    Limits, Slotted, Asking, Record, bare, private, table, Kept, of_local_class, attributed, remembering,
    lambda top: [Limits(top)],
    lambda top: Limits({"deep": [Limits((top,))]}),
    lambda top: collections.deque([top]),
    lambda top: collections.defaultdict(lambda: top),
    lambda top: {"tea": top}.get,
    lambda top: operator.itemgetter(top),
    lambda top: ValueError(top),
    lambda top: functools.partial(Limits(top).__eq__, 1),
    lambda top: Enum("Colour", {"RED": top}).RED,  # type: ignore[attr-defined]
    lambda top: type("<locals>", (), {"__qualname__": "f.<locals>.T", "top": top}),
]  # fmt: skip


def closing(over: Any) -> Any:
    @rule("closing")
    def check(case: Any) -> Approve:
        return over

    return check


@pytest.mark.requirement("CARD-policy")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("around", [Guard, closing, lambda value: Guard(Limits(value))])
def test_two_rules_whose_values_differ_anywhere_have_different_hashes(kind: Any, around: Any) -> None:
    def made(top: int) -> str:
        return Policy("house", [around(kind(top))]).hash

    assert made(5) == made(5)
    assert made(5) != made(1000)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=30)
@given(PLAIN, PLAIN)
def test_objects_are_told_apart_exactly_by_the_data_in_them(one: Any, other: Any) -> None:
    def told(value: Any) -> bytes:
        return canonical_bytes(source_of(Guard(Limits([Slotted(value)]))).parameters)

    assert (told(one) == told(other)) == (canonical_bytes(one) == canonical_bytes(other))


def test_a_callable_objects_own_closure_is_told_too() -> None:
    def at_most(limit: int) -> Any:
        class AtMost:
            name = "at-most"

            def __call__(self, case: Any) -> Any:
                return limit

        return AtMost()

    assert source_of(at_most(5)) == source_of(at_most(5))
    assert source_of(at_most(5)) != source_of(at_most(9))


def test_an_object_that_wraps_a_function_is_told_with_its_own_fields() -> None:
    def plain(case: Any) -> None:
        """Say nothing."""

    def wrapped(limits: Any) -> Any:
        return functools.update_wrapper(Guard(limits), plain)

    assert source_of(wrapped(Limits(5))) != source_of(wrapped(Limits(6)))


def test_what_holds_itself_is_told_by_where_it_stands_again() -> None:
    limits = Limits(5)
    limits.top = [limits, 7]
    assert source_of(Guard(limits)).parameters["limits"]["fields"]["top"] == [{"again": 2}, 7]


def test_locks_and_loggers_have_no_content_and_are_told_by_what_they_are() -> None:
    held = Limits([threading.Lock(), threading.RLock(), object(), logging.getLogger("house"), threading.Event()])
    assert source_of(Guard(held)) == source_of(Guard(held))
    other = Limits([threading.Lock(), threading.RLock(), object(), logging.getLogger("other"), threading.Event()])
    assert source_of(Guard(held)) != source_of(Guard(other))


def nested(levels: int) -> Any:
    value: Any = 5
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.requirement("CARD-policy")
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (sqlite3.connect(":memory:"), "Connection"),
        ((one for one in "a"), "generator"),
        (memoryview(b"x"), "memoryview"),
        (Unwilling(), "Unwilling"),
        (nested(MAX_DEPTH + 1), "list"),
    ],
)
def test_what_cannot_be_told_is_refused_by_the_name_of_its_field(value: Any, kind: str) -> None:
    with pytest.raises(RefusedError) as refused:
        Policy("house", [Guard(Limits({"source": value}))])
    assert refused.value.code == "INVALID_RULE"
    assert "limits.top.source" in refused.value.message
    assert kind in refused.value.message


def test_more_values_than_are_told_of_a_rule_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("world.code.value_codec.MAX_VALUES", 1_000)
    shared: Any = [1, 2]
    for _ in range(12):  # few objects, told 2 ** 12 times
        shared = [shared, shared]
    with pytest.raises(RefusedError, match="1,000 values"):
        source_of(Guard(shared))


def test_the_hash_is_the_same_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "house.py").write_text(
        "import collections, operator, types, rpds\n"
        "class Limits:\n"
        "    def __init__(self, top): self.top = top\n"
        "class Guard:\n"
        "    name = 'guard'\n"
        "    def __init__(self): self.limits = [Limits({'b', 'a', 'c'}), collections.deque([Limits]), list[int],\n"
        "         rpds.HashTrieMap(a=1, b=2, c=Limits(3)), rpds.HashTrieSet('abcdef'),\n"
        "         collections.OrderedDict(b=1, a=2),\n"
        "         operator.attrgetter('a'), types.SimpleNamespace(a=Limits(1)), Limits(Limits).__eq__]\n"
        "    def __call__(self, case): return None\n"
    )
    script = "import house, authority; print(authority.Policy('house', [house.Guard()]).hash)"
    hashes = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}", "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(hashes) == 1
