"""Which tests execute which lines, and how long they take: one run of the tests under coverage, without any change.

It is kept in ``.mutation/`` until a module changes; after a change of test files only those are run again.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from coverage import CoverageData

from tests.mutation.scratch import ENVIRONMENT, PACKAGES, ROOT, copy_project, end

KEPT = ROOT / ".mutation"
SECONDS_NEAR, SECONDS_FAR = 30.0, 60.0
"""Seconds, by the baseline, of the tests chosen for a module and of all others that are run for one of its mutants."""

MAX_TESTS = 400
REQUIREMENT = re.compile(r"\b[A-Z]{2,4}-[A-Za-z0-9.]+[A-Za-z0-9]")
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
            Node ids; those of tests that execute the mutated statement or, where it runs at import, a function that
            uses the names that it binds, or any of the module. First come the tests in a file named after the module
            and those that carry a requirement that the module cites.
        """
        lines = self.contexts.get(path, {})
        first, last, users = _statement(source, line)
        executed = set(range(first, last + 1)) if users is None else users
        # A statement that runs at import does so in the test that happens to import the module first.
        found = {test for number in executed for test in lines.get(number, ())}
        if not found:
            found = {test for tests in lines.values() for test in tests}
        stem = Path(path).stem.rstrip("s")
        near = {test for id_ in REQUIREMENT.findall(source) for test in self.marked.get(id_, ())}
        near |= {test for test in found if stem in test.partition("::")[0]}
        return self._within_time(found & near, found - near)

    def _within_time(self, near: Iterable[str], far: Iterable[str]) -> list[str]:
        chosen: list[str] = []
        for group, limit in ((near, SECONDS_NEAR), (far, SECONDS_FAR)):
            spent = 0.0
            for test in self._from_every_file(group):
                if (spent + self.seconds[test] <= limit or not chosen) and len(chosen) < MAX_TESTS:
                    spent += self.seconds[test]
                    chosen.append(test)
        return chosen

    def _from_every_file(self, tests: Iterable[str]) -> list[str]:
        """Return the quickest test of each file, quickest first, then the second of each file, and so on."""
        known = sorted((test for test in tests if test in self.seconds), key=lambda test: (self.seconds[test], test))
        seen: Counter[str] = Counter()
        rank: dict[str, int] = {}
        for test in known:
            file = test.partition("::")[0]
            rank[test] = seen[file]
            seen[file] += 1
        return sorted(known, key=lambda test: rank[test])


def _statement(source: str, line: int) -> tuple[int, int, set[int] | None]:
    """Return the first and last line of the smallest statement around a line.

    Where no function holds it, the third is the lines of the functions that use a name which it binds; else None.
    """
    tree = ast.parse(source)
    best: ast.stmt | None = None
    span, is_in_function = (line, line), False
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt):
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            is_in_function |= node.body[0].lineno <= line <= (node.end_lineno or line)
        body = getattr(node, "body", None)
        last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno
        if node.lineno <= line <= last and (best is None or last - node.lineno < span[1] - span[0]):
            best, span = node, (node.lineno, last)
    return *span, None if is_in_function or best is None else _users(tree, best)


def _users(tree: ast.Module, statement: ast.stmt) -> set[int]:
    """Return the lines of the functions that use a name which a statement binds."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):  # a default of one of its parameters
        return set(range(statement.body[0].lineno, (statement.end_lineno or 0) + 1))
    bound = {one.id for one in ast.walk(statement) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            used = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
            used |= {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
            if bound & used:
                lines |= set(range(node.body[0].lineno, (node.end_lineno or 0) + 1))
    return lines


def load(folders: Iterable[str], options: Iterable[str], processes: int) -> Baseline:
    """Return the baseline of the project as it is, from ``.mutation/`` and from a run of what changed since.

    Args:
        folders: test folders and files to run.
        options: further arguments for pytest.
        processes: how many run side by side.
    """
    options, files = list(options), _test_files(folders)
    key, stamp = _digest(options), KEPT / "key"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != key:
        KEPT.mkdir(exist_ok=True)
        for old in KEPT.iterdir():
            old.unlink()
        stamp.write_text(key, encoding="utf-8")
    missing = sorted(set(files) - set(_runs(KEPT, files)))
    if missing or not (KEPT / "marked.json").exists():
        _run(missing, files, options, processes)
    return read(KEPT, files)


def read(place: Path, files: Mapping[str, str]) -> Baseline:
    """Return a kept baseline of test files, given with their hashes."""
    contexts: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    seconds: dict[str, float] = {}
    runs = _runs(place, files)
    for run in sorted(set(runs.values())):
        data = CoverageData(str(place / f"coverage.{run}"))
        data.read()
        for path in data.measured_files():
            for line, tests in data.contexts_by_lineno(path).items():
                contexts[path][line].update(test for test in tests if runs.get(test.partition("::")[0]) == run)
        told = json.loads((place / f"seconds.{run}.json").read_text(encoding="utf-8"))
        seconds |= {test: spent for test, spent in told.items() if runs.get(test.partition("::")[0]) == run}
    frozen = {path: {line: frozenset(tests) for line, tests in lines.items()} for path, lines in contexts.items()}
    return Baseline(frozen, seconds, json.loads((place / "marked.json").read_text(encoding="utf-8")))


def _runs(place: Path, files: Mapping[str, str]) -> dict[str, int]:
    """Return the number of the latest complete run of each test file as it is now."""
    runs: dict[str, int] = {}
    for kept in sorted(place.glob("files.*.json"), key=_number):
        if (place / f"seconds.{_number(kept)}.json").exists():
            done = json.loads(kept.read_text(encoding="utf-8"))
            runs |= {file: _number(kept) for file, digest in done.items() if files.get(file) == digest}
    return runs


def _number(kept: Path) -> int:
    return int(kept.name.split(".")[1])


def _test_files(folders: Iterable[str]) -> dict[str, str]:
    """Return the hash of each test file."""
    found = {
        path
        for name in folders
        for path in ([ROOT / name] if name.endswith(".py") else (ROOT / name).rglob("test_*.py"))
    }
    return {str(path.relative_to(ROOT)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(found)}


def _digest(options: list[str]) -> str:
    """Return the hash of all that any test may execute: the packages, and the modules that tests share."""
    digest = hashlib.sha256(repr(options).encode())
    for folder in (*PACKAGES, "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            is_test = folder == "tests" and path.name.startswith("test_")
            if not is_test and ROOT / "tests" / "mutation" not in path.parents:
                digest.update(path.read_bytes())
    return digest.hexdigest()


def _run(missing: list[str], files: Mapping[str, str], options: list[str], processes: int) -> None:
    with TemporaryDirectory(prefix="mutation-", ignore_cleanup_errors=True) as folder:
        place = Path(folder) / "copy"
        copy_project(place)
        (place / ".coveragerc").write_text(COVERAGE_SETTINGS, encoding="utf-8")
        print(f"baseline: {len(missing)} test files under coverage, {processes} processes", flush=True)
        first = max((_number(kept) for kept in KEPT.glob("files.*.json")), default=-1) + 1
        parts = {first + index: missing[index::processes] for index in range(processes) if missing[index::processes]}
        runs = []
        try:
            for run, part in parts.items():
                told = json.dumps({file: files[file] for file in part})
                (KEPT / f"files.{run}.json").write_text(told, encoding="utf-8")
                runs.append(_start(place, part, options, run))
            marked = [sys.executable, "-m", "tests.mutation.marked", str(KEPT / "marked.json")]
            runs.append(subprocess.Popen(marked, cwd=place, start_new_session=True))
            for process in runs:
                process.wait()
        finally:
            for process in runs:
                end(process)
        if not all((KEPT / f"seconds.{run}.json").exists() for run in parts) or runs[-1].returncode:
            raise SystemExit("The tests could not be run without a mutation; see the output above.")


def _start(place: Path, files: list[str], options: list[str], run: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "coverage", "run", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    told = {"COVERAGE_FILE": f"{KEPT}/coverage.{run}", "MUTATION_SECONDS": f"{KEPT}/seconds.{run}.json"}
    plugin = ["-p", "tests.mutation.coverage_plugin"]
    environment = {**os.environ, **ENVIRONMENT, **told}
    return subprocess.Popen([*command, *plugin, *options, *files], cwd=place, env=environment, start_new_session=True)
