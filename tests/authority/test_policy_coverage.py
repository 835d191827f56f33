"""What cases cover of a policy: rules, branches of conditions, lines and branches of Python."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from authority import AllOf, Approve, Policy, Reject, UnsafeApproveAll, rule
from authority.cel.conditions import read_when
from authority.policies.cedar import policy_from_cedar
from tests.authority.cases import make_case
from tests.authority.till import till
from world.errors import RefusedError
from world.state.ports import Case
from worldprotocol.policy_tools.cases import CaseDefaults, CaseEntry, read_cases
from worldprotocol.testing.coverage_python import PythonCoverage
from worldprotocol.testing.coverage_rules import coverage_of, parts_of
from worldprotocol.testing.judging import judged
from worldprotocol.testing.making import Maker
from worldprotocol.testing.suites import Suite, run

ATOMS = [
    "true",
    "false",
    "(1 < 2)",
    "intent.input.n > 3",
    "has(intent.input.n)",
    "'a && b' == '||'",
    "[1].exists(x, x > 1 || true)",
]


@settings(max_examples=60)
@given(
    parts=st.lists(st.sampled_from(ATOMS), min_size=1, max_size=4),
    operator=st.sampled_from(["&&", "||"]),
    n=st.integers(0, 6),
)
def test_the_parts_of_a_condition_come_to_what_it_comes_to(parts: list[str], operator: str, n: int) -> None:
    text = f" // && ||\n {operator} ".join(parts)
    found = parts_of(read_when(text))
    assert [part.text.partition(" //")[0] for part in found.conditions] == parts
    asked = make_case(given={"n": n})
    answers = [answer for _, answer in found.answers(asked)]
    assert answers[-1] is read_when(text).holds(asked)
    assert all(answer is (operator == "&&") for answer in answers[:-1])


@pytest.mark.parametrize("text", ["true ? true : false || true", "(true)", "!(true || false)"])
def test_a_condition_that_nothing_joins_at_its_top_is_one_part(text: str) -> None:
    assert [part.text for part in parts_of(read_when(text)).conditions] == [text]


def test_of_two_operators_the_weaker_one_joins() -> None:
    assert [part.text for part in parts_of(read_when("true && false || true")).conditions] == ["true && false", "true"]


def uncovered(policy: Policy, *cases: dict[str, Any], folder: Path) -> list[str]:
    wanted = [
        {"name": f"c{at}", "actor": "bot", "expected": {"decision": "approve"}, **one} for at, one in enumerate(cases)
    ]
    path = folder / "rules.cases.json"
    path.write_text(json.dumps({"cases": wanted}))
    _, covered = run([Suite(policy, read_cases(path), None)], covering=True, lines=True)
    assert covered is not None
    return [f"{one['rule']} {one['what']}" for rule in covered for one in rule.uncovered()]


def sale(item: str, count: int) -> dict[str, Any]:
    return {"intent": {"type": "sell", "input": {"item": item, "count": count}}}


@pytest.mark.requirement("CARD-policy")
def test_branches_of_conditions_that_no_case_reaches_are_named(tmp_path: Path) -> None:
    small = "intent.input.count <= 5"
    assert uncovered(till(), sale("tea", 1), folder=tmp_path)[:2] == [
        f"small_sales_pass never: {small} is false",
        "small_sales_pass never: intent.input.item != 'rum' is false",
    ]
    left = uncovered(till(), sale("tea", 1), sale("rum", 9), folder=tmp_path)
    assert left[0] == "small_sales_pass never: intent.input.item != 'rum' is false"
    assert left[-1] == "charges_go_to_people never: it has an opinion"
    many = [{"actor": "bot", "action": "sell", "outcome": "completed", "input": {"count": 40}, "times": 4}]
    charge = {"intent": {"type": "charge", "input": {"amount": 1}}}
    assert (
        uncovered(till(), sale("tea", 1), sale("rum", 1), sale("tea", 9) | {"history": many}, charge, folder=tmp_path)
        == []
    )


def test_of_policies_in_cedar_it_counts_whether_they_were_satisfied(tmp_path: Path) -> None:
    cedar = policy_from_cedar('@id("few") permit(principal, action, resource) when { context.input.count < 5 };', "few")
    assert uncovered(cedar, sale("tea", 1), folder=tmp_path) == ["few never: it has none"]
    assert uncovered(cedar, sale("tea", 1), sale("tea", 9), folder=tmp_path) == []


def test_a_condition_that_fails_covers_no_branch() -> None:
    covered = coverage_of(till())
    entry = CaseEntry.read({"name": "a", "actor": "bot", "intent": {"type": "sell", "input": {}}})
    found = judged(till(), Maker(till(), None, CaseDefaults()).case(entry))
    for outcome in found.ruling.trace:
        covered[outcome.rule].take(found, outcome)
    first = covered["small_sales_pass"]
    assert first.counts == {"decided": 1, "failed": 1}
    assert all(way.taken == 0 for way in first.branches())


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("intent.input.gone > 1 && intent.input.n > 3", ["intent.input.n > 3"]),
        ("intent.input.n > 3 && intent.input.gone > 1", ["intent.input.n > 3"]),
        ("intent.input.gone > 1 && intent.input.n < 3", []),
        ("timestamp('x') > now && intent.input.n > 3", []),
        ("intent.input.gone > 1 || intent.input.n < 3", ["intent.input.n < 3"]),
        ("intent.input.gone > 1", []),
    ],
)
def test_a_failed_part_that_another_outweighs_leaves_that_one_its_branch(text: str, taken: list[str]) -> None:
    asked = make_case(given={"n": 1})
    assert [part.text for part, _ in parts_of(read_when(text)).answers(asked)] == taken


@rule
def graded(case: Case) -> Any:
    """Grade."""
    count = case.intent.body.input["count"]
    if count < 3:
        return Approve(
            "few",
        )
    if count > 5:
        return Reject("many")
    return None


class Most:
    """A rule that is an object."""

    def __init__(self, most: int) -> None:
        self.name = f"most_{most}"
        self.most = most

    def __call__(self, case: Case, /) -> Any:
        if case.intent.body.input["count"] > self.most:
            return Reject("too many")
        return None


@pytest.mark.slow
def test_lines_and_branches_of_python_that_no_case_reaches_are_named(tmp_path: Path) -> None:
    policy = Policy("graded", [AllOf("both", (graded, UnsafeApproveAll())), Most(7)])
    here = Path(__file__).name
    first, most = graded.function.__code__.co_firstlineno, Most.__call__.__code__.co_firstlineno
    assert uncovered(policy, sale("tea", 1), folder=tmp_path) == [
        f"both never: {here}:{first + 8} is reached",
        f"both never: {here}:{first + 9} is reached",
        f"both never: {here}:{first + 10} is reached",
        f"both only 1 of the 2 ways on from {here}:{first + 4} taken",
        "most_7 never: it has an opinion",
        f"most_7 never: {here}:{most + 2} is reached",
        f"most_7 only 1 of the 2 ways on from {here}:{most + 1} taken",
    ]
    assert uncovered(policy, sale("tea", 1), sale("tea", 4), sale("tea", 9), folder=tmp_path) == []


def test_without_coverage_py_lines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "coverage", None)
    with pytest.raises(RefusedError) as refused:
        PythonCoverage(Policy("house", [graded]))
    assert refused.value.code == "COVERAGE_MISSING"
    assert "world-protocol[testing]" in refused.value.message
    assert PythonCoverage(till()).of("small_sales_pass") == []
