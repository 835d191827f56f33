"""What pytest collects, each case of a file of cases as a test, and the recorded logs that no test used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from world.extras import missing_extra

try:
    import pytest
except ImportError:
    raise missing_extra("Tests of realms and policies", "pytest", "testing") from None

from world.errors import RefusedError
from worldprotocol.json_text import as_text
from worldprotocol.policy_tools.cases import is_case_file
from worldprotocol.testing.suites import CaseResult, Suite, suite_of

DEFAULT_FOLDER: Final = "golden"
"""How folders of recorded logs are called, where the configuration names none."""


def collected(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Return the collector of a file of cases, None for any other file."""
    if not is_case_file(path.name):
        return None
    file: pytest.Collector = CasesFile.from_parent(parent, path=path)
    return file


class CasesFile(pytest.File):
    """A file of cases."""

    def collect(self) -> Iterator[CaseItem]:
        """Yield its cases."""
        try:
            suite = suite_of(self.path)
        except RefusedError as refused:
            raise self.CollectError(str(refused)) from None
        for at, entry in enumerate(suite.file.cases):
            yield CaseItem.from_parent(self, name=entry.name, suite=suite, at=at)


class DiffersError(Exception):
    """Difference between the ruling of a case and the expected one."""


class CaseItem(pytest.Item):
    """A case as a test."""

    def __init__(self, *, suite: Suite, at: int, **kwargs: Any) -> None:
        """Create the item of one case."""
        super().__init__(**kwargs)
        self.suite = suite
        self.at = at

    def runtest(self) -> None:
        """Judge the case; raises ``DiffersError`` if the ruling is not as expected."""
        checked = self.suite.check(self.at)
        if checked.differs:
            raise DiffersError("\n".join(_lines(checked)))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the differences, and the outcome of every rule."""
        if isinstance(excinfo.value, (DiffersError, RefusedError)):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the location of the case; pytest counts lines from 0."""
        return self.path, self.suite.file.lines[self.at] - 1, self.name


def _lines(checked: CaseResult) -> Iterator[str]:
    for one in checked.differs:
        yield f"{one.what}: expected {as_text(one.expected)}, was {as_text(one.was)}"
    yield from checked.judged.lines()


def unused_logs(session: pytest.Session, used: Iterable[Path]) -> list[Path]:
    """Return the unused recorded logs; none after a partial or failed run.

    Args:
        session: the run, at its end.
        used: the recorded logs that tests used, resolved.
    """
    known = set(used)
    stopped = session.shouldstop or session.shouldfail or session.testsfailed
    if stopped or session.config.option.collectonly or not _is_whole(session.config):
        return []
    folders = {Path(folder).resolve() for folder in session.config.getini("worldprotocol_golden")}
    if not folders:
        folders = {path.parent for path in known if path.parent.name == DEFAULT_FOLDER}
    logs = {path.resolve() for folder in folders for path in folder.rglob("*.jsonl")}
    return sorted(logs - known)


def _is_whole(config: pytest.Config) -> bool:
    """Return whether the arguments select all tests."""
    began = config.invocation_params.dir
    given = [(began / argument.partition("::")[0]).resolve() for argument in config.args if "::" not in argument]
    root = config.rootpath
    wanted = [(root / name).resolve() for name in config.getini("testpaths")] or [root.resolve()]
    return all(any(one == folder or folder in one.parents for folder in given) for one in wanted)
