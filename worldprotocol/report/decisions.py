"""Report of decisions: by rule and actor, human answers, refusals and durations."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from world.events.policy_events import PolicyAdopted, PolicyRetired
from world.events.proposal_events import (
    DecisionMade,
    HumanAnswered,
    HumanTimedOut,
    ProposalJudged,
    ProposalSubmitted,
    ProposalSuperseded,
)
from world.model.decision import DecisionRecord
from world.model.record import WireForm
from worldprotocol.report.proposals import HIDDEN, Proposals, Row, deciding_rule
from worldprotocol.report.tally import EventPosition, Spell, Tally

__all__ = ["Decisions"]

MAX_POLICIES: Final = 100
"""Maximum number of listed changes of policies, newest first."""


@dataclass(slots=True)
class _Decided(WireForm):
    """Number of approvals, narrowed approvals and rejections, and waits for human decisions."""

    approved: int = 0
    narrowed: int = 0
    rejected: int = 0
    waited: Spell = field(default_factory=Spell)
    WIRE: ClassVar = "decided approved narrowed rejected waited"

    @property
    def decided(self) -> int:
        return self.approved + self.rejected

    @property
    def weight(self) -> int:
        return self.decided

    def count(self, decision: DecisionRecord, row: Row | None, at: int) -> None:
        if decision.decision == "approved":
            self.approved += 1
            self.narrowed += row is not None and _is_narrower(decision, row)
        else:
            self.rejected += 1
        if row is not None and row.asked_at is not None:
            self.waited.add(at - row.asked_at)


@dataclass(slots=True)
class _ActorDecisions(_Decided):
    """Decisions on an actor's proposals, and the number of its submissions."""

    submitted: int = 0
    WIRE: ClassVar = "submitted decided approved narrowed rejected waited"

    @property
    def weight(self) -> int:
        return max(self.submitted, self.decided)


@dataclass(slots=True)
class _Times(WireForm):
    """Number of occurrences, with time and position of the last one."""

    count: int = 0
    last_at: int = 0
    last_position: int = 0
    WIRE: ClassVar = "count last_at last_position"

    @property
    def weight(self) -> int:
        return self.count

    def happened(self, at: int, position: int) -> None:
        self.count += 1
        self.last_at, self.last_position = at, position


def _is_narrower(decision: DecisionRecord, row: Row) -> bool:
    scope = decision.approved_scope
    approved = None if scope is None else scope.allowed_paths
    return approved is not None and approved != row.paths


class Decisions(WireForm):
    """Section of the report about decisions.

    Args:
        proposals: the open proposals.
    """

    WIRE: ClassVar = (
        "byRule=_rules byActor=_actors waits=_waiting refusals=_refusals answers=_answers timedOut=_timed_out "
        "superseded=_superseded policies"
    )

    def __init__(self, proposals: Proposals) -> None:
        self._proposals = proposals
        self._rules = Tally(("authority", "policy", "rule"), _Decided)
        self._actors = Tally(("actor",), _ActorDecisions)
        self._refusals = Tally(("action", "authority", "rule", "reason"), _Times)
        self._answers = Tally(("person", "choice"), _Times)
        self._timed_out = Spell()
        self._superseded = 0
        self._policies: deque[dict[str, Any]] = deque(maxlen=MAX_POLICIES)
        self._policies_seen = 0
        self._waiting = Tally(("authority",), _Asked)

    @property
    def policies(self) -> dict[str, Any]:
        """The newest changes of policies, and how many more there are."""
        return {"rows": list(self._policies)[::-1], "more": self._policies_seen - len(self._policies)}

    def steps(self) -> dict[type[Any], Callable[[Any, EventPosition], None]]:
        """Return the handler of each type of event."""
        return {
            ProposalSubmitted: self._on_submitted,
            ProposalJudged: self._on_judged,
            DecisionMade: self._on_decided,
            HumanAnswered: self._on_answered,
            HumanTimedOut: self._on_timed_out,
            ProposalSuperseded: self._on_superseded,
            PolicyAdopted: self._on_policy,
            PolicyRetired: self._on_policy,
        }

    def _on_submitted(self, event: ProposalSubmitted, moment: EventPosition) -> None:
        if moment.counts:
            self._actors.of(event.actor.actor_id).submitted += 1

    def _on_judged(self, event: ProposalJudged, moment: EventPosition) -> None:
        row = self._proposals.row(event.proposal_id)
        if moment.counts and event.ruling.verdict == "wait" and (row is None or row.asked_at == event.at):
            self._waiting.of(event.ruling.authority).asked += 1

    def _on_decided(self, event: DecisionMade, moment: EventPosition) -> None:
        if not moment.counts:
            return
        decision, row = event.decision, self._proposals.row(event.proposal_id)
        rule, authority = deciding_rule(decision), decision.authority
        self._rules.of(authority, decision.policy_hash or "", rule).count(decision, row, event.at)
        self._actors.of(HIDDEN if row is None else row.actor).count(decision, row, event.at)
        if decision.decision == "rejected":
            action = HIDDEN if row is None else row.action
            times = self._refusals.of(action, authority, rule, decision.reason)
            times.happened(event.at, moment.position)
        self._stopped_waiting(row, event.at)

    def _stopped_waiting(self, row: Row | None, at: int) -> None:
        if row is not None and row.asked_at is not None:
            self._waiting.of(row.asked).waited.add(at - row.asked_at)

    def _on_answered(self, event: HumanAnswered, moment: EventPosition) -> None:
        if moment.counts:
            times = self._answers.of(event.answer.by.actor_id, event.answer.choice)
            times.happened(event.at, moment.position)

    def _on_timed_out(self, event: HumanTimedOut, moment: EventPosition) -> None:
        row = self._proposals.row(event.proposal_id)
        if moment.counts:
            self._timed_out.add(0 if row is None or row.asked_at is None else event.at - row.asked_at)

    def _on_superseded(self, event: ProposalSuperseded, moment: EventPosition) -> None:
        if moment.counts:
            self._superseded += 1
            self._stopped_waiting(self._proposals.row(event.proposal_id), event.at)

    def _on_policy(self, event: PolicyAdopted | PolicyRetired, moment: EventPosition) -> None:
        if moment.counts:
            self._policies_seen += 1
            change = "adopted" if isinstance(event, PolicyAdopted) else "retired"
            row = {"at": event.at, "position": moment.position, "what": change, "name": event.name}
            self._policies.append({**row, "policyHash": event.policy_hash, "by": event.by})


@dataclass(slots=True)
class _Asked(WireForm):
    """Number of questions of an authority to human actors, and their ended waits."""

    asked: int = 0
    waited: Spell = field(default_factory=Spell)
    WIRE: ClassVar = "asked waited"

    @property
    def weight(self) -> int:
        return max(self.asked, self.waited.count)
