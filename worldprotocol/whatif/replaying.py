"""The branch that never was: what people and the outside did is done again in order, all else follows.

The clock stands at the times of the record, so what the time brings is brought at those times. What follows from what
was done, rulings and verdicts and computations, is found anew, and not taken from the record.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from world.core import EffectResult
from world.decision import HumanAnswer, Ruling
from world.errors import Refused
from world.events import (
    ActorBound,
    ActorRegistered,
    AgentRegistered,
    BranchCreated,
    BranchSwitched,
    DomainAdopted,
    EffectFulfilled,
    EffectResolved,
    EnforcementChosen,
    Event,
    ExecutionCancelled,
    ExecutionStarted,
    HumanAnswered,
    HumanTimedOut,
    KeyRegistered,
    KeyRevoked,
    KlisConfigured,
    LeaseRenewed,
    LeasesExpired,
    LeasesReleased,
    LeasesRevoked,
    PolicyAdopted,
    PolicyRetired,
    ProjectionRecorded,
    ProposalCompleted,
    ProposalFailed,
    ProposalJudged,
    ProposalSubmitted,
    RequestWithdrawn,
    RunClosed,
    RunOpened,
    VerdictGiven,
)
from world.execution import fulfil_with, order_of
from world.intent import IntentInstance
from world.judgement import answer, switch_branch
from world.making import Recording
from world.ports import Performed
from world.proposal import Proposal
from world.recovery import cancel
from world.snapshot import ErrorValue, Requirement
from world.submission import Submission, submit
from world.views.archive import decoded
from world.work import KLIS_STREAM, LINEAGE_STREAM, REALM_STREAM, Task, Work
from worldprotocol.assemble import EventLog
from worldprotocol.judging_again import question_of
from worldprotocol.whatif.asked import Insertion
from worldprotocol.whatif.effects import (
    Needed,
    Recorded,
    given_back,
    is_giving_back,
    recorded_effects,
    result_for,
)
from worldprotocol.whatif.leases import Leased
from worldprotocol.whatif.stand_ins import InForce, Putting, RecordedClock

__all__ = ["WHATIF", "Replaying", "backups_taken"]

WHATIF: Final = "whatif"
"""Whom the scratch log names where nobody of the record did something."""

EFFECT_NEEDED: Final = "effect needed"


@dataclass(slots=True)
class Replaying:
    """Goes through the later part of a log and does again, in a scratch log, what was done.

    Args:
        protocol: of the scratch log.
        clock: that it reads.
        authority: that judges in it.
        source: the real log.
        dropped: ids of proposals that are not submitted.
        insert: submits an intent that nobody submitted; returns the proposal's id.
        insertions: those, the earliest first.
        position: how far the record was gone through.
        refused: why a recorded proposal could not even be submitted, by id.
        needed: effects that would have to be made.
        questions: proposals that ask people something they were never asked, with what they ask.
        inserted: ids of the proposals that nobody submitted.
        unasked: answers of people whom nobody asks in the branch.
        notes: what else could not be done again, counted.
        worlds: what the worlds of the record are in the branch, where a proposal came to both.
        stopped: why the rest of the record was not gone through; None where it was.
    """

    protocol: Putting
    clock: RecordedClock
    authority: InForce
    source: EventLog
    dropped: frozenset[str]
    insert: Callable[[Insertion], str]
    insertions: deque[Insertion]
    position: int = 0
    refused: dict[str, Refused] = field(default_factory=dict)
    needed: list[Needed] = field(default_factory=list)
    questions: dict[str, str] = field(default_factory=dict)
    inserted: list[str] = field(default_factory=list)
    unasked: list[str] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    worlds: dict[str, str] = field(default_factory=dict)
    stopped: str | None = None
    _record: ProjectionRecorded | None = None
    _waiting: dict[str, dict[str, Task]] = field(default_factory=dict)
    _used: dict[str, set[str]] = field(default_factory=dict)
    _asked_then: dict[str, Ruling] = field(default_factory=dict)
    _leased: Leased = field(default_factory=Leased)

    def begin(self) -> None:
        """Take over the effects under way where the branch begins, and submit what comes first."""
        for proposal in self.protocol.realm().proposals.values():
            if proposal.asked is not None:
                self._asked_then[proposal.proposal_id] = proposal.asked
            for effect in proposal.requested.values():
                asked = Requirement.from_wire(effect.requirement)
                self._look_for(self._run(lambda work: _task(work, proposal, asked, effect.attempt)))  # noqa: B023
        self._insert_until(None)

    def take(self, position: int, event: Event, stream: str) -> None:
        """Do again what an event of the record says.

        Raises:
            Refused: ``POLICY_NOT_AT_HAND``.
        """
        self._insert_until(event.at)
        self.position = position
        step = _STEPS.get(type(event))
        if step is not None:
            step(self, event)
        elif type(event) in _AS_THEY_ARE:
            self._at(event)
            self._emit(stream, event)
        elif type(event) in _BY_THE_TIME and event.at > self.clock.now:
            self._at(event)
            self._run(lambda work: None)

    def end(self) -> None:
        """Submit what comes after the record."""
        self._insert_until(1 << 60)

    # Doing

    def _at(self, event: Event) -> None:
        self.clock.now = event.at

    def _run(self, command: Callable[[Work], Any]) -> Any:
        """Run a command and look for the results of the effects that were asked for."""
        try:
            return self.protocol.run(command)
        finally:
            self._look_for_all()

    def _look_for_all(self) -> None:
        while self.protocol.asked:
            self._look_for(self.protocol.asked.pop(0))

    def _tried(self, what: str, command: Callable[[Work], Any]) -> None:
        try:
            self._run(command)
        except Refused as refused:
            self.notes[f"{what}: {refused.code}"] += 1

    def _emit(self, stream: str, event: Event) -> None:
        self._tried(event.TOPIC, lambda work: work.emit(stream, event))

    def _insert_until(self, at: int | None) -> None:
        while self.insertions and (self.insertions[0].at is None or (at is not None and self.insertions[0].at < at)):
            given = self.insertions.popleft()
            if given.at is not None:
                self.clock.now = given.at
            name = self.insert(given)
            self.inserted.append(name)
            self._look_for_all()

    # What people did

    def _projected(self, event: ProjectionRecorded) -> None:
        here = replace(event, world_id=self.worlds.get(event.world_id, event.world_id))
        if event.proposal_id is not None:
            self._record = here
            return
        self._at(event)
        self._emit(f"projection:{event.projection_id}", here)

    def _submitted(self, event: ProposalSubmitted) -> None:
        record, self._record = self._record, None
        name = event.proposal_id
        if name in self.dropped:
            return
        self._at(event)
        asked = Submission(
            IntentInstance.read(event.intent),
            branch=event.branch,
            trace=event.trace,
            execution_key=event.execution_key,
            record=None if record is None or record.proposal_id != name else record,
        )
        try:
            self._run(lambda work: submit(work, asked, name))
        except Refused as refused:
            self.refused[name] = refused

    def _judged(self, event: ProposalJudged) -> None:
        """Remember what people were asked then."""
        ruling = Ruling.from_wire(event.ruling)
        if ruling.verdict == "wait":
            self._asked_then[event.proposal_id] = ruling
        else:
            self._asked_then.pop(event.proposal_id, None)
        proposal = self.protocol.archive.peek(lambda realm: realm.proposals.get(event.proposal_id))
        if proposal is not None and proposal.asked is not None:
            self._is_same_question(event.proposal_id, proposal.asked)

    def _is_same_question(self, name: str, now: Ruling) -> bool:
        then = self._asked_then.get(name)
        if then is not None and question_of(then) == question_of(now) and then.step == now.step:
            return True
        self.questions.setdefault(name, now.reason)
        return False

    def _answered(self, event: HumanAnswered) -> None:
        name = event.proposal_id
        self._at(event)
        asked = self.protocol.archive.peek(lambda realm: _asked(realm.proposals.get(name)))
        if asked is None or not self._is_same_question(name, asked):
            if name not in self.dropped:
                self.unasked.append(name)
            self._run(lambda work: None)
            return
        given = HumanAnswer.read(event.answer)
        try:
            self._run(lambda work: answer(work, name, given))
        except Refused as refused:
            self.notes[f"answer to {name}: {refused.code}"] += 1

    def _cancelled(self, event: ExecutionCancelled) -> None:
        self._at(event)
        self._tried("cancel", lambda work: cancel(work, event.proposal_id, by=event.by, reason=event.reason))

    def _branch(self, event: BranchCreated) -> None:
        self._at(event)
        self._emit(LINEAGE_STREAM, replace(event, world_id=self.worlds.get(event.world_id, event.world_id)))

    def _switched(self, event: BranchSwitched) -> None:
        self._at(event)
        self._tried("switch", lambda work: switch_branch(work, event.branch, by=event.by))

    def _domain(self, event: DomainAdopted) -> None:
        if event.schema_hash != self.protocol.domain.schema.hash:
            self.stopped = (
                f"At event {self.position} another domain came into force; what follows needs that one. Ask again from "
                "there."
            )
            return
        self._at(event)
        self._emit(REALM_STREAM, event)

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
        self.stopped = f"At event {self.position} another enforcement was chosen. Ask again from there."

    # What the outside did

    def _look_for(self, task: Task) -> None:
        """Give an effect its recorded result, now or where the record has it; or say that it would have to be made."""
        name, asked = task.proposal_id, task.requirement
        used = self._used.setdefault(name, set())
        recorded = [] if name in self.inserted else recorded_effects(self.source, name)
        found = result_for(recorded, asked, used)
        if is_giving_back(asked) and (found is None or found.result is None):
            found = Recorded(asked.id, "", 0, given_back())
        if found is None:
            self._needs(name, asked)
            return
        used.add(found.name)
        if found.position is None or found.result is None:
            return  # it was under way when the record ended, and so it is here
        if found.position <= self.position:
            self._fulfil(task, found.result)
        else:
            self._waiting.setdefault(name, {})[found.name] = task

    def _needs(self, name: str, asked: Requirement) -> None:
        """Call an execution off that would have to touch the outside; its workspace was never touched."""
        self.needed.append(Needed(name, asked.type, asked.params, asked.node_path))

        def command(work: Work) -> None:
            cancel(work, name, by=WHATIF, reason=f"{EFFECT_NEEDED}: {asked.type}")
            while (proposal := work.realm.proposals.get(name)) is not None and proposal.requested:
                effect = next(iter(proposal.requested.values()))
                under_way = Requirement.from_wire(effect.requirement)
                error = ErrorValue("CANCELLED", EFFECT_NEEDED, under_way.action_id, under_way.node_path, work.at)
                fulfil_with(work, proposal, under_way.id, EffectResult(error=error), effect.attempt)

        self._run(command)

    def _fulfilled(self, event: EffectFulfilled) -> None:
        name = event.proposal_id
        task = self._waiting.get(name, {}).pop(event.requirement_id, None)
        if task is not None:
            self._at(event)
            self._fulfil(task, event.result)

    def _fulfil(self, task: Task, result: Mapping[str, Any]) -> None:
        """Bring a result in as whoever made the effect would."""
        name, asked = task.proposal_id, task.requirement.id
        given = EffectResult.from_wire(result)
        proposal = self.protocol.archive.peek(lambda realm: realm.proposals.get(name))
        if proposal is not None and asked in proposal.in_doubt:
            self._run(lambda work: _happened(work, name, asked, given))
            return
        for following in self.protocol.record(Recording(task, Performed(given))):
            self.protocol.perform(following)
        self._look_for_all()

    def _ended(self, event: ProposalCompleted | ProposalFailed) -> None:
        """Remember which world of the branch stands for one of the record."""
        self.worlds[event.world_id] = self.worlds.get(event.parent, event.parent)
        if event.proposal_id not in self.dropped and event.proposal_id not in self.refused:
            here = self.protocol.archive.proposal(event.proposal_id)
            if here.world_id is not None and (here.status == "completed" or isinstance(event, ProposalFailed)):
                self.worlds[event.world_id] = here.world_id

    # Leases that agents ask for themselves

    def _verdict(self, event: VerdictGiven) -> None:
        if (event.channel or {}).get("kind") == "engine" or event.manifest is None:
            self._leased.note(event)
            if event.at > self.clock.now:
                self._at(event)
                self._run(lambda work: None)
            return
        self._at(event)
        self._leased.note(event)
        self._leased_again("lease request", lambda: self._leased.request(self.protocol, event))

    def _renewed(self, event: LeaseRenewed) -> None:
        self._at(event)
        self._leased_again("heartbeat", lambda: self._leased.heartbeat(self.protocol, event))

    def _released(self, event: LeasesReleased) -> None:
        if self._leased.is_agents(event.session_id):
            self._at(event)
            self._leased_again("release", lambda: self._leased.release(self.protocol, event))

    def _revoked(self, event: LeasesRevoked) -> None:
        self._at(event)
        self._leased_again("revoke", lambda: self._leased.revoke(self.protocol, event))

    def _withdrawn(self, event: RequestWithdrawn) -> None:
        self._at(event)
        if event.reason == "cancelled" and event.request_id in self._leased.requests:
            self._leased_again("withdraw", lambda: self.protocol.leasing.withdraw(event.request_id))
        else:
            self._run(lambda work: None)

    def _leased_again(self, what: str, command: Callable[[], Any]) -> None:
        try:
            command()
        except Refused as refused:
            self.notes[f"{what}: {refused.code}"] += 1
        self._run(lambda work: None)

    def _agent(self, event: AgentRegistered) -> None:
        if not self.protocol.archive.peek(lambda realm: event.agent_id in realm.klis.agents):
            self._at(event)
            self._emit(KLIS_STREAM, event)


def backups_taken(source: EventLog, after: int) -> dict[str, int]:
    """Return when the backups of later leases were done, ms since 1970, by the session that they were made for."""
    taken = {}
    for logged in source.read(after, topics=[VerdictGiven.TOPIC]):
        event = decoded(logged)
        if isinstance(event, VerdictGiven) and event.backup:
            taken[event.session_id] = event.at
    return taken


def _happened(work: Work, name: str, asked: str, given: EffectResult) -> None:
    """Say of an effect in doubt what came of it."""
    told = {"choice": "happened", "by": WHATIF, "reason": "as recorded"}
    work.emit(name, EffectResolved(at=work.at, proposal_id=name, requirement_id=asked, **told))
    proposal = work.realm.proposals[name]
    fulfil_with(work, proposal, asked, given, proposal.requested[asked].attempt)


def _task(work: Work, proposal: Proposal, asked: Requirement, attempt: int) -> Task:
    """Return what whoever began an effect has to do."""
    assert proposal.started is not None
    order = order_of(proposal, work.snapshot(proposal.started.on_world))
    return Task(proposal.proposal_id, asked, attempt, order)


def _asked(proposal: Proposal | None) -> Ruling | None:
    return None if proposal is None else proposal.asked


_STEPS: Final[Mapping[type[Event], Callable[[Replaying, Any], None]]] = {
    ProjectionRecorded: Replaying._projected,
    ProposalSubmitted: Replaying._submitted,
    ProposalJudged: Replaying._judged,
    HumanAnswered: Replaying._answered,
    ExecutionCancelled: Replaying._cancelled,
    BranchCreated: Replaying._branch,
    BranchSwitched: Replaying._switched,
    DomainAdopted: Replaying._domain,
    PolicyAdopted: Replaying._adopted,
    PolicyRetired: Replaying._retired,
    ActorBound: Replaying._bound,
    EnforcementChosen: Replaying._enforcement,
    EffectFulfilled: Replaying._fulfilled,
    ProposalCompleted: Replaying._ended,
    ProposalFailed: Replaying._ended,
    VerdictGiven: Replaying._verdict,
    LeaseRenewed: Replaying._renewed,
    LeasesReleased: Replaying._released,
    LeasesRevoked: Replaying._revoked,
    RequestWithdrawn: Replaying._withdrawn,
    AgentRegistered: Replaying._agent,
}
"""What is done again for an event of the record."""

_AS_THEY_ARE: Final = frozenset({ActorRegistered, KlisConfigured, KeyRegistered, KeyRevoked, RunOpened, RunClosed})
"""Events that are taken over: they follow from nothing that the branch changes."""

_BY_THE_TIME: Final = frozenset({HumanTimedOut, LeasesExpired, ExecutionStarted})
"""Events that show at what times somebody looked at what was due."""
