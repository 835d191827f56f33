"""Outcomes of proposals in the record and in the counterfactual; equal ones are only counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from world.events.base import Event
from world.events.execution_events import ExecutionStarted
from world.events.proposal_events import (
    DecisionMade,
    ProposalCompleted,
    ProposalFailed,
    ProposalJudged,
    ProposalSubmitted,
    ProposalSuperseded,
)
from world.events.realm_events import WorldSealed
from world.model.decision import DecisionRecord
from world.model.record import to_wire
from world.read_models.archive import Archive
from world.state.proposal import TERMINAL, Proposal

__all__ = ["Outcomes", "ProposalOutcome"]

COMPARED = ("status", "content_id", "decision", "approved_scope")
"""Attributes in which equal outcomes agree."""


@dataclass(slots=True)
class ProposalOutcome:
    """Outcome of a proposal.

    Args:
        position: position of its submission, or the start of the counterfactual if it was open then.
        proposal_id: its id.
        actor: the proposer's id.
        action: the intent's type.
        branch: the branch that it moves.
        status: its status.
        decision: approved or rejected; None before the decision.
        approved_scope: approved scope in wire form.
        message: reason of the last ruling.
        world_id: the world that it produced.
        content_id: content id of that world.
        code: code of the error of a failure.
        error: message of that error.
    """

    position: int
    proposal_id: str
    actor: str
    action: str
    branch: str
    status: str
    decision: str | None = None
    approved_scope: Any = None
    message: str | None = None
    world_id: str | None = None
    content_id: str | None = None
    code: str | None = None
    error: str | None = None

    @classmethod
    def of(cls, submitted: ProposalSubmitted, position: int) -> ProposalOutcome:
        """Return the outcome of a proposal that was just submitted."""
        actor, action = submitted.actor.actor_id, submitted.intent.body.type
        return cls(position, submitted.proposal_id, actor, action, submitted.branch, "submitted")

    @property
    def is_terminal(self) -> bool:
        """Whether the proposal has ended."""
        return self.status in TERMINAL

    def is_same(self, other: ProposalOutcome) -> bool:
        """Return whether both outcomes are equal."""
        return all(getattr(self, name) == getattr(other, name) for name in COMPARED)

    def to_wire(self) -> dict[str, Any]:
        """Return it as JSON."""
        wire: dict[str, Any] = {"status": self.status}
        if self.decision is not None:
            wire |= {"decision": self.decision, "message": self.message, "approvedScope": self.approved_scope}
        elif self.message is not None:
            wire["message"] = self.message
        if self.world_id is not None:
            wire |= {"worldId": self.world_id, "contentId": self.content_id}
        if self.code is not None:
            wire |= {"code": self.code, "message": self.error}
        return wire


@dataclass(slots=True)
class Outcomes:
    """Outcomes by proposal, from the events of the record and of the counterfactual.

    Args:
        source: archive of the real log.
        here: archive of the scratch log.
        same: number of proposals with equal outcomes, by whether they produced a world.
        then: recorded outcomes that are not known to be equal, by proposal.
        now: outcomes of the counterfactual.
    """

    source: Archive
    here: Archive
    same: Counter[str] = field(default_factory=Counter)
    then: dict[str, ProposalOutcome] = field(default_factory=dict)
    now: dict[str, ProposalOutcome] = field(default_factory=dict)
    _contents: tuple[dict[str, str], dict[str, str]] = field(default_factory=lambda: ({}, {}))

    def begin(self, proposals: Mapping[str, Proposal], position: int) -> None:
        """Add the proposals that are open at the start."""
        for outcomes in (self.then, self.now):
            for name, proposal in proposals.items():
                made = outcomes[name] = ProposalOutcome.of(proposal.submitted, position)
                made.status = proposal.status
                if proposal.ruling is not None:
                    made.message = proposal.ruling.reason
                if proposal.decision is not None:
                    _decided(made, proposal.decision)

    def recorded(self, event: Event, position: int) -> None:
        """Apply the next event of the record."""
        self._note(event, self.then, position)

    def happened(self, event: Event) -> None:
        """Apply the next event of the counterfactual."""
        self._note(event, self.now, 0)

    def differing(self) -> Iterator[ProposalOutcome]:
        """Yield the recorded outcomes that differ in the counterfactual, in log order."""
        yield from sorted(self.then.values(), key=lambda one: one.position)

    def _note(self, event: Event, outcomes: dict[str, ProposalOutcome], position: int) -> None:
        kind = type(event)
        if kind is WorldSealed:
            contents = self._contents[outcomes is self.now]
            contents.clear()  # only the next event reads a new world's content
            contents[event.world_id] = event.content_id  # type: ignore[attr-defined]
        elif kind is ProposalSubmitted:
            outcomes[event.proposal_id] = ProposalOutcome.of(event, position)  # type: ignore[attr-defined,arg-type]
        elif (step := _STEPS.get(kind)) is not None:
            outcome = outcomes.get(event.proposal_id)  # type: ignore[attr-defined]
            if outcome is not None:
                step(outcome, event)
                if outcome.world_id is not None:
                    outcome.content_id = self._content(outcomes is self.now, outcome.world_id)
                if outcome.is_terminal:
                    self._settle(outcome.proposal_id)

    def _content(self, is_here: bool, world_id: str) -> str:
        """Return a world's content id; another proposal may have produced the same world."""
        known = self._contents[is_here].get(world_id)
        return known or (self.here if is_here else self.source).sealed(world_id).content_id

    def _settle(self, name: str) -> None:
        """Remove a proposal with equal terminal outcomes."""
        then, now = self.then.get(name), self.now.get(name)
        if then is not None and now is not None and then.is_terminal and now.is_terminal and then.is_same(now):
            self.same["worlds" if then.content_id is not None else "others"] += 1
            del self.then[name], self.now[name]


def _decided(outcome: ProposalOutcome, decision: DecisionRecord) -> None:
    outcome.decision, outcome.status = decision.decision, decision.decision
    outcome.message, outcome.approved_scope = decision.reason, to_wire(decision.approved_scope)


def _judged(outcome: ProposalOutcome, event: ProposalJudged) -> None:
    outcome.status, outcome.message = "evaluating", event.ruling.reason


def _made(outcome: ProposalOutcome, event: DecisionMade) -> None:
    _decided(outcome, event.decision)


def _superseded(outcome: ProposalOutcome, event: ProposalSuperseded) -> None:
    outcome.status = "superseded"


def _started(outcome: ProposalOutcome, event: ExecutionStarted) -> None:
    outcome.status = "executing"


def _completed(outcome: ProposalOutcome, event: ProposalCompleted) -> None:
    outcome.status, outcome.world_id = "completed", event.world_id


def _failed(outcome: ProposalOutcome, event: ProposalFailed) -> None:
    outcome.status, outcome.world_id = "failed", event.world_id
    outcome.code, outcome.error = event.error.code, event.error.message


_STEPS: Mapping[type[Event], Callable[[ProposalOutcome, Any], None]] = {
    ProposalJudged: _judged,
    DecisionMade: _made,
    ProposalSuperseded: _superseded,
    ExecutionStarted: _started,
    ProposalCompleted: _completed,
    ProposalFailed: _failed,
}
