"""State of the realm: all that has not ended, folded from the log's events.

Actors, bindings, policies, the domain in force, branches, and the proposals that are not ended yet. What has ended is
in the log and its index. The fold is pure: equal events give an equal realm, and replay is nothing but this fold.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import structs

from world.error_codes import ErrorCode
from world.errors import DamagedLogError
from world.events.access_events import RightGranted, TokenCreated
from world.events.base import Event
from world.events.lease_events import ClockConfirmed, VerdictGiven
from world.events.policy_events import PolicyAdopted, PolicyRetired, ShadowConfigured
from world.events.proposal_events import (
    ProjectionRecorded,
    ProposalCompleted,
    ProposalFailed,
    ProposalSubmitted,
)
from world.events.realm_events import (
    ActorBound,
    ActorRegistered,
    BranchCreated,
    BranchSwitched,
    DomainAdopted,
    EnforcementChosen,
    LogArchived,
    LogBranched,
    LogFounded,
    WorkspaceRegistered,
    WorldSealed,
)
from world.events.run_events import (
    RunAmended,
    RunClosed,
    RunCompared,
    RunObserved,
    RunOpened,
    RunRolledBack,
    RunViolated,
)
from world.klis.ledger import KLIS_EVENTS, Ledger
from world.klis.wait_die import asks_for_room_at
from world.model.actor import ActorRef
from world.model.immutable_json import freeze
from world.model.scope_patterns import SCOPE_RULES
from world.model.short_repr import short_repr
from world.state.access import ACCESS_STEPS
from world.state.branches import Branch, move_branch
from world.state.effect_steps import effect_deadline
from world.state.offers import next_claim_deadline, note_offers, schedule_claims
from world.state.proposal import PROPOSAL_EVENTS, Proposal, fold_proposal
from world.state.proposal_queues import awaits_caller, bring_retries_forward, note_change, note_hold, note_retry
from world.state.writer_epoch import FIRST_TIMELINE, WRITER_STEPS, WriterEpoch

LANDMARKS: Final = frozenset(
    kind.TOPIC
    for kind in (
        LogFounded,
        LogBranched,
        LogArchived,
        EnforcementChosen,
        WorkspaceRegistered,
        DomainAdopted,
        ActorRegistered,
        ActorBound,
        PolicyAdopted,
        PolicyRetired,
        ShadowConfigured,
        BranchSwitched,
    )
) | {kind.TOPIC for steps in (ACCESS_STEPS, WRITER_STEPS) for kind in steps}
"""Topics of the few events that make up the registry; the index remembers where they are."""


@dataclass(slots=True)
class RealmState:
    """The folded state of a writer; only ``apply_event`` changes it, and ``world.state.realm_view`` publishes it.

    ``position`` is the last event folded. ``proposals`` holds the open ones in order of submission. ``klis_version`` is
    how many events of the lease ledger were folded, which is the version of their stream; ``klis_own`` counts those
    that this process emitted, and ``klis_seen`` those of others up to which it judged the waiting requests again.
    ``runs`` are those that are open. ``offered`` has the proposals with effects that wait for a worker
    (``world.state.offers``). ``shadow`` says which policy judges for the record only, None where none does, and
    ``branched`` that this is no real log. ``archived`` says up to where contents may be missing. ``rights`` are
    those granted, by actor and name; ``tokens`` those that are not revoked.
    """

    position: int = 0
    founded: LogFounded | None = None
    branched: LogBranched | None = None
    archived: LogArchived | None = None
    enforcement: str = "enforcing"
    workspace: WorkspaceRegistered | None = None
    domain: DomainAdopted | None = None
    actors: dict[str, ActorRef] = field(default_factory=dict)
    bindings: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    policies: dict[str, PolicyAdopted] = field(default_factory=dict)
    rights: dict[str, Mapping[str, RightGranted]] = field(default_factory=dict)
    tokens: dict[str, TokenCreated] = field(default_factory=dict)
    shadow: ShadowConfigured | None = None
    branches: dict[str, Branch] = field(default_factory=dict)
    active: str = ""
    epoch: int = 0
    writer: WriterEpoch = field(default_factory=WriterEpoch)
    proposals: dict[str, Proposal] = field(default_factory=dict)
    queues: dict[str, list[str]] = field(default_factory=dict)
    running: dict[str, str] = field(default_factory=dict)
    held: dict[str, None] = field(default_factory=dict)
    deadlines: list[tuple[int, str]] = field(default_factory=list)
    retries: list[tuple[int, str]] = field(default_factory=list)
    room_retries: dict[str, int] = field(default_factory=dict)
    effects: list[tuple[int, str, str]] = field(default_factory=list)
    offered: dict[str, None] = field(default_factory=dict)
    claim_deadlines: list[tuple[int, str, str]] = field(default_factory=list)
    runs: dict[str, RunOpened] = field(default_factory=dict)
    klis: Ledger = field(default_factory=Ledger)
    klis_version: int = 0
    klis_own: int = 0
    klis_seen: int = -1

    @property
    def schema_hash(self) -> str:
        """Hash of the schema in force; empty before a domain was adopted."""
        return "" if self.domain is None else self.domain.schema_hash

    def __repr__(self) -> str:
        return realm_repr(self)

    def overdue(self, now: int) -> list[Proposal]:
        """Return the proposals whose time to be answered is over at ``now`` (ms), earliest deadline first."""
        due: dict[str, Proposal] = {}  # a ruling after an answer may repeat a deadline
        while self.deadlines and self.deadlines[0][0] < now:
            deadline, proposal_id = heapq.heappop(self.deadlines)
            proposal = self.proposals.get(proposal_id)
            if proposal is not None and proposal.status == "evaluating" and proposal.deadline == deadline:
                due[proposal_id] = proposal
        return list(due.values())

    def wait_again(self, proposal: Proposal) -> None:
        """Put a proposal back that ``overdue`` returned and that is left to the next unit."""
        assert proposal.deadline is not None
        heapq.heappush(self.deadlines, (proposal.deadline, proposal.proposal_id))

    def due_retries(self, now: int) -> list[Proposal]:
        """Return the proposals whose backoff after a Die is over at ``now`` (ms), the longest over first."""
        due: dict[str, Proposal] = {}
        while self.retries and self.retries[0][0] <= now:
            at, proposal_id = heapq.heappop(self.retries)
            proposal = self.proposals.get(proposal_id)
            if proposal is None or not self.still_lacks_leases(proposal):
                self.room_retries.pop(proposal_id, None)
                continue
            asked = self.klis.asks_again_at(proposal.submitted.actor.actor_id, proposal_id)
            again = max(asked, self.room_retries.get(proposal_id, 0))
            if again > at:  # another worker asked at that time, in vain
                heapq.heappush(self.retries, (again, proposal_id))
            else:
                due[proposal_id] = proposal
        return list(due.values())

    def still_lacks_leases(self, proposal: Proposal) -> bool:
        """Return whether a proposal was judged well, and neither waits for leases or its caller nor holds leases."""
        name, agent = proposal.proposal_id, proposal.submitted.actor.actor_id
        lacks = proposal.wants_leases and name not in self.klis.requests and not self.klis.holds(agent, name)
        return lacks and not awaits_caller(self.klis, proposal)

    def next_due(self) -> int | None:
        """Return when something may be due next, ms since 1970; None when nothing waits for a time."""
        if self.writer.closed is not None:
            return None
        times = [at for at in (self.klis.next_due(),) if at is not None]
        if self.workspace is not None and self.klis.refusals.freed:
            times.append(0)  # another process freed it and may not have this process's workspace
        times += [self.deadlines[0][0] + 1] if self.deadlines else []
        times += [self.retries[0][0]] if self.retries else []
        effect = self._next_effect()
        times += [effect + 1] if effect is not None else []
        claim = next_claim_deadline(self)
        times += [claim + 1] if claim is not None else []
        return min(times, default=None)

    def is_effect_overdue(self, now: int) -> bool:
        """Return whether an effect's worker has had its time, at ``now`` (ms), and left no result."""
        due = self._next_effect()
        return due is not None and due < now

    def _next_effect(self) -> int | None:
        """Return the earliest deadline of an effect that is under way; ended ones are removed."""
        while self.effects:
            deadline, proposal_id, requirement = self.effects[0]
            proposal = self.proposals.get(proposal_id)
            if proposal is not None and effect_deadline(proposal, requirement) == deadline:
                return deadline
            heapq.heappop(self.effects)
        return None

    def take_in(self, proposal: Proposal) -> None:
        """Add an open proposal that was read from storage."""
        self.proposals[proposal.proposal_id] = proposal
        note_hold(self, proposal)
        note_offers(self, proposal)
        key = proposal.submitted.execution_key
        if proposal.status == "approved":
            self.queues.setdefault(key, []).append(proposal.proposal_id)
        elif proposal.status == "executing":
            self.running[key] = proposal.proposal_id
        self.schedule(proposal)

    def schedule(self, proposal: Proposal) -> None:
        """Add the times of an open proposal to the queues that are ordered by time."""
        if proposal.status == "executing":
            for name, effect in proposal.requested.items():
                if effect.offer is None:
                    heapq.heappush(self.effects, (effect.deadline, proposal.proposal_id, name))
            schedule_claims(self, proposal)
        elif proposal.status == "approved":
            return
        elif proposal.deadline is not None:
            heapq.heappush(self.deadlines, (proposal.deadline, proposal.proposal_id))
        if proposal.wants_leases:
            name, klis = proposal.proposal_id, self.klis
            again = klis.asks_again_at(proposal.submitted.actor.actor_id, name)
            if not again and name in klis.refused:
                again = asks_for_room_at(klis.clock, klis.in_force, name)
            note_retry(self, name, again)


def realm_repr(realm: Any) -> str:
    """Return one line about a ``RealmState`` or a published view of one."""
    sizes = f"{len(realm.branches)} branches", f"{len(realm.actors)} actors", f"{len(realm.proposals)} open proposals"
    return short_repr(realm, f"at event {realm.position}", f"active branch {realm.active or 'none'}", *sizes)


def apply_event(realm: RealmState, event: Event, position: int) -> None:
    """Bring the realm from before an event to after it.

    Args:
        realm: changed in place.
        event: the next event of the log.
        position: its place in the log.

    Raises:
        DamagedLogError: when the event cannot follow the events before it.
    """
    step = _STEPS.get(type(event))
    if step is not None:
        try:
            step(realm, event)
        except DamagedLogError as damage:
            damage.details.setdefault("position", position)
            raise
    realm.position = position


def _fold_open_proposal(realm: RealmState, event: Any) -> None:
    proposals, name = realm.proposals, event.proposal_id
    proposal = proposals.get(name)
    if proposal is None:
        if event.TOPIC == "effect.dropped":
            return  # results may still come in after the end
        raise DamagedLogError(
            ErrorCode.UNKNOWN_PROPOSAL,
            f"{event.TOPIC} names proposal {name}, which is not open.",
            proposal_id=name,
        )
    fold_proposal(proposal, event)
    proposals[name] = proposal  # set, so that the change is noted
    note_change(realm, proposal, event)


def _fold_ledger(realm: RealmState, event: Event) -> None:
    realm.klis.fold(event)
    realm.klis_version += 1


def _verdict(realm: RealmState, event: VerdictGiven) -> None:
    _fold_ledger(realm, event)
    if event.retry_after_ms is not None:
        note_retry(realm, event.request_id, realm.klis.asks_again_at(event.agent_id, event.session_id))
    elif event.status == "Wait" and not event.queued and event.request_id in realm.proposals:
        again = asks_for_room_at(event.at, realm.klis.in_force, event.session_id)
        realm.room_retries[event.request_id] = again
        note_retry(realm, event.request_id, again)


def _clock(realm: RealmState, event: ClockConfirmed) -> None:
    _fold_ledger(realm, event)
    bring_retries_forward(realm, event.at)


def _founded(realm: RealmState, event: LogFounded) -> None:
    if realm.founded is not None:
        raise DamagedLogError(ErrorCode.FOUNDED_TWICE, "The log says twice that it was founded.")
    realm.founded, realm.enforcement = event, event.enforcement
    if event.system is not None:
        realm.writer = WriterEpoch(system=event.system, timeline=event.timeline or FIRST_TIMELINE)


def _sets(name: str) -> Callable[[RealmState, Event], None]:
    """Return the step of an event that replaces the one before it."""
    return lambda realm, event: setattr(realm, name, event)


def _enforcement(realm: RealmState, event: EnforcementChosen) -> None:
    realm.enforcement = event.enforcement


def _actor(realm: RealmState, event: ActorRegistered) -> None:
    realm.actors[event.actor.actor_id] = event.actor


def _bound(realm: RealmState, event: ActorBound) -> None:
    realm.bindings[event.actor_id] = freeze(event.binding)


def _policy(realm: RealmState, event: PolicyAdopted) -> None:
    realm.policies[event.name] = event


def _retired(realm: RealmState, event: PolicyRetired) -> None:
    realm.policies.pop(event.name, None)


def _shadow(realm: RealmState, event: ShadowConfigured) -> None:
    realm.shadow = None if event.name is None else event


def _branch(realm: RealmState, event: BranchCreated) -> None:
    if event.branch in realm.branches:
        raise DamagedLogError(ErrorCode.BRANCH_EXISTS, f"Branch {event.branch!r} was created twice.")
    realm.branches[event.branch] = Branch(event.branch, event.world_id, event.world_id)
    realm.active = realm.active or event.branch


def _switched(realm: RealmState, event: BranchSwitched) -> None:
    if event.epoch != realm.epoch + 1:
        raise DamagedLogError(ErrorCode.BAD_EPOCH, f"Epoch {event.epoch} cannot follow {realm.epoch}.")
    realm.active, realm.epoch = event.branch, event.epoch


def _sealed(realm: RealmState, event: WorldSealed) -> None:
    branch = realm.branches.get(event.branch)
    if branch is not None:
        realm.branches[event.branch] = structs.replace(branch, tip=event.world_id)


def _submitted(realm: RealmState, event: ProposalSubmitted) -> None:
    if event.proposal_id in realm.proposals:
        raise DamagedLogError(ErrorCode.SUBMITTED_TWICE, f"Proposal {event.proposal_id} was submitted twice.")
    if event.scope_rules not in (None, SCOPE_RULES):
        raise DamagedLogError(
            ErrorCode.UNKNOWN_EVENT,
            f"Proposal {event.proposal_id} has scopeRules {event.scope_rules}; this version reads {SCOPE_RULES}, and "
            "1 where it is absent. Read the log with a newer version.",
        )
    realm.proposals[event.proposal_id] = Proposal(event)


def _ended(realm: RealmState, event: ProposalCompleted | ProposalFailed) -> None:
    move_branch(realm.branches, event)
    _fold_open_proposal(realm, event)


def _nothing(realm: RealmState, event: ProjectionRecorded) -> None:
    """Records of projections change no state (INT-12.1)."""


def _seen(realm: RealmState, event: RunObserved | RunViolated | RunAmended | RunRolledBack | RunCompared) -> None:
    """What was seen of a run changes no state; it is about one that is open, or a proposal's effects."""
    if event.run_id not in realm.runs and event.run_id not in realm.proposals:
        raise DamagedLogError(ErrorCode.UNKNOWN_RUN, f"{event.TOPIC} names run {event.run_id}, which is not open.")


def _opened(realm: RealmState, event: RunOpened) -> None:
    if event.run_id in realm.runs:
        raise DamagedLogError(ErrorCode.OPENED_TWICE, f"Run {event.run_id} was opened twice.", run_id=event.run_id)
    realm.runs[event.run_id] = event


def _closed(realm: RealmState, event: RunClosed) -> None:
    if realm.runs.pop(event.run_id, None) is None:
        raise DamagedLogError(ErrorCode.UNKNOWN_RUN, f"{event.TOPIC} names run {event.run_id}, which is not open.")


_STEPS: Final[Mapping[type[Event], Callable[[RealmState, Any], None]]] = {
    **dict.fromkeys(KLIS_EVENTS, _fold_ledger),
    VerdictGiven: _verdict,
    ClockConfirmed: _clock,
    **dict.fromkeys(PROPOSAL_EVENTS, _fold_open_proposal),
    LogFounded: _founded,
    LogBranched: _sets("branched"),
    LogArchived: _sets("archived"),
    EnforcementChosen: _enforcement,
    WorkspaceRegistered: _sets("workspace"),
    DomainAdopted: _sets("domain"),
    ActorRegistered: _actor,
    ActorBound: _bound,
    PolicyAdopted: _policy,
    PolicyRetired: _retired,
    ShadowConfigured: _shadow,
    BranchCreated: _branch,
    BranchSwitched: _switched,
    WorldSealed: _sealed,
    ProjectionRecorded: _nothing,
    ProposalSubmitted: _submitted,
    ProposalCompleted: _ended,
    ProposalFailed: _ended,
    RunOpened: _opened,
    RunObserved: _seen,
    RunViolated: _seen,
    RunAmended: _seen,
    RunRolledBack: _seen,
    RunCompared: _seen,
    RunClosed: _closed,
    **ACCESS_STEPS,
    **WRITER_STEPS,
}
