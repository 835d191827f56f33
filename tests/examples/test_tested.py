"""The example of a project whose recorded logs are its tests, run as its page says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from worldprotocol.testing import strategies
from worldprotocol.testing.judging import CaseRuling
from worldprotocol.testing.recordings import Recordings
from worldprotocol.testing.scenarios import Given

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "tested"


KEPT = (strategies, CaseRuling, Recordings, Given)
"""What stays imported between the runs of pytest in this process, as in one run after another."""


@pytest.fixture
def project(pytester: pytest.Pytester) -> Path:
    shutil.copytree(EXAMPLE, pytester.path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    return pytester.path


@pytest.mark.requirement("CARD-tests", "CARD-replay")
def test_the_tests_of_the_example_pass_and_record_the_same_again(project: Path, pytester: pytest.Pytester) -> None:
    pytester.runpytest("-p", "no:cacheprovider", "--record=none").assert_outcomes(passed=5)
    recorded = []
    for _ in range(2):
        again = pytester.runpytest("-p", "no:cacheprovider", "--record=all", "-k", "month")
        again.assert_outcomes(passed=1, deselected=4)
        recorded.append((project / "golden" / "month.jsonl").read_bytes())
    assert recorded[0] == recorded[1]


@pytest.mark.requirement("CARD-tests", "CARD-policy")
def test_a_stricter_rule_fails_at_the_flip_that_the_page_shows(project: Path, pytester: pytest.Pytester) -> None:
    rules = project / "rules.toml"
    rules.write_text(rules.read_text().replace("< 2", "< 1"))
    shown = (EXAMPLE / "README.md").read_text().partition("```text\n")[2].partition("```")[0].splitlines()
    ran = pytester.runpytest("-p", "no:cacheprovider", "--record=none", "-k", "month")
    ran.assert_outcomes(failed=1, deselected=4)
    ran.stdout.fnmatch_lines([line.replace("...", "*") for line in shown])
