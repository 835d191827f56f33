"""Tiers of tests: ``make test`` runs the quick ones, ``make test-ci`` the slow ones in their short form, and
``make test-all`` every one in its long form, property tests with fresh examples.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugins.conformance import QUICK, REST, SLOW

ROOT = Path(__file__).resolve().parent.parent
PROPERTY = """
from pathlib import Path
from hypothesis import given, strategies as st

@given(st.integers())
def test_numbers(n):
    with Path("seen").open("a") as file:
        file.write(f"{n}\\n")
    assert not FAILS or n < 50_000
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project of its own with one property test, and the plugin of the examples switched on."""
    pytester.makepyprojecttoml(
        f"""
        [tool.pytest.ini_options]
        pythonpath = [{str(ROOT)!r}]
        addopts = ["-p", "tests.plugins.examples", "-p", "no:cacheprovider", "--import-mode=importlib"]
        """
    )
    return pytester


def pytest_in(folder: Path, profile: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest as a program in a folder, in the form of a profile."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=folder,
        env={**os.environ, "HYPOTHESIS_PROFILE": profile, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def ran(project: pytest.Pytester, profile: str, *arguments: str, fails: bool = False) -> tuple[str, list[str]]:
    """Run the property test as a program; returns what was printed and which numbers it was given."""
    (project.path / "test_numbers.py").write_text(PROPERTY.replace("FAILS", str(fails)))
    seen = project.path / "seen"
    seen.unlink(missing_ok=True)
    done = pytest_in(project.path, profile, *arguments)
    assert done.returncode == int(fails), done.stdout
    return done.stdout, seen.read_text().split()


@pytest.mark.slow
def test_two_quick_runs_look_at_the_same_examples(project: pytest.Pytester) -> None:
    first, second = (ran(project, "quick") for _ in range(2))
    assert first[1] == second[1]
    assert "the same in every run" in first[0]


@pytest.mark.slow
def test_two_full_runs_look_at_more_and_other_examples(project: pytest.Pytester) -> None:
    quick = ran(project, "quick")
    first, second = (ran(project, "full") for _ in range(2))
    assert first[1] != second[1]
    assert min(len(first[1]), len(second[1])) > len(quick[1])


@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.slow
def test_a_failure_with_a_fresh_seed_prints_the_command_that_repeats_it(project: pytest.Pytester, workers: str) -> None:
    told, seen = ran(project, "full", "-n", workers, fails=True)
    (line,) = re.findall(r"^HYPOTHESIS_PROFILE=full python -m pytest .*$", told, re.MULTILINE)
    _, _, _, _, *arguments = shlex.split(line)
    assert arguments[0] == "test_numbers.py::test_numbers"
    shutil.rmtree(project.path / ".hypothesis")  # which knows what failed here, and is not there elsewhere
    repeated = ran(project, "full", *arguments, fails=True)[1]
    assert set(repeated) == {"50000"}
    assert "50000" in seen


def target(name: str) -> tuple[list[str], str]:
    """Return what a target of the Makefile needs and what it runs."""
    found = re.search(rf"^{name}: (.*?) *##.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found is not None
    return found[1].split(), found[2]


def test_the_two_runs_take_in_every_test_together_and_the_property_tests_with_fresh_examples_as_well() -> None:
    (_, quick), (needs, rest) = target("test"), target("test-all")
    assert "test" in needs
    assert f'-m "{QUICK}"' in quick
    assert f'-m "{REST}"' in rest
    assert not re.search(r" -k |--ignore|--deselect", quick + rest)
    assert "HYPOTHESIS_PROFILE=full" in rest
    assert "HYPOTHESIS_PROFILE" not in quick


@pytest.mark.parametrize(
    "mark", ["pytest.mark.slow", "[pytest.mark.slow, pytest.mark.timeout(900)]", "pytest.mark.timeout(900)"]
)
def test_a_module_of_slow_tests_is_not_imported_by_the_quick_run(pytester: pytest.Pytester, mark: str) -> None:
    pytester.makepyprojecttoml(
        f"""
        [tool.pytest.ini_options]
        pythonpath = [{str(ROOT)!r}]
        addopts = ["-p", "tests.plugins.tiers", "--import-mode=importlib"]
        markers = ["slow: takes long"]
        """
    )
    pytester.makepyfile(f"import pytest\n\nprint('BEGUN')\npytestmark = {mark}\n\ndef test_it(): pass\n")
    is_slow = "slow" in mark
    assert ("BEGUN" in pytester.runpytest("-s", "-m", QUICK).stdout.str()) != is_slow
    pytester.runpytest("-m", REST).assert_outcomes(passed=int(is_slow), deselected=int(not is_slow))
    pytester.runpytest().assert_outcomes(passed=1)


def test_continuous_integration_runs_both_tiers_in_their_short_form_after_the_checks() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert re.findall(r"^make (.+)$", script, re.MULTILINE) == ["check test test-ci"]
    needs, runs = target("test-ci")
    assert needs == ["npm-packages"]
    assert f'-m "{SLOW}"' in runs
    assert not re.search(r" -k |--ignore|--deselect|HYPOTHESIS_PROFILE", runs)


MARKED = """
import pytest
from tests.plugins.forms import scaled

@pytest.mark.cases_in_ci(3)
@pytest.mark.parametrize("case", range(10))
def test_many(case): pass

@pytest.mark.cases_in_ci(3)
@pytest.mark.parametrize("case", range(2))
def test_few(case): pass

@pytest.mark.parametrize("case", range(5))
def test_every(case): pass

def test_number():
    print("NUMBER", scaled(400, ci=40))
"""


def run_in_form(pytester: pytest.Pytester, profile: str, *arguments: str) -> str:
    """Run tests with marks in the form of a profile; returns what was printed."""
    pytester.makepyprojecttoml(
        f"""
        [tool.pytest.ini_options]
        pythonpath = [{str(ROOT)!r}]
        addopts = ["-p", "tests.plugins.forms", "-p", "no:cacheprovider", "--import-mode=importlib"]
        markers = ["cases_in_ci(count): how many cases"]
        """
    )
    return pytest_in(pytester.path, profile, "-v", "-s", *arguments).stdout


@pytest.mark.slow
@pytest.mark.parametrize(("profile", "many", "number"), [("quick", [0, 3, 6], 40), ("full", list(range(10)), 400)])
def test_the_short_form_runs_a_fixed_few_cases_of_a_marked_test_and_the_long_form_every_case(
    pytester: pytest.Pytester, profile: str, many: list[int], number: int
) -> None:
    pytester.makepyfile(MARKED)
    told = run_in_form(pytester, profile)
    assert [int(case) for case in re.findall(r"test_many\[(\d+)\]", told)] == many
    assert len(re.findall(r"test_few\[", told)) == 2
    assert len(re.findall(r"test_every\[", told)) == 5
    assert f"NUMBER {number}" in told


@pytest.mark.slow
@pytest.mark.parametrize("marked", ["0", "-1", "", "'3'", "1, 2"])
def test_a_mark_that_would_leave_out_every_case_is_an_error(pytester: pytest.Pytester, marked: str) -> None:
    pytester.makepyfile(f"import pytest\n\n@pytest.mark.cases_in_ci({marked})\ndef test_it(): pass\n")
    assert "takes one positive number" in (told := run_in_form(pytester, "quick")), told


@pytest.mark.slow
def test_a_case_that_the_command_line_names_runs_in_the_short_form_too(pytester: pytest.Pytester) -> None:
    file = pytester.makepyfile(MARKED)
    assert "test_many[5] PASSED" in run_in_form(pytester, "quick", f"{file.name}::test_many[5]")
