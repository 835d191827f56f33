"""Checks of every event against the preceding events: its references and its hashes.

Each check compares one event with the realm before it and reports faults. The fold of the realm checks the state
machines; the checks of this module cover the facts that the fold does not check. Sources: WP-world, WP-hash,
WP-lineage, WP-decision, WP-epoch, INV-I2, INT-13.3, INT-13.5; design section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from world.audit.caller_checks import CallerChecks
from world.audit.change_checks import faults_of_backup, faults_of_hold, faults_of_migration
from world.audit.claim_checks import CLAIM_TOPICS, ClaimEvent, faults_of_claims, faults_of_offer
from world.audit.decision_checks import faults_of_decision, fits_time_limit
from world.audit.registry_checks import RegistryChecks
from world.audit.replay import KnownWorld, Lineages, Step
from world.error_codes import ErrorCode
from world.events.base import Event
from world.events.execution_events import EffectRequested, ExecutionStarted
from world.events.lease_events import ClockConfirmed, ProposalRescheduled, VerdictGiven
from world.events.policy_events import ProposalShadowed
from world.events.proposal_events import (
    DecisionMade,
    HumanAnswered,
    HumanTimedOut,
    ProjectionRecorded,
    ProposalCompleted,
    ProposalFailed,
    ProposalHeld,
    ProposalJudged,
    ProposalSubmitted,
    ProposalSuperseded,
)
from world.events.realm_events import (
    BranchCreated,
    BranchSwitched,
    LogFounded,
    WorldSealed,
)
from world.klis.identity.authentication import channel_fault
from world.klis.identity.intent_signature import signature_fault
from world.model.decision import HUMAN_ANSWER, REMARKS, DecisionRecord, Ruling
from world.model.identity import content_id, requirement_id, world_id
from world.model.patch import allows
from world.model.scope_patterns import compile_scope
from world.model.snapshot import ErrorValue, error_state_hash
from world.pipeline.leasing.clock_confirmation import later_times
from world.pipeline.shadowing import shadowed_by
from world.state.proposal import Proposal
from world.state.realm_state import RealmState


class Checks(RegistryChecks):
    """Checks of all events of one log, in order; the caller folds each event after its check."""

    def __init__(self, realm: RealmState, lineages: Lineages, bad: Callable[[ErrorCode, str], None]) -> None:
        """Check events against a realm.

        Args:
            realm: the state before each event, which the caller folds.
            lineages: the worlds that events may refer to.
            bad: called with a code and a sentence for each fault.
        """
        super().__init__(realm, bad)
        self._lineages = lineages
        self._callers = CallerChecks(realm, bad)
        self._announced: dict[str, ProjectionRecorded] = {}
        self._sealed: WorldSealed | None = None
        self._over: set[str] = set()  # proposals whose time limit has passed; a ruling must follow
        self._confirmed: int | None = None  # time of the last confirmation of the clock
        self._backups: dict[str, VerdictGiven] = {}  # per open proposal with leases: the verdict that granted them
        self.version = 1  # stored version of the current event
        self.world: KnownWorld | None = None
        self.by_topic: Mapping[str, Step] = {
            **self.registry,
            BranchCreated.TOPIC: self._branch,
            ClockConfirmed.TOPIC: self._clock,
            ProposalRescheduled.TOPIC: self._rescheduled,
            BranchSwitched.TOPIC: self._switched,
            WorldSealed.TOPIC: self._world,
            ProjectionRecorded.TOPIC: self._projection,
            ProposalSubmitted.TOPIC: self._submitted,
            ProposalShadowed.TOPIC: self._shadowed,
            ProposalJudged.TOPIC: self._judged,
            ProposalHeld.TOPIC: self._held,
            HumanAnswered.TOPIC: self._answered,
            HumanTimedOut.TOPIC: self._timed_out,
            DecisionMade.TOPIC: self._decided,
            ProposalSuperseded.TOPIC: self._superseded,
            ExecutionStarted.TOPIC: self._started,
            EffectRequested.TOPIC: self._requested,
            **self._callers.by_topic,
            **dict.fromkeys(CLAIM_TOPICS, self._of_claim),
            ProposalCompleted.TOPIC: self._ended,
            ProposalFailed.TOPIC: self._ended,
            VerdictGiven.TOPIC: self._verdict,
        }

    def at_the_beginning(self, event: Event) -> None:
        """Check the first event of a log."""
        if not isinstance(event, LogFounded):
            self._bad(ErrorCode.BAD_REFERENCE, f"a log begins with {LogFounded.TOPIC}, but this event is {event.TOPIC}")

    def at_the_end(self) -> None:
        """Check after the last event that nothing is missing."""
        self._callers.at_the_end()
        for record in self._announced.values():
            self._bad(
                ErrorCode.BAD_REFERENCE, f"projection record {record.record_id} names a proposal that was not submitted"
            )
        for proposal_id in sorted(self._over):
            self._bad(ErrorCode.BAD_EVENT, f"no ruling follows the end of the time limit of proposal {proposal_id}")

    # Lineage

    def _branch(self, event: BranchCreated, _: int) -> None:
        self._lineages.begin_branch(event.world_id)

    def _switched(self, event: BranchSwitched, _: int) -> None:
        if event.branch not in self._realm.branches:
            self._bad(ErrorCode.BAD_REFERENCE, f"the branch {event.branch!r} does not exist")

    def _world(self, event: WorldSealed, position: int) -> None:
        if self._sealed is not None:
            self._bad(
                ErrorCode.BAD_REFERENCE, f"the execution that sealed world {self._sealed.world_id} did not end after it"
            )
        self._sealed = event if event.created_by is not None else None
        self.world = self._lineages.seal(event, position)
        self._world_references(event, self.world)
        expected = error_state_hash(self.world.data, event.error)
        if expected != event.snapshot_hash:
            self._bad(
                ErrorCode.WRONG_HASH, f"the snapshotHash of the restored state is {expected}, not {event.snapshot_hash}"
            )
        if content_id(event.schema_hash, event.snapshot_hash) != event.content_id:
            self._bad(ErrorCode.WRONG_HASH, f"the contentId {event.content_id} is not that of the content")
        if world_id(event.schema_hash, event.snapshot_hash, event.parent) != event.world_id:
            self._bad(ErrorCode.WRONG_HASH, f"the worldId {event.world_id} is not that of its content and parent")

    def _world_references(self, event: WorldSealed, world: KnownWorld) -> None:
        realm = self._realm
        if event.schema_hash != realm.schema_hash:
            self._bad(ErrorCode.BAD_REFERENCE, f"the schema {event.schema_hash} is not the one in force")
        if event.outcome != ("completed" if event.error is None else "failed"):
            self._bad(ErrorCode.BAD_EVENT, f"the outcome {event.outcome!r} contradicts the error")
        if event.height != world.height:
            self._bad(ErrorCode.BAD_EVENT, f"its height is {world.height}, not {event.height}")
        if event.error is not None and event.patches:
            self._bad(ErrorCode.BAD_EVENT, "a failed execution must not have patches")
        if event.parent is None:
            if realm.branches or event.created_by is not None:
                self._bad(ErrorCode.BAD_REFERENCE, "only genesis has no parent and no creator")
            return
        maker = realm.proposals.get(event.created_by or "")
        if maker is None or maker.status != "executing":
            self._bad(ErrorCode.BAD_REFERENCE, f"createdBy {event.created_by} is not an executing proposal")
            return
        branch = realm.branches.get(event.branch)
        if branch is None or maker.branch != event.branch:
            self._bad(ErrorCode.BAD_REFERENCE, f"the branch {event.branch!r} is not that of its proposal")
        elif event.parent != branch.head:
            self._bad(ErrorCode.BAD_REFERENCE, f"its parent {event.parent} is not the head of {event.branch!r}")
        self._within_scope(event, maker)

    # Proposals

    def _projection(self, event: ProjectionRecorded, _: int) -> None:
        if event.proposal_id is not None:
            self._announced[event.proposal_id] = event
        if event.world_id not in {branch.head for branch in self._realm.branches.values()}:
            self._bad(ErrorCode.BAD_REFERENCE, f"world {event.world_id} is not the head of any branch")
        if event.actor.actor_id not in self._realm.actors:
            self._bad(ErrorCode.BAD_REFERENCE, f"the actor {event.actor.actor_id!r} is not registered")

    def _submitted(self, event: ProposalSubmitted, _: int) -> None:
        realm, intent = self._realm, event.intent
        actor_id = event.actor.actor_id
        key = intent.body.key(event.schema_hash)
        if key != intent.intent_key:
            self._bad(ErrorCode.WRONG_HASH, f"the intentKey of the intent is {key}, not {intent.intent_key}")
        if event.schema_hash != realm.schema_hash:
            self._bad(ErrorCode.BAD_REFERENCE, f"the schema {event.schema_hash} is not the one in force")
        if realm.actors.get(actor_id) != event.actor or intent.meta.origin.actor.actor_id != actor_id:
            self._bad(ErrorCode.BAD_REFERENCE, f"the actor {actor_id!r} is not the one registered, or not the intent's")
        branch = realm.branches.get(event.branch)
        if branch is None or branch.head != event.base_world:
            self._bad(ErrorCode.BAD_REFERENCE, f"the base {event.base_world} is not the head of {event.branch!r}")
        if event.epoch != realm.epoch:
            self._bad(ErrorCode.BAD_REFERENCE, f"the epoch is {realm.epoch}, not {event.epoch}")
        record = self._announced.pop(event.proposal_id, None)
        if record is not None and (record.intent_id, record.intent_key) != (intent.intent_id, intent.intent_key):
            self._bad(ErrorCode.BAD_REFERENCE, f"projection record {record.record_id} selected another intent")
        fault = signature_fault(realm.klis, "" if realm.founded is None else realm.founded.log_id, event)
        if fault is not None:
            self._bad(ErrorCode.BAD_EVENT, f"the intent {intent.intent_id} is not authenticated: {fault}")

    def _shadowed(self, event: ProposalShadowed, _: int) -> None:
        proposal = self._realm.proposals.get(event.proposal_id)
        if proposal is None:
            return  # the fold reports it
        if event.ruling.policy_hash != event.policy_hash:
            self._bad(ErrorCode.WRONG_HASH, f"the policy's hash is {event.ruling.policy_hash}, not {event.policy_hash}")
        if shadowed_by(self._realm.shadow, proposal.submitted.actor.actor_id) != event.name:
            self._bad(ErrorCode.BAD_REFERENCE, f"the policy {event.name!r} does not shadow the proposals of this actor")

    def _judged(self, event: ProposalJudged, _: int) -> None:
        proposal = self._realm.proposals.get(event.proposal_id)
        if proposal is None:
            return  # the fold reports it
        if event.proposal_id in self._over:
            self._over.remove(event.proposal_id)
            if not fits_time_limit(proposal.ruling, event.ruling):
                self._bad(ErrorCode.BAD_EVENT, f"the end of its time limit cannot lead to {event.ruling.verdict!r}")
        shadowing = shadowed_by(self._realm.shadow, proposal.submitted.actor.actor_id)
        migration = proposal.submitted.migration
        if migration is None and proposal.status == "submitted" and shadowing is not None and not proposal.is_shadowed:
            self._bad(ErrorCode.BAD_EVENT, f"the ruling of the shadow policy {shadowing!r} on it was not recorded")
        bound = proposal.binding
        if bound is None:
            bound = self._realm.bindings.get(proposal.submitted.actor.actor_id)
        if migration is not None:
            for fault in faults_of_migration(proposal.submitted, event, self._realm.domain):
                self._bad(ErrorCode.BAD_EVENT, fault)
        elif bound != event.binding:
            self._bad(ErrorCode.BAD_REFERENCE, "the binding is not that of the actor")
        policy = self._realm.policies.get(event.binding.get("policy", ""))
        ruling_hash = event.ruling.policy_hash
        is_first = proposal.binding is None and event.ruling.verdict != "reject"
        if ruling_hash is not None and is_first and (policy is None or policy.policy_hash != ruling_hash):
            self._bad(ErrorCode.BAD_REFERENCE, f"the policy {ruling_hash} is not the adopted one")
        self._check_step(proposal, event)
        self._check_votes(proposal, event.ruling)

    def _held(self, event: ProposalHeld, _: int) -> None:
        for fault in faults_of_hold(event, self._realm):
            self._bad(ErrorCode.BAD_REFERENCE, fault)

    def _clock(self, event: ClockConfirmed, _: int) -> None:
        self._confirmed = event.at

    def _rescheduled(self, event: ProposalRescheduled, _: int) -> None:
        proposal = self._realm.proposals.get(event.proposal_id)
        if proposal is None:
            return  # the fold reports it
        if event.at != self._confirmed:
            self._bad(ErrorCode.BAD_EVENT, "no confirmation of the clock was of that time")
        elif (event.deadline, event.effects) != later_times(proposal, event.at):
            self._bad(ErrorCode.BAD_EVENT, "the new deadlines do not follow from the old ones")

    def _check_step(self, proposal: Proposal, event: ProposalJudged) -> None:
        """Check that a ruling does not go back in the binding's chain, and that its deadline is derived from it."""
        ruling = event.ruling
        step, last = ruling.step, 0 if proposal.ruling is None else proposal.ruling.step
        if not last <= step <= len(event.binding.get("then", ())):
            self._bad(ErrorCode.BAD_EVENT, f"step {step} cannot follow step {last}")
        if ruling.verdict != "wait":
            wanted = None
        elif proposal.binding is not None and step == last:
            wanted = proposal.deadline
        else:
            wait = ruling.timeout_ms
            wanted = None if wait is None else event.at + wait
        if event.deadline != wanted:
            self._bad(ErrorCode.BAD_EVENT, f"the deadline {event.deadline} is not that of the ruling")

    def _check_votes(self, proposal: Proposal, ruling: Ruling | DecisionRecord) -> None:
        """Check that each quorum can be reached, and that the trace has exactly the recorded answers, in order.

        Args:
            proposal: the proposal, with the recorded answers.
            ruling: a ruling or a decision.
        """
        for one in ruling.trace:
            if one.quorum is not None and (one.quorum.threshold or 1) > len(one.to):
                self._bad(ErrorCode.BAD_EVENT, f"{len(one.to)} members cannot vote by the rule {one.quorum.to_wire()}")
        traced = [(one.source, one.answer) for one in ruling.trace if one.rule == HUMAN_ANSWER]
        answers = [
            (f"{one.by.kind}:{one.by.actor_id}", one.choice) for one in proposal.answers if one.choice not in REMARKS
        ]
        if traced and traced != answers:
            self._bad(ErrorCode.BAD_EVENT, "the answers in the trace are not the recorded ones")

    def _answered(self, event: HumanAnswered, _: int) -> None:
        by, to = event.answer.by.actor_id, event.answer.to
        for actor_id in (by, to):
            if actor_id is not None and actor_id not in self._realm.actors:
                self._bad(ErrorCode.BAD_REFERENCE, f"the actor {actor_id!r} of the answer is not registered")
        proposal = self._realm.proposals.get(event.proposal_id)
        if proposal is None:
            return  # the fold reports it
        if (by == proposal.submitted.actor.actor_id) != (event.answer.choice == "reply"):
            self._bad(ErrorCode.BAD_EVENT, f"{by!r} answered an own proposal, or replied in place of the proposer")
        if event.proposal_id in self._over or (proposal.deadline is not None and event.at > proposal.deadline):
            self._bad(ErrorCode.BAD_EVENT, f"{by!r} answered after the time limit")

    def _timed_out(self, event: HumanTimedOut, _: int) -> None:
        proposal = self._realm.proposals.get(event.proposal_id)
        if proposal is None:
            return  # the fold reports it
        if event.deadline != proposal.deadline or event.at <= event.deadline or event.proposal_id in self._over:
            self._bad(
                ErrorCode.BAD_EVENT,
                f"the time limit had not passed: the deadline is {proposal.deadline}, the event is at {event.at}",
            )
        self._over.add(event.proposal_id)

    def _decided(self, event: DecisionMade, _: int) -> None:
        proposal, record = self._realm.proposals.get(event.proposal_id), event.decision
        if proposal is None:
            return  # the fold reports it
        self._callers.continues(event.proposal_id)
        if record.proposal_id != event.proposal_id:
            self._bad(ErrorCode.BAD_REFERENCE, f"the decision is about proposal {record.proposal_id}")
        if event.proposal_id in self._over:
            self._bad(ErrorCode.BAD_EVENT, "no ruling follows the end of its time limit")
        if record.decided_at != event.at:
            self._bad(ErrorCode.BAD_EVENT, f"the event is at {event.at}, but decidedAt is {record.decided_at}")
        self._check_leases(proposal, event)
        self._check_votes(proposal, record)
        lacks = self._lacks_leases(proposal, event)
        for fault in faults_of_decision(proposal.ruling, record, lacks_leases=lacks, version=self.version):
            self._bad(ErrorCode.BAD_EVENT, fault)

    def _lacks_leases(self, proposal: Proposal, event: DecisionMade) -> bool:
        arbitrated = self._realm.klis.settings is not None
        return arbitrated and proposal.wants_leases and event.decision.decision == "rejected"

    def _check_leases(self, proposal: Proposal, event: DecisionMade) -> None:
        """Compare the verdict that a decision names with the one that granted the proposal's leases."""
        held = self._realm.klis.leases_of(proposal.submitted.actor.actor_id, event.proposal_id)
        named = event.verdict_id
        if [lease for lease in held if lease.verdict_id != named] or (named is not None and not held):
            self._bad(
                ErrorCode.BAD_REFERENCE,
                f"the decision names verdict {event.verdict_id}, which did not grant its leases",
            )
        verdict = self._backups.pop(event.proposal_id, None)
        backup, workspace = (None, None) if verdict is None else (verdict.backup, verdict.workspace)
        if event.backup not in (None, backup) or event.workspace != workspace:
            self._bad(ErrorCode.BAD_REFERENCE, "backup or workspace differs from that of the verdict")

    def _verdict(self, event: VerdictGiven, _: int) -> None:
        realm = self._realm
        fault = channel_fault(realm.klis, event, runs=realm.runs, proposals=realm.proposals.keys())
        if fault is not None:
            self._bad(ErrorCode.BAD_EVENT, f"the manifest of verdict {event.verdict_id} is not authenticated: {fault}")
        for sentence in faults_of_backup(event, realm):
            self._bad(ErrorCode.BAD_REFERENCE, sentence)
        self.note_backup(event)

    def note_backup(self, event: VerdictGiven) -> None:
        """Note the verdict that granted the leases of an open proposal."""
        if event.status == "Granted" and event.request_id in self._realm.proposals:
            self._backups[event.request_id] = event

    def _superseded(self, event: ProposalSuperseded, _: int) -> None:
        self._backups.pop(event.proposal_id, None)
        self._callers.superseded(event)
        if event.epoch != self._realm.epoch:
            self._bad(ErrorCode.BAD_REFERENCE, f"the epoch is {self._realm.epoch}, not {event.epoch}")
        if event.by is not None and (not event.reason or event.successor is not None):
            self._bad(ErrorCode.BAD_EVENT, "a withdrawal has a reason and no successor")

    def _started(self, event: ExecutionStarted, _: int) -> None:
        proposal = self._realm.proposals.get(event.proposal_id)
        if proposal is None:
            return  # the fold reports it
        if event.seed != proposal.submitted.intent.intent_id:
            self._bad(ErrorCode.BAD_REFERENCE, "the seed is not the intentId")
        if event.attempt != (1 if proposal.started is None else proposal.started.attempt + 1):
            self._bad(ErrorCode.BAD_EVENT, f"attempt {event.attempt} does not follow the previous one")
        if event.enforcement not in self._modes:
            self._bad(ErrorCode.BAD_REFERENCE, f"the enforcement {event.enforcement!r} was never chosen")
        branch = self._realm.branches.get(proposal.branch)
        if proposal.started is None and (branch is None or event.on_world != branch.head):
            self._bad(ErrorCode.BAD_REFERENCE, f"world {event.on_world} is not the head of {proposal.branch!r}")

    def _requested(self, event: EffectRequested, _: int) -> None:
        proposal, asked = self._realm.proposals.get(event.proposal_id), event.requirement
        if proposal is None:
            return  # the fold reports it
        schema, name = proposal.submitted.schema_hash, proposal.submitted.intent.intent_id
        expected = requirement_id(schema, name, asked.action_id, asked.node_path, asked.type, asked.params)
        if expected != asked.id:
            self._bad(ErrorCode.WRONG_HASH, f"the requirement's id is {expected}, not {asked.id}")
        for fault in faults_of_offer(event, proposal):
            self._bad(ErrorCode.BAD_CLAIM, fault)

    def _of_claim(self, event: ClaimEvent, position: int) -> None:
        proposal = self._realm.proposals.get(event.proposal_id)
        if proposal is None:
            return  # the fold reports it
        self._callers.continues(event.proposal_id)
        for fault in faults_of_claims(event, proposal, self._realm, position):
            self._bad(ErrorCode.BAD_CLAIM, fault)

    def _ended(self, event: ProposalCompleted | ProposalFailed, _: int) -> None:
        proposal = self._realm.proposals.get(event.proposal_id)
        if proposal is None:
            return  # the fold reports it
        world = self._lineages.get(event.world_id)
        outcome = "failed" if isinstance(event, ProposalFailed) else "completed"
        if world.parent != event.parent or world.outcome != outcome:
            self._bad(
                ErrorCode.BAD_REFERENCE,
                f"world {event.world_id} is not a {outcome} world with the parent {event.parent}",
            )
        if event.branch != proposal.branch:
            self._bad(ErrorCode.BAD_REFERENCE, f"the branch {event.branch!r} is not that of the proposal")
        sealed, self._sealed = self._sealed, None
        if sealed is not None and (sealed.created_by, sealed.world_id) != (event.proposal_id, event.world_id):
            self._bad(
                ErrorCode.BAD_REFERENCE,
                f"the world sealed before it is {sealed.world_id} of proposal {sealed.created_by}",
            )
        if isinstance(event, ProposalFailed):
            self._check_error(event, world, None if sealed is None else sealed.error)
        else:
            branch = self._realm.branches.get(event.branch)
            if branch is not None:
                self._lineages.move_head(branch.head, event.world_id)

    def _check_error(self, event: ProposalFailed, world: KnownWorld, error: ErrorValue | None) -> None:
        """Compare an error with that of its world; where the world existed already, with its hash."""
        if error is not None:
            is_same = error == event.error
        else:
            snapshot_hash = error_state_hash(world.data, event.error)
            is_same = world_id(self._realm.schema_hash, snapshot_hash, event.parent) == event.world_id
        if not is_same:
            self._bad(ErrorCode.BAD_EVENT, f"the error is not that of world {event.world_id}")

    def _within_scope(self, event: WorldSealed, maker: Proposal) -> None:
        """Check the patches of an enforced execution against the approved scope (INT-13.5)."""
        if not event.patches or maker.started is None or maker.started.enforcement != "enforcing":
            return
        scope = maker.approved_scope
        if scope is None or scope.allowed_paths is None:
            return
        trie = compile_scope(scope.allowed_paths, maker.scope_rules)
        for patch in event.patches:
            if not allows(trie, patch):
                self._bad(ErrorCode.BAD_EVENT, f"the patch of {patch.path!r} is outside the approved scope")
