"""The named mutations fit the code and the requirements, and the tools of ``make mutate`` do what they say."""

from __future__ import annotations

import ast
import json
import tomllib
from pathlib import Path

import pytest

from tests.mutation.baseline import Baseline
from tests.mutation.mutants import Mutant, count, make, names
from tests.mutation.named import Change, load_table
from tests.mutation.sample import Result, load_settings, score

ROOT = Path(__file__).resolve().parents[2]

SOURCE = '''"""A module."""

from typing import cast

__all__ = ["double"]


def double(number: int | None) -> int:
    """Return twice the number."""
    if number is None:
        raise Refused("NO_NUMBER", f"{number} is no number.", number=1)
    return cast("int", number) * 2
'''


def every_mutant(path: str, source: str) -> list[Mutant]:
    return list(make(path, source, range(count(source))).values())


@pytest.mark.parametrize("mutation", load_table(), ids=lambda mutation: mutation.name)
def test_every_named_mutation_changes_a_module_that_can_still_be_read(mutation):
    for path, source in mutation.sources().items():
        assert source != (ROOT / path).read_text(encoding="utf-8")
        ast.parse(source)


def test_every_named_mutation_names_requirements_of_the_list():
    known = {
        id_
        for name, group in tomllib.loads((ROOT / "tests/requirements.toml").read_text(encoding="utf-8")).items()
        if name != "sources"
        for id_ in group
    }
    table = load_table()
    assert len({mutation.name for mutation in table}) == len(table)
    for mutation in table:
        assert set(mutation.requirements) <= known
        assert mutation.requirements


@pytest.mark.parametrize(("text", "times"), [("x", 0), ("1", 2)])
def test_a_change_whose_text_does_not_occur_once_is_an_error(text, times):
    with pytest.raises(ValueError, match=f"{times} times"):
        Change("a.py", text, "y").apply("1 + 1")


def test_mutants_change_code_and_leave_annotations_docstrings_and_wording_alone():
    made = every_mutant("a.py", SOURCE)
    changes = {(mutant.line, mutant.before, mutant.after) for mutant in made}
    assert (10, "is None", "is not None") in changes or (10, "Is", "IsNot") in changes
    assert (11, '"NO_NUMBER"', '"XXNO_NUMBERXX"') in changes
    assert (12, "2", "3") in changes
    assert {mutant.line for mutant in made} == {10, 11, 12}
    for mutant in made:
        ast.parse(mutant.source)
        assert "is no number." in mutant.source
        assert "int | None" in mutant.source
        assert mutant.source != SOURCE


def test_a_mutant_is_tried_with_the_tests_that_execute_its_statement():
    at_import = frozenset({"t::one"})
    executed = {5: at_import, 10: frozenset({"t::one", "t::two"}), 12: frozenset({"tests/test_a.py::three"})}
    contexts = {"world/a.py": executed}
    seconds = {"t::one": 2.0, "t::two": 1.0, "tests/test_a.py::three": 3.0}
    baseline = Baseline(contexts, seconds, {})
    assert baseline.tests_for("world/a.py", 10, SOURCE) == ["t::two", "t::one"]
    assert baseline.tests_for("world/a.py", 12, SOURCE) == ["tests/test_a.py::three"]
    assert baseline.tests_for("world/a.py", 5, SOURCE) == ["tests/test_a.py::three", "t::two", "t::one"]
    assert baseline.tests_for("world/b.py", 10, SOURCE) == []


def test_the_score_counts_neither_time_outs_nor_equivalent_mutants():
    mutant = every_mutant("a.py", SOURCE)[0]
    outcomes = ["killed"] * 9 + ["survived", "timed out", "equivalent"]
    told = score(Result(mutant, outcome, 1, 0.0) for outcome in outcomes)
    assert told == {"killed": 9, "survived": 1, "timedOut": 1, "equivalent": 1, "score": 90.0}
    assert score([Result(mutant, "no tests", 0, 0.0)])["score"] == 0.0


def test_the_settings_name_modules_and_tests_that_exist():
    settings = load_settings()
    assert "world/core/compute.py" in settings.modules
    assert all((ROOT / path).is_file() for path in settings.modules)
    assert all((ROOT / path).exists() for path in settings.tests)
    for name, reason in settings.equivalent.items():
        assert reason
        path = name.partition(":")[0]
        source = (ROOT / path).read_text(encoding="utf-8")
        assert name in names(path, source)


def test_the_kept_score_is_that_of_the_settings():
    told = json.loads((ROOT / "docs/mutation-score.json").read_text(encoding="utf-8"))
    assert told["sample"]["modules"] == list(load_settings().modules)
    assert told["named"]["mutations"] == len(load_table())
