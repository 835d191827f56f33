"""Which lines and branches of rules in Python cases reach, by coverage.py (the extra ``testing``)."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, TracebackType
from typing import Any, ClassVar, Self

from authority import AllOf, AnyOf, Policy
from authority.policies.rules import PythonRule, Rule
from world.extras import missing_extra
from world.model.record import WireForm

_WARNINGS = ["no-data-collected", "module-not-measured", "module-not-imported", "already-imported"]


@dataclass(frozen=True, slots=True)
class Body:
    """The statements of a rule.

    Args:
        file: their file.
        first: the first line, from 1.
        last: the last line.
    """

    file: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Reached(WireForm):
    """What cases reached of a rule, or of a part of one that is made of several.

    Args:
        file: its file.
        lines: how many lines with statements it has.
        missing: those that no case reached.
        partial: lines from which cases took some of the ways only: line, ways, ways taken.
    """

    file: str
    lines: int
    missing: tuple[int, ...]
    partial: tuple[tuple[int, int, int], ...]
    WIRE: ClassVar = "file lines missing partial=branches"

    @property
    def branches(self) -> list[dict[str, int]]:
        """``partial`` as JSON."""
        return [{"line": line, "ways": ways, "taken": taken} for line, ways, taken in self.partial]

    def unreached(self) -> Iterator[str]:
        """Yield what no case reached, in words."""
        for line in self.missing:
            yield f"never: {self.file}:{line} is reached"
        for line, ways, taken in self.partial:
            yield f"only {taken} of the {ways} ways on from {self.file}:{line} taken"


class PythonCoverage:
    """Measures while it is entered; afterwards ``of`` returns the result.

    Args:
        policy: whose rules in Python are measured.

    Raises:
        RefusedError: ``COVERAGE_MISSING`` where coverage.py is not installed.
    """

    def __init__(self, policy: Policy) -> None:
        self._bodies = {one.name: bodies_of(one) for one in policy.rules}
        files = sorted({body.file for bodies in self._bodies.values() for body in bodies})
        self._coverage: Any = _coverage(files) if files else None

    def __enter__(self) -> Self:
        if self._coverage is not None:
            self._coverage.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._coverage is not None:
            self._coverage.stop()

    def of(self, rule: str) -> list[Reached]:
        """Return what was reached of a rule and its parts, nothing for one without statements of its own in a file."""
        return [self._reached(body) for body in self._bodies[rule]]

    def _reached(self, body: Body) -> Reached:
        _, statements, _, missing, _ = self._coverage.analysis2(body.file)
        inside = range(body.first, body.last + 1)
        ways = {line: one for line, one in self._coverage.branch_stats(body.file).items() if line in inside}
        unreached = {line for line in missing if line in inside}
        return Reached(
            file=Path(body.file).name,
            lines=sum(line in inside for line in statements),
            missing=tuple(sorted(unreached)),
            partial=tuple((line, *ways[line]) for line in sorted(ways) if line not in unreached and _some(*ways[line])),
        )


def _some(ways: int, taken: int) -> bool:
    return 0 < taken < ways


def _coverage(files: list[str]) -> Any:
    try:
        from coverage import Coverage
    except ImportError:
        what = "The lines of rules in Python that cases reach"
        raise missing_extra(what, "coverage", "testing", code="COVERAGE_MISSING") from None
    measured = Coverage(data_file=None, branch=True, include=files, config_file=False)
    measured.set_option("run:disable_warnings", _WARNINGS)
    return measured


def bodies_of(one: Rule) -> list[Body]:
    """Return the places of the statements of a rule; for a composition, those of all its parts."""
    if isinstance(one, (AllOf, AnyOf)):
        return [body for part in one.rules for body in bodies_of(part)]
    body = body_of(one)
    return [] if body is None else [body]


def body_of(one: Rule) -> Body | None:
    """Return the places of the statements of a rule; None where they are not Python, not available, or a lambda."""
    code = _code_of(one)
    if code is None:
        return None
    try:
        lines, start = inspect.getsourcelines(code)
        [node] = ast.parse(textwrap.dedent("".join(lines))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    if not isinstance(node, ast.FunctionDef) or node.body[0].lineno == node.lineno:
        return None
    return Body(code.co_filename, start + node.body[0].lineno - 1, start + (node.end_lineno or len(lines)) - 1)


def _code_of(one: Rule) -> CodeType | None:
    called: Any = one.function if isinstance(one, PythonRule) else one
    called = inspect.unwrap(getattr(called, "func", called))
    if not isinstance(called, FunctionType):
        if type(called).__module__.startswith("authority."):
            return None  # a rule in another language
        called = getattr(type(called), "__call__", None)  # noqa: B004 - the method itself is wanted
    return called.__code__ if isinstance(called, FunctionType) else None
