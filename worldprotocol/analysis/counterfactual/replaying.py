"""Replay of the later part of a log in a counterfactual.

Recorded inputs are repeated in order. The clock shows the recorded times, so due work is done at those times. Rulings,
verdicts and computations are computed again and not taken from the record.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from world.errors import RefusedError
from world.events.base import REALM_STREAM, Event
from world.events.execution_events import EffectFulfilled, ExecutionCancelled, ExecutionStarted
from world.events.lease_events import AgentRegistered, KeyRegistered, KeyRevoked, KlisConfigured
from world.events.policy_events import PolicyAdopted, PolicyRetired
from world.events.proposal_events import (
    HumanAnswered,
    HumanTimedOut,
    ProjectionRecorded,
    ProposalCompleted,
    ProposalFailed,
    ProposalJudged,
    ProposalSubmitted,
    ProposalSuperseded,
)
from world.events.realm_events import (
    ActorBound,
    ActorRegistered,
    BranchCreated,
    BranchSwitched,
    DomainAdopted,
    EnforcementChosen,
    WorkspaceRegistered,
)
from world.events.run_events import RunClosed, RunOpened
from world.model.decision import HumanAnswer, Ruling
from world.model.intent import IntentInstance
from world.pipeline.branches import check_base, create_branch, switch_branch
from world.pipeline.driver import advance, submit
from world.pipeline.judge import answer
from world.pipeline.recover import cancel
from world.pipeline.steps import Approved
from world.pipeline.submit import Submission
from world.pipeline.unit_of_work import UnitOfWork
from world.state.realm_view import RealmView
from worldprotocol.analysis.counterfactual.asked import Insertion
from worldprotocol.analysis.counterfactual.caller_steps import CALLER_STEPS
from worldprotocol.analysis.counterfactual.lease_steps import LEASE_STEPS, no_command, register_agent
from worldprotocol.analysis.counterfactual.leases import Leased
from worldprotocol.analysis.counterfactual.outcomes import Outcomes
from worldprotocol.analysis.counterfactual.outside import EffectReplayer
from worldprotocol.analysis.counterfactual.stand_ins import InForce, Putting, RecordedClock
from worldprotocol.analysis.counterfactual.world_mapping import Elsewhere, WorldMapping, branches_of, made_with
from worldprotocol.analysis.rejudging import question_of

if TYPE_CHECKING:
    from worldprotocol.analysis.counterfactual.staging import Stage

__all__ = ["Replaying"]


@dataclass(slots=True)
class Replaying:
    """Repeats the later inputs of a log in a scratch log.

    Args:
        protocol: writer of the scratch log.
        clock: clock of the scratch log.
        authority: authority of the scratch realm.
        outside: effect runner with recorded results.
        outcomes: outcomes of proposals in both logs.
        dropped: ids of proposals that are not submitted.
        stage: the scratch realm.
        insertions: additional intents, earliest first.
        refused: by id, errors of recorded proposals that could not be submitted.
        questions: proposals with questions that are not in the record, and their reasons.
        unasked: proposals with recorded answers to questions that are not asked.
        not_adopted: by position, errors of recorded domains that are not adopted.
        elsewhere: branches that begin at other worlds than recorded.
        notes: number of other inputs that could not be repeated, by kind.
        stopped: reason for stopping before the end of the record, if any.
    """

    protocol: Putting
    clock: RecordedClock
    authority: InForce
    outside: EffectReplayer
    outcomes: Outcomes
    dropped: frozenset[str]
    stage: Stage
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
    leases: Leased = field(default_factory=Leased)

    def begin(self) -> None:
        """Continue open proposals, and submit insertions at the start."""
        for proposal in self.protocol.realm().proposals.values():
            self.leases.proposals.add(proposal.proposal_id)
            if proposal.asked is not None:
                self._asked_then[proposal.proposal_id] = proposal.asked
            self.outside.take_over(proposal)
        self._worlds.begin(self.protocol.realm())
        self._insert_until(None)

    def take(self, position: int, event: Event, stream: str, coming: Sequence[Event]) -> None:
        """Repeat the input of a recorded event.

        Args:
            position: position of the event.
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
            register_agent(self, event, coming)
        elif type(event) in _AS_THEY_ARE:
            self.advance_to(event)
            if type(event) is WorkspaceRegistered:
                self.stage.register(event)
            self.emit(stream, event)
        elif type(event) in _BY_THE_TIME and event.at > self.clock.now:
            self.advance_to(event)
            self.run(no_command)
        self.outcomes.recorded(event, position)
        self._worlds.recorded(event)

    def end(self) -> None:
        """Submit insertions after the end of the record."""
        self._insert_until(1 << 60)

    # Commands

    def advance_to(self, event: Event) -> None:
        """Set the clock to the time of an event, and do due work."""
        self._until(event.at)

    def _until(self, at: int) -> None:
        """Set the clock, ms since 1970, and do due work."""
        self.clock.now = at
        due = self.protocol.ask(RealmView.next_due)
        if due is not None and due <= at:
            self.run(no_command)

    def run(self, command: Callable[[UnitOfWork], Any]) -> Any:
        """Run a command, and apply recorded results of requested effects."""
        try:
            return self.protocol.run(command)
        finally:
            self.outside.look_for_all()

    def attempt(self, what: str, command: Callable[[UnitOfWork], Any]) -> bool:
        """Run a command; count a refusal and return False."""
        try:
            self.run(command)
        except RefusedError as refused:
            self.notes[f"{what}: {refused.code}"] += 1
            return False
        return True

    def emit(self, stream: str, event: Event) -> None:
        """Append a recorded event."""
        self.attempt(event.TOPIC, lambda work: work.emit(stream, event))

    def _insert_until(self, at: int | None) -> None:
        while self.insertions and (self.insertions[0].at is None or (at is not None and self.insertions[0].at < at)):
            given = self.insertions.popleft()
            if given.at is not None:
                self._until(given.at)
            self.outside.inserted.append(self.stage.insert(given))
            self.outside.look_for_all()

    def _knows(self, proposal_id: str) -> bool:
        """Return whether a recorded proposal was submitted again."""
        return proposal_id not in self.dropped and proposal_id not in self.refused

    # Inputs of actors

    def _projected(self, event: ProjectionRecorded) -> None:
        here = replace(event, world_id=self._worlds.head_for(event.world_id, self.protocol.ask(branches_of)))
        if event.proposal_id is not None:
            self._record = here
            return
        self.advance_to(event)
        self.emit(f"projection:{event.projection_id}", here)

    def _submitted(self, event: ProposalSubmitted) -> None:
        record, self._record = self._record, None
        fork, self._fork = self._fork, None
        name = event.proposal_id
        self.leases.proposals.add(name)
        if name in self.dropped or event.migration is not None:
            return  # the adoption of the domain migrates the branches
        self.advance_to(event)
        actor = event.actor.actor_id
        self.authority.require(self.protocol.ask(lambda realm: realm.bindings.get(actor, {})))
        asked = Submission(
            IntentInstance.read(event.intent),
            branch=event.branch if fork is None else None,
            base_world=None if fork is None else self._base(fork),
            fork_name=None if fork is None else fork.branch,
            trace=event.trace,
            execution_key=event.execution_key,
            allow_failed_base=True,  # it is recorded, so it was allowed
            record=None if record is None or record.proposal_id != name else record,
            attended=event.attended,
        )
        try:
            self.run(lambda work: submit(work, asked, name, scope_rules=event.scope_rules or 1))
        except RefusedError as refused:
            self.refused[name] = refused
        else:
            if fork is not None:
                self._begins(fork, asked.base_world or "")

    def _judged(self, event: ProposalJudged) -> None:
        """Record a question of the record."""
        name = event.proposal_id
        if event.ruling.verdict == "wait":
            self._asked_then[name] = event.ruling
        else:
            self._asked_then.pop(name, None)
        asked = self._asks(name)
        if asked is not None:
            self._is_same_question(name, asked)

    def _asks(self, name: str) -> Ruling | None:
        """Return the open question of a proposal."""

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
        self.advance_to(event)
        asked = self._asks(name)
        if asked is None or not self._is_same_question(name, asked):
            if self._knows(name):
                self.unasked.append(name)
            self.run(no_command)
            return
        given = HumanAnswer.read(event.answer)
        self.attempt("answer", lambda work: advance(work, answer(work, name, given)))

    def _superseded(self, event: ProposalSuperseded) -> None:
        if event.by is not None:  # other proposals are superseded by a switch or an adoption, which is replayed
            self._cancel(event, event.by, event.reason or "")

    def _cancelled(self, event: ExecutionCancelled) -> None:
        self._cancel(event, event.by, event.reason)

    def _cancel(self, event: ExecutionCancelled | ProposalSuperseded, by: str, reason: str) -> None:
        self.advance_to(event)
        name = event.proposal_id
        if self._knows(name):
            self.attempt("cancel", lambda work: advance(work, cancel(work, name, by=by, reason=reason)))
        else:
            self.run(no_command)

    def _branch(self, event: BranchCreated, coming: Sequence[Event]) -> None:
        if made_with(event, coming):
            self._fork = event
            return
        self.advance_to(event)
        world = self._base(event)

        def command(work: UnitOfWork) -> None:
            check_base(work, world, allow_failed=True)
            create_branch(work, event.branch, world, by=event.by)

        if self.attempt("branch", command):
            self._begins(event, world)

    def _base(self, event: BranchCreated) -> str:
        return self._worlds.base_for(event.world_id, self.protocol.ask(branches_of))

    def _begins(self, event: BranchCreated, here: str) -> None:
        """Report a branch with another base than the corresponding world."""
        if here != self._worlds.own(event.world_id):
            self.elsewhere.append(Elsewhere(event.branch, event.world_id, here))

    def _switched(self, event: BranchSwitched) -> None:
        self.advance_to(event)
        self.attempt("switch", lambda work: advance(work, switch_branch(work, event.branch, by=event.by)))

    def _domain(self, event: DomainAdopted) -> None:
        self.advance_to(event)
        if event.schema_hash == self.protocol.domain.schema.hash:
            self.emit(REALM_STREAM, event)  # only its code changed
            return
        try:
            if not self.stage.adopt(event):
                self.stopped = (
                    f"At event {self.outside.position} the schema {event.schema_hash[:12]} was adopted, and its Python "
                    "functions are not loaded; later events were not replayed. Name that domain, too."
                )
        except RefusedError as refused:
            self.not_adopted[self.outside.position] = refused
        self.outside.look_for_all()

    def _adopted(self, event: PolicyAdopted) -> None:
        if self.authority.stand_in(event.name) is not None:
            return
        self.authority.adopt(event.name, event.policy_hash, event.policy)
        self.advance_to(event)
        self.emit(REALM_STREAM, event)

    def _retired(self, event: PolicyRetired) -> None:
        if self.authority.stand_in(event.name) is None:
            self.advance_to(event)
            self.emit(REALM_STREAM, event)

    def _bound(self, event: ActorBound) -> None:
        self.advance_to(event)
        self.emit(REALM_STREAM, replace(event, binding=dict(self.authority.bound(event.binding))))

    def _enforcement(self, event: EnforcementChosen) -> None:
        self.advance_to(event)
        self.stage.enforce(event.enforcement)
        self.emit(REALM_STREAM, event)

    # Executions and effects

    def _started(self, event: ExecutionStarted) -> None:
        """Start an execution that was approved before the start; later ones start by themselves."""
        name = event.proposal_id

        def waits(realm: Any) -> str | None:
            proposal = realm.proposals.get(name)
            is_left = proposal is not None and proposal.status == "approved"
            return proposal.submitted.execution_key if is_left else None

        key = self.protocol.ask(waits)
        if key is not None or event.at > self.clock.now:
            self.advance_to(event)
            self.run(no_command if key is None else partial(advance, steps=(Approved(key),)))

    def _fulfilled(self, event: EffectFulfilled) -> None:
        before, self.clock.now = self.clock.now, event.at
        if not self.outside.bring(event):
            self.clock.now = before

    def _ended(self, event: ProposalCompleted | ProposalFailed) -> None:
        """Map a recorded world to the world of the same proposal."""
        name = event.proposal_id
        outcome = self.outcomes.now.get(name)
        is_usable = outcome is not None and (outcome.status == "completed" or type(event) is ProposalFailed)
        own = outcome.world_id if outcome is not None and is_usable else None
        self._worlds.ended(event, own, self.protocol.ask(branches_of))
        if outcome is None or outcome.is_terminal:
            self.outside.forget(name)


_STEPS: Final[Mapping[type[Event], Callable[[Replaying, Any], None]]] = {
    ProjectionRecorded: Replaying._projected,
    ProposalSubmitted: Replaying._submitted,
    ProposalJudged: Replaying._judged,
    HumanAnswered: Replaying._answered,
    ExecutionCancelled: Replaying._cancelled,
    ProposalSuperseded: Replaying._superseded,
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
    **LEASE_STEPS,
    **CALLER_STEPS,
}
"""Steps that repeat recorded events, by type."""

_AS_THEY_ARE: Final = frozenset(
    {ActorRegistered, KlisConfigured, KeyRegistered, KeyRevoked, RunOpened, RunClosed, WorkspaceRegistered}
)
"""Events that are copied: they do not depend on the changes."""

_BY_THE_TIME: Final = frozenset({HumanTimedOut})
"""Events that show the times at which due work was done."""
