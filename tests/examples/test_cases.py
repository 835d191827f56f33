"""The cases of the worked example's policy, through the real command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.realm import ROOT, CliRealm


@pytest.mark.requirement("CARD-policy")
def test_the_cases_of_the_example_reach_all_of_its_policy(tmp_path: Path) -> None:
    config = ROOT / "examples" / "repository" / "world.toml"
    said = CliRealm(tmp_path)("policy", "test", "--fail-uncovered", "--config", str(config))
    assert said.out.endswith("12 cases, 0 differ\n")
