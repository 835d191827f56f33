"""Report of proposals: the newest as rows, outcomes, and the open ones."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from world.events.execution_events import ExecutionStarted
from world.events.proposal_events import (
    DecisionMade,
    ProposalCompleted,
    ProposalFailed,
    ProposalHeld,
    ProposalJudged,
    ProposalSubmitted,
    ProposalSuperseded,
)
from world.model.decision import DecisionRecord
from world.model.record import WireForm
from world.state.proposal import held_words
from worldprotocol.report.tally import EventPosition

__all__ = ["NEWEST", "Proposals", "Row", "deciding_rule"]

NEWEST: Final = 200
"""Default number of listed proposals."""

HIDDEN: Final = "hidden"
"""Placeholder for data of redacted events."""


@dataclass(slots=True)
class Row(WireForm):
    """One proposal in its current state.

    Args:
        position: position of its submission.
        at: time of its submission, ms since 1970.
        paths: proposed write scope; None is unrestricted.
        asked_at: time of its question to human actors, ms; None without one.
        asked: the authority that asked.
        effects: types of its requested effects, by requirement id.
    """

    position: int
    at: int
    proposal_id: str
    actor: str
    action: str
    branch: str
    paths: tuple[str, ...] | None
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
    WIRE: ClassVar = "proposal_id position submittedAt=at actor action branch status *ending"

    @property
    def ending(self) -> dict[str, Any]:
        """What is known of its decision and its end, as JSON."""
        known = {
            "authority": self.authority,
            "rule": self.rule,
            "reason": self.reason,
            "decidedAt": self.decided_at,
            "worldId": self.world_id,
            "error": self.error,
        }
        return {name: value for name, value in known.items() if value not in (None, "")}


def deciding_rule(decision: DecisionRecord) -> str:
    """Return the names of a decision's decisive rules; empty without rules."""
    return ", ".join(decision.decisive_rules)


class Proposals(WireForm):
    """Section of the report about proposals, with the open ones for other sections.

    Args:
        most: maximum number of listed proposals, newest first; None is all.
    """

    WIRE: ClassVar = "submitted=_submitted endings under_way left_out"

    def __init__(self, most: int | None = NEWEST) -> None:
        self._open: dict[str, Row] = {}
        self._rows: deque[Row] = deque(maxlen=most)
        self._endings: Counter[str] = Counter()
        self._submitted = 0

    @property
    def endings(self) -> dict[str, int]:
        """Number of ended proposals by ending."""
        return dict(sorted(self._endings.items()))

    @property
    def under_way(self) -> int:
        """Number of open proposals."""
        return len(self._open)

    @property
    def left_out(self) -> int:
        """Number of proposals that are not listed."""
        return self._submitted - len(self._rows)

    def steps(self) -> dict[type[Any], Callable[[Any, EventPosition], None]]:
        """Return the handler of each type of event."""
        return {
            ProposalSubmitted: self._on_submitted,
            ProposalHeld: self._on_held,
            ProposalJudged: self._on_judged,
            DecisionMade: self._on_decided,
            ExecutionStarted: self._on_started,
            ProposalSuperseded: self._on_superseded,
            ProposalCompleted: self._on_ended,
            ProposalFailed: self._on_ended,
        }

    def row(self, proposal_id: str | None) -> Row | None:
        """Return an open proposal; None for an ended or hidden one."""
        return self._open.get(proposal_id or "")

    def forget(self, event: Any) -> None:
        """Remove a proposal that an event ended, after all sections handled the event."""
        if isinstance(event, ProposalSuperseded | ProposalCompleted | ProposalFailed) or (
            isinstance(event, DecisionMade) and event.decision.decision == "rejected"
        ):
            self._open.pop(event.proposal_id, None)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the listed rows as JSON, newest first."""
        for row in reversed(self._rows):
            yield row.to_wire()

    def _on_submitted(self, event: ProposalSubmitted, moment: EventPosition) -> None:
        body = event.intent.body
        scope = body.scope_proposal
        row = Row(
            moment.position,
            event.at,
            event.proposal_id,
            event.actor.actor_id,
            body.type,
            event.branch,
            None if scope is None else scope.allowed_paths,
        )
        self._open[event.proposal_id] = row
        if moment.counts:
            self._submitted += 1
            self._rows.append(row)

    def _on_held(self, event: ProposalHeld, _moment: EventPosition) -> None:
        row = self.row(event.proposal_id)
        if row is not None and row.status == "submitted":
            row.reason = f"held: {held_words(event)}"

    def _on_judged(self, event: ProposalJudged, _moment: EventPosition) -> None:
        row = self.row(event.proposal_id)
        if row is None:
            return
        row.status, row.reason = "evaluating", ""
        if event.ruling.verdict == "wait" and row.asked_at is None:
            row.asked_at, row.asked = event.at, event.ruling.authority

    def _on_decided(self, event: DecisionMade, moment: EventPosition) -> None:
        decision, row = event.decision, self.row(event.proposal_id)
        if row is not None:
            row.status, row.reason, row.decided_at = decision.decision, decision.reason, event.at
            row.authority, row.rule = decision.authority, deciding_rule(decision)
        if decision.decision == "rejected":
            self._ended("rejected", moment)

    def _on_started(self, event: ExecutionStarted, _moment: EventPosition) -> None:
        row = self.row(event.proposal_id)
        if row is not None:
            row.status = "executing"

    def _on_superseded(self, event: ProposalSuperseded, moment: EventPosition) -> None:
        row = self.row(event.proposal_id)
        if row is not None:
            row.status, row.reason = "superseded", event.reason or ""
        self._ended("superseded", moment)

    def _on_ended(self, event: ProposalCompleted | ProposalFailed, moment: EventPosition) -> None:
        row = self.row(event.proposal_id)
        status = "failed" if isinstance(event, ProposalFailed) else "completed"
        if row is not None:
            row.status, row.world_id = status, event.world_id
            if isinstance(event, ProposalFailed):
                row.error = str(event.error.code)
        self._ended(status, moment)

    def _ended(self, how: str, moment: EventPosition) -> None:
        if moment.counts:
            self._endings[how] += 1
