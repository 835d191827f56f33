"""``worldctl policy test``: cases in a file beside a policy, through the real command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.counter import counter
from tests.cli.realm import COUNTER, CliRealm, Said
from worldprotocol import Realm
from worldprotocol.cli.program import run

RULES = """
name = "till"

[[rules]]
id = "small_sales_pass"
verdict = "approve"
actions = ["sell"]
when = "intent.input.count <= 5 && intent.input.item in base.data.stock"

[[rules]]
id = "enough_for_today"
verdict = "reject"
when = "history.count({'actorId': actor.actorId, 'outcome': 'completed'}) >= 2"
"""

CASES = """
[given]
actor = "bot"
base = { data = { stock = { tea = 3 }, sold = 0, receipts = [] } }

[[cases]]
name = "a small sale passes"
intent = { type = "sell", input = { item = "tea", count = 1 } }
expected = { decision = "approve", decidedBy = "small_sales_pass", scope = "unrestricted" }

[[cases]]
name = "what is not on the shelf is not sold"
intent = { type = "sell", input = { item = "cake", count = 1 } }
expected = { decision = "reject", decidedBy = [] }

[[cases]]
name = "without a count nothing is sold"
intent = { type = "sell", input = { item = "tea" } }
expected = { decision = "error", decidedBy = "small_sales_pass", reason = "no intent.input.count" }
"""

TIRED = """
[[cases]]
name = "two sales are enough"
intent = { type = "sell", input = { item = "tea", count = 9 } }
expected = { decision = "reject", decidedBy = "enough_for_today" }
history = [{ actor = "bot", action = "sell", outcome = "completed", at = "5m", times = 2 }]
"""

HOUSE = f"{COUNTER}:house"


Tested = Callable[..., Said]


def place(folder: Path, cases: str = CASES) -> None:
    (folder / "rules.toml").write_text(RULES)
    (folder / "rules.cases.toml").write_text(cases)
    (folder / "world.toml").write_text(f'domain = "{COUNTER}:counter"\npolicies = ["{HOUSE}", "rules.toml"]\n')


@pytest.fixture
def tested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tested:
    """Return what runs ``worldctl policy test`` in a folder with cases, in this process: a new one costs a second."""
    place(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("WORLD_LOG", "WORLD_CONFIG"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str, code: int = 0) -> Said:
        capsys.readouterr()
        ended = run(["policy", "test", *arguments])
        said = Said(ended, *capsys.readouterr())
        assert said.code == code, said
        return said

    return call


@pytest.mark.requirement("CARD-policy")
def test_cases_that_come_out_as_expected(tmp_path: Path, tested: Tested) -> None:
    place(tmp_path)
    assert "Traceback" not in CliRealm(tmp_path)("policy", "test").err
    for arguments in ((), ("rules.toml",), ("till",), ("rules.cases.toml",)):
        said = tested(*arguments).out.splitlines()
        assert said[0].startswith("till ")
        assert said[0].endswith(", rules.cases.toml")
        assert said[1:] == [
            "  ok        a small sale passes: approve",
            "  ok        what is not on the shelf is not sold: reject",
            "  ok        without a count nothing is sold: error",
            "3 cases, 0 differ",
        ]


@pytest.mark.requirement("CARD-policy")
def test_what_differs_is_told_with_every_rule_and_ends_with_1(tmp_path: Path, tested: Tested) -> None:
    place(tmp_path, CASES.replace('"approve"', '"wait"'))
    said = tested(code=1).out
    assert "DIFFERS   a small sale passes: approve [rules.cases.toml:6]\n" in said
    assert '            decision: expected "wait", was "approve"\n' in said
    assert "* small_sales_pass approve, decided [rules.toml:4]\n" in said
    assert "reads  intent.input.count = 1\n" in said
    told = tested("--json", code=1).json
    assert (told["cases"], told["differing"]) == (3, 1)
    [policy] = told["policies"]
    first, second, _ = policy["cases"]
    assert first["differs"] == [{"what": "decision", "expected": "wait", "was": "approve"}]
    assert (first["line"], first["passed"], first["decidedBy"]) == (6, False, ["small_sales_pass"])
    assert second["passed"]
    assert "coverage" not in policy


def test_what_no_case_reaches_is_named_and_fails_if_asked(tmp_path: Path, tested: Tested) -> None:
    said = tested("--coverage").out
    assert "  rule      small_sales_pass [rules.toml:4]: decided 2, matched 1, silent 1, failed 1\n" in said
    assert "                1 intent.input.item in base.data.stock is false\n" in said
    never = "  uncovered small_sales_pass [rules.toml:4] never: intent.input.count <= 5 is false\n"
    assert never in said
    assert never in tested("--fail-uncovered", code=1).out
    (tmp_path / "rules.cases.toml").write_text(CASES + TIRED)
    [policy] = tested("--fail-uncovered", "--json").json["policies"]
    assert policy["uncovered"] == []
    assert [one["failed"] for one in policy["coverage"]] == [1, 0]


def test_rules_in_python_are_tested_and_their_lines_measured(tmp_path: Path, tested: Tested) -> None:
    (tmp_path / "shop.py").write_text(Path(COUNTER).read_text())
    (tmp_path / "house.cases.yaml").write_text(
        "policy: shop.py:house\n"
        "given: {actor: bot}\n"
        "cases:\n"
        "- name: cake\n"
        "  intent: {type: sell, input: {item: cake, count: 3}}\n"
        "  expected: {decision: reject, decidedBy: no_cake_for_bots, rules: {large_sales_ask: escalate}}\n"
    )
    said = tested("shop.py:house", "--fail-uncovered", code=1).out
    assert "  ok        cake: reject\n" in said
    assert "uncovered small_sales_pass [shop.py:" in said
    assert "large_sales_ask" not in said.partition("uncovered")[2]
    house = tmp_path / "house.cases.yaml"
    assert tested("house.cases.yaml").out.endswith("1 case, 0 differ\n")
    house.write_text(house.read_text().replace("decision: reject", "decision: approve"))
    said = tested("house.cases.yaml", code=1).out
    assert "  DIFFERS   cake: reject [house.cases.yaml:4]\n" in said
    assert "    rule 3    * no_cake_for_bots reject, decided: bots eat no cake [shop.py:" in said


def test_another_policy_is_tested_by_the_same_cases(tmp_path: Path, tested: Tested) -> None:
    (tmp_path / "new.toml").write_text(RULES.replace("<= 5", "<= 0"))
    said = tested("new.toml", "--cases", "rules.cases.toml", code=1).out
    assert "3 cases, 1 differs\n" in said


def test_a_policy_is_tested_without_a_realm(tmp_path: Path, tested: Tested) -> None:
    (tmp_path / "world.toml").unlink()
    assert tested("rules.toml").out.endswith("3 cases, 0 differ\n")
    assert "[NO_CASES]" in tested(code=2).err


@pytest.mark.requirement("CARD-policy")
def test_a_recorded_proposal_becomes_a_case(tmp_path: Path, tested: Tested) -> None:
    with Realm.create(tmp_path / "world.db", domain=counter, policies=["rules.toml"], folder=tmp_path) as world:
        world.register("bot", "agent", binding={"kind": "policy_rules", "policy": "till"})
        ids = [world.act("bot", "sell", {"item": "tea", "count": 1}).proposal_id for _ in range(3)]
        world.register("ann", "human", binding={"kind": "auto_approve"})
        own = world.act("ann", "sell", {"item": "tea", "count": 1}).proposal_id
    for form in ("toml", "yaml"):
        (tmp_path / "rules.cases.toml").unlink(missing_ok=True)
        texts = [tested("--from", one, "--format", form).out for one in ids]
        (tmp_path / f"rules.cases.{form}").write_text(("cases:\n" if form == "yaml" else "") + "\n".join(texts))
        [policy] = tested("--json").json["policies"]
        assert [one["decision"] for one in policy["cases"]] == ["approve", "approve", "reject"]
    told = tested("--from", ids[2], "--json").json
    assert told["expected"] == {"decision": "reject", "decidedBy": ["enough_for_today"]}
    assert [one["outcome"] for one in told["history"]] == ["completed", "completed"]
    assert "[NOT_JUDGED_BY_RULES]" in tested("--from", own, code=1).err


def test_what_cannot_be_tested_is_refused_with_what_to_do(tmp_path: Path, tested: Tested) -> None:
    place(tmp_path, CASES.replace('"approve"', '"aprove"'))
    assert "line 9, $.cases[0].expected.decision: " in tested(code=2).err
    (tmp_path / "rules.cases.toml").write_text(CASES.replace("[given]", '[given]\nbinding = { ask = [""] }'))
    assert "rules.cases.toml, line 7, case 'a small sale passes': " in tested(code=2).err
    (tmp_path / "rules.cases.toml").unlink()
    assert "[NO_CASES]" in tested(code=2).err
    assert "There are no cases of rules.toml;" in tested("rules.toml", code=2).err
    assert "goes with the one policy" in tested("--cases", "rules.cases.toml", code=2).err
