"""The pytest plugin: the fixture ``judge``, and files of cases as tests."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from authority import Approve, Policy, rule
from world.errors import RefusedError
from world.state.ports import Case
from worldprotocol.testing.fixture import Judging

RULES = """
name = "payments"

[[rules]]
id = "small"
verdict = "approve"
when = "intent.input.amount <= 20"
reason = "{intent.input.amount} is small"

[[rules]]
id = "often"
verdict = "reject"
when = "history.count({'actorId': actor.actorId}) > 2"

[[rules]]
id = "kept"
verdict = "narrow"
actors = ["bot"]
scope = ["data.paid.*"]
"""

TEST = """
def test_small_payments_pass(judge):
    ruling = judge("payments.toml").case(actor="kid", type="pay", input={"amount": 5})
    assert ruling.verdict == "approve"
    assert ruling.reason == "small: 5 is small"

def test_large_payments_pass(judge):
    ruling = judge("rules/payments.toml", actor="kid").case(type="pay", input={"amount": 50})
    assert ruling.verdict == "approve"
"""

CASES = """
- name: small
  intent: {type: pay, input: {amount: 5}}
  expected: {decision: approve, scope: "data.paid.*"}
- name: large
  intent: {type: pay, input: {amount: 50}}
  expected: {decision: reject}
"""


def test_the_plugin_is_registered_and_brings_nothing_with_it() -> None:
    [point] = [one for one in entry_points(group="pytest11") if one.name == "worldprotocol"]
    assert point.value == "worldprotocol.pytest_plugin"
    program = (
        "import sys, pytest\n"
        "before = set(sys.modules)\n"
        "import worldprotocol.pytest_plugin\n"
        "print(sorted(set(sys.modules) - before))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "['worldprotocol', 'worldprotocol.pytest_plugin']"


@pytest.mark.requirement("CARD-policy")
def test_a_ruling_reads_well(judge: Judging) -> None:
    @rule
    def small(case: Case) -> Approve | None:
        return Approve("small") if case.intent.body.input["amount"] <= case.view.data["limit"] else None

    house = judge(Policy("house", [small]), actor="bot", data={"limit": 20})
    ruling = house.case(type="pay", input={"amount": 5})
    assert ruling.verdict == "approve"
    assert ruling.decided_by == ["small"]
    assert ruling.scope is None
    assert ruling.rules["small"].answer == "approve"
    assert "small" in ruling.reason
    assert house.case(type="pay", input={"amount": 21}).decided_by == []
    assert house.case(type="pay", input={"amount": 21}, data={"limit": 30}).verdict == "approve"
    broken = house.case(type="pay", input={})
    assert (broken.verdict, broken.decision) == ("reject", "error")
    assert repr(broken) == "<reject by policy_rules:house: small: KeyError: 'amount'>"


@pytest.mark.requirement("CARD-policy")
def test_history_state_and_scope_can_be_told(judge: Judging, tmp_path: Path) -> None:
    (tmp_path / "payments.toml").write_text(RULES)
    payments = judge(tmp_path / "payments.toml")
    earlier = [{"actor": "bot", "action": "pay", "decision": "approved", "times": 3}]
    assert payments.case(actor="bot", type="pay", input={"amount": 5}, history=earlier).decided_by == ["often"]
    kept = payments.case(actor="bot", type="pay", input={"amount": 5}, scope=["data.paid.tea", "data.balance"])
    assert kept.scope == ["data.paid.tea"]
    one = payments.case(actor="bot", type="pay", input={"amount": 5}, scope="data.paid.tea")
    assert one.scope == ["data.paid.tea"]
    assert kept.decided_by == ["kept"]


def test_what_makes_no_sense_is_refused(judge: Judging) -> None:
    house = judge(Policy("house", []))
    with pytest.raises(RefusedError, match="has no actor"):
        house.case(type="pay")
    with pytest.raises(RefusedError, match=r"history\[0\]\.action"):
        house.case(type="pay", actor="bot", history=[{"actor": "bot"}])
    with pytest.raises(RefusedError, match="There is no policy"):
        judge("nowhere")
    with pytest.raises(RefusedError, match="cannot be read"):
        judge("nowhere.toml")
    with pytest.raises(RefusedError, match="colour"):
        judge(Policy("house", []), colour="red")  # type: ignore[call-arg]


@pytest.mark.requirement("CARD-policy")
def test_a_failing_test_shows_what_every_rule_said(pytester: pytest.Pytester) -> None:
    (pytester.path / "tests").mkdir()
    (pytester.path / "rules").mkdir()
    (pytester.path / "rules" / "payments.toml").write_text(RULES)
    (pytester.path / "tests" / "payments.toml").write_text(RULES)
    (pytester.path / "tests" / "test_rules.py").write_text(TEST)
    ran = pytester.runpytest("-p", "no:cacheprovider", "-W", "error")
    ran.assert_outcomes(passed=1, failed=1)
    ran.stdout.fnmatch_lines(
        [
            "E*assert 'reject' == 'approve'",
            "*worldprotocol: the last rulings*",
            "pay by kid",
            "  ruling    reject by policy_rules:payments: no rule approved it: rejected by default",
            "  rule 1    - small none, silent [[]payments.toml:4[]]",
            "              reads  intent.input.amount = 50",
        ]
    )


@pytest.mark.requirement("CARD-policy")
def test_files_of_cases_are_tests_where_the_configuration_wants_it(pytester: pytest.Pytester) -> None:
    (pytester.path / "payments.toml").write_text(RULES)
    (pytester.path / "payments.cases.yaml").write_text(f"given: {{actor: bot}}\ncases:{CASES}")
    pytester.runpytest("-p", "no:cacheprovider").assert_outcomes()
    pytester.makeini("[pytest]\nworldprotocol_cases = true\n")
    ran = pytester.runpytest("-p", "no:cacheprovider", "-W", "error")
    ran.assert_outcomes(passed=1, failed=1)
    ran.stdout.fnmatch_lines(
        [
            'decision: expected "reject", was "approve"',
            "  rule 3    [*] kept narrow, decided [[]payments.toml:15[]]",
            "FAILED payments.cases.yaml::large - decision: expected*",
        ]
    )


def test_a_file_of_cases_with_faults_is_an_error_of_the_collection(pytester: pytest.Pytester) -> None:
    (pytester.path / "payments.toml").write_text(RULES)
    (pytester.path / "payments.cases.yaml").write_text("cases: 5\n")
    ran = pytester.runpytest("-p", "no:cacheprovider", "-o", "worldprotocol_cases=true")
    ran.assert_outcomes(errors=1)
    ran.stdout.fnmatch_lines(["payments.cases.yaml is no valid file of cases: line 1, $.cases: *"])
