"""The two forms of the tests: the short one, and the long one of ``make test-all``, ``make fuzz`` and the like.

``make test`` and ``make test-ci`` run the short form, which is the same in every run: fewer kills, seeds and cuts
(``scaled``), fewer and fixed examples of property tests (tests/plugins/examples.py), and a few cases of tests with many
parameters (the mark ``cases_in_ci``). At least one case of every test runs in both forms, so each requirement that a
test proves is proven in both. HYPOTHESIS_PROFILE chooses the form: it is long with the profiles that make fresh
examples. Tests that a command names by case run in both forms.
"""

from __future__ import annotations

import os
from collections import defaultdict

import pytest

QUICK, MUTATION, FULL, FUZZ = "quick", "mutation", "full", "fuzz"
SAME = (QUICK, MUTATION)
"""Profiles that make the same examples in every run."""

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", QUICK)
IS_SHORT = PROFILE in SAME

MARK = "cases_in_ci"


def scaled(full: int, *, ci: int) -> int:
    """Return how often a test does something: how many kills, seeds, cuts, rounds or examples it has.

    Args:
        full: the number in the long form.
        ci: the number in the short form.
    """
    return ci if IS_SHORT else full


def pytest_report_header() -> str:
    """Return the line that names the form of this run."""
    return f"form: {'short, as in make test-ci' if IS_SHORT else 'long, as in make test-all'}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In the short form, keep as many cases of each marked test as its mark says, evenly spread."""
    if not IS_SHORT:
        return
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker(MARK) is not None:
            cases[item.nodeid.partition("[")[0]].append(item)
    left_out = {id(item) for every in cases.values() for item in left_out_of(every)}
    config.hook.pytest_deselected(items=[item for item in items if id(item) in left_out])
    items[:] = [item for item in items if id(item) not in left_out]


def left_out_of(every: list[pytest.Item]) -> list[pytest.Item]:
    """Return the cases of one test that the short form leaves out.

    Args:
        every: the cases of one test, in the order of their collection.

    Raises:
        pytest.UsageError: The mark does not name a positive number.
    """
    mark = every[0].get_closest_marker(MARK)
    assert mark is not None
    if len(mark.args) != 1 or not isinstance(mark.args[0], int) or mark.args[0] < 1:
        raise pytest.UsageError(f"{every[0].nodeid}: the mark {MARK} takes one positive number, not {mark.args}")
    count = min(mark.args[0], len(every))
    kept = {place * len(every) // count for place in range(count)}
    return [item for place, item in enumerate(every) if place not in kept]
