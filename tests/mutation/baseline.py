"""Which tests execute which lines, and how long they take: one run of the tests under coverage, without any change.

It is kept in ``.mutation/`` until a module or a test changes.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from coverage import CoverageData

from tests.mutation.scratch import ENVIRONMENT, PACKAGES, ROOT, copy_project

KEPT = ROOT / ".mutation"
SECONDS_NEAR, SECONDS_FAR = 12.0, 12.0
"""Seconds, by the baseline, of the tests named after a module and of all others that are run for one of its mutants."""

MAX_TESTS = 150
COVERAGE_SETTINGS = "[run]\nrelative_files = true\nsource =\n" + "".join(f"    {name}\n" for name in PACKAGES)


@dataclass(frozen=True, slots=True)
class Baseline:
    """Tests (node ids without parameters) by the lines they execute, their seconds, and those of each requirement."""

    contexts: dict[str, dict[int, frozenset[str]]]
    seconds: dict[str, float]
    marked: dict[str, list[str]]

    def tests_for(self, path: str, line: int, source: str) -> list[str]:
        """Return the tests to run for a mutant, the likeliest and quickest first.

        Args:
            path: of the module, from the root of the project.
            line: of the mutant.
            source: of the module, without the mutation.

        Returns:
            Node ids; those of tests that execute the mutated statement or, where it runs at import, any of the module.
        """
        lines = self.contexts.get(path, {})
        first, last, is_in_function = _statement(source, line)
        found: set[str] = set()
        if is_in_function:  # other statements run once, in the test that happens to import the module first
            found = {test for number in range(first, last + 1) for test in lines.get(number, ())}
        if not found:
            found = {test for tests in lines.values() for test in tests}
        return self._within_time(found, Path(path).stem)

    def _within_time(self, tests: Iterable[str], stem: str) -> list[str]:
        known = sorted((test for test in tests if test in self.seconds), key=lambda test: (self.seconds[test], test))
        near = [test for test in known if stem.rstrip("s") in test.partition("::")[0]]
        far = [test for test in known if test not in set(near)]
        chosen: list[str] = []
        for group, limit in ((near, SECONDS_NEAR), (far, SECONDS_FAR)):
            spent = 0.0
            for test in group:
                spent += self.seconds[test]
                if (spent > limit and chosen) or len(chosen) >= MAX_TESTS:
                    break
                chosen.append(test)
        return chosen


def _statement(source: str, line: int) -> tuple[int, int, bool]:
    """Return the first and last line of the smallest statement around a line, and whether a function holds it."""
    best, size, is_in_function = (line, line), len(source), False
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.stmt):
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            is_in_function |= node.body[0].lineno <= line <= (node.end_lineno or line)
        body = getattr(node, "body", None)
        last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno
        if node.lineno <= line <= last and last - node.lineno < size:
            best, size = (node.lineno, last), last - node.lineno
    return *best, is_in_function


def load(folders: Iterable[str], options: Iterable[str], processes: int) -> Baseline:
    """Return the baseline of the project as it is, from ``.mutation/`` or from a new run.

    Args:
        folders: test folders and files to run.
        options: further arguments for pytest.
        processes: how many run side by side.
    """
    key = _digest([*folders, *options])
    stamp = KEPT / "key"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != key:
        _run(list(folders), list(options), processes)
        stamp.write_text(key, encoding="utf-8")
    return read(KEPT)


def read(place: Path) -> Baseline:
    """Return a kept baseline."""
    contexts: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    seconds: dict[str, float] = {}
    for kept in sorted(place.glob("coverage.*")):
        data = CoverageData(str(kept))
        data.read()
        for path in data.measured_files():
            for line, tests in data.contexts_by_lineno(path).items():
                contexts[path][line].update(test for test in tests if test)
    for told in sorted(place.glob("seconds.*.json")):
        seconds |= json.loads(told.read_text(encoding="utf-8"))
    frozen = {path: {line: frozenset(tests) for line, tests in lines.items()} for path, lines in contexts.items()}
    return Baseline(frozen, seconds, json.loads((place / "marked.json").read_text(encoding="utf-8")))


def _digest(arguments: Iterable[str]) -> str:
    digest = hashlib.sha256(repr(list(arguments)).encode())
    for folder in (*PACKAGES, "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if ROOT / "tests" / "mutation" not in path.parents:
                digest.update(path.read_bytes())
    return digest.hexdigest()


def _run(folders: list[str], options: list[str], processes: int) -> None:
    KEPT.mkdir(exist_ok=True)
    for old in KEPT.iterdir():
        old.unlink()
    with TemporaryDirectory(prefix="mutation-", ignore_cleanup_errors=True) as folder:
        place = Path(folder) / "copy"
        copy_project(place)
        (place / ".coveragerc").write_text(COVERAGE_SETTINGS, encoding="utf-8")
        files = sorted(
            str(found.relative_to(place))
            for name in folders
            for found in ([place / name] if name.endswith(".py") else (place / name).rglob("test_*.py"))
        )
        print(f"baseline: {len(files)} test files under coverage, {processes} processes", flush=True)
        runs = [_start(place, files[index::processes], options, index) for index in range(processes)]
        marked = [sys.executable, "-m", "tests.mutation.marked", str(KEPT / "marked.json")]
        subprocess.run(marked, cwd=place, check=True)
        for run in runs:
            run.wait()
        if not all((KEPT / f"seconds.{index}.json").exists() for index in range(processes)):
            raise SystemExit("The tests could not be run without a mutation; see the output above.")


def _start(place: Path, files: list[str], options: list[str], index: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "coverage", "run", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    told = {"COVERAGE_FILE": f"{KEPT}/coverage.{index}", "MUTATION_SECONDS": f"{KEPT}/seconds.{index}.json"}
    plugin = ["-p", "tests.mutation.coverage_plugin"]
    environment = {**os.environ, **ENVIRONMENT, **told}
    return subprocess.Popen([*command, *plugin, *options, *files], cwd=place, env=environment)
