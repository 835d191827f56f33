"""What the conformance report says, as pure functions: requirements and evidence in, Markdown out.

A requirement is proven when at least one test that names it passed and none that names it failed. Everything
else is called not proven, in as many words: a requirement without a test, with a failed test, or whose tests
were skipped. The page holds no times and no order of execution, so equal evidence gives equal bytes, and the
page can be read back into the evidence it was made from.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LEVELS = ("MUST", "SHOULD", "MAY")
MUTATION_SCORE = Path("docs", "mutation-score.json")
"""Where ``make mutate`` keeps its score, from the root of the project."""

PASSED, PARTLY, FAILED, SKIPPED, NOT_RUN = "passed", "some cases skipped", "failed", "skipped", "not run"

_TEST_LINE = re.compile(r"^- `(?P<test>[^`]+)`(?: \((?P<outcome>[a-z ]+)\))?$")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One line of the list: its id, its level (MUST, SHOULD or MAY) and what it asks."""

    id: str
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class Group:
    """The requirements of one source document, in the order of the list."""

    name: str
    source: str
    requirements: tuple[Requirement, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Which tests (node ids without parameters) name a requirement, and how each test ended."""

    tests: Mapping[str, frozenset[str]]
    outcomes: Mapping[str, str]

    def of(self, requirement: Requirement) -> list[tuple[str, str]]:
        """Return the tests that name the requirement with their outcomes, sorted by test."""
        named = sorted(self.tests.get(requirement.id, ()))
        return [(test, self.outcomes.get(test, NOT_RUN)) for test in named]

    def proves(self, requirement: Requirement) -> bool:
        """Tell whether a test that names the requirement passed and none failed."""
        outcomes = {outcome for _, outcome in self.of(requirement)}
        return bool({PASSED, PARTLY} & outcomes) and FAILED not in outcomes


def load_requirements(path: Path) -> tuple[Group, ...]:
    """Read the list of requirements.

    Args:
        path: A TOML file with a table ``sources`` and one table per group, ``id = [level, text]``.

    Returns:
        The groups in the order of the file.

    Raises:
        ValueError: A group has no source, an id stands twice, or a level is not one of RFC 2119.
    """
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    sources = tables.pop("sources", {})
    groups = tuple(_group(name, sources, table) for name, table in tables.items())
    ids = [requirement.id for group in groups for requirement in group.requirements]
    repeated = sorted({id_ for id_ in ids if ids.count(id_) > 1})
    if repeated:
        raise ValueError(f"requirements that stand twice: {', '.join(repeated)}")
    return groups


def _group(name: str, sources: Mapping[str, str], table: Mapping[str, tuple[str, str]]) -> Group:
    if name not in sources:
        raise ValueError(f"group {name} has no source")
    for id_, (level, _) in table.items():
        if level not in LEVELS:
            raise ValueError(f"{id_} has the level {level!r}, which is none of {', '.join(LEVELS)}")
    return Group(name, sources[name], tuple(Requirement(id_, *line) for id_, line in table.items()))


def summary(groups: Iterable[Group], evidence: Evidence) -> str:
    """Count in one sentence what is proven, over all and per level."""
    every = [requirement for group in groups for requirement in group.requirements]
    proven = [requirement for requirement in every if evidence.proves(requirement)]
    levels = ", ".join(
        f"{level} {sum(r.level == level for r in proven)} of {sum(r.level == level for r in every)}"
        for level in LEVELS
        if any(r.level == level for r in every)
    )
    return f"{len(proven)} of {len(every)} requirements are proven ({levels})."


def load_mutation_score(path: Path) -> Mapping[str, Any] | None:
    """Read the result of the last `make mutate`; None where there is none yet.

    Args:
        path: The file that ``python -m tests.mutation --write`` writes.

    Raises:
        ValueError: The file is not JSON.
    """
    if not path.exists():
        return None
    told: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return told


def render(groups: tuple[Group, ...], evidence: Evidence, mutation: Mapping[str, Any] | None = None) -> str:
    """Write the report.

    Args:
        groups: The requirements.
        evidence: The tests that name them, with their outcomes.
        mutation: The result of the last `make mutate`, if there is one.

    Returns:
        Markdown, the same text for the same arguments.
    """
    lines = [*_overview(groups, evidence), *([] if mutation is None else _mutation(mutation))]
    return "\n".join([*lines, *(line for g in groups for line in _section(g, evidence))])


def _overview(groups: tuple[Group, ...], evidence: Evidence) -> list[str]:
    lines = [
        "# Conformance",
        "",
        "Every requirement, and the tests that proved it in the last run of all tests. `make test-all` writes this",
        "page, `make test` leaves out the slow tests and does not; `make conformance` runs only tests that are not on",
        "it yet and adds them; `make check` refuses the page when it has fallen behind the tests. A requirement is",
        "proven when a test that names it passed and none failed.",
        "",
        summary(groups, evidence),
        "",
        "| group | source | requirements | proven |",
        "|---|---|--:|--:|",
    ]
    for group in groups:
        proven = sum(map(evidence.proves, group.requirements))
        lines.append(f"| {group.name} | {group.source} | {len(group.requirements)} | {proven} |")
    missing = [r.id for group in groups for r in group.requirements if not evidence.proves(r)]
    return [*lines, "", f"Not proven: {', '.join(missing) if missing else 'none'}.", ""]


def _mutation(told: Mapping[str, Any]) -> list[str]:
    named, sample = told["named"], told["sample"]
    counts = ("mutants", "sampled", "seed", "killed", "survived", "timedOut", "equivalent")
    row = [str(len(sample["modules"])), *(str(sample[name]) for name in counts), f"{sample['score']} %"]
    return [
        "## Mutation testing",
        "",
        "`make mutate` changes the code in scratch copies and runs the tests: a change that no test notices marks a",
        "claim without proof. The named mutations (`tests/mutation/named.toml`) each break requirements, and a test",
        "marked with every one of these has to fail. The sample is drawn from all mutants of the pure rooms and the",
        "pipeline (`tests/mutation/settings.toml`); the score is the share of mutants that the tests noticed, without",
        "those that ran into the time limit and those listed as equivalent.",
        "",
        f"Named mutations: {named['noticed']} of {named['mutations']} noticed.",
        "",
        "| modules | mutants | sampled | seed | killed | survived | timed out | equivalent | score |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
        f"| {' | '.join(row)} |",
        "",
        *_again(sample.get("again", 0)),
        *_survived(sample.get("survivedOf", {})),  # earlier runs did not count them
    ]


def _again(survivors: int) -> list[str]:
    """Return what the page says of a sample whose survivors were run again after tests were written for them."""
    if not survivors:
        return []
    return [
        f"Of this draw {survivors} mutants survived at first. Tests were written for them, needless code was removed,",
        "and these mutants alone were run again: the score is of those tests, and not of a new draw.",
        "",
    ]


def _survived(counts: Mapping[str, int]) -> list[str]:
    """Return how many mutants of which requirement survived, as lines of the page."""
    if not counts:
        return []
    return [
        "Survived, by the requirements that the changed function cites, or else its module; `none` is code that cites",
        "none. `docs/mutation-score.json` names the mutants.",
        "",
        "| requirement | survived |",
        "|---|--:|",
        *(f"| {id_} | {count} |" for id_, count in counts.items()),
        "",
    ]


def _section(group: Group, evidence: Evidence) -> list[str]:
    lines = [f"## {group.name}: {group.source}", ""]
    for requirement in group.requirements:
        verdict = "proven" if evidence.proves(requirement) else "not proven"
        lines += [f"### {requirement.id} ({requirement.level}): {verdict}", "", requirement.text, ""]
        tests = [_test_line(test, outcome) for test, outcome in evidence.of(requirement)]
        lines += [*(tests or ["No test names this requirement."]), ""]
    return lines


def _test_line(test: str, outcome: str) -> str:
    return f"- `{test}`" if outcome == PASSED else f"- `{test}` ({outcome})"


def read_outcomes(report: str) -> dict[str, str]:
    """Read back from a report how each test in it ended.

    Args:
        report: Text made by ``render``.

    Returns:
        The outcome of each test, by its node id.
    """
    found = (_TEST_LINE.match(line) for line in report.splitlines())
    return {match["test"]: match["outcome"] or PASSED for match in found if match}
