"""Kinds of bindings that packages offer: what is loaded, and which of their rulings count."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any, Literal

import pytest

from authority import Binding, BindingRegistry, HitlBinding, JudgingContext, PolicyRegistry, StandardAuthority
from authority.bindings.registry import ENTRY_POINTS
from tests.authority.cases import make_case
from world.code.time_limit import TimeLimit
from world.errors import RefusedError
from world.model.decision import Ruling
from world.model.intent import IntentScope
from world.state.ports import Case

WIDE, NARROW = (IntentScope(allowed_paths=(path,)) for path in ("data.*", "data.todos.*"))


def _endless() -> Ruling:
    while True:
        pass


def _leaves() -> Ruling:
    raise SystemExit("gone")


def _refuses() -> Ruling:
    raise RefusedError("NOT_NOW", "the shop is closed")


RULINGS: dict[str, Any] = {
    "approves": lambda: Ruling("approve", "given", "fine", NARROW),
    "rejects": lambda: Ruling("reject", "given", "no"),
    "approves more": lambda: Ruling("approve", "given", "fine", WIDE),
    "approves all": lambda: Ruling("approve", "given", "fine"),
    "is another": lambda: Ruling("approve", "auto_approve", "fine", NARROW),
    "waits": lambda: Ruling("wait", "given", "whom?", ask=("ann",)),
    "climbs": lambda: Ruling("reject", "given", "no", step=1),
    "hides a scope": lambda: Ruling("reject", "given", "no", NARROW),
    "talks": lambda: Ruling("reject", "given", "x" * 2_001),
    "decides otherwise": lambda: Ruling("maybe", "given", "perhaps"),  # type: ignore[arg-type]
    "says nothing": lambda: None,
    "is endless": _endless,
    "leaves": _leaves,
    "refuses": _refuses,
}


class Given(Binding):
    """A kind whose ruling is named in the binding."""

    kind: Literal["given"]
    ruling: str

    def judge(self, case: Case, context: JudgingContext) -> Ruling:
        ruling: Ruling = RULINGS[self.ruling]()
        return ruling


def registry(**offered: str) -> BindingRegistry:
    return BindingRegistry(
        EntryPoint(name, f"{__name__}:{attribute}" if attribute in globals() else attribute, ENTRY_POINTS)
        for name, attribute in offered.items()
    )


def judged(name: str) -> Ruling:
    authority = StandardAuthority(PolicyRegistry(), time_limit=TimeLimit(200), bindings=registry(given="Given"))
    return authority.judge(make_case({"kind": "given", "ruling": name}, proposed=NARROW))


@pytest.mark.requirement("WP-bind", "INT-13.3")
def test_a_ruling_that_fits_the_case_counts_as_it_is():
    assert judged("approves") == Ruling("approve", "given", "fine", NARROW)
    assert judged("rejects") == Ruling("reject", "given", "no")
    assert judged("refuses") == Ruling("reject", "given", "the shop is closed")


@pytest.mark.requirement("WP-bind", "INT-13.3")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("approves more", "it approves more than was proposed: 'data.*'"),
        ("approves all", "it approves without a scope what was proposed with one"),
        ("is another", "its ruling names the authority 'auto_approve', not 'given'"),
        ("waits", "its ruling waits for people, and it asks none"),
        ("climbs", "its ruling has parts that cannot be recorded with this verdict"),
        ("hides a scope", "its ruling has parts that cannot be recorded with this verdict"),
        ("talks", "its reason has 2001 characters; the limit is 2000"),
        ("decides otherwise", "the verdict is approve, reject or wait, not 'maybe'"),
        ("says nothing", "it returned NoneType, and not a Ruling"),
        ("is endless", "it took longer than 200 ms"),
        ("leaves", "SystemExit: gone"),
    ],
)
def test_any_other_ruling_rejects_the_proposal_with_the_reason(name, why):
    assert judged(name) == Ruling("reject", "given", f"The binding 'given' gave no ruling: {why}.")


def test_a_package_does_not_replace_a_built_in_kind():
    assert type(registry(hitl="Given").read({"kind": "hitl"})) is HitlBinding


@pytest.mark.parametrize(
    ("offered", "code", "words"),
    [
        ({}, "UNKNOWN_BINDING", "tribunal, not 'given'"),
        ({"other": "Given"}, "UNKNOWN_BINDING", "tribunal, other, not 'given'"),
        ({"given": "RULINGS"}, "NOT_LOADED", "no subclass of authority.bindings.binding.Binding"),
        ({"given": "nowhere:Given"}, "NOT_LOADED", "ModuleNotFoundError"),
        ({"given": "authority:HitlBinding"}, "NOT_LOADED", 'has to declare kind: Literal["given"]'),
    ],
)
def test_what_is_no_kind_of_binding_is_refused(offered, code, words):
    with pytest.raises(RefusedError) as refused:
        registry(**offered).read({"kind": "given", "ruling": "approves"})
    assert refused.value.code == code
    assert words in refused.value.message


def test_two_packages_with_one_kind_are_refused():
    twice = [EntryPoint("given", f"{module}:Given", ENTRY_POINTS) for module in ("one", "two")]
    with pytest.raises(RefusedError, match=r"one:Given, two:Given") as refused:
        BindingRegistry(twice).read({"kind": "given"})
    assert refused.value.code == "DUPLICATE_NAME"
