"""The named mutations fit the code and the requirements, and the tools of ``make mutate`` do what they say."""

from __future__ import annotations

import ast
import json
import shutil
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from coverage import CoverageData

from tests.mutation.baseline import SECONDS_FAR, Baseline, read
from tests.mutation.mutants import Mutant, count, make, names
from tests.mutation.named import Change, load_table
from tests.mutation.sample import Result, cited, load_settings, score, survivors, worst_of_each_name
from tests.mutation.scratch import Worker

pytestmark = pytest.mark.slow  # imports mutmut

ROOT = Path(__file__).resolve().parents[2]

SOURCE = '''"""A module."""

from typing import cast

__all__ = ["double"]


def double(number: int | None) -> int:
    """Return twice the number."""
    if number is None:
        raise RefusedError("NO_NUMBER", f"{number} is no number.", number=1)
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
    assert {mutant.line for mutant in every_mutant("a.py", "class A(Struct, frozen=True):\n    size: int = 1\n")} == {2}
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


CONSTANT = '''"""A module (INT-3.1)."""

LIMIT = 3


def bounded(number):
    return min(number, LIMIT)


def other(number):
    return number
'''


def test_a_mutated_constant_is_tried_with_the_tests_of_the_functions_that_use_it():
    bound, beside, cites = "t.py::bound", "u.py::beside", "v.py::cites"
    contexts = {"world/a.py": {3: frozenset({beside}), 7: frozenset({bound, cites}), 11: frozenset({beside})}}
    baseline = Baseline(contexts, {bound: 1.0, beside: 1.0, cites: 9.0}, {"INT-3.1": [cites]})
    assert baseline.tests_for("world/a.py", 3, CONSTANT) == [cites, bound]
    assert baseline.tests_for("world/a.py", 11, CONSTANT) == [beside]


def test_tests_are_chosen_from_every_file_and_one_that_takes_too_long_is_left_out():
    seconds = {"a.py::1": 1.0, "a.py::2": 2.0, "b.py::1": 3.0, "c.py::1": SECONDS_FAR, "d.py::1": 4.0}
    baseline = Baseline({"world/z.py": {7: frozenset(seconds)}}, seconds, {})
    assert baseline.tests_for("world/z.py", 7, CONSTANT) == ["a.py::1", "b.py::1", "d.py::1", "a.py::2"]


def test_only_test_files_that_changed_are_run_again(tmp_path):
    def run(number: int, digests: dict[str, str], line: int) -> None:
        (tmp_path / f"files.{number}.json").write_text(json.dumps(digests), encoding="utf-8")
        (tmp_path / f"seconds.{number}.json").write_text(
            json.dumps({f"{file}::t": float(number) for file in digests}), encoding="utf-8"
        )
        data = CoverageData(str(tmp_path / f"coverage.{number}"))
        for file in digests:
            data.set_context(f"{file}::t")
            data.add_lines({"world/a.py": [line]})
        data.write()

    (tmp_path / "marked.json").write_text("{}", encoding="utf-8")
    run(0, {"a.py": "old", "b.py": "same"}, 1)
    run(1, {"a.py": "new"}, 2)
    (tmp_path / "files.2.json").write_text(json.dumps({"b.py": "same"}), encoding="utf-8")  # it was interrupted
    read_back = read(tmp_path, {"a.py": "new", "b.py": "same", "c.py": "added"})
    assert read_back.contexts == {"world/a.py": {1: {"b.py::t"}, 2: {"a.py::t"}}}
    assert read_back.seconds == {"a.py::t": 1.0, "b.py::t": 0.0}
    assert read(tmp_path, {"a.py": "newer", "b.py": "same"}).seconds == {"b.py::t": 0.0}


def test_the_score_counts_neither_time_outs_nor_equivalent_mutants():
    mutant = every_mutant("a.py", SOURCE)[0]
    outcomes = ["killed"] * 9 + ["survived", "timed out", "equivalent"]
    told = score((Result(mutant, outcome, 1, 0.0) for outcome in outcomes), {})
    assert told == {"killed": 9, "survived": 1, "timedOut": 1, "equivalent": 1, "score": 90.0}
    assert score([Result(mutant, "no tests", 0, 0.0)], {})["score"] == 0.0


def test_survivors_that_are_run_again_are_added_to_what_was_noticed_before():
    first, second = every_mutant("a.py", SOURCE)[:2]
    outcomes = [(first, "killed"), (first, "survived"), (first, "killed"), (second, "killed")]
    results = worst_of_each_name(Result(mutant, outcome, 1, 0.0) for mutant, outcome in outcomes)
    assert {one.mutant.name: one.outcome for one in results} == {first.name: "survived", second.name: "killed"}
    before = {"killed": 8, "survived": 3, "timedOut": 1, "equivalent": 2, "score": 72.7}
    told = score(results, before)
    assert told == {"killed": 9, "survived": 1, "timedOut": 1, "equivalent": 2, "score": 90.0}


CITING = '''"""A module (WP-exec)."""

def plain(): return 1

class One:
    def cites(self):  # HC-context, UTF-8
        def within(): return 2
        return within
'''


@pytest.mark.parametrize(("line", "found"), [(3, ["HC-context", "WP-exec"]), (6, ["HC-context"]), (7, ["HC-context"])])
def test_a_mutant_is_of_the_requirements_that_its_function_or_else_its_module_cites(line, found):
    assert cited(CITING, line, {"WP-exec", "HC-context"}) == found
    assert cited(CITING, line, set()) == []


def test_survivors_are_named_and_counted_by_requirement():
    path = "world/pipeline/recover.py"
    line = (
        (ROOT / path)
        .read_text(encoding="utf-8")
        .splitlines()
        .index("def take_over(work: UnitOfWork) -> Iterator[Step]:")
    )
    one = Mutant(path, line + 1, "a", "b", "")
    results = [Result(one, "survived", 3, 1.0), Result(one, "no tests", 0, 0.0), Result(one, "killed", 1, 0.0)]
    told = survivors(results, {"WP-exec", "HC-journal"})
    assert told == {"survivors": [one.name, one.name], "survivedOf": {"WP-exec": 2}}
    assert survivors(results[:1], set())["survivedOf"] == {"none": 1}


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


def test_the_kept_score_is_that_of_the_modules_of_the_settings():
    told = json.loads((ROOT / "docs/mutation-score.json").read_text(encoding="utf-8"))
    measured, modules = set(told["sample"]["modules"]), set(load_settings().modules)
    assert measured <= modules
    assert len(measured) >= 0.9 * len(modules)  # with more modules than that unmeasured, `make mutate` has to run again
    assert told["named"]["mutations"] == len(load_table())


ENDLESS = """
import os
import subprocess
import sys

from changed import PLACE


def test_endless():
    code = "import os, pathlib; pathlib.Path('beside.pid').write_text(str(os.getpid()) + chr(10)); input()"
    subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, start_new_session=True)
    with open("test.pid", "w") as file:
        print(os.getpid(), file=file)
    while PLACE:
        pass
"""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    """A worker in a project of one module and a test that never ends and starts a process in another session."""
    (tmp_path / "tests" / "mutation").mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "mutation" / "worker.py", tmp_path / "tests" / "mutation")
    (tmp_path / "changed.py").write_text("PLACE = 1\n", encoding="utf-8")
    (tmp_path / "test_endless.py").write_text(ENDLESS, encoding="utf-8")
    made = Worker(tmp_path)
    yield made
    made.stop()


def started(place: Path) -> list[psutil.Process]:
    """Wait until the test and the process that it starts have written their ids, and return both."""
    found = []
    for name in ("test.pid", "beside.pid"):
        while not (place / name).exists() or not (place / name).read_text(encoding="utf-8").endswith("\n"):
            time.sleep(0.02)
        found.append(psutil.Process(int((place / name).read_text(encoding="utf-8"))))
    return found


def job(time_limit_s: float) -> dict[str, object]:
    return {
        "changes": {"changed.py": "PLACE = 2\n"},
        "tests": ["test_endless.py"],
        "options": [],
        "time_limit_s": time_limit_s,
    }


def test_a_run_that_exceeds_its_limit_ends_with_every_process_it_started(worker, tmp_path):
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(worker.run, job(time_limit_s=10.0))
        processes = started(tmp_path)
        assert answer.result()["outcome"] == "timed out"
    assert not psutil.wait_procs(processes, timeout=60)[1]
    assert (tmp_path / "changed.py").read_text(encoding="utf-8") == "PLACE = 1\n"


def test_a_worker_that_is_stopped_in_a_run_ends_with_every_process_it_started(worker, tmp_path):
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(worker.run, job(time_limit_s=600.0))
        processes = started(tmp_path)
        worker.stop()
        with pytest.raises(RuntimeError, match="ended with status"):
            answer.result()
    assert not psutil.wait_procs(processes, timeout=60)[1]
