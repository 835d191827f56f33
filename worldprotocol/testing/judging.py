"""Judging of a test's case, and comparison with the expected ruling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from authority import Policy, PolicyRegistry, StandardAuthority
from world.code.time_limit import TimeLimit
from world.limits import Limits
from world.model.decision import RuleOutcome, Ruling, Verdict
from world.model.record import Record, WireForm
from world.state.ports import Case
from worldprotocol.policy_tools.cases import UNRESTRICTED, CaseExpectation
from worldprotocol.policy_tools.explain import explain_trace, trace_lines


class RulingDifference(Record, frozen=True, omit_defaults=True):
    """What of a ruling is not as expected, and both."""

    what: str
    expected: Any
    was: Any


@dataclass(frozen=True, slots=True, repr=False)
class CaseRuling(WireForm):
    """Ruling of a policy on a case; ``str()`` shows it rule by rule.

    Args:
        case: as the policy saw it.
        ruling: the Authority's.
        policy: that said it; None where only the ruling is known.
    """

    case: Case
    ruling: Ruling
    policy: Policy | None
    WIRE: ClassVar = "verdict reason approvedScope=ruling.approved_scope ask=asks *explained"

    @property
    def verdict(self) -> Verdict:
        """What comes of it: ``approve``, ``reject`` or ``wait`` for people."""
        return self.ruling.verdict

    @property
    def decision(self) -> Literal["approve", "reject", "wait", "error"]:
        """The verdict, ``error`` where it is a rejection because a rule failed."""
        return "error" if any(one.decisive and one.answer == "error" for one in self.ruling.trace) else self.verdict

    @property
    def reason(self) -> str:
        """The ruling's words for people."""
        return self.ruling.reason

    @property
    def decided_by(self) -> list[str]:
        """Names of the decisive rules, in order; empty for a rejection by default."""
        return [one.rule for one in self.ruling.trace if one.decisive]

    @property
    def scope(self) -> list[str] | None:
        """Approved patterns; None is no restriction, or no approval."""
        scope = self.ruling.approved_scope
        return None if scope is None or scope.allowed_paths is None else list(scope.allowed_paths)

    @property
    def asks(self) -> list[str]:
        """Ids of the asked actors, if the ruling waits."""
        return list(self.ruling.ask)

    @property
    def rules(self) -> dict[str, RuleOutcome]:
        """What each rule said, by name: ``answer``, ``reason``, ``scope``, ``to``."""
        return {one.rule: one for one in self.ruling.trace}

    @property
    def explained(self) -> dict[str, Any]:
        """What each rule said, as ``worldctl policy ask --json`` explains it."""
        described = None if self.policy is None else self.policy.description
        proposed = self.case.intent.body.scope_proposal
        return explain_trace(self.ruling.to_wire(), described, self.case, proposed, at_hand=self.policy)

    def lines(self) -> Iterator[str]:
        """Yield the outcome of every rule, as ``worldctl policy ask`` prints it."""
        yield f"  ruling    {self.verdict} by {self.ruling.authority}: {self.reason}"
        yield from trace_lines(self.to_wire())

    def __repr__(self) -> str:
        return f"<{self.verdict} by {self.ruling.authority}: {self.reason}>"

    def __str__(self) -> str:
        return "\n".join(self.lines())


def judged(policy: Policy, case: Case) -> CaseRuling:
    """Return what a policy says to a case, each rule within the limit of time that realms have by default."""
    authority = StandardAuthority(PolicyRegistry([policy]), time_limit=TimeLimit(Limits().max_call_ms))
    return CaseRuling(case, authority.judge(case), policy)


def differences(expected: CaseExpectation, found: CaseRuling) -> list[RulingDifference]:
    """Return what is not as expected, nothing where all is; the order of names does not matter."""
    rendered: list[tuple[str, Any, Any]] = [("decision", expected.decision, found.decision)]
    if expected.decided_by is not None:
        rendered.append(("decidedBy", sorted(expected.decided_by), sorted(found.decided_by)))
    if expected.scope is not None:
        scope = [UNRESTRICTED] if found.scope is None else sorted(found.scope)
        rendered.append(("scope", sorted(expected.scope), scope if found.verdict == "approve" else None))
    if expected.asks is not None:
        rendered.append(("asks", sorted(expected.asks), sorted(found.asks)))
    if expected.reason is not None and expected.reason not in found.reason:
        rendered.append(("reason", expected.reason, found.reason))
    answers = {name: one.answer for name, one in found.rules.items()}
    rendered += [(f"rules.{name}", answer, answers.get(name)) for name, answer in expected.rules.items()]
    return [RulingDifference(what, wanted, was) for what, wanted, was in rendered if wanted != was]
