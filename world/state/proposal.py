"""The Proposal: an aggregate whose state comes from its events alone (WP-fsm, INT-14.4, design section 5).

    submitted -> evaluating -> approved -> executing -> completed | failed
    submitted | evaluating -> rejected            submitted | evaluating -> superseded

Every other transition is refused. ``superseded`` is where proposals end that a branch switch left behind before they
were decided; they have no DecisionRecord.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Final, Literal

from msgspec import structs

from world.error_codes import ErrorCode
from world.errors import DamagedLogError
from world.events.base import Event
from world.events.clock_events import ProposalRescheduled
from world.events.execution_events import (
    EffectDropped,
    EffectFulfilled,
    EffectInDoubt,
    EffectRequested,
    EffectResolved,
    EffectRetried,
    ExecutionCancelled,
    ExecutionStarted,
)
from world.events.policy_events import ProposalShadowed
from world.events.proposal_events import (
    DecisionMade,
    HumanAnswered,
    HumanTimedOut,
    ProposalCompleted,
    ProposalFailed,
    ProposalHeld,
    ProposalJudged,
    ProposalSubmitted,
    ProposalSuperseded,
)
from world.model.decision import DecisionRecord, HumanAnswer, Ruling
from world.model.intent import IntentInstance, IntentScope
from world.model.record import to_wire
from world.model.short_repr import short_repr
from world.model.snapshot import EffectAnswer, ErrorValue

Status = Literal["submitted", "evaluating", "approved", "rejected", "superseded", "executing", "completed", "failed"]
TRANSITIONS: Final[Mapping[str, frozenset[str]]] = {
    "submitted": frozenset({"evaluating", "rejected", "superseded"}),
    "evaluating": frozenset({"approved", "rejected", "superseded"}),
    "approved": frozenset({"executing"}),
    "executing": frozenset({"completed", "failed"}),
    "rejected": frozenset(),
    "superseded": frozenset(),
    "completed": frozenset(),
    "failed": frozenset(),
}
TERMINAL: Final = frozenset({"rejected", "superseded", "completed", "failed"})
ROLLBACK: Final = "workspace.restore"
"""The effect by which a failed execution gives back what it had leased for change; the engine alone asks for it."""
GIVEN_UP: Final = frozenset({"EFFECT_TIMED_OUT", "CANCELLED", "LEASES_REVOKED", "NOT_WANTED", "KLIS_SCOPE_VIOLATION"})
"""Codes of effects whose handlers may still run, though their results are not used any more."""
INGRESS: Final = frozenset({"submitted", "evaluating"})


@dataclass(slots=True)
class Proposal:
    """A proposal, folded from its events so far; only ``fold_proposal`` changes it.

    ``journal`` holds effect results by requirement id, ``requested`` the effects under way, ``in_doubt``
    those of which it is unknown whether they happened, ``failures`` the last failure of those that are made again, and
    ``rollback`` the result of giving the workspace back as it was. ``backup`` says whether its leases were backed up,
    None where that was not recorded; ``may_linger``, whether a handler was given up or a worker vanished, so that
    something that was begun may still hold files open.
    """

    submitted: ProposalSubmitted
    status: Status = "submitted"
    held: ProposalHeld | None = None
    is_shadowed: bool = False
    ruling: Ruling | None = None
    binding: Mapping[str, Any] | None = None
    deadline: int | None = None
    answers: list[HumanAnswer] = field(default_factory=list)
    decision: DecisionRecord | None = None
    verdict_id: str | None = None
    backup: bool | None = None
    may_linger: bool = False
    started: ExecutionStarted | None = None
    requested: dict[str, EffectRequested] = field(default_factory=dict)
    in_doubt: dict[str, EffectRequested] = field(default_factory=dict)
    failures: dict[str, EffectRetried] = field(default_factory=dict)
    requested_at: dict[str, int] = field(default_factory=dict)
    journal: dict[str, EffectAnswer] = field(default_factory=dict)
    rollback: EffectAnswer | None = None
    cancelled: ExecutionCancelled | None = None
    dropped: int = 0
    world_id: str | None = None
    error: ErrorValue | None = None
    _intent: IntentInstance | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        action, actor = self.submitted.intent.body.type, self.submitted.actor.actor_id
        return short_repr(self, self.proposal_id, f"{action} by {actor}", self.status, f"branch {self.branch}")

    @property
    def proposal_id(self) -> str:
        """The proposal's id, a UUIDv7."""
        return self.submitted.proposal_id

    @property
    def scope_rules(self) -> int:
        """Version of the scope rules by which its patterns are read; see ``world.model.scope_patterns``."""
        return self.submitted.scope_rules or 1

    @property
    def branch(self) -> str:
        """The branch it would move."""
        return self.submitted.branch

    @property
    def is_terminal(self) -> bool:
        """Whether nothing can happen to it any more."""
        return self.status in TERMINAL

    @property
    def intent(self) -> IntentInstance:
        """The intent it carries (INT-14.4)."""
        return self._intent or self.submitted.intent

    def carries(self, intent: IntentInstance) -> None:
        """Keep the very instance that was submitted for the whole execution (INT-14.3)."""
        if intent.intent_id == self.submitted.intent.intent_id:
            self._intent = intent

    def copy(self) -> Proposal:
        """Return an independent proposal; recorded values, which are immutable, are shared."""
        twin = Proposal(*_values_of(self))
        twin.answers = self.answers.copy()
        twin.requested = self.requested.copy()
        twin.in_doubt = self.in_doubt.copy()
        twin.failures = self.failures.copy()
        twin.requested_at = self.requested_at.copy()
        twin.journal = self.journal.copy()
        return twin

    @property
    def asked(self) -> Ruling | None:
        """The ruling that waits for people, None when no person is asked."""
        if self.status != "evaluating" or self.ruling is None or self.ruling.verdict != "wait":
            return None
        return self.ruling

    @property
    def open_questions(self) -> list[HumanAnswer]:
        """The questions that people sent back and that the proposer has not replied to."""
        replied = max((at for at, one in enumerate(self.answers) if one.choice == "reply"), default=-1)
        return [one for one in self.answers[replied + 1 :] if one.choice == "ask"]

    @property
    def last_ruling(self) -> Ruling:
        """The last ruling on a proposal that was judged."""
        assert self.ruling is not None
        return self.ruling

    @property
    def wants_leases(self) -> bool:
        """Whether it was judged well and only its leases are missing (design section 7)."""
        return self.status == "evaluating" and self.ruling is not None and self.ruling.verdict == "approve"

    @property
    def approved_scope(self) -> IntentScope | None:
        """Where the intent may write; None is no restriction, or no approval yet."""
        return None if self.decision is None else self.decision.approved_scope

    def effect_journal(self) -> dict[str, EffectAnswer]:
        """Return the results of the effects performed so far, by requirement id."""
        return self.journal.copy()

    def to_wire(self) -> dict[str, Any]:
        """Return the proposal as people and programs see it."""
        rendered = self.submitted
        wire: dict[str, Any] = {
            "proposalId": rendered.proposal_id,
            "status": self.status,
            "actor": rendered.actor.to_wire(),
            "intent": rendered.intent.to_wire(),
            "branch": rendered.branch,
            "baseWorld": rendered.base_world,
            "epoch": rendered.epoch,
            "executionKey": rendered.execution_key,
            "schemaHash": rendered.schema_hash,
            "attempt": rendered.attempt,
            "submittedAt": rendered.at,
        }
        optional = {
            "trace": rendered.trace,
            "ruling": to_wire(self.ruling),
            "held": None if self.held is None else held_words(self.held),
            "deadline": self.deadline if self.status == "evaluating" else None,
            "decision": to_wire(self.decision),
            "worldId": self.world_id,
            "error": to_wire(self.error),
        }
        wire |= {name: value for name, value in optional.items() if value is not None}
        if self.decision is not None and self.decision.decision == "approved":
            wire["approvedScope"] = to_wire(self.decision.approved_scope)
        if self.answers:
            wire["answers"] = to_wire(self.answers)
        if self.journal or self.requested or self.in_doubt:
            wire["effects"] = {"fulfilled": len(self.journal), "underWay": sorted(self.requested)}
            if self.in_doubt:
                wire["effects"]["inDoubt"] = sorted(self.in_doubt)
        if self.cancelled is not None:
            wire["cancelled"] = {"by": self.cancelled.by, "reason": self.cancelled.reason, "at": self.cancelled.at}
        if self.rollback is not None:
            wire["rollback"] = self.rollback.value
        return wire


_values_of: Final = attrgetter(*(one.name for one in fields(Proposal)))
"""Returns the values of all fields, in their order."""


def held_words(event: ProposalHeld) -> str:
    """Return why a proposal is held, such as ``policy changed: house``."""
    what = "not loaded" if event.cause == "policy" and event.at_hand is None else "changed"
    return f"{event.cause} {what}: {', '.join(event.names)}" if event.names else f"{event.cause} {what}"


def _move(proposal: Proposal, to: Status) -> None:
    if to not in TRANSITIONS[proposal.status]:
        raise DamagedLogError(
            ErrorCode.ILLEGAL_TRANSITION,
            f"Proposal {proposal.proposal_id} cannot go from {proposal.status} to {to}.",
            proposal_id=proposal.proposal_id,
            status=proposal.status,
            to=to,
        )
    proposal.status = to


def _shadowed(proposal: Proposal, event: ProposalShadowed) -> None:
    _require(proposal, "submitted", event)
    if proposal.is_shadowed:
        raise _contradiction(proposal, event, "it was shadowed before")
    proposal.is_shadowed = True


def _held(proposal: Proposal, event: ProposalHeld) -> None:
    if proposal.status not in ("submitted", "approved", "executing"):
        raise _contradiction(proposal, event, f"the proposal is {proposal.status}")


def _judged(proposal: Proposal, event: ProposalJudged) -> None:
    if proposal.status != "evaluating":
        _move(proposal, "evaluating")
    proposal.ruling, proposal.binding, proposal.deadline = event.ruling, event.binding, event.deadline


def _rescheduled(proposal: Proposal, event: ProposalRescheduled) -> None:
    if event.deadline is not None:
        _require(proposal, "evaluating", event)
        proposal.deadline = event.deadline
    for name, deadline in event.effects.items():
        asked = proposal.requested.get(name)
        if asked is None:
            raise _contradiction(proposal, event, f"effect {name} is not under way")
        proposal.requested[name] = structs.replace(asked, at=event.at, deadline=deadline)
        proposal.requested_at[name] = min(proposal.requested_at.get(name, event.at), event.at)
        failure = proposal.failures.get(name)
        if failure is not None and failure.at > event.at:
            due = event.at + failure.due - failure.at
            proposal.failures[name] = structs.replace(failure, at=event.at, due=due)


def _answered(proposal: Proposal, event: HumanAnswered) -> None:
    _require(proposal, "evaluating", event)
    proposal.answers.append(event.answer)


def _timed_out(proposal: Proposal, event: HumanTimedOut) -> None:
    _require(proposal, "evaluating", event)


def _decided(proposal: Proposal, event: DecisionMade) -> None:
    _move(proposal, "approved" if event.decision.decision == "approved" else "rejected")
    proposal.decision, proposal.verdict_id, proposal.backup = event.decision, event.verdict_id, event.backup


def _superseded(proposal: Proposal, event: ProposalSuperseded) -> None:
    _move(proposal, "superseded")


def _started(proposal: Proposal, event: ExecutionStarted) -> None:
    first = proposal.started
    if first is None:
        _move(proposal, "executing")
    else:
        _require(proposal, "executing", event)
        if (event.now, event.seed, event.on_world) != (first.now, first.seed, first.on_world):
            raise _contradiction(proposal, event, "its frozen time, seed and world changed")
        proposal.may_linger = True
    proposal.started = event


def _requested(proposal: Proposal, event: EffectRequested) -> None:
    _require(proposal, "executing", event)
    name = event.requirement.id
    if name in proposal.in_doubt:
        raise _contradiction(proposal, event, f"effect {name} is in doubt")
    proposal.requested[name] = event
    proposal.requested_at.setdefault(name, event.at)


def _fulfilled(proposal: Proposal, event: EffectFulfilled) -> None:
    _require(proposal, "executing", event)
    if event.requirement_id in proposal.journal:
        raise _contradiction(proposal, event, f"effect {event.requirement_id} was fulfilled before")
    asked = _under_way(proposal, event)
    proposal.may_linger |= _was_given_up(event.result.error)
    proposal.failures.pop(event.requirement_id, None)
    proposal.requested_at.pop(event.requirement_id, None)
    if asked.requirement.type == ROLLBACK:
        proposal.rollback = event.result
    else:
        proposal.journal[event.requirement_id] = event.result


def _was_given_up(error: ErrorValue | None) -> bool:
    return error is not None and error.code in GIVEN_UP


def _under_way(proposal: Proposal, event: EffectFulfilled | EffectInDoubt) -> EffectRequested:
    asked = proposal.requested.pop(event.requirement_id, None) or proposal.in_doubt.pop(event.requirement_id, None)
    if asked is None:
        raise _contradiction(proposal, event, f"effect {event.requirement_id} was not requested")
    return asked


def _retried(proposal: Proposal, event: EffectRetried) -> None:
    _require(proposal, "executing", event)
    if event.requirement_id not in proposal.requested:
        raise _contradiction(proposal, event, f"effect {event.requirement_id} is not under way")
    proposal.may_linger |= _was_given_up(event.error)
    proposal.failures[event.requirement_id] = event


def _doubted(proposal: Proposal, event: EffectInDoubt) -> None:
    _require(proposal, "executing", event)
    proposal.in_doubt[event.requirement_id] = _under_way(proposal, event)


def _resolved(proposal: Proposal, event: EffectResolved) -> None:
    _require(proposal, "executing", event)
    asked = proposal.in_doubt.pop(event.requirement_id, None)
    if asked is None:
        raise _contradiction(proposal, event, f"effect {event.requirement_id} is not in doubt")
    proposal.requested[event.requirement_id] = asked


def _cancelled(proposal: Proposal, event: ExecutionCancelled) -> None:
    if proposal.status not in ("approved", "executing"):
        raise _contradiction(proposal, event, f"the proposal is {proposal.status}")
    proposal.cancelled = event


def _dropped(proposal: Proposal, event: EffectDropped) -> None:
    proposal.dropped += 1


def _completed(proposal: Proposal, event: ProposalCompleted) -> None:
    _move(proposal, "completed")
    proposal.world_id = event.world_id
    proposal.requested.clear()
    proposal.in_doubt.clear()


def _failed(proposal: Proposal, event: ProposalFailed) -> None:
    _move(proposal, "failed")
    proposal.world_id, proposal.error = event.world_id, event.error
    proposal.requested.clear()
    proposal.in_doubt.clear()


def _require(proposal: Proposal, status: Status, event: Event) -> None:
    if proposal.status != status:
        raise _contradiction(proposal, event, f"the proposal is {proposal.status}, not {status}")


def _contradiction(proposal: Proposal, event: Event, why: str) -> DamagedLogError:
    return DamagedLogError(
        ErrorCode.ILLEGAL_TRANSITION,
        f"Proposal {proposal.proposal_id} cannot take {event.TOPIC}: {why}.",
        proposal_id=proposal.proposal_id,
        topic=event.TOPIC,
    )


_STEPS: Final[Mapping[type[Event], Callable[[Proposal, Any], None]]] = {
    ProposalShadowed: _shadowed,
    ProposalHeld: _held,
    ProposalJudged: _judged,
    ProposalRescheduled: _rescheduled,
    HumanAnswered: _answered,
    HumanTimedOut: _timed_out,
    DecisionMade: _decided,
    ProposalSuperseded: _superseded,
    ExecutionStarted: _started,
    EffectRequested: _requested,
    EffectFulfilled: _fulfilled,
    EffectDropped: _dropped,
    EffectRetried: _retried,
    EffectInDoubt: _doubted,
    EffectResolved: _resolved,
    ExecutionCancelled: _cancelled,
    ProposalCompleted: _completed,
    ProposalFailed: _failed,
}
PROPOSAL_EVENTS: Final = frozenset({ProposalSubmitted, *_STEPS})


def fold_proposal(proposal: Proposal | None, event: Event) -> Proposal:
    """Return the proposal after an event of its stream.

    Args:
        proposal: the state before; None for the first event, which must be ``proposal.submitted``.
        event: the next event.

    Raises:
        DamagedLogError: ``ILLEGAL_TRANSITION`` for an event that cannot happen in this state.
    """
    if proposal is None:
        if not isinstance(event, ProposalSubmitted):
            raise DamagedLogError(
                ErrorCode.ILLEGAL_TRANSITION, f"A proposal begins with proposal.submitted, not {event.TOPIC}."
            )
        return Proposal(event)
    step = _STEPS.get(type(event))
    if step is None:
        raise _contradiction(proposal, event, "the event does not belong there")
    step(proposal, event)
    proposal.held = event if isinstance(event, ProposalHeld) else None
    return proposal
