"""Rules in Python are guarded: an attempt rejects with its place, and such a policy is not adopted."""

from __future__ import annotations

import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as with_

from authority import AllOf, Approve, Policy, PolicyRegistry, StandardAuthority, recheck_ruling, rule
from authority.lint.lint import LintContext, lint
from authority.policies.policy_file import policy_from_text
from tests.authority.cases import ASKING, by_policy, make_case
from world.code.run_watch import RunWatch
from world.errors import RefusedError


@rule
def by_clock(case: Any) -> Any:
    return Approve() if time.time() > 0 else None


@rule
def by_date(case: Any) -> Any:
    return Approve() if datetime.now().year else None  # noqa: DTZ005


@rule
def by_chance(case: Any) -> Any:
    return Approve() if random.random() < 2 else None


def _helped() -> str:
    return Path(__file__).read_text(encoding="utf-8")


@rule
def by_file(case: Any) -> Any:
    return Approve() if _helped() else None


@rule
def by_import(case: Any) -> Any:
    import os

    return Approve() if os.environ.get("HOME", "x") else None


@rule
def catches_all(case: Any) -> Any:
    with suppress(BaseException):
        time.sleep(0)
    return Approve()


@rule
def pure(case: Any) -> Any:
    return Approve(f"{case.history.count()} before, {random.Random(case.submitted_at).random() < 2}")


@pytest.mark.parametrize("impure", [by_clock, by_date, by_chance, by_file, by_import, catches_all])
@pytest.mark.requirement("CARD-policy", "CARD-replay")
def test_an_attempt_rejects_and_the_reason_names_its_place(impure: Any) -> None:
    ruling = Policy("p", [impure, pure]).evaluate(make_case(), ASKING)
    assert (ruling.verdict, [one.answer for one in ruling.trace]) == ("reject", ["error", "approve"])
    assert ruling.trace[0].reason.startswith("RULE_IMPURE: it uses ")
    assert "test_impure_rules:" in ruling.trace[0].reason


@pytest.mark.parametrize("impure", [by_clock, by_date, by_chance, by_import, catches_all, AllOf("all", (by_clock,))])
@pytest.mark.requirement("CARD-policy")
def test_lint_reports_what_a_rule_names_and_adoption_refuses_it(impure: Any) -> None:
    policy = Policy("p", [pure, impure])
    assert [(one.level, one.check) for one in lint(policy, LintContext())] == [("error", "impure")] * 1
    with pytest.raises(RefusedError, match="test_impure_rules:") as refused:
        StandardAuthority(PolicyRegistry([policy])).check_policy("p", ["pay"])
    assert refused.value.code == "RULE_IMPURE"
    StandardAuthority(PolicyRegistry([Policy("p", [pure])])).check_policy("p", ["pay"])


@pytest.mark.requirement("CARD-replay")
def test_a_policy_of_an_earlier_adoption_is_not_guarded() -> None:
    policy = Policy("p", [by_clock])
    assert policy.hashed_like({"identity": "rules-1"}).evaluate(make_case(), ASKING).verdict == "approve"
    assert policy.hashed_like({"identity": "rules-1"}).hash != policy.hash


@pytest.mark.requirement("CARD-replay")
def test_a_condition_of_an_earlier_adoption_has_the_answer_of_then() -> None:
    when = "![1, 2, 3].all(e, 6 / (2 - e) == 6)"
    policy = policy_from_text(f'name = "p"\n[[rules]]\nid = "r"\nverdict = "approve"\nwhen = "{when}"\n', "p.toml")
    assert policy.evaluate(make_case(), ASKING).verdict == "approve"
    earlier = policy.hashed_like({"identity": "rules-1"}).evaluate(make_case(), ASKING)
    assert (earlier.verdict, "it divides by zero" in earlier.reason) == ("reject", True)


@pytest.mark.requirement("CARD-replay")
def test_a_recheck_does_not_compare_the_line_of_an_attempt() -> None:
    authority = StandardAuthority(PolicyRegistry([Policy("house", [by_clock])]))
    case = make_case(by_policy())
    ruling = authority.judge(case)
    moved = [with_(one, reason=one.reason.replace("test_impure_rules:", "elsewhere:9")) for one in ruling.trace]
    reason = ruling.reason.replace("test_impure_rules:", "elsewhere:9")
    then = with_(ruling, trace=tuple(moved), reason=reason)
    assert then != ruling
    assert recheck_ruling(authority, case, then) is None


def test_one_watch_serves_all_rules_of_a_ruling(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[RunWatch] = []
    enter = RunWatch.__enter__

    def entered(watch: RunWatch) -> RunWatch:
        begun.append(watch)
        return enter(watch)

    monkeypatch.setattr(RunWatch, "__enter__", entered)
    Policy("p", [pure, rule("two")(pure.function), rule("three")(pure.function)]).evaluate(make_case(), ASKING)
    assert len(begun) == 1


@rule
def goes_on(case: Any) -> Any:
    return Approve() if case.actor is not None else None


def test_rules_are_watched_in_many_threads_at_once() -> None:
    policy, case, interval = Policy("p", [goes_on]), make_case(), sys.getswitchinterval()
    policy.evaluate(case, ASKING)
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            rulings = list(pool.map(lambda _: policy.evaluate(case, ASKING), range(2_000)))
    finally:
        sys.setswitchinterval(interval)
    assert {ruling.reason for ruling in rulings if ruling.verdict != "approve"} == set()
