"""Cases of a policy, and the results of running them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from authority import Policy, is_policy_file
from authority.policies.loading import policy_from_reference
from authority.policies.policy_text import SUFFIXES as POLICY_SUFFIXES
from world.core import Domain
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.record import WireForm
from worldprotocol.api.bootstrap import load_any_domain
from worldprotocol.policy_tools.cases import SUFFIXES, Placed, is_case_file, read_cases
from worldprotocol.testing.coverage_python import PythonCoverage
from worldprotocol.testing.coverage_rules import RuleCoverage, coverage_of
from worldprotocol.testing.judging import CaseRuling, RulingDifference, differences, judged
from worldprotocol.testing.making import Maker


@dataclass(frozen=True, slots=True)
class Suite:
    """A policy and its cases.

    Args:
        policy: the policy.
        file: the cases.
        domain: None where none is available.
    """

    policy: Policy
    file: Placed
    domain: Domain | None

    def check(self, at: int) -> CaseResult:
        """Return the result of one case.

        Args:
            at: its place in the file, from 0.

        Raises:
            RefusedError: ``INVALID_CASES`` and the like, with the case's name and line, where it cannot be made.
        """
        entry, line = self.file.cases[at], self.file.lines[at]
        try:
            case = Maker(self.policy, self.domain, self.file.given).case(entry)
        except RefusedError as refused:
            message = f"{self.file.path.name}, line {line}, case {entry.name!r}: {refused.message}"
            raise RefusedError(refused.code, message, **{**refused.details, "line": line, "case": entry.name}) from None
        found = judged(self.policy, case)
        return CaseResult(entry.name, self.file.path.name, line, found, differences(entry.expected, found))


@dataclass(frozen=True, slots=True)
class CaseResult(WireForm):
    """Result of a case.

    Args:
        name: of the case.
        file: its file.
        line: on which it begins.
        judged: the ruling.
        differs: what is not as expected.
    """

    name: str
    file: str
    line: int
    judged: CaseRuling
    differs: list[RulingDifference]
    WIRE: ClassVar = "case=name file line passed differs decision=judged.decision *judged"

    @property
    def passed(self) -> bool:
        """Whether the ruling is as expected."""
        return not self.differs


def run(suites: Sequence[Suite], *, covering: bool, lines: bool) -> tuple[list[CaseResult], list[RuleCoverage] | None]:
    """Check all cases of one policy.

    Args:
        suites: of the same policy.
        covering: whether to report what they cover.
        lines: whether to measure lines of Python, too.

    Raises:
        RefusedError: as ``Suite.check``; ``COVERAGE_MISSING``.
    """
    policy = suites[0].policy
    rules = coverage_of(policy) if covering else {}
    measured = PythonCoverage(policy) if covering and lines else None
    with measured or nullcontext():
        checked = [suite.check(at) for suite in suites for at in range(len(suite.file.cases))]
    if not covering:
        return checked, None
    for one in checked:
        for outcome in one.judged.ruling.trace:
            rules[outcome.rule].take(one.judged, outcome)
    if measured is not None:
        for name, covered in rules.items():
            covered.python = measured.of(name) or None
    return checked, list(rules.values())


def cases_beside(reference: str, base: Path) -> list[Path]:
    """Return the files of cases that belong to a policy.

    Args:
        reference: of the policy; ``rules.toml`` is tested by ``rules.cases.toml``, ``.yaml`` or ``.json`` beside it,
            ``rules.py:house`` by ``house.cases.toml`` or else by ``rules.cases.toml``. A module is loaded already.
        base: where relative references start.
    """
    if is_policy_file(reference):
        path = base / reference
        return _existing(path.parent, path.stem)
    module, _, attribute = reference.rpartition(":")
    path = base / module if module.endswith(".py") else Path(getattr(sys.modules.get(module), "__file__", None) or "?")
    return _existing(path.parent, attribute) or _existing(path.parent, path.stem)


def _existing(folder: Path, stem: str) -> list[Path]:
    return [path for suffix in SUFFIXES if (path := folder / f"{stem}.cases{suffix}").is_file()]


def suite_of(path: Path, *, policy: Policy | None = None, domain: Domain | None = None) -> Suite:
    """Return the cases of a file with the policy and the domain that it names.

    Args:
        path: the file of cases.
        policy: to be tested in place of the one that the file names or that is beside it.
        domain: where the file names none.

    Raises:
        RefusedError: ``INVALID_CASES``, ``NO_POLICY_NAMED``, and what loading a policy or a domain refuses.
    """
    file = read_cases(path)
    if file.domain is not None:
        domain = load_any_domain(file.domain, base=path.parent)
    if policy is None:
        policy = policy_from_reference(file.policy or _policy_beside(path), base=path.parent)
    return Suite(policy, file, domain)


def _policy_beside(path: Path) -> str:
    stem = path.name.rpartition(".cases.")[0] if is_case_file(path.name) else path.stem
    found = [name for suffix in POLICY_SUFFIXES if (path.parent / (name := stem + suffix)).is_file()]
    if len(found) != 1:
        raise RefusedError(
            ErrorCode.NO_POLICY_NAMED,
            f"{path.name} does not say which policy it tests, and beside it there is "
            f'{" and ".join(found) or f"no {stem}.toml"}; write policy = "{stem}.toml" or "{stem}.py:NAME" above '
            "its cases.",
            file=str(path),
        )
    return found[0]
