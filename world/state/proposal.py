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

from world.error_codes import ErrorCode
from world.errors import DamagedLogError
from world.events.base import Event
from world.events.caller_events import CallerReturned
from world.events.claim_events import EffectClaimed
from world.events.execution_events import EffectRequested, EffectRetried, ExecutionCancelled, ExecutionStarted
from world.events.lease_events import ProposalRescheduled
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
from world.state.effect_steps import (
    EFFECT_STEPS,
    ROLLBACK,
    EndedClaim,
    hurry_claims,
    reschedule_effects,
    unclaimed_offers,
)
from world.state.preconditions import contradiction, require

__all__ = [
    "INGRESS",
    "PROPOSAL_EVENTS",
    "ROLLBACK",
    "TERMINAL",
    "TRANSITIONS",
    "Proposal",
    "Status",
    "fold_proposal",
    "held_words",
]

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
HOLDABLE: Final[Mapping[str, tuple[str, ...]]] = {
    "workspace": ("evaluating",),
    "effect": ("executing",),
    "caller": ("evaluating",),
}
"""Statuses in which a proposal may be held by some causes; see ``ProposalHeld``."""
HELD_FOR_CALLER_MS: Final = 86_400_000
"""Time for which an approved call waits for its caller to ask again, in ms."""
INGRESS: Final = frozenset({"submitted", "evaluating"})


@dataclass(slots=True)
class Proposal:
    """A proposal, folded from its events so far; only ``fold_proposal`` changes it.

    ``journal`` holds effect results by requirement id, ``requested`` the effects under way, ``in_doubt``
    those of which it is unknown whether they happened, ``claims`` the claims that workers hold, ``ended_claims`` the
    earlier ones by token, ``failures`` the last failure of effects that are made again, and ``rollback`` the result of
    giving the workspace back as it was. ``proposal_id`` is a UUIDv7, ``branch`` the one that it would move,
    ``scope_rules`` the version of ``world.model.scope_patterns``, and ``intent`` what it carries (INT-14.4).
    ``backup`` says whether its leases were backed up, None where that was not recorded, and ``workspace`` where;
    ``ended_reason`` is why it was superseded, where it says why without a person: such as ``caller left``.
    ``returned_to`` is the server at which the caller of a call asked again, where that is another one than before, and
    ``returns`` is how often that was.
    ``may_linger``, whether a handler was given up or a worker vanished, so that something that was begun may still hold
    files open.
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
    workspace: str | None = None
    may_linger: bool = False
    started: ExecutionStarted | None = None
    requested: dict[str, EffectRequested] = field(default_factory=dict)
    in_doubt: dict[str, EffectRequested] = field(default_factory=dict)
    failures: dict[str, EffectRetried] = field(default_factory=dict)
    requested_at: dict[str, int] = field(default_factory=dict)
    claims: dict[str, EffectClaimed] = field(default_factory=dict)
    ended_claims: dict[int, EndedClaim] = field(default_factory=dict)
    journal: dict[str, EffectAnswer] = field(default_factory=dict)
    rollback: EffectAnswer | None = None
    cancelled: ExecutionCancelled | None = None
    dropped: int = 0
    world_id: str | None = None
    error: ErrorValue | None = None
    ended_reason: str | None = None
    returned_to: str | None = None
    returns: int = 0
    proposal_id: str = field(init=False, compare=False)
    branch: str = field(init=False, compare=False)
    scope_rules: int = field(init=False, compare=False)
    intent: IntentInstance = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Take what many steps read from the submission, which never changes."""
        submitted = self.submitted
        self.proposal_id, self.branch, self.intent = submitted.proposal_id, submitted.branch, submitted.intent
        self.scope_rules = submitted.scope_rules or 1

    def __repr__(self) -> str:
        action, actor = self.submitted.intent.body.type, self.submitted.actor.actor_id
        return short_repr(self, self.proposal_id, f"{action} by {actor}", self.status, f"branch {self.branch}")

    @property
    def is_terminal(self) -> bool:
        """Whether nothing can happen to it any more."""
        return self.status in TERMINAL

    def carries(self, intent: IntentInstance) -> None:
        """Keep the very instance that was submitted for the whole execution (INT-14.3)."""
        if intent.intent_id == self.submitted.intent.intent_id:
            self.intent = intent

    def copy(self) -> Proposal:
        """Return an independent proposal; recorded values, which are immutable, are shared."""
        twin = Proposal(*_values_of(self))
        twin.intent = self.intent
        twin.answers = self.answers.copy()
        twin.requested = self.requested.copy()
        twin.in_doubt = self.in_doubt.copy()
        twin.failures = self.failures.copy()
        twin.requested_at = self.requested_at.copy()
        twin.claims = self.claims.copy()
        twin.ended_claims = self.ended_claims.copy()
        twin.journal = self.journal.copy()
        return twin

    @property
    def session(self) -> str | None:
        """The session of its caller, within its actor, as its trace states it; None where it states none."""
        return _stated(self, "session")

    @property
    def client(self) -> str | None:
        """The program of its caller, as its trace states it; None where it states none."""
        return _stated(self, "client")

    @property
    def caller_at(self) -> str | None:
        """The worker of the server at which the caller of an attended call waits; None where no server is recorded."""
        attended = self.submitted.attended
        return self.returned_to or (None if attended is None else attended.server)

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
            "endedReason": self.ended_reason,
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
            if offered := sorted(asked.requirement.id for asked in unclaimed_offers(self)):
                wire["effects"]["offered"] = offered
            if self.claims:
                wire["effects"]["claimed"] = {name: claim.worker for name, claim in sorted(self.claims.items())}
        if self.cancelled is not None:
            wire["cancelled"] = {"by": self.cancelled.by, "reason": self.cancelled.reason, "at": self.cancelled.at}
        if self.rollback is not None:
            wire["rollback"] = self.rollback.value
        return wire


_values_of: Final = attrgetter(*(one.name for one in fields(Proposal) if one.init))
"""Returns the values of the arguments of a proposal, in their order."""


def held_words(event: ProposalHeld) -> str:
    """Return why a proposal is held, such as ``policy changed: house``."""
    if event.cause == "effect":
        return f"no handler for {', '.join(event.names)}"
    if event.cause == "workspace":
        return f"workspace {event.in_force} is elsewhere"
    if event.cause == "caller":
        return "approved; it continues when the agent asks again"
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


def _stated(proposal: Proposal, member: str) -> str | None:
    found = (proposal.submitted.trace or {}).get(member)
    return found if isinstance(found, str) else None


def _shadowed(proposal: Proposal, event: ProposalShadowed) -> None:
    require(proposal, "submitted", event)
    if proposal.is_shadowed:
        raise contradiction(proposal, event, "it was shadowed before")
    proposal.is_shadowed = True


def _held(proposal: Proposal, event: ProposalHeld) -> None:
    if proposal.status not in HOLDABLE.get(event.cause, ("submitted", "approved", "executing")):
        raise contradiction(proposal, event, f"the proposal is {proposal.status}")
    if event.cause == "caller":
        proposal.deadline = event.at + HELD_FOR_CALLER_MS


def _returned(proposal: Proposal, event: CallerReturned) -> None:
    if proposal.submitted.attended is None or proposal.is_terminal or proposal.caller_at == event.server:
        raise contradiction(proposal, event, "it is not an open, attended call of another server")
    proposal.returned_to = event.server
    proposal.returns += 1


def _judged(proposal: Proposal, event: ProposalJudged) -> None:
    if proposal.status != "evaluating":
        _move(proposal, "evaluating")
    proposal.ruling, proposal.binding, proposal.deadline = event.ruling, event.binding, event.deadline


def _rescheduled(proposal: Proposal, event: ProposalRescheduled) -> None:
    if event.deadline is not None:
        require(proposal, "evaluating", event)
        proposal.deadline = event.deadline
    reschedule_effects(proposal, event)


def _answered(proposal: Proposal, event: HumanAnswered) -> None:
    require(proposal, "evaluating", event)
    proposal.answers.append(event.answer)


def _timed_out(proposal: Proposal, event: HumanTimedOut) -> None:
    require(proposal, "evaluating", event)


def _decided(proposal: Proposal, event: DecisionMade) -> None:
    _move(proposal, "approved" if event.decision.decision == "approved" else "rejected")
    proposal.decision, proposal.verdict_id = event.decision, event.verdict_id
    proposal.backup, proposal.workspace = event.backup, event.workspace


def _superseded(proposal: Proposal, event: ProposalSuperseded) -> None:
    _move(proposal, "superseded")
    proposal.ended_reason = event.reason if event.by is None and event.successor is None else None


def _started(proposal: Proposal, event: ExecutionStarted) -> None:
    first = proposal.started
    if first is None:
        _move(proposal, "executing")
    else:
        require(proposal, "executing", event)
        if (event.now, event.seed, event.on_world) != (first.now, first.seed, first.on_world):
            raise contradiction(proposal, event, "its frozen time, seed and world changed")
        proposal.may_linger = True
    proposal.started = event


def _cancelled(proposal: Proposal, event: ExecutionCancelled) -> None:
    if proposal.status not in ("approved", "executing"):
        raise contradiction(proposal, event, f"the proposal is {proposal.status}")
    proposal.cancelled = event
    hurry_claims(proposal, event.at)


def _completed(proposal: Proposal, event: ProposalCompleted) -> None:
    _move(proposal, "completed")
    proposal.world_id = event.world_id
    _forget_effects(proposal)


def _failed(proposal: Proposal, event: ProposalFailed) -> None:
    _move(proposal, "failed")
    proposal.world_id, proposal.error = event.world_id, event.error
    _forget_effects(proposal)


def _forget_effects(proposal: Proposal) -> None:
    for effects in (proposal.requested, proposal.in_doubt, proposal.claims):
        effects.clear()


_STEPS: Final[Mapping[type[Event], Callable[[Proposal, Any], None]]] = {
    ProposalShadowed: _shadowed,
    ProposalHeld: _held,
    CallerReturned: _returned,
    ProposalJudged: _judged,
    ProposalRescheduled: _rescheduled,
    HumanAnswered: _answered,
    HumanTimedOut: _timed_out,
    DecisionMade: _decided,
    ProposalSuperseded: _superseded,
    ExecutionStarted: _started,
    **EFFECT_STEPS,
    ExecutionCancelled: _cancelled,
    ProposalCompleted: _completed,
    ProposalFailed: _failed,
}
PROPOSAL_EVENTS: Final[frozenset[type[Event]]] = frozenset({ProposalSubmitted, *_STEPS})


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
        raise contradiction(proposal, event, "the event does not belong there")
    step(proposal, event)
    if type(event) is not CallerReturned:  # it stays held
        proposal.held = event if type(event) is ProposalHeld else None
    return proposal
