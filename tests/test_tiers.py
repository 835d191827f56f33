"""Two tiers of tests: ``make test`` runs the quick ones, ``make test-all`` then the slow ones, with fresh examples."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugins.conformance import QUICK, REST

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


def ran(project: pytest.Pytester, profile: str, *arguments: str, fails: bool = False) -> tuple[str, list[str]]:
    """Run the property test as a program; returns what was printed and which numbers it was given."""
    (project.path / "test_numbers.py").write_text(PROPERTY.replace("FAILS", str(fails)))
    seen = project.path / "seen"
    seen.unlink(missing_ok=True)
    environment = {**os.environ, "HYPOTHESIS_PROFILE": profile, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", *arguments]
    done = subprocess.run(
        command,
        cwd=project.path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
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
    "mark", ["pytest.mark.slow", "[pytest.mark.slow, pytest.mark.timeout(9)]", "pytest.mark.timeout(9)"]
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


def test_continuous_integration_runs_both_tiers_after_the_checks() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert re.findall(r"^make (.+)$", script, re.MULTILINE) == ["check test test-all"]
