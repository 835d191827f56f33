"""Proposals: the newest of them as rows, how all of them ended, and what is remembered of those under way."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from world.events.execution_events import ExecutionStarted
from world.events.proposal_events import (
    DecisionMade,
    ProposalCompleted,
    ProposalFailed,
    ProposalJudged,
    ProposalSubmitted,
    ProposalSuperseded,
)
from worldprotocol.report.tally import EventPosition

__all__ = ["NEWEST", "Proposals", "Row", "deciding_rule"]

NEWEST: Final = 200
"""Proposals that are listed unless all are asked for."""

HIDDEN: Final = "hidden"
"""What stands for what a redacted event would tell."""


@dataclass(slots=True)
class Row:
    """One proposal, as far as it has got.

    Args:
        position: of its submission.
        at: of its submission, ms since 1970.
        paths: where it wants to write; None is anywhere.
        asked_at: since when people are asked, ms; None where nobody was.
        asked: the authority that asked them.
        effects: types of its effects under way, by requirement id.
    """

    position: int
    at: int
    proposal_id: str
    actor: str
    action: str
    branch: str
    paths: list[str] | None
    status: str = "submitted"
    authority: str = ""
    rule: str = ""
    reason: str = ""
    decided_at: int | None = None
    world_id: str | None = None
    error: str | None = None
    asked_at: int | None = None
    asked: str = ""
    effects: dict[str, str] = field(default_factory=dict)

    def to_wire(self) -> dict[str, Any]:
        """Return it as JSON."""
        told: dict[str, Any] = {
            "proposalId": self.proposal_id,
            "position": self.position,
            "submittedAt": self.at,
            "actor": self.actor,
            "action": self.action,
            "branch": self.branch,
            "status": self.status,
        }
        optional = {
            "authority": self.authority,
            "rule": self.rule,
            "reason": self.reason,
            "decidedAt": self.decided_at,
            "worldId": self.world_id,
            "error": self.error,
        }
        return told | {name: value for name, value in optional.items() if value not in (None, "")}


def deciding_rule(decision: dict[str, Any]) -> str:
    """Return the names of the rules that decided, of a decision in wire form; empty where no rule took part."""
    return ", ".join(one["rule"] for one in decision.get("trace", ()) if one.get("decisive"))


class Proposals:
    """The part of the report about proposals; the others ask it about those under way.

    Args:
        most: how many of the newest are listed; None is all of them.
    """

    def __init__(self, most: int | None = NEWEST) -> None:
        self._open: dict[str, Row] = {}
        self._rows: deque[Row] = deque(maxlen=most)
        self._endings: Counter[str] = Counter()
        self._submitted = 0

    def steps(self) -> dict[type[Any], Callable[[Any, EventPosition], None]]:
        """Return what to call with the events of each type."""
        return {
            ProposalSubmitted: self._on_submitted,
            ProposalJudged: self._on_judged,
            DecisionMade: self._on_decided,
            ExecutionStarted: self._on_started,
            ProposalSuperseded: self._on_superseded,
            ProposalCompleted: self._on_ended,
            ProposalFailed: self._on_ended,
        }

    def row(self, proposal_id: str | None) -> Row | None:
        """Return a proposal that is under way; None for one that ended, or whose submission is hidden."""
        return self._open.get(proposal_id or "")

    def forget(self, event: Any) -> None:
        """Let go of a proposal that ended with an event, when all parts have taken that."""
        if isinstance(event, ProposalSuperseded | ProposalCompleted | ProposalFailed) or (
            isinstance(event, DecisionMade) and event.decision["decision"] == "rejected"
        ):
            self._open.pop(event.proposal_id, None)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows that are listed as JSON, the newest first."""
        for row in reversed(self._rows):
            yield row.to_wire()

    def to_wire(self) -> dict[str, Any]:
        """Return how many were submitted, by how they ended, and how many of them are not listed."""
        return {
            "submitted": self._submitted,
            "endings": dict(sorted(self._endings.items())),
            "underWay": len(self._open),
            "leftOut": self._submitted - len(self._rows),
        }

    def _on_submitted(self, event: ProposalSubmitted, moment: EventPosition) -> None:
        body = event.intent["body"]
        scope = body.get("scopeProposal") or {}
        row = Row(
            moment.position,
            event.at,
            event.proposal_id,
            event.actor["actorId"],
            body["type"],
            event.branch,
            scope.get("allowedPaths"),
        )
        self._open[event.proposal_id] = row
        if moment.counts:
            self._submitted += 1
            self._rows.append(row)

    def _on_judged(self, event: ProposalJudged, _moment: EventPosition) -> None:
        row = self.row(event.proposal_id)
        if row is None:
            return
        row.status = "evaluating"
        if event.ruling["verdict"] == "wait" and row.asked_at is None:
            row.asked_at, row.asked = event.at, event.ruling["authority"]

    def _on_decided(self, event: DecisionMade, moment: EventPosition) -> None:
        decision, row = event.decision, self.row(event.proposal_id)
        if row is not None:
            row.status, row.reason, row.decided_at = decision["decision"], decision["reason"], event.at
            row.authority, row.rule = decision["authority"], deciding_rule(decision)
        if decision["decision"] == "rejected":
            self._ended("rejected", moment)

    def _on_started(self, event: ExecutionStarted, _moment: EventPosition) -> None:
        row = self.row(event.proposal_id)
        if row is not None:
            row.status = "executing"

    def _on_superseded(self, event: ProposalSuperseded, moment: EventPosition) -> None:
        row = self.row(event.proposal_id)
        if row is not None:
            row.status = "superseded"
        self._ended("superseded", moment)

    def _on_ended(self, event: ProposalCompleted | ProposalFailed, moment: EventPosition) -> None:
        row = self.row(event.proposal_id)
        status = "failed" if isinstance(event, ProposalFailed) else "completed"
        if row is not None:
            row.status, row.world_id = status, event.world_id
            if isinstance(event, ProposalFailed):
                row.error = str(event.error["code"])
        self._ended(status, moment)

    def _ended(self, how: str, moment: EventPosition) -> None:
        if moment.counts:
            self._endings[how] += 1
