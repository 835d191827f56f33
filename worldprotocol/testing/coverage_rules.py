"""What cases cover of a policy: its rules, and the branches of conditions in policy files.

A condition is covered when it was true once and false once. Where ``&&`` or ``||`` joins it at its top, that is
required of every part, whenever the parts before it had not settled the condition; a part that failed and was
outweighed by another settles nothing. A rule without a condition
had an opinion once; one for some actions or actors only also had none once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple

from authority import Policy
from authority.cel.conditions import Condition
from authority.policies.policy_file import FileRule
from authority.policies.rules import Rule
from world.errors import RefusedError
from world.model.decision import RuleOutcome
from world.model.record import WireForm
from world.state.ports import Case
from worldprotocol.testing.coverage_python import Reached
from worldprotocol.testing.judging import CaseRuling

OPINION: Final = "it has an opinion"
NO_OPINION: Final = "it has none"
COUNTS: Final = ("decided", "matched", "silent", "failed")
"""What is counted of a rule: it decided; it had an opinion; it had none; it failed."""


class RuleBranch(NamedTuple):
    """A way that a judgement can take, and how many cases took it."""

    words: str
    taken: int


class ConditionParts(NamedTuple):
    """A condition, its parts, and the sign that joins them; the condition itself where none does."""

    whole: Condition
    sign: str
    conditions: list[Condition]

    def answers(self, case: Case) -> Iterator[tuple[Condition, bool]]:
        """Yield the parts that are asked for a case, and what each comes to.

        A part that fails ends it where the whole fails.
        """
        for part in self.conditions:
            try:
                answer = part.holds(case)
            except RefusedError:
                if part is not self.whole and _comes_to_something(self.whole, case):
                    continue
                return
            yield part, answer
            if answer is (self.sign == "||"):
                return


def parts_of(condition: Condition) -> ConditionParts:
    """Return what a condition is joined of."""
    sign, parts = condition.parts()
    return ConditionParts(condition, sign, parts or [condition])


def _comes_to_something(condition: Condition, case: Case) -> bool:
    try:
        condition.holds(case)
    except RefusedError:
        return False
    return True


@dataclass(slots=True)
class RuleCoverage(WireForm):
    """What cases covered of one rule.

    Args:
        rule: the rule.
        source: its place, for people.
        ways: what its branches are called, in order.
        parts: of its condition, None where there is none.
        python: what of its lines was reached; None where they were not measured.
    """

    rule: Rule
    source: str
    ways: tuple[str, ...]
    parts: ConditionParts | None
    counts: Counter[str] = field(default_factory=Counter)
    taken: Counter[str] = field(default_factory=Counter)
    python: list[Reached] | None = None
    WIRE: ClassVar = "rule=rule.name source *counted branches=shown python?"

    def take(self, found: CaseRuling, outcome: RuleOutcome) -> None:
        """Take in what the rule said to a case."""
        self.counts["decided"] += outcome.decisive
        if outcome.answer == "error":
            self.counts["failed"] += 1
        else:
            self.counts["silent" if outcome.answer == "none" else "matched"] += 1
            self.taken[NO_OPINION if outcome.answer == "none" else OPINION] += 1
        if self.parts is not None and isinstance(self.rule, FileRule) and self.rule.is_for(found.case):
            self.taken.update(_way(part.text, answer) for part, answer in self.parts.answers(found.case))

    @property
    def counted(self) -> dict[str, int]:
        """How often it was what."""
        return {name: self.counts[name] for name in COUNTS}

    @property
    def shown(self) -> list[dict[str, Any]]:
        """The branches as JSON."""
        return [{"branch": one.words, "count": one.taken} for one in self.branches()]

    def uncovered(self) -> Iterator[dict[str, str]]:
        """Yield what no case reached: the rule, its source, and what of it."""
        said = {"rule": self.rule.name, "source": self.source}
        yield from ({**said, "what": f"never: {way.words}"} for way in self.branches() if way.taken == 0)
        for part in self.python or ():
            yield from ({**said, "what": words} for words in part.unreached())

    def branches(self) -> Iterator[RuleBranch]:
        """Yield the branches in order."""
        for way in self.ways:
            yield RuleBranch(way, self.taken[way])


def coverage_of(policy: Policy) -> dict[str, RuleCoverage]:
    """Return the coverage of each rule by its name, nothing covered yet."""
    found = {}
    for one, described in zip(policy.rules, policy.description["rules"], strict=True):
        condition = one.condition if isinstance(one, FileRule) else None
        parts = None if condition is None else parts_of(condition)
        ways = tuple(_ways(one, described["language"], parts))
        found[one.name] = RuleCoverage(one, described["source"], ways, parts)
    return found


def _ways(one: Rule, language: str, parts: ConditionParts | None) -> Iterator[str]:
    if parts is not None:
        for part in parts.conditions:
            yield _way(part.text, True)
            yield _way(part.text, False)
        return
    yield OPINION
    if language == "cedar" or (isinstance(one, FileRule) and not _holds_always(one)):
        yield NO_OPINION


def _holds_always(one: FileRule) -> bool:
    return not one.entry.actions and not one.entry.actors


def _way(text: str, answer: bool) -> str:
    return f"{' '.join(text.split())} is {'true' if answer else 'false'}"
