"""The examples of the property tests: how many, from which seed, and how a failed one is repeated.

Profiles are chosen with HYPOTHESIS_PROFILE. ``quick`` (the default, so also ``make test`` and ``make test-ci``) makes
the same few examples in every run, so that two runs of one commit agree; ``mutation`` (``make mutate``) makes fewer
still. ``full`` (``make test-all``) and ``fuzz`` (``make fuzz``) make many, from a fresh seed in every run. After a
failure the run prints a command for each failed property test that runs it with the very example that failed
(``--repeat-example``): a seed alone makes other examples in another process, because Hypothesis also draws constants of
the modules that are imported there. None has a deadline: a loaded machine is no fault in the code. A test may ask for
another number of examples by itself, and for fewer of them in the short form (``tests.plugins.forms.scaled``).
"""

from __future__ import annotations

import re
import secrets
import shlex
from typing import Any

import pytest
from hypothesis import HealthCheck, __version__, is_hypothesis_test, reproduce_failure, settings

from tests.plugins.forms import FULL, FUZZ, MUTATION, PROFILE, QUICK, SAME

SEED = "hypothesis_seed"
REPEAT = "--repeat-example"
_EXAMPLE = re.compile(r"@reproduce_failure\('[^']+', b'(?P<example>[^']+)'\)")

settings.register_profile(
    QUICK, deadline=None, max_examples=30, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(MUTATION, parent=settings.get_profile(QUICK), max_examples=20, database=None)
settings.register_profile(
    FULL, parent=settings.get_profile(QUICK), derandomize=False, max_examples=100, print_blob=True
)
settings.register_profile(FUZZ, parent=settings.get_profile(FULL), max_examples=10_000)
settings.load_profile(PROFILE)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose a fresh seed where the profile wants one and none is given; worker processes are given the same one."""
    if PROFILE not in SAME and getattr(config.option, SEED, None) is None:
        config.option.hypothesis_seed = str(secrets.randbelow(1 << 32))


def pytest_report_header(config: pytest.Config) -> str:
    """Say which examples the property tests look at."""
    seed = getattr(config.option, SEED, None)
    return f"examples: profile {PROFILE}, " + ("the same in every run" if seed is None else f"--hypothesis-seed={seed}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs property tests with one example only."""
    parser.addoption(
        REPEAT, metavar="EXAMPLE", help="run property tests with this one example, as a failed run names it"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give the property tests the example that the command line names."""
    example = config.getoption(REPEAT)
    for item in items:
        test: Any = getattr(item, "obj", None)
        if example is not None and is_hypothesis_test(test):
            reproduce_failure(__version__, example.encode())(getattr(test, "__func__", test))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the commands that repeat the failed property tests."""
    failed = [report for report in terminalreporter.getreports("failed") if "hypothesis" in report.keywords]
    if failed and PROFILE not in SAME:  # whose examples are the same in every run anyway
        terminalreporter.section("repeat the failed examples")
        for report in failed:
            terminalreporter.write_line(command_of(report, str(getattr(terminalreporter.config.option, SEED, None))))


def command_of(report: pytest.TestReport, seed: str) -> str:
    """Return the command that runs a failed property test again, with the example that failed where it is named."""
    said = "\n".join([report.longreprtext, *(text for _, text in report.sections)])
    found = _EXAMPLE.search(said)
    again = f"--hypothesis-seed={seed}" if found is None else f"{REPEAT}={found['example']}"
    return f"HYPOTHESIS_PROFILE={PROFILE} {shlex.join(['python', '-m', 'pytest', report.nodeid, again])}"
