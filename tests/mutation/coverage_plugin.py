"""Pytest plugin that records, for one run under coverage, which tests execute which lines and how long they take.

``python -m coverage run -m pytest -p tests.mutation.coverage_plugin`` with ``MUTATION_SECONDS=FILE``: every test is
a context of the coverage data, named by its node id without parameters, and the file gets the seconds of each test.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest

_SECONDS: dict[str, float] = defaultdict(float)
_FAILED: set[str] = set()


def test_of(nodeid: str) -> str:
    """Return a node id without its parameters."""
    return nodeid.partition("[")[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Attribute the lines that the test executes to it."""
    current = coverage.Coverage.current()
    if current is not None:
        current.switch_context(test_of(item.nodeid))
    try:
        return (yield)
    finally:
        if current is not None:
            current.switch_context("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up the seconds of set-up, call and tear-down of all cases of a test."""
    _SECONDS[test_of(report.nodeid)] += report.duration
    if report.failed:
        _FAILED.add(test_of(report.nodeid))


def pytest_sessionfinish() -> None:
    """Write the seconds of each test that passed; a test that fails without a mutation proves nothing."""
    place = os.environ.get("MUTATION_SECONDS")
    if place is not None:
        passed = {test: seconds for test, seconds in _SECONDS.items() if test not in _FAILED}
        Path(place).write_text(json.dumps(passed), encoding="utf-8")
