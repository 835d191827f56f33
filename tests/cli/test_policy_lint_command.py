"""``worldctl policy lint``: what is wrong with policy files, with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.inside import Inside
from tests.cli.realm import COUNTER, CliRealm
from tests.cli.test_policy_commands import RULES, founded

WRONG = """\
name = "wrong"

[[rules]]
id = "typo"
verdict = "approve"
actions = ["sel"]

[[rules]]
id = "asks"
verdict = "escalate"
to = ["zoe"]
when = "intent.input.cuont > 5"
"""


@pytest.mark.requirement("CARD-policy")
def test_faults_are_told_with_file_and_line_and_end_with_one(tmp_path: Path) -> None:
    realm = founded(tmp_path)
    assert realm("policy", "lint").out == "1 policy: 0 errors, 0 warnings\n"
    assert realm("policy", "lint", "till").code == 0
    (tmp_path / "wrong.toml").write_text(WRONG)
    said = realm("policy", "lint", "wrong.toml", "rules.toml", code=1).out.splitlines()
    assert said[0] == "wrong.toml:3: error: typo: the domain has no action 'sel'; it has charge, sell [unknown-action]"
    assert said[1] == (
        "wrong.toml:8: error: asks: it reads intent.input.cuont, which is nothing that the input has; "
        "did you mean intent.input.count? [unknown-path]"
    )
    assert said[2].startswith("wrong.toml:8: error: asks: it asks 'zoe', who is not registered")
    assert said[-1] == "2 policies: 3 errors, 0 warnings"
    told = realm("policy", "lint", "wrong.toml", "--json", code=1).json
    assert (told["errors"], told["warnings"]) == (3, 0)
    (policy,) = told["policies"]
    assert [(one["check"], one["line"]) for one in policy["findings"]] == [
        ("unknown-action", 3),
        ("unknown-path", 8),
        ("nobody-to-ask", 8),
    ]


@pytest.mark.requirement("CARD-policy")
def test_what_cannot_be_read_is_told_fault_by_fault(tmp_path: Path) -> None:
    realm = founded(tmp_path)
    (tmp_path / "broken.toml").write_text(
        RULES.replace("intent.input.count <= 5", "itent.count").replace("to =", "at =")
    )
    said = realm("policy", "lint", "broken.toml", "nowhere.toml", code=1).out.splitlines()
    assert said[0].startswith("broken.toml:14: error: $.rules[1].at: ")
    assert "nowhere.toml: error: nowhere.toml cannot be read: No such file or directory." in said[1]


def test_warnings_count_where_they_are_to(tmp_path: Path) -> None:
    realm = founded(tmp_path)
    (tmp_path / "never.toml").write_text('name = "never"\n[[rules]]\nid = "no"\nverdict = "reject"\n')
    assert "never.toml: warning: no rule approves" in realm("policy", "lint", "never.toml").out
    realm("policy", "lint", "never.toml", "--strict", code=1)


def test_without_a_realm_or_a_domain_the_rules_themselves_are_looked_at(tmp_path: Path) -> None:
    realm: CliRealm = Inside(tmp_path)
    (tmp_path / "wrong.toml").write_text(WRONG)
    said = realm("policy", "lint", "wrong.toml")
    assert "1 policy: 0 errors, 0 warnings" in said.out
    assert "actors are not checked" in said.err
    assert "actions and paths are not checked" in said.err
    assert realm("policy", "lint", "wrong.toml", "--quiet").err == ""
    (tmp_path / "world.toml").write_text(f'domain = "{COUNTER}:counter"\npolicies = ["wrong.toml"]\n')
    assert "unknown-action" in realm("policy", "lint", code=1).out
    (tmp_path / "world.toml").write_text('domain = "nowhere.py:counter"\n')
    assert "cannot be loaded" in realm("policy", "lint", "wrong.toml").err
