"""``worldctl explain`` for rules in Python and in Cedar: the line it answered from, and the values that it read."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from authority import Approve, Policy, PythonRule, Reject
from authority.policies.policy import TIMED_OUT
from tests.authority.cases import by_policy, make_case
from tests.cli.counter import counter
from tests.cli.realm import COUNTER, CliRealm
from worldprotocol import Realm
from worldprotocol.policy_tools.rule_trace import MAX_VALUE, MAX_VALUES, answered_from

PYTHON = """\
from authority import Approve, Policy, Reject, rule


@rule
def few_sales_pass(case):
    count = case.intent.body.input["count"]
    left = case.view.data["stock"]
    if count <= 5:
        return Approve("few")
    return None


@rule
def nothing_beyond_the_stock(case):
    wanted = case.intent.body.input
    left = case.view.data["stock"][wanted["item"]]
    if wanted["count"] > left:
        return Reject("too many")


till = Policy("till", [few_sales_pass, nothing_beyond_the_stock])
"""
CEDAR = """\
@id("few")
permit(principal, action == Action::"sell", resource)
when { context.input.count <= 5 && principal.kind == "agent" };

@id("stock")
forbid(principal, action, resource)
when { context.input has urgent && resource.data.stock.cake < context.input.count };
"""


def sold(folder: Path, file: str, text: str, policy: str, count: int) -> str:
    """Return the proposal of a sale that a policy judged."""
    (folder / file).write_text(text)
    (folder / "world.toml").write_text(f'domain = "{COUNTER}:counter"\npolicies = ["{policy}"]\n')
    with Realm.create(folder / "world.db", domain=counter, policies=[policy], folder=folder) as world:
        world.register("bot", "agent", binding={"kind": "policy_rules", "policy": "till"})
        return world.act("bot", "sell", {"item": "cake", "count": count}).proposal_id


@pytest.mark.requirement("CARD-policy", "CARD-audit")
@pytest.mark.slow
def test_a_rule_in_python_is_told_with_its_line_and_its_values(tmp_path: Path) -> None:
    proposal = sold(tmp_path, "till_rules.py", PYTHON, "till_rules.py:till", 4)
    realm = CliRealm(tmp_path)
    few, stock = realm("explain", proposal, "--json").json["rules"]
    assert (few["answeredFrom"]["line"], few["answeredFrom"]["code"]) == (9, 'return Approve("few")')
    assert few["answeredFrom"]["values"]["count"] == 4
    assert (stock["answeredFrom"]["line"], stock["answeredFrom"]["values"]["left"]) == (18, 3)
    words = realm("explain", proposal).out
    assert 'from   line 18: return Reject("too many")' in words
    assert 'where  wanted = {"count": 4, "item": "cake"}' in words
    hidden = realm("explain", proposal, "--redact", "--json").json
    assert not any("answeredFrom" in one for one in hidden["rules"])
    (tmp_path / "wish.json").write_text(json.dumps({"type": "sell", "input": {"item": "cake", "count": 9}}))
    asked = realm("policy", "ask", "--actor", "bot", "--intent", "wish.json", "--json").json
    assert asked["rules"][0]["answeredFrom"]["line"] == 10
    (tmp_path / "till_rules.py").write_text(PYTHON.replace("<= 5", "<= 6"))
    changed = realm("explain", proposal, "--json").json
    assert not any("answeredFrom" in one for one in changed["rules"])  # that code is not what judged


@pytest.mark.requirement("CARD-policy", "CARD-audit")
def test_a_rule_in_cedar_is_told_with_the_attributes_that_it_names(tmp_path: Path) -> None:
    proposal = sold(tmp_path, "till.cedar", CEDAR, "till.cedar", 4)
    few, stock = CliRealm(tmp_path)("explain", proposal, "--json").json["rules"]
    assert few["reads"] == {"context.input.count": 4, "principal.kind": "agent"}
    assert stock["reads"] == {"context.input.count": 4, "resource.data.stock.cake": 3}
    assert stock["because"] == "its policy is not satisfied"


@pytest.mark.requirement("CARD-policy", "CARD-audit")
def test_a_number_that_cedar_does_not_hold_rejects_and_is_shown(tmp_path: Path) -> None:
    text = CEDAR + '\n@id("rounded")\nforbid(principal, action, resource)\n'
    text += 'when { context.input has price && context.input.price.greaterThan(decimal("0.5")) };\n'
    sold(tmp_path, "till.cedar", text, "till.cedar", 4)
    wish = {"type": "sell", "input": {"item": "cake", "count": 4, "price": 0.50001}}
    (tmp_path / "wish.json").write_text(json.dumps(wish))
    words = CliRealm(tmp_path)("policy", "ask", "--actor", "bot", "--intent", "wish.json").out
    said = "rounded error, decided: context.input.price is 0.50001; Cedar holds whole numbers and up to 4 decimals"
    assert said in words


def test_a_policy_in_cedar_that_forbids_is_not_among_those_that_could_approve(tmp_path: Path) -> None:
    proposal = sold(tmp_path, "till.cedar", CEDAR, "till.cedar", 9)
    told = CliRealm(tmp_path)("explain", proposal, "--json").json
    assert [one["rule"] for one in told["changes"]["matchOneOf"]] == ["few"]


def again(function: Any, answer: str, reason: str = "") -> Any:
    policy = Policy("house", [PythonRule("one", function)])
    outcome = {"rule": "one", "source": "x", "answer": answer, "reason": reason}
    return answered_from(policy, outcome, make_case(by_policy()))


def test_a_rule_that_fails_is_told_with_the_line_on_which_it_did() -> None:
    def fails(case: Any) -> Any:
        divisor = 0
        return Approve(str(1 / divisor))

    told = again(fails, "error")
    assert (told["code"], told["values"]) == ("return Approve(str(1 / divisor))", {"divisor": 0})


def test_a_rule_that_would_end_the_process_is_told_as_failed() -> None:
    def leaves(case: Any) -> Any:
        sys.exit(3)

    assert again(leaves, "error")["code"] == "sys.exit(3)"


def test_what_a_rule_calls_is_not_followed_and_what_watched_before_goes_on() -> None:
    def helper() -> Reject:
        secret = "hidden"
        return Reject(secret)

    seen: list[str] = []

    def watch(frame: Any, event: str, argument: Any) -> None:
        seen.append(event)

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        told = again(lambda case: helper(), "reject")
        assert sys.gettrace() is watch
    finally:
        sys.settrace(before)
    assert "secret" not in told["values"]


def test_a_rule_that_answers_otherwise_now_is_told_so_and_a_slow_one_is_not_asked() -> None:
    assert again(lambda case: Approve(), "reject")["now"] == "approve"
    assert again(lambda case: Approve(), "error", f"{TIMED_OUT}: it took longer") is None


def test_values_are_bounded() -> None:
    def many(case: Any) -> Any:
        deep: Any = 1
        for _ in range(50):
            deep = [deep]
        strange = object()
        text = {"x": "y" * 5_000, "z": {1, 2}}
        state = ["y" * 100] * 1_000
        return Approve(str((strange, text, state))[:9])

    values = again(many, "approve")["values"]
    assert len(values) <= MAX_VALUES
    assert len(values["deep"]) <= MAX_VALUE
    assert values["strange"].startswith("<object object")
    assert len(values["text"]) <= MAX_VALUE
    assert len(values["state"]) <= MAX_VALUE
