"""The pytest plugin behind docs/conformance.md.

Tests say which requirements they prove with ``@pytest.mark.requirement("ID", ...)``. An id that is not in
tests/requirements.toml is a collection error. A full run (everything in tests/, nothing selected away, not stopped
early) writes the report. So do the two runs of ``make test-all`` together: the first one, ``make test``, leaves what it
has shown in pytest's cache, and the second one, of the slow tests and of the property tests with fresh examples, adds
its own and writes. It does so only where the code is still the same. Any other run leaves the report alone. Under
pytest-xdist the workers attach the ids to their reports and the controller adds them up.

``pytest --unrecorded`` (``make conformance``) brings the report in step after tests were added, renamed or deleted: it
runs the marked tests of which the report has no outcome, adds theirs, and keeps the other outcomes.

``python -m tests.plugins.conformance --check`` collects the tests without running them and fails when the
report no longer lists the requirements and the tests as they are, when the short form of the tests (forms.py), which
continuous integration runs, has no case of a test that proves a requirement, or when a requirement that tests name has
no quick test: ``SLOW_ONLY`` lists the exceptions, each with its reason. A run of the short form writes no report: the
report names tests and not their cases, so it is in step with both forms.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path

import pytest

from tests.plugins.conformance_report import (
    FAILED,
    MUTATION_SCORE,
    PARTLY,
    PASSED,
    SKIPPED,
    Evidence,
    Group,
    load_mutation_score,
    load_requirements,
    read_outcomes,
    render,
    summary,
)

MARK = "requirement"
REQUIREMENTS = Path("tests", "requirements.toml")
REPORT = Path("docs", "conformance.md")

SLOW = "slow"

SLOW_ONLY: Mapping[str, str] = {}
"""The requirements that slow tests alone prove, each with the reason why no quick test can."""

WHOLE, QUICK, REST = "", "not slow", "slow or hypothesis"
"""What ``-m`` says in runs that the report is made from: in one of all tests, and in the two of ``make test-all``."""

SHOWN = "conformance/quick"
"""Where pytest's cache keeps what the quick tests have shown."""

# What narrows a run down: with any of these set, the run says nothing about the whole.
NARROWING_OPTIONS = (
    "keyword",
    "deselect",
    "ignore",
    "ignore_glob",
    "lf",
    "stepwise",
    "collectonly",
    "setuponly",
    "setupplan",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option that brings the report in step."""
    parser.addoption(
        "--unrecorded",
        action="store_true",
        help=f"run the tests with requirements of which {REPORT} has no outcome, and add them to it",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Load the requirements and start to watch the run.

    Raises:
        pytest.UsageError: The list of requirements is missing or wrong.
    """
    try:
        groups = load_requirements(config.rootpath / REQUIREMENTS)
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"{REQUIREMENTS}: {error}") from error
    config.pluginmanager.register(Conformance(config, groups), "conformance-report")


def requirements_of(item: pytest.Item) -> list[object]:
    """Return what the item's ``requirement`` marks name, its class's and module's marks included."""
    return [id_ for mark in item.iter_markers(MARK) for id_ in (mark.args or (None,))]


def function_of(nodeid: str) -> str:
    """Return the node id without parameters: a parametrised test counts as one."""
    return nodeid.partition("[")[0]


def outcome_of(phases: set[str]) -> str:
    """Put the outcomes of all cases and phases of one test into one: what failed once has failed."""
    if FAILED in phases:
        return FAILED
    if phases == {PASSED, SKIPPED}:
        return PARTLY
    return next(iter(phases))


class Conformance:
    """Watches one run: refuses unknown ids, gathers what passed, writes the report after a full run."""

    def __init__(self, config: pytest.Config, groups: tuple[Group, ...]) -> None:
        """Watch the run of this configuration against these requirements."""
        self._config = config
        self._groups = groups
        self._known = {requirement.id for group in groups for requirement in group.requirements}
        self._tests: dict[str, set[str]] = defaultdict(set)
        self._outcomes: dict[str, set[str]] = defaultdict(set)
        self._collected = True
        self._is_addition = bool(config.getoption("unrecorded"))
        self._recorded = _recorded(config.rootpath) if self._is_addition else {}
        self._said: str | None = None

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Turn the collection of a test that names an unknown requirement into an error."""
        report = yield
        faults = [
            f"{item.nodeid}: no requirement {id_!r} in {REQUIREMENTS}"
            for item in report.result or ()
            if isinstance(item, pytest.Item)
            for id_ in requirements_of(item)
            if id_ not in self._known
        ]
        if faults:
            report.outcome, report.longrepr, report.result = "failed", "\n".join(faults), []
        return report

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note what could not be collected: under pytest-xdist the other tests run all the same."""
        self._collected = self._collected and not report.failed

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Let the reports of the item carry the ids, also from a worker process to the controller."""
        item.user_properties.extend((MARK, id_) for id_ in requirements_of(item))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """With ``--unrecorded``, leave out the tests without a requirement and those with a recorded outcome."""
        if not self._is_addition:
            return
        for item in items:
            for id_ in requirements_of(item):
                self._tests[str(id_)].add(function_of(item.nodeid))
        marked = set().union(*self._tests.values())
        missing = marked - self._recorded.keys()
        config.hook.pytest_deselected(items=[item for item in items if function_of(item.nodeid) not in missing])
        items[:] = [item for item in items if function_of(item.nodeid) in missing]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how one phase (set-up, call, tear-down) of one test ended."""
        for name, value in report.user_properties:
            if name == MARK:
                self._tests[str(value)].add(function_of(report.nodeid))
        if report.when == "call" or not report.passed:  # a crashed worker reports a failure without a phase
            self._outcomes[function_of(report.nodeid)].add(report.outcome)

    def evidence(self) -> Evidence:
        """Return what the run has shown so far."""
        return Evidence(
            {id_: frozenset(tests) for id_, tests in self._tests.items()},
            {**self._recorded, **{test: outcome_of(phases) for test, phases in self._outcomes.items()}},
        )

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the report, or keep what its first part has shown, when the run came to its end."""
        ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        ended = ended or (self._is_addition and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED)
        whole = self._collected and not (session.shouldstop or session.shouldfail)
        if not (ended and whole and takes_in_every_file(self._config)):
            return
        part = self._config.option.markexpr
        if part == QUICK:
            self._keep()
        elif part == WHOLE or (part == REST and self._add_kept()):
            mutation = load_mutation_score(self._config.rootpath / MUTATION_SCORE)
            if self._is_addition:
                session.exitstatus = (
                    pytest.ExitCode.OK if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED else exitstatus
                )
            write_report(self._config.rootpath / REPORT, render(self._groups, self.evidence(), mutation))
            self._said = f"{REPORT}: {summary(self._groups, self.evidence())}"

    def _keep(self) -> None:
        """Leave what the quick tests have shown to the run of the others."""
        shown = {
            "code": fingerprint(self._config.rootpath),
            "tests": {id_: sorted(tests) for id_, tests in self._tests.items()},
            "outcomes": {test: sorted(phases) for test, phases in self._outcomes.items()},
        }
        cache = getattr(self._config, "cache", None)  # missing with -p no:cacheprovider
        if cache is not None:
            cache.set(SHOWN, shown)

    def _add_kept(self) -> bool:
        """Add what the quick tests have shown; tell whether they were run with the code as it is."""
        cache = getattr(self._config, "cache", None)
        shown = None if cache is None else cache.get(SHOWN, None)
        if shown is None or shown["code"] != fingerprint(self._config.rootpath):
            self._said = f"{REPORT} is left as it is: the quick tests were not run with this code (make test)."
            return False
        for mine, kept in ((self._tests, shown["tests"]), (self._outcomes, shown["outcomes"])):
            for name, values in kept.items():
                mine[name].update(values)
        return True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was written."""
        if self._said is not None:
            terminalreporter.write_line(self._said)


def _recorded(root: Path) -> dict[str, str]:
    """Return the outcome of each test in the report; empty where there is no report."""
    try:
        return read_outcomes((root / REPORT).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}


def takes_in_every_file(config: pytest.Config) -> bool:
    """Tell whether the run collects the whole tests folder, with nothing but ``-m`` to narrow it; the controller's."""
    if hasattr(config, "workerinput"):
        return False
    if any(config.getoption(name, None) for name in NARROWING_OPTIONS):
        return False
    tests = (config.rootpath / "tests").resolve()
    places = [(config.invocation_params.dir / arg).resolve() for arg in config.args]
    return any(place == tests or place in tests.parents for place in places)


def fingerprint(root: Path) -> str:
    """Return a hash of the project's Python and TOML files, those of hidden folders left out."""
    code = hashlib.sha256()
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.endswith((".py", ".toml")):
                file = Path(folder, name)
                code.update(f"{file.relative_to(root)}\0".encode())
                code.update(hashlib.sha256(file.read_bytes()).digest())
    return code.hexdigest()


def write_report(path: Path, text: str) -> None:
    """Put the text in place as a whole: a run that dies here leaves the old report."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=".conformance-", delete=False
    ) as new:
        new.write(text)
    os.chmod(new.name, 0o644)
    os.replace(new.name, path)


class _Marks:
    """Gathers, while tests are collected, which of them name which requirement."""

    def __init__(self) -> None:
        self.tests: dict[str, set[str]] = defaultdict(set)
        self.quick: set[str] = set()
        self.run: set[str] = set()

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Note the item under every requirement it names."""
        for id_ in requirements_of(item):
            self.tests[str(id_)].add(function_of(item.nodeid))
            if item.get_closest_marker(SLOW) is None:
                self.quick.add(str(id_))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the tests of which this form of the run has a case."""
        self.run = {function_of(item.nodeid) for item in session.items}

    def left_out(self) -> list[str]:
        """Return the tests with a requirement of which no case runs."""
        return sorted(set().union(*self.tests.values()) - self.run)


def check(root: Path) -> str | None:
    """Compare the report with the requirements and the marked tests.

    Args:
        root: The folder that holds tests/ and docs/.

    Returns:
        None when the report is in step, otherwise what to do.
    """
    marks, told = _Marks(), io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.chdir(root):
        status = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", "tests"], plugins=[marks])
    if status != pytest.ExitCode.OK:
        return f"{told.getvalue()}\nThe tests could not be collected."
    if marks.left_out():
        return f"Continuous integration runs no case of: {', '.join(marks.left_out())}. See tests/plugins/forms.py."
    slow_only = marks.tests.keys() - marks.quick
    if slow_only != SLOW_ONLY.keys():
        return (
            f"Proven by slow tests alone: {', '.join(sorted(slow_only)) or 'none'}; listed in SLOW_ONLY: "
            f"{', '.join(sorted(SLOW_ONLY)) or 'none'}. Add a quick test, or list the requirement with a reason."
        )
    try:
        report = (root / REPORT).read_text(encoding="utf-8")
    except FileNotFoundError:
        return f"{REPORT} does not exist; make test-all writes it."
    evidence = Evidence({id_: frozenset(tests) for id_, tests in marks.tests.items()}, read_outcomes(report))
    mutation = load_mutation_score(root / MUTATION_SCORE)
    if render(load_requirements(root / REQUIREMENTS), evidence, mutation) != report:
        return f"{REPORT} is not in step with the tests; make conformance or make test-all brings it in step."
    return None


def main(arguments: Iterable[str]) -> int:
    """Run the check from the command line and return the exit status."""
    if list(arguments) != ["--check"]:
        print("usage: python -m tests.plugins.conformance --check", file=sys.stderr)
        return 2
    fault = check(Path.cwd())
    print(fault or f"{REPORT} is in step with the tests.", file=sys.stderr if fault else sys.stdout)
    return 1 if fault else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
