"""What becomes of proposals, in the record and in the branch: of those that come to the same, nothing is kept."""

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
from world.read_models.archive import Archive
from world.state.proposal import TERMINAL, Proposal

__all__ = ["Outcomes", "ProposalOutcome"]

COMPARED = ("status", "content_id", "decision", "approved_scope")
"""What two outcomes have in common that are the same."""


@dataclass(slots=True)
class ProposalOutcome:
    """What became of a proposal.

    Args:
        position: where it was submitted, or where the branch begins if it was open then.
        proposal_id: its id.
        actor: who proposed it.
        action: the intent's type.
        branch: the branch that it would move.
        status: its status.
        decision: approved or rejected; None before it.
        approved_scope: in wire form.
        message: the last ruling's reason.
        world_id: the world that it came to.
        content_id: of that world.
        code: of the error that it failed with.
        error: that error's words.
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
    def of(cls, told: ProposalSubmitted, position: int) -> ProposalOutcome:
        """Return that of a proposal of which nothing became so far."""
        actor, action = told.actor["actorId"], told.intent["body"]["type"]
        return cls(position, told.proposal_id, actor, action, told.branch, "submitted")

    @property
    def is_terminal(self) -> bool:
        """Whether nothing can become of it any more."""
        return self.status in TERMINAL

    def is_same(self, other: ProposalOutcome) -> bool:
        """Tell whether both come to the same."""
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
    """Follows the events of the record and of the branch.

    Args:
        source: of the real log.
        here: of the scratch log.
        same: how many proposals came to the same, by whether they made a world.
        then: outcomes of the record that are not known to be the same here, by proposal.
        now: those of the branch.
    """

    source: Archive
    here: Archive
    same: Counter[str] = field(default_factory=Counter)
    then: dict[str, ProposalOutcome] = field(default_factory=dict)
    now: dict[str, ProposalOutcome] = field(default_factory=dict)
    _contents: tuple[dict[str, str], dict[str, str]] = field(default_factory=lambda: ({}, {}))

    def begin(self, proposals: Mapping[str, Proposal], position: int) -> None:
        """Take over the proposals that are open where the branch begins."""
        for outcomes in (self.then, self.now):
            for name, proposal in proposals.items():
                made = outcomes[name] = ProposalOutcome.of(proposal.submitted, position)
                made.status = proposal.status
                if proposal.ruling is not None:
                    made.message = proposal.ruling["reason"]
                if proposal.decision is not None:
                    _decided(made, proposal.decision)

    def recorded(self, event: Event, position: int) -> None:
        """Take in the next event of the record."""
        self._note(event, self.then, position)

    def happened(self, event: Event) -> None:
        """Take in the next event of the branch."""
        self._note(event, self.now, 0)

    def differing(self) -> Iterator[ProposalOutcome]:
        """Yield the outcomes of the record that are others here or nothing, in the order of the log."""
        yield from sorted(self.then.values(), key=lambda one: one.position)

    def _note(self, event: Event, outcomes: dict[str, ProposalOutcome], position: int) -> None:
        kind = type(event)
        if kind is WorldSealed:
            contents = self._contents[outcomes is self.now]
            contents.clear()  # it is asked for by the very next event, where it is new
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
        """Return a world's content; another proposal may have come to the same world before."""
        known = self._contents[is_here].get(world_id)
        return known or (self.here if is_here else self.source).sealed(world_id).content_id

    def _settle(self, name: str) -> None:
        """Forget a proposal that has ended on both sides, and came to the same."""
        then, now = self.then.get(name), self.now.get(name)
        if then is not None and now is not None and then.is_terminal and now.is_terminal and then.is_same(now):
            self.same["worlds" if then.content_id is not None else "others"] += 1
            del self.then[name], self.now[name]


def _decided(outcome: ProposalOutcome, decision: Mapping[str, Any]) -> None:
    outcome.decision, outcome.status = decision["decision"], decision["decision"]
    outcome.message, outcome.approved_scope = decision["reason"], decision.get("approvedScope")


def _judged(outcome: ProposalOutcome, event: ProposalJudged) -> None:
    outcome.status, outcome.message = "evaluating", event.ruling["reason"]


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
    outcome.code, outcome.error = event.error["code"], event.error["message"]


_STEPS: Mapping[type[Event], Callable[[ProposalOutcome, Any], None]] = {
    ProposalJudged: _judged,
    DecisionMade: _made,
    ProposalSuperseded: _superseded,
    ExecutionStarted: _started,
    ProposalCompleted: _completed,
    ProposalFailed: _failed,
}
