"""The pytest plugin: the fixtures ``judge``, ``recorded`` and ``given``, and files of cases as tests.

pytest loads this module in every environment where the package is installed, used or not. So it imports nothing but
pytest; what it offers is imported when a test asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from worldprotocol.testing.fixture import Judging
    from worldprotocol.testing.recordings import Recordings
    from worldprotocol.testing.scenarios import Given


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add how logs are recorded, and what the configuration may say of files of cases and of recorded logs."""
    parser.getgroup("worldprotocol").addoption(
        "--record",
        choices=("none", "once", "new", "all"),
        default="none" if os.environ.get("CI") else "once",
        help="Recorded logs of tests that drive a realm: none (a missing one fails; the default where CI is set), once "
        "(record what is missing; the default elsewhere), new (also add what is new at the end), all (record anew).",
    )
    parser.addini(
        "worldprotocol_golden",
        "Folders of recorded logs (*.jsonl), each of which some test must use; without it, the folders called "
        "'golden' from which a test uses one.",
        type="paths",
        default=[],
    )
    parser.addini(
        "worldprotocol_cases",
        "Collect files of cases (rules.cases.toml, .yaml, .json) as tests, each case one.",
        type="bool",
        default=False,
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a file of cases, where the configuration wants that."""
    if ".cases." not in file_path.name or not parent.config.getini("worldprotocol_cases"):
        return None
    from worldprotocol.testing.collecting import collected

    return collected(file_path, parent)


@pytest.fixture
def judge(request: pytest.FixtureRequest) -> Judging:
    """Judge cases by a policy: ``judge("rules.toml").case(actor="bot", type="pay", input={"amount": 5})``."""
    from worldprotocol.testing.fixture import Judging

    judging = Judging((request.path.parent, request.config.rootpath))
    request.node.stash[_JUDGING] = judging
    return judging


@pytest.fixture
def recorded(request: pytest.FixtureRequest) -> Iterator[Recordings]:
    """Check a recorded log by the available code: ``recorded("golden/shop.jsonl", domain=shop)``."""
    from worldprotocol.testing.recordings import Flip, Recordings

    flips = [Flip(**marker.kwargs) for marker in request.node.iter_markers("expected_flip")]
    folders = (request.path.parent, request.config.rootpath)
    recordings = Recordings(folders, request.config.getoption("--record"), flips, request.config.stash[_USED])
    request.node.stash[_RECORDINGS] = recordings
    with recordings.scratch:
        yield recordings


@pytest.fixture
def given(request: pytest.FixtureRequest) -> Given:
    """Try what a realm does: ``given(domain=shop).when("sell", {"item": "tea"}).then("proposal.completed")``."""
    from worldprotocol.testing.scenarios import Given

    return Given((request.path.parent, request.config.rootpath), request.config.stash[_USED])


_JUDGING: pytest.StashKey[Any] = pytest.StashKey()
_RECORDINGS: pytest.StashKey[Any] = pytest.StashKey()
_USED: pytest.StashKey[set[Path]] = pytest.StashKey()
_IN_PART: pytest.StashKey[list[str]] = pytest.StashKey()
_UNUSED: pytest.StashKey[list[Path]] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, and begin to note which recorded logs are used."""
    config.addinivalue_line(
        "markers",
        "expected_flip(proposal=..., position=..., file=..., to=..., code=...): a divergence of a recorded log that is "
        "wanted, and has to happen.",
    )
    config.stash[_USED] = set()
    config.stash[_IN_PART] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Look at the end of a test whether all that it expects of recorded logs has happened."""
    done = yield
    recordings = item.stash.get(_RECORDINGS, None)
    if recordings is not None:
        recordings.finish()
    elif item.get_closest_marker("expected_flip") is not None:
        pytest.fail("expected_flip is about recorded logs, and this test does not use `recorded`.", pytrace=False)
    return done


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the last rulings of a test that failed, rule by rule."""
    report = yield
    judging = item.stash.get(_JUDGING, None)
    if judging is not None and report.when == "call" and report.failed and judging.last:
        report.sections.append(("worldprotocol: the last rulings", judging.rendered()))
    if report.skipped and not {"recorded", "given"}.isdisjoint(getattr(item, "fixturenames", ())):
        item.config.stash[_IN_PART].append(item.nodeid)
    return report


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Note that not all tests are run, so nothing can be said of recorded logs that no test used."""
    for item in items[:1]:
        item.config.stash[_IN_PART].append("some are deselected")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run of all tests in which recorded logs were left that no test used."""
    config = session.config
    if hasattr(config, "workerinput"):  # one of several processes; the one that started them decides
        rendered = {"used": [str(path) for path in config.stash[_USED]], "inPart": config.stash[_IN_PART]}
        config.workeroutput["worldprotocol"] = rendered  # type: ignore[attr-defined]  # pytest-xdist puts it there
        return
    used = config.stash[_USED]
    if not (used or config.getini("worldprotocol_golden")) or config.stash[_IN_PART]:
        return
    from worldprotocol.testing.collecting import unused_logs

    config.stash[_UNUSED] = unused_logs(session, used)
    if config.stash[_UNUSED]:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take in what a process of pytest-xdist used."""
    rendered = getattr(node, "workeroutput", {}).get("worldprotocol")
    if rendered is None:  # it was lost
        node.config.stash[_IN_PART].append("a process was lost")
        return
    node.config.stash[_USED].update(map(Path, rendered["used"]))
    node.config.stash[_IN_PART].extend(rendered["inPart"])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Report the recorded logs that no test used."""
    unused = config.stash.get(_UNUSED, [])
    if unused:
        terminalreporter.section("worldprotocol: recorded logs that no test uses", red=True)
        for path in unused:
            terminalreporter.line(str(path))
        terminalreporter.line("Delete them, or write the tests that use them.")
