"""The branch that never was: what people and the outside did is done again in order, all else follows.

The clock stands at the times of the record, so what the time brings is brought at those times. What follows from what
was done, rulings and verdicts and computations, is found anew, and not taken from the record.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from msgspec.structs import replace

from world.errors import RefusedError
from world.events.base import Event
from world.events.clock_events import ClockConfirmed
from world.events.execution_events import EffectFulfilled, ExecutionCancelled, ExecutionStarted
from world.events.lease_events import (
    AgentRegistered,
    KeyRegistered,
    KeyRevoked,
    KlisConfigured,
    LeaseRenewed,
    LeasesExpired,
    LeasesReleased,
    LeasesRevoked,
    RequestWithdrawn,
    VerdictGiven,
)
from world.events.policy_events import PolicyAdopted, PolicyRetired
from world.events.proposal_events import (
    HumanAnswered,
    HumanTimedOut,
    ProjectionRecorded,
    ProposalCompleted,
    ProposalFailed,
    ProposalJudged,
    ProposalSubmitted,
)
from world.events.realm_events import (
    ActorBound,
    ActorRegistered,
    BranchCreated,
    BranchSwitched,
    DomainAdopted,
    EnforcementChosen,
)
from world.events.run_events import RunClosed, RunOpened
from world.model.decision import HumanAnswer, Ruling
from world.model.intent import IntentInstance
from world.pipeline.clock_confirmation import confirm_clock
from world.pipeline.execute import start_next
from world.pipeline.judge import answer, switch_branch
from world.pipeline.recover import cancel
from world.pipeline.submit import Submission, check_base, create_branch, submit
from world.pipeline.unit_of_work import KLIS_STREAM, REALM_STREAM, UnitOfWork
from world.state.realm_state import RealmState
from worldprotocol.analysis.counterfactual.asked import Insertion
from worldprotocol.analysis.counterfactual.leases import Leased
from worldprotocol.analysis.counterfactual.outcomes import Outcomes
from worldprotocol.analysis.counterfactual.outside import EffectReplayer
from worldprotocol.analysis.counterfactual.stand_ins import InForce, Putting, RecordedClock
from worldprotocol.analysis.counterfactual.world_mapping import WorldMapping, branches_of
from worldprotocol.analysis.rejudging import question_of

__all__ = ["Elsewhere", "Replaying", "made_with"]


class Changing(Protocol):
    """The scratch realm, as far as the record changes what it is made with; ``code`` names functions that changed."""

    code: set[str]

    def insert(self, given: Insertion) -> str:
        """Submit an intent that nobody submitted, and return the proposal's id."""
        ...

    def adopt(self, event: DomainAdopted) -> bool:
        """Bring the domain of an adoption into force; False where it cannot be had."""
        ...

    def enforce(self, mode: str) -> None:
        """Let executions be refused or not what they may not write."""
        ...


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A branch that does not begin at the world where the record has it.

    Args:
        branch: its name.
        then: the world of the record.
        now: the world here.
    """

    branch: str
    then: str
    now: str


@dataclass(slots=True)
class Replaying:
    """Goes through the later part of a log and does again, in a scratch log, what was done.

    Args:
        protocol: of the scratch log.
        clock: that it reads.
        authority: that judges in it.
        outside: makes no effect, and knows what the recorded ones came to.
        outcomes: of proposals, in the record and here.
        dropped: ids of proposals that are not submitted.
        stage: the scratch realm, where an intent is inserted, and a domain or another enforcement comes into force.
        insertions: intents that nobody submitted, the earliest first.
        refused: why a recorded proposal could not even be submitted, by id.
        questions: proposals that ask people something they were never asked, with what they ask.
        unasked: answers of people whom nobody asks in the branch, by proposal.
        not_adopted: domains of the record that do not come into force here, by position, and why.
        elsewhere: branches that do not begin where the record has them.
        notes: what else could not be done again, counted.
        stopped: why the rest of the record was not gone through; None where it was.
    """

    protocol: Putting
    clock: RecordedClock
    authority: InForce
    outside: EffectReplayer
    outcomes: Outcomes
    dropped: frozenset[str]
    stage: Changing
    insertions: deque[Insertion]
    refused: dict[str, RefusedError] = field(default_factory=dict)
    questions: dict[str, str] = field(default_factory=dict)
    unasked: list[str] = field(default_factory=list)
    not_adopted: dict[int, RefusedError] = field(default_factory=dict)
    elsewhere: list[Elsewhere] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    stopped: str | None = None
    _record: ProjectionRecorded | None = None
    _fork: BranchCreated | None = None
    _worlds: WorldMapping = field(default_factory=WorldMapping)
    _asked_then: dict[str, Ruling] = field(default_factory=dict)
    _leased: Leased = field(default_factory=Leased)

    def begin(self) -> None:
        """Take over what is under way where the branch begins, and submit what comes first."""
        for proposal in self.protocol.realm().proposals.values():
            self._leased.proposals.add(proposal.proposal_id)
            if proposal.asked is not None:
                self._asked_then[proposal.proposal_id] = proposal.asked
            self.outside.take_over(proposal)
        self._worlds.begin(self.protocol.realm())
        self._insert_until(None)

    def take(self, position: int, event: Event, stream: str, coming: Sequence[Event]) -> None:
        """Do again what an event of the record says.

        Args:
            position: of the event.
            event: the event.
            stream: its stream.
            coming: the next events.

        Raises:
            RefusedError: ``POLICY_NOT_AT_HAND``.
        """
        self._insert_until(event.at)
        self.outside.position = position
        step = _STEPS.get(type(event))
        if step is not None:
            step(self, event)
        elif type(event) is BranchCreated:
            self._branch(event, coming)
        elif type(event) is AgentRegistered:
            self._agent(event, coming)
        elif type(event) in _AS_THEY_ARE:
            self._at(event)
            self._emit(stream, event)
        elif type(event) in _BY_THE_TIME and event.at > self.clock.now:
            self._at(event)
            self._run(_nothing)
        self.outcomes.recorded(event, position)
        self._worlds.recorded(event)

    def end(self) -> None:
        """Submit what comes after the record."""
        self._insert_until(1 << 60)

    # Doing

    def _at(self, event: Event) -> None:
        """Let it be the time of an event."""
        self._until(event.at)

    def _until(self, at: int) -> None:
        """Let it be a time, ms since 1970; what is due by then is done before anything else."""
        self.clock.now = at
        due = self.protocol.ask(RealmState.next_due)
        if due is not None and due <= at:
            self._run(_nothing)

    def _run(self, command: Callable[[UnitOfWork], Any]) -> Any:
        """Run a command and look for the results of the effects that were asked for."""
        try:
            return self.protocol.run(command)
        finally:
            self.outside.look_for_all()

    def _tried(self, what: str, command: Callable[[UnitOfWork], Any]) -> bool:
        try:
            self._run(command)
        except RefusedError as refused:
            self.notes[f"{what}: {refused.code}"] += 1
            return False
        return True

    def _emit(self, stream: str, event: Event) -> None:
        self._tried(event.TOPIC, lambda work: work.emit(stream, event))

    def _insert_until(self, at: int | None) -> None:
        while self.insertions and (self.insertions[0].at is None or (at is not None and self.insertions[0].at < at)):
            given = self.insertions.popleft()
            if given.at is not None:
                self._until(given.at)
            self.outside.inserted.append(self.stage.insert(given))
            self.outside.look_for_all()

    def _knows(self, proposal_id: str) -> bool:
        """Tell whether a proposal of the record was submitted here too."""
        return proposal_id not in self.dropped and proposal_id not in self.refused

    # What people did

    def _projected(self, event: ProjectionRecorded) -> None:
        here = replace(event, world_id=self._worlds.head_for(event.world_id, self.protocol.ask(branches_of)))
        if event.proposal_id is not None:
            self._record = here
            return
        self._at(event)
        self._emit(f"projection:{event.projection_id}", here)

    def _submitted(self, event: ProposalSubmitted) -> None:
        record, self._record = self._record, None
        fork, self._fork = self._fork, None
        name = event.proposal_id
        self._leased.proposals.add(name)
        if name in self.dropped:
            return
        self._at(event)
        actor = event.actor["actorId"]
        self.authority.require(self.protocol.ask(lambda realm: realm.bindings.get(actor, {})))
        asked = Submission(
            IntentInstance.read(event.intent),
            branch=event.branch if fork is None else None,
            base_world=None if fork is None else self._base(fork),
            fork_name=None if fork is None else fork.branch,
            trace=event.trace,
            execution_key=event.execution_key,
            allow_failed_base=True,  # the record has it, so it was allowed
            record=None if record is None or record.proposal_id != name else record,
        )
        try:
            self._run(lambda work: submit(work, asked, name, scope_rules=event.scope_rules or 1))
        except RefusedError as refused:
            self.refused[name] = refused
        else:
            if fork is not None:
                self._begins(fork, asked.base_world or "")

    def _judged(self, event: ProposalJudged) -> None:
        """Remember what people were asked then."""
        name = event.proposal_id
        if event.ruling["verdict"] == "wait":
            self._asked_then[name] = Ruling.from_wire(event.ruling)
        else:
            self._asked_then.pop(name, None)
        asked = self._asks(name)
        if asked is not None:
            self._is_same_question(name, asked)

    def _asks(self, name: str) -> Ruling | None:
        """Return what a proposal asks people here."""

        def look(realm: Any) -> Ruling | None:
            proposal = realm.proposals.get(name)
            return None if proposal is None else proposal.asked

        return self.protocol.ask(look)

    def _is_same_question(self, name: str, now: Ruling) -> bool:
        then = self._asked_then.get(name)
        if then is not None and question_of(then) == question_of(now) and then.step == now.step:
            return True
        self.questions.setdefault(name, now.reason)
        return False

    def _answered(self, event: HumanAnswered) -> None:
        name = event.proposal_id
        self._at(event)
        asked = self._asks(name)
        if asked is None or not self._is_same_question(name, asked):
            if self._knows(name):
                self.unasked.append(name)
            self._run(_nothing)
            return
        given = HumanAnswer.read(event.answer)
        self._tried("answer", lambda work: answer(work, name, given))

    def _cancelled(self, event: ExecutionCancelled) -> None:
        self._at(event)
        name = event.proposal_id
        if self._knows(name):
            self._tried("cancel", lambda work: cancel(work, name, by=event.by, reason=event.reason))
        else:
            self._run(_nothing)

    def _branch(self, event: BranchCreated, coming: Sequence[Event]) -> None:
        if made_with(event, coming):
            self._fork = event
            return
        self._at(event)
        world = self._base(event)

        def command(work: UnitOfWork) -> None:
            check_base(work, world, allow_failed=True)
            create_branch(work, event.branch, world, by=event.by)

        if self._tried("branch", command):
            self._begins(event, world)

    def _base(self, event: BranchCreated) -> str:
        return self._worlds.base_for(event.world_id, self.protocol.ask(branches_of))

    def _begins(self, event: BranchCreated, here: str) -> None:
        """Tell of a branch that begins elsewhere than at what its world in the record is here."""
        if here != self._worlds.own(event.world_id):
            self.elsewhere.append(Elsewhere(event.branch, event.world_id, here))

    def _switched(self, event: BranchSwitched) -> None:
        self._at(event)
        self._tried("switch", lambda work: switch_branch(work, event.branch, by=event.by))

    def _domain(self, event: DomainAdopted) -> None:
        self._at(event)
        if event.schema_hash == self.protocol.domain.schema.hash:
            self._emit(REALM_STREAM, event)  # only its code changed
            return
        try:
            if not self.stage.adopt(event):
                self.stopped = (
                    f"At event {self.outside.position} the schema {event.schema_hash[:12]} came into force, whose "
                    "functions are Python and not at hand; what follows was not gone through. Name that domain, too."
                )
        except RefusedError as refused:
            self.not_adopted[self.outside.position] = refused
        self.outside.look_for_all()

    def _adopted(self, event: PolicyAdopted) -> None:
        if self.authority.stand_in(event.name) is not None:
            return
        self.authority.adopt(event.name, event.policy_hash, event.policy)
        self._at(event)
        self._emit(REALM_STREAM, event)

    def _retired(self, event: PolicyRetired) -> None:
        if self.authority.stand_in(event.name) is None:
            self._at(event)
            self._emit(REALM_STREAM, event)

    def _bound(self, event: ActorBound) -> None:
        self._at(event)
        self._emit(REALM_STREAM, replace(event, binding=dict(self.authority.bound(event.binding))))

    def _enforcement(self, event: EnforcementChosen) -> None:
        self._at(event)
        self.stage.enforce(event.enforcement)
        self._emit(REALM_STREAM, event)

    # What the outside did

    def _started(self, event: ExecutionStarted) -> None:
        """Start what was decided before the branch began; what was decided here started by itself."""
        name = event.proposal_id

        def waits(realm: Any) -> str | None:
            proposal = realm.proposals.get(name)
            is_left = proposal is not None and proposal.status == "approved"
            return proposal.submitted.execution_key if is_left else None

        key = self.protocol.ask(waits)
        if key is not None or event.at > self.clock.now:
            self._at(event)
            self._run(_nothing if key is None else partial(start_next, key=key))

    def _fulfilled(self, event: EffectFulfilled) -> None:
        before, self.clock.now = self.clock.now, event.at
        if not self.outside.bring(event):
            self.clock.now = before

    def _ended(self, event: ProposalCompleted | ProposalFailed) -> None:
        """Remember which world of the branch stands for one of the record."""
        name = event.proposal_id
        here = self.outcomes.now.get(name)
        is_there = here is not None and (here.status == "completed" or type(event) is ProposalFailed)
        own = here.world_id if here is not None and is_there else None
        self._worlds.ended(event, own, self.protocol.ask(branches_of))
        if here is None or here.is_terminal:
            self.outside.forget(name)

    # Leases that agents ask for themselves

    def _verdict(self, event: VerdictGiven) -> None:
        self._leased.note(event)
        if (event.channel or {}).get("kind") == "engine" or event.manifest is None:
            if event.at > self.clock.now:
                self._at(event)
                self._run(_nothing)
            return
        self._at(event)
        self._leased_again("lease request", lambda: self._leased.request(self.protocol, event))

    def _renewed(self, event: LeaseRenewed) -> None:
        self._at(event)
        self._leased_again("heartbeat", lambda: self._leased.heartbeat(self.protocol, event))

    def _released(self, event: LeasesReleased) -> None:
        if self._leased.is_agents(event.session_id):
            self._at(event)
            self._leased_again("release", lambda: self._leased.release(self.protocol, event))
        self._leased.forget(event.lease_ids)

    def _revoked(self, event: LeasesRevoked) -> None:
        self._at(event)
        self._leased_again("revoke", lambda: self._leased.revoke(self.protocol, event))
        self._leased.forget(event.lease_ids)

    def _expired(self, event: LeasesExpired) -> None:
        self._leased.forget(event.lease_ids)
        if event.at > self.clock.now:
            self._at(event)
            self._run(_nothing)

    def _withdrawn(self, event: RequestWithdrawn) -> None:
        self._at(event)
        if event.reason == "cancelled" and self._leased.is_agents(event.request_id):
            self._leased_again("withdraw", lambda: self.protocol.leasing.withdraw(event.request_id))
        else:
            self._run(_nothing)

    def _clock_confirmed(self, event: ClockConfirmed) -> None:
        self._at(event)
        self._tried(event.TOPIC, lambda work: confirm_clock(work, event.by, event.reason))

    def _leased_again(self, what: str, command: Callable[[], Any]) -> None:
        try:
            command()
        except RefusedError as refused:
            self.notes[f"{what}: {refused.code}"] += 1
        self.outside.look_for_all()

    def _agent(self, event: AgentRegistered, coming: Sequence[Event]) -> None:
        """Register an agent again, where somebody did that; most are by what they first ask for, and so here."""
        first = coming[0] if coming else None
        if event.by == event.agent_id and isinstance(first, VerdictGiven) and first.agent_id == event.agent_id:
            return
        if not self.protocol.ask(lambda realm: event.agent_id in realm.klis.agents):
            self._at(event)
            self._emit(KLIS_STREAM, event)


def made_with(event: BranchCreated, coming: Sequence[Event]) -> bool:
    """Tell whether a branch was made by a submission that forks; it stands before it, and before its projection."""
    following = coming[1] if coming and isinstance(coming[0], ProjectionRecorded) else next(iter(coming), None)
    return (
        isinstance(following, ProposalSubmitted)
        and (following.branch, following.base_world, following.at) == (event.branch, event.world_id, event.at)
        and event.by == following.actor["actorId"]
    )


def _nothing(work: UnitOfWork) -> None:
    """Let time pass."""


_STEPS: Final[Mapping[type[Event], Callable[[Replaying, Any], None]]] = {
    ProjectionRecorded: Replaying._projected,
    ProposalSubmitted: Replaying._submitted,
    ProposalJudged: Replaying._judged,
    HumanAnswered: Replaying._answered,
    ExecutionCancelled: Replaying._cancelled,
    BranchSwitched: Replaying._switched,
    DomainAdopted: Replaying._domain,
    PolicyAdopted: Replaying._adopted,
    PolicyRetired: Replaying._retired,
    ActorBound: Replaying._bound,
    EnforcementChosen: Replaying._enforcement,
    ExecutionStarted: Replaying._started,
    EffectFulfilled: Replaying._fulfilled,
    ProposalCompleted: Replaying._ended,
    ProposalFailed: Replaying._ended,
    VerdictGiven: Replaying._verdict,
    LeaseRenewed: Replaying._renewed,
    LeasesReleased: Replaying._released,
    LeasesRevoked: Replaying._revoked,
    LeasesExpired: Replaying._expired,
    RequestWithdrawn: Replaying._withdrawn,
    ClockConfirmed: Replaying._clock_confirmed,
}
"""What is done again for an event of the record."""

_AS_THEY_ARE: Final = frozenset({ActorRegistered, KlisConfigured, KeyRegistered, KeyRevoked, RunOpened, RunClosed})
"""Events that are taken over: they follow from nothing that the branch changes."""

_BY_THE_TIME: Final = frozenset({HumanTimedOut})
"""Events that show at what times somebody looked at what was due."""
