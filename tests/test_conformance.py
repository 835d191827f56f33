"""The conformance report claims what passed, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plugins.conformance_report import (
    FAILED,
    NOT_RUN,
    PARTLY,
    PASSED,
    SKIPPED,
    Evidence,
    Group,
    Requirement,
    load_mutation_score,
    load_requirements,
    read_outcomes,
    render,
    summary,
)

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
LIST = """
[sources]
A = "A document"

[A]
"A-1" = ["MUST", "The first thing."]
"A-2" = ["SHOULD", "The second thing."]
"A-3" = ["MAY", "The third thing."]
"""
TESTS = """
import pytest

@pytest.mark.requirement("A-1")
@pytest.mark.parametrize("n", [1, 2])
def test_the_first_thing_holds(n):
    assert n

@pytest.mark.requirement("A-2", "A-1")
class TestBoth:
    def test_both_things_hold(self):
        pass
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project of its own with three requirements and two tests, and the plugin switched on."""
    pytester.makepyprojecttoml(
        f"""
        [tool.pytest.ini_options]
        testpaths = ["tests"]
        pythonpath = [{str(ROOT)!r}]
        addopts = ["-p", "tests.plugins.conformance", "--import-mode=importlib", "--strict-markers"]
        markers = ["requirement(*ids): what the test proves", "slow: takes long"]
        """
    )
    tests = pytester.mkdir("tests")
    (tests / "requirements.toml").write_text(LIST)
    (tests / "test_things.py").write_text(TESTS)
    return pytester


def report_of(project: pytest.Pytester) -> str:
    """Return the report, or nothing when none was written."""
    path = project.path / "docs" / "conformance.md"
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_full_run_reports_each_requirement_with_the_tests_that_passed(project, workers):
    project.runpytest("-n", workers).assert_outcomes(passed=3)
    report = report_of(project)
    assert "2 of 3 requirements are proven (MUST 1 of 1, SHOULD 1 of 1, MAY 0 of 1)." in report
    assert "Not proven: A-3." in report
    first = report[report.index("### A-1 (MUST): proven") : report.index("### A-2")]
    assert [line for line in first.splitlines() if line.startswith("- ")] == [
        "- `tests/test_things.py::TestBoth::test_both_things_hold`",
        "- `tests/test_things.py::test_the_first_thing_holds`",
    ]
    assert "### A-3 (MAY): not proven\n\nThe third thing.\n\nNo test names this requirement." in report


def test_a_second_run_writes_the_same_bytes_whatever_the_order_of_execution(project):
    project.runpytest()
    report = report_of(project)
    assert report
    (project.path / "docs" / "conformance.md").unlink()
    project.runpytest("-n", "2", "--dist", "load")
    assert report_of(project) == report


def test_a_failed_case_leaves_its_requirement_not_proven_though_another_test_passed(project):
    project.path.joinpath("tests/test_things.py").write_text(TESTS.replace("assert n", "assert n == 1"))
    project.runpytest().assert_outcomes(passed=2, failed=1)
    report = report_of(project)
    assert "### A-1 (MUST): not proven" in report
    assert "- `tests/test_things.py::test_the_first_thing_holds` (failed)" in report
    assert "### A-2 (SHOULD): proven" in report


def test_a_test_that_breaks_in_its_fixture_proves_nothing(project):
    broken = TESTS.replace("(self):", "(self, broken):") + (
        "\n@pytest.fixture\ndef broken():\n    yield\n    raise OSError('tear-down')\n"
    )
    project.path.joinpath("tests/test_things.py").write_text(broken)
    project.runpytest()
    assert "### A-2 (SHOULD): not proven" in report_of(project)


@pytest.mark.parametrize(
    "narrowed",
    [
        ["-k", "first"],
        ["-m", "requirement"],
        ["-m", "not slow"],
        ["tests/test_things.py"],
        ["--ignore", "tests/other"],
        ["--deselect", "tests/test_things.py::TestBoth"],
        ["--collect-only"],
    ],
    ids=" ".join,
)
def test_a_run_of_a_part_leaves_the_report_alone(project, narrowed):
    assert project.runpytest(*narrowed).ret == pytest.ExitCode.OK
    assert report_of(project) == ""


def test_a_run_that_stopped_early_leaves_the_report_alone(project):
    project.path.joinpath("tests/test_things.py").write_text(TESTS.replace("assert n", "assert not n"))
    assert project.runpytest("-x").ret == pytest.ExitCode.TESTS_FAILED
    assert report_of(project) == ""


SLOW_BOTH = TESTS.replace("class TestBoth", "@pytest.mark.slow\nclass TestBoth")


@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_quick_run_and_that_of_the_rest_report_together_what_one_run_of_all_does(project, workers):
    project.path.joinpath("tests/test_things.py").write_text(SLOW_BOTH)
    project.runpytest("-m", "not slow", "-n", workers).assert_outcomes(passed=2)
    assert report_of(project) == ""
    project.runpytest("-m", "slow or hypothesis", "-n", workers).assert_outcomes(passed=1)
    in_two = report_of(project)
    assert "2 of 3 requirements are proven" in in_two
    project.runpytest()
    assert report_of(project) == in_two


def test_a_failure_of_the_quick_run_is_in_the_report_of_both(project):
    project.path.joinpath("tests/test_things.py").write_text(SLOW_BOTH.replace("assert n", "assert n == 1"))
    project.runpytest("-m", "not slow").assert_outcomes(passed=1, failed=1)
    project.runpytest("-m", "slow or hypothesis").assert_outcomes(passed=1)
    assert "- `tests/test_things.py::test_the_first_thing_holds` (failed)" in report_of(project)


def test_without_a_cache_the_quick_run_ends_and_leaves_nothing(project):
    project.path.joinpath("tests/test_things.py").write_text(SLOW_BOTH)
    assert project.runpytest_subprocess("-m", "not slow", "-p", "no:cacheprovider").ret == pytest.ExitCode.OK
    result = project.runpytest_subprocess("-m", "slow or hypothesis", "-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(["*is left as it is: the quick tests were not run with this code*"])
    assert report_of(project) == ""


@pytest.mark.parametrize("changed", [None, "tests/test_things.py", "product/code.py"])
def test_what_the_quick_run_showed_of_other_code_is_not_reported(project, changed):
    project.path.joinpath("tests/test_things.py").write_text(SLOW_BOTH)
    if changed is not None:
        project.runpytest("-m", "not slow")
        file = project.path / changed
        file.parent.mkdir(exist_ok=True)
        file.write_text((SLOW_BOTH if file.exists() else "") + "\nADDED = 1\n")
    result = project.runpytest("-m", "slow or hypothesis")
    result.stdout.fnmatch_lines(["*is left as it is: the quick tests were not run with this code*"])
    assert report_of(project) == ""


@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize("mark", ["('A-9')", "", "(1)"], ids=["unknown", "empty", "number"])
def test_a_mark_that_names_no_known_requirement_is_a_collection_error(project, mark, workers):
    project.path.joinpath("tests/test_wrong.py").write_text(
        f"import pytest\n\n@pytest.mark.requirement{mark}\ndef test_it(): pass\n"
    )
    result = project.runpytest("-n", workers)
    assert result.ret != pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["*tests/test_wrong.py::test_it: no requirement * in tests/requirements.toml*"])
    assert report_of(project) == ""


@pytest.fixture
def in_step(project):
    """Run the check in the project and tell whether it found the report in step."""
    project.runpytest()

    def check() -> bool:
        command = [sys.executable, "-m", "tests.plugins.conformance", "--check"]
        found = subprocess.run(command, cwd=project.path, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
        assert found.returncode in (0, 1)
        return found.returncode == 0

    return check


def test_the_check_accepts_the_report_of_the_tests_as_they_are(project, in_step):
    assert in_step()


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text + "\n@pytest.mark.requirement('A-3')\ndef test_the_third_thing_holds(): pass\n",
        lambda text: text.replace('"A-2", "A-1"', '"A-2"'),
        lambda text: text.replace("test_the_first", "test_the_very_first"),
        lambda text: text + "\nthis cannot be imported\n",
    ],
    ids=["new test", "lost mark", "renamed test", "broken module"],
)
def test_the_check_refuses_a_report_that_fell_behind_the_tests(project, in_step, change):
    project.path.joinpath("tests/test_things.py").write_text(change(TESTS))
    assert not in_step()


ADDED = """

@pytest.mark.requirement("A-3")
def test_the_third_thing_holds(): assert {holds}

@pytest.mark.requirement("A-1")
def test_the_very_first_thing_holds(): pass

def test_that_names_nothing(): assert False
"""


@pytest.mark.parametrize("holds", [True, False])
def test_tests_that_the_report_does_not_list_are_run_and_added(project, in_step, holds):
    things = project.path.joinpath("tests/test_things.py")
    things.write_text(TESTS.replace("def test_the_first_thing", "def test_renamed") + ADDED.format(holds=holds))
    assert not in_step()
    project.runpytest("--unrecorded").assert_outcomes(passed=3 + holds, failed=1 - holds, deselected=2)
    assert in_step()
    report = report_of(project)
    assert f"### A-3 (MAY): {'proven' if holds else 'not proven'}" in report
    assert "test_the_first_thing_holds" not in report
    assert project.runpytest("--unrecorded").ret == pytest.ExitCode.OK  # nothing is left to run
    assert report_of(project) == report


def test_a_narrowed_run_adds_nothing(project, in_step):
    project.path.joinpath("tests/test_things.py").write_text(TESTS + ADDED.format(holds=True))
    before = report_of(project)
    project.runpytest("--unrecorded", "-k", "third").assert_outcomes(passed=1, deselected=5)
    assert report_of(project) == before


def test_the_check_refuses_a_changed_requirement_an_edited_claim_and_a_missing_report(project, in_step):
    project.path.joinpath("tests/requirements.toml").write_text(LIST.replace("third", "last"))
    assert not in_step()
    project.path.joinpath("tests/requirements.toml").write_text(LIST)
    page = project.path / "docs" / "conformance.md"
    page.write_text(page.read_text().replace("(MAY): not proven", "(MAY): proven"))
    assert not in_step()
    page.unlink()
    assert not in_step()


def test_the_check_refuses_a_requirement_that_slow_tests_alone_prove(project, in_step):
    things = project.path.joinpath("tests/test_things.py")
    things.write_text(TESTS.replace("class TestBoth", "@pytest.mark.slow\nclass TestBoth"))
    assert not in_step()
    things.write_text(TESTS.replace("def test_the_first", "@pytest.mark.slow\ndef test_the_first"))
    project.runpytest()
    assert in_step()  # the class proves A-1, too, and is quick


GROUPS = (Group("A", "A document", tuple(Requirement(f"A-{n}", "MUST", f"Thing {n}.") for n in range(4))),)
TEST_IDS = st.from_regex(r"tests/test_[a-z]{1,5}\.py::test_[a-z_]{1,9}", fullmatch=True)
OUTCOMES = st.dictionaries(TEST_IDS, st.sampled_from([PASSED, PARTLY, FAILED, SKIPPED, NOT_RUN]), max_size=6)


@st.composite
def evidences(draw) -> Evidence:
    """Any tests with any outcomes, each naming some of the requirements."""
    outcomes = draw(OUTCOMES)
    naming = st.frozensets(st.sampled_from(sorted(outcomes))) if outcomes else st.just(frozenset())
    return Evidence({f"A-{n}": draw(naming) for n in range(4)}, outcomes)


@given(evidences())
def test_the_report_reads_back_to_the_outcomes_it_was_made_from(evidence):
    text = render(GROUPS, evidence)
    assert render(GROUPS, Evidence(evidence.tests, read_outcomes(text))) == text


@given(evidences())
def test_nothing_is_called_proven_without_a_passed_test_or_with_a_failed_one(evidence):
    text = render(GROUPS, evidence)
    for requirement in GROUPS[0].requirements:
        outcomes = {evidence.outcomes[test] for test in evidence.tests[requirement.id]}
        proven = f"### {requirement.id} (MUST): proven" in text
        assert proven == (bool({PASSED, PARTLY} & outcomes) and FAILED not in outcomes)


def test_the_projects_own_list_names_each_requirement_once_with_its_level():
    groups = load_requirements(ROOT / "tests" / "requirements.toml")
    assert summary(groups, Evidence({}, {})).startswith("0 of ")
    assert all(requirement.text for group in groups for requirement in group.requirements)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (LIST.replace("MAY", "MIGHT"), "level"),
        (LIST.replace('A = "A document"', ""), "no source"),
        (LIST.replace("[sources]", '[sources]\nB = "b"') + '[B]\n"A-1" = ["MUST", "Again."]\n', "twice"),
    ],
    ids=["level", "source", "twice"],
)
def test_a_wrong_list_of_requirements_is_refused_with_what_is_wrong(tmp_path, wrong, said):
    path = tmp_path / "requirements.toml"
    path.write_text(wrong)
    with pytest.raises(ValueError, match=said):
        load_requirements(path)


def test_the_report_holds_the_score_of_the_last_mutation_run_and_is_read_back_without_it(project):
    docs = project.mkdir("docs")
    sample = {"modules": ["a.py", "b.py"], "mutants": 90, "sampled": 12, "seed": 7}
    counts: dict[str, Any] = {"killed": 9, "survived": 1, "timedOut": 1, "equivalent": 1, "score": 90.0}
    counts |= {"survivors": ["a.py: x -> y"], "survivedOf": {"A-1": 1}}
    told = {"named": {"mutations": 5, "noticed": 5}, "sample": {**sample, **counts}}
    (docs / "mutation-score.json").write_text(json.dumps(told))
    project.runpytest()
    report = report_of(project)
    assert "Named mutations: 5 of 5 noticed." in report
    assert "| 2 | 90 | 12 | 7 | 9 | 1 | 1 | 1 | 90.0 % |" in report
    assert "| requirement | survived |\n|---|--:|\n| A-1 | 1 |\n" in report
    assert report.index("## Mutation testing") < report.index("## A: A document")
    assert set(read_outcomes(report)) == {
        "tests/test_things.py::test_the_first_thing_holds",
        "tests/test_things.py::TestBoth::test_both_things_hold",
    }
    checked = subprocess.run(
        [sys.executable, "-m", "tests.plugins.conformance", "--check"],
        cwd=project.path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    (docs / "mutation-score.json").unlink()
    assert load_mutation_score(docs / "mutation-score.json") is None
