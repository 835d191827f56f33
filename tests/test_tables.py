"""A table of cases is one test, which runs every case and reports each that fails."""

from __future__ import annotations

import re

import pytest

from tests.support.tables import for_each

TABLE = """
import pytest
from tests.support.tables import for_each

@pytest.fixture(scope="module")
def limit(): return 2

@pytest.mark.parametrize("kept", ["a", "b"])
@for_each("letter", "xy")
@for_each("number, text", [(1, "one"), pytest.param(2, "two", id="second"), (3, "three")], ids=["first", "", "third"])
def test_numbers(number, text, letter, kept, limit):
    assert len(text) == 3
    if letter == "y" and number == limit:
        pytest.fail("stopped")
"""


def test_every_case_runs_and_each_that_fails_is_reported_with_its_name(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TABLE)
    ran = pytester.runpytest("-p", "no:cacheprovider")
    ran.assert_outcomes(failed=2)
    told = ran.stdout.str()
    assert len(re.findall(r"The case: third\b", told)) == 4  # of both letters, in both tests
    assert len(re.findall(r"The case: second\b", told)) == 2
    assert len(re.findall(r"The case: .*[xy]", told)) == 4
    assert "first" not in re.findall(r"The case: (\w+)", told)
    assert "assert 5 == 3" in told
    assert "stopped" in told


def test_a_case_that_is_interrupted_ends_the_test() -> None:
    seen = []

    @for_each("case", range(3))
    def test_it(case: int) -> None:
        seen.append(case)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        test_it()
    assert seen == [0]


def test_a_table_without_cases_is_an_error() -> None:
    with pytest.raises(ValueError, match="without cases"):
        for_each("case", [])


def test_a_case_with_a_mark_is_an_error() -> None:
    with pytest.raises(ValueError, match="no marks of its own"):
        for_each("case", [pytest.param(1, marks=pytest.mark.slow)])
