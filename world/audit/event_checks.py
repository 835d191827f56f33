"""What every event must be true to, given the events before it: its stream, the things it names, and its hashes.

Each check looks at one event and at the realm as it was before it, and tells what is wrong. The realm's own fold
checks the state machines; here stands what the fold takes on trust. Sources: WP-world, WP-hash, WP-lineage,
WP-decision, WP-epoch, INV-I2, INT-13.3, INT-13.5; design section 3.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from world.audit.decision_checks import faults_of_decision, fits_time_limit
from world.audit.replay import KnownWorld, Lineages, Step
from world.errors import RefusedError
from world.events.base import Event
from world.events.clock_events import ClockConfirmed, ProposalRescheduled
from world.events.codec import TOPICS
from world.events.execution_events import EffectRequested, ExecutionStarted
from world.events.lease_events import KeyRegistered, VerdictGiven
from world.events.policy_events import PolicyAdopted, PolicyRetired, ProposalShadowed, ShadowConfigured
from world.events.proposal_events import (
    DecisionMade,
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
    BranchCreated,
    BranchSwitched,
    DomainAdopted,
    EnforcementChosen,
    LogFounded,
    WorldSealed,
)
from world.klis.authentication import channel_fault
from world.klis.ledger import KLIS_EVENTS
from world.model.canonical_json import canonical_bytes, read_json
from world.model.decision import HUMAN_ANSWER, REMARKS, VOTE_RULES, voters
from world.model.identity import (
    content_id,
    intent_key,
    policy_hash,
    requirement_id,
    schema_hash,
    state_hash,
    world_id,
)
from world.model.patch import Patch, allows
from world.model.scope_patterns import compile_scope
from world.pipeline.clock_confirmation import later_times
from world.pipeline.shadowing import shadowed_by
from world.pipeline.unit_of_work import KLIS_STREAM, LINEAGE_STREAM, REALM_STREAM
from world.state.proposal import PROPOSAL_EVENTS, Proposal
from world.state.realm_state import RealmState

_KEY_BYTES: Final = 32
"""Length of an Ed25519 public key."""

_MODES: Final = frozenset({"enforcing", "trusting"})
_LINEAGE: Final = frozenset({WorldSealed.TOPIC, BranchCreated.TOPIC, BranchSwitched.TOPIC})
_SORTED: Final = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER
_STREAMS: Final[Mapping[str, str]] = {
    topic: LINEAGE_STREAM if topic in _LINEAGE else KLIS_STREAM if kind in KLIS_EVENTS else REALM_STREAM
    for topic, kind in TOPICS.items()
    if kind not in PROPOSAL_EVENTS and kind is not ProjectionRecorded and not topic.startswith("run.")
}


def is_canonical(state: bytes, *, has_fraction: bool = True) -> bool:
    """Tell whether a stored state is the canonical text of the value it reads as.

    Plain ASCII text without fractions is canonical exactly when orjson, which sorts ASCII keys alike and refuses
    integers beyond 2^53, gives it back; everything else is read strictly and written by RFC 8785.

    Args:
        state: the stored bytes.
        has_fraction: False where the reader of the event saw no number with a fraction or an exponent.
    """
    try:
        if not has_fraction and state.isascii() and orjson.dumps(orjson.loads(state), option=_SORTED) == state:
            return True
    except (orjson.JSONDecodeError, TypeError, RecursionError):
        pass  # read strictly below
    try:
        return canonical_bytes(read_json(state)) == state
    except RefusedError:
        return False


def stream_of(event: Event) -> str:
    """Return the id of the stream an event belongs to."""
    fixed = _STREAMS.get(event.TOPIC)
    if fixed is not None:
        return fixed
    if isinstance(event, ProjectionRecorded):
        return f"projection:{event.projection_id}"
    if event.TOPIC.startswith("run."):
        return f"run:{event.run_id}"  # type: ignore[attr-defined]  # all events of runs name theirs
    return str(event.proposal_id)  # type: ignore[attr-defined]  # all that are left are events of proposals


def is_of_proposal(event: Event) -> bool:
    """Tell whether an event belongs to the stream of a proposal."""
    return type(event) in PROPOSAL_EVENTS


class Checks:
    """The checks of all events of one log, in order; every event is folded after it was checked."""

    def __init__(self, realm: RealmState, lineages: Lineages, bad: Callable[[str, str], None]) -> None:
        """Check against a realm that the caller folds; ``bad`` is told a code and a sentence for each fault."""
        self._bad = bad
        self._realm = realm
        self._lineages = lineages
        self._announced: dict[str, ProjectionRecorded] = {}
        self._sealed: WorldSealed | None = None
        self._over: set[str] = set()  # proposals whose time is over, and what that led to must be told next
        self._confirmed: int | None = None  # when the clock was confirmed last
        self._modes: set[str] = set()  # of enforcement; a worker says which is its own before it executes anything
        self._backups: dict[str, bool] = {}  # open proposals that were granted leases, and whether those are backed up
        self.version = 1  # in which the event at hand was stored
        self.world: KnownWorld | None = None
        self.by_topic: Mapping[str, Step] = {
            LogFounded.TOPIC: self._founded,
            EnforcementChosen.TOPIC: self._enforcement,
            DomainAdopted.TOPIC: self._domain,
            ActorBound.TOPIC: self._bound,
            PolicyAdopted.TOPIC: self._policy,
            PolicyRetired.TOPIC: self._retired,
            ShadowConfigured.TOPIC: self._shadow,
            BranchCreated.TOPIC: self._branch,
            ClockConfirmed.TOPIC: self._clock,
            ProposalRescheduled.TOPIC: self._rescheduled,
            BranchSwitched.TOPIC: self._switched,
            WorldSealed.TOPIC: self._world,
            ProjectionRecorded.TOPIC: self._projection,
            ProposalSubmitted.TOPIC: self._submitted,
            ProposalShadowed.TOPIC: self._shadowed,
            ProposalJudged.TOPIC: self._judged,
            HumanAnswered.TOPIC: self._answered,
            HumanTimedOut.TOPIC: self._timed_out,
            DecisionMade.TOPIC: self._decided,
            ProposalSuperseded.TOPIC: self._superseded,
            ExecutionStarted.TOPIC: self._started,
            EffectRequested.TOPIC: self._requested,
            ProposalCompleted.TOPIC: self._ended,
            ProposalFailed.TOPIC: self._ended,
            VerdictGiven.TOPIC: self._verdict,
            KeyRegistered.TOPIC: self._key,
        }

    def at_the_beginning(self, event: Event) -> None:
        """Tell what the first event of a log must be."""
        if not isinstance(event, LogFounded):
            self._bad("BAD_REFERENCE", f"a log begins with {LogFounded.TOPIC}, and this is {event.TOPIC}")

    def at_the_end(self) -> None:
        """Tell what a whole log must have said by now."""
        for record in self._announced.values():
            self._bad("BAD_REFERENCE", f"projection record {record.record_id} names a proposal nobody submitted")
        for proposal_id in sorted(self._over):
            self._bad("BAD_EVENT", f"nothing came of it that the time of proposal {proposal_id} was over")

    # The realm's registry

    def _founded(self, event: LogFounded, _: int) -> None:
        if self._realm.position != 0:
            self._bad("BAD_REFERENCE", "a log is founded by its first event only")
        if event.format != 1 or event.logic:
            self._bad("BAD_EVENT", f"its format is {event.format} with the logic {event.logic}; known is 1, with none")
        self._enforcement(event, 1)

    def _enforcement(self, event: LogFounded | EnforcementChosen, _: int) -> None:
        self._modes.add(event.enforcement)
        if event.enforcement not in _MODES:
            self._bad("BAD_EVENT", f"there is no enforcement {event.enforcement!r}")

    def _domain(self, event: DomainAdopted, _: int) -> None:
        if schema_hash(event.schema) != event.schema_hash:
            self._bad("WRONG_HASH", f"the schemaHash {event.schema_hash} is not that of the schema")
        if event.previous != (self._realm.schema_hash or None):
            self._bad("BAD_REFERENCE", f"the domain before is {self._realm.schema_hash or None}, not {event.previous}")

    def _key(self, event: KeyRegistered, _: int) -> None:
        try:
            is_key = len(base64.b64decode(event.public_key, validate=True)) == _KEY_BYTES
        except ValueError:
            is_key = False
        if not is_key:
            self._bad("BAD_EVENT", f"the public key is not the base64 of {_KEY_BYTES} bytes")

    def _bound(self, event: ActorBound, _: int) -> None:
        if event.actor_id not in self._realm.actors:
            self._bad("BAD_REFERENCE", f"the actor {event.actor_id!r} is not registered")
        policy = event.binding.get("policy")
        if policy is not None and policy not in self._realm.policies:
            self._bad("BAD_REFERENCE", f"the policy {policy!r} was not adopted")
        for member in voters(event.binding):
            if member not in self._realm.actors:
                self._bad("BAD_REFERENCE", f"the member {member!r} of a tribunal is not registered")

    def _policy(self, event: PolicyAdopted, _: int) -> None:
        self._check_policy(event, event.policy)
        known = self._realm.policies.get(event.name)
        before = None if known is None else known.policy_hash
        if event.previous not in (None, before):
            self._bad("BAD_REFERENCE", f"the policy before is {before}, not {event.previous}")

    def _check_policy(self, event: PolicyAdopted | ShadowConfigured, policy: Mapping[str, Any]) -> None:
        """Compare the hash of a policy with what the policy says."""
        found = policy_hash(policy)
        if not found == policy.get("hash") == event.policy_hash:
            self._bad("WRONG_HASH", f"the policyHash of the policy is {found}, not {event.policy_hash}")
        if policy.get("name") != event.name:
            self._bad("BAD_REFERENCE", f"the policy is {policy.get('name')!r}, not {event.name!r}")

    def _retired(self, event: PolicyRetired, _: int) -> None:
        known = self._realm.policies.get(event.name)
        if known is None or known.policy_hash != event.policy_hash:
            self._bad("BAD_REFERENCE", f"the policy {event.name!r} with the hash {event.policy_hash} was not in force")
        bound = [name for name, one in self._realm.bindings.items() if one.get("policy") == event.name]
        if bound:
            self._bad(
                "BAD_REFERENCE", f"the policy {event.name!r} was retired, and {', '.join(bound)} were bound by it"
            )

    def _shadow(self, event: ShadowConfigured, _: int) -> None:
        unknown = [actor_id for actor_id in event.actors if actor_id not in self._realm.actors]
        if unknown:
            self._bad("BAD_REFERENCE", f"it names {', '.join(unknown)}, who are not registered")
        if event.policy is not None:
            self._check_policy(event, event.policy)
        elif (event.name, event.policy_hash) != (None, None):
            self._bad("BAD_REFERENCE", f"the policy {event.name!r} is missing")

    # Lineage

    def _branch(self, event: BranchCreated, _: int) -> None:
        self._lineages.begin_branch(event.world_id)

    def _switched(self, event: BranchSwitched, _: int) -> None:
        if event.branch not in self._realm.branches:
            self._bad("BAD_REFERENCE", f"there is no branch {event.branch!r}")

    def _world(self, event: WorldSealed, position: int) -> None:
        if self._sealed is not None:
            self._bad("BAD_REFERENCE", f"the execution that made world {self._sealed.world_id} did not end after it")
        self._sealed = event if event.created_by is not None else None
        self.world = self._lineages.seal(event, position)
        self._world_references(event, self.world)
        errors = () if event.error is None else (event.error,)
        found = state_hash(self.world.data, errors=errors, last_error=event.error)
        if found != event.snapshot_hash:
            self._bad("WRONG_HASH", f"the snapshotHash of the restored state is {found}, not {event.snapshot_hash}")
        if content_id(event.schema_hash, event.snapshot_hash) != event.content_id:
            self._bad("WRONG_HASH", f"the contentId {event.content_id} does not follow from the content")
        if world_id(event.schema_hash, event.snapshot_hash, event.parent) != event.world_id:
            self._bad("WRONG_HASH", f"the worldId {event.world_id} does not follow from its content and parent")

    def _world_references(self, event: WorldSealed, world: KnownWorld) -> None:
        realm = self._realm
        if event.schema_hash != realm.schema_hash:
            self._bad("BAD_REFERENCE", f"the schema {event.schema_hash} is not the one in force")
        if event.outcome != ("completed" if event.error is None else "failed"):
            self._bad("BAD_EVENT", f"the outcome {event.outcome!r} does not fit the error")
        if event.height != world.height:
            self._bad("BAD_EVENT", f"its height is {world.height}, not {event.height}")
        if event.error is not None and event.patches:
            self._bad("BAD_EVENT", "a failed execution changes nothing, but there are patches")
        if event.parent is None:
            if realm.branches or event.created_by is not None:
                self._bad("BAD_REFERENCE", "only genesis has no parent and no creator")
            return
        maker = realm.proposals.get(event.created_by or "")
        if maker is None or maker.status != "executing":
            self._bad("BAD_REFERENCE", f"createdBy {event.created_by} is no proposal under execution")
            return
        branch = realm.branches.get(event.branch)
        if branch is None or maker.branch != event.branch:
            self._bad("BAD_REFERENCE", f"the branch {event.branch!r} is not that of its proposal")
        elif event.parent != branch.head:
            self._bad("BAD_REFERENCE", f"its parent {event.parent} is not the head of {event.branch!r}")
        self._within_scope(event, maker)

    # Proposals

    def _projection(self, event: ProjectionRecorded, _: int) -> None:
        if event.proposal_id is not None:
            self._announced[event.proposal_id] = event
        if event.world_id not in {branch.head for branch in self._realm.branches.values()}:
            self._bad("BAD_REFERENCE", f"world {event.world_id} is not the head of any branch")
        if event.actor.get("actorId") not in self._realm.actors:
            self._bad("BAD_REFERENCE", f"the actor {event.actor.get('actorId')!r} is not registered")

    def _submitted(self, event: ProposalSubmitted, _: int) -> None:
        realm, intent = self._realm, event.intent
        body, origin = intent["body"], intent["meta"]["origin"]
        actor_id = event.actor["actorId"]
        key = intent_key(event.schema_hash, body["type"], body.get("input"), body.get("scopeProposal"))
        if key != intent["intentKey"]:
            self._bad("WRONG_HASH", f"the intentKey of the intent is {key}, not {intent['intentKey']}")
        if event.schema_hash != realm.schema_hash:
            self._bad("BAD_REFERENCE", f"the schema {event.schema_hash} is not the one in force")
        if realm.actors.get(actor_id) != event.actor or origin["actor"]["actorId"] != actor_id:
            self._bad("BAD_REFERENCE", f"the actor {actor_id!r} is not the one registered, or not the intent's")
        branch = realm.branches.get(event.branch)
        if branch is None or branch.head != event.base_world:
            self._bad("BAD_REFERENCE", f"the base {event.base_world} is not the head of {event.branch!r}")
        if event.epoch != realm.epoch:
            self._bad("BAD_REFERENCE", f"the epoch is {realm.epoch}, not {event.epoch}")
        record = self._announced.pop(event.proposal_id, None)
        if record is not None and (record.intent_id, record.intent_key) != (intent["intentId"], intent["intentKey"]):
            self._bad("BAD_REFERENCE", f"projection record {record.record_id} selected another intent")

    def _shadowed(self, event: ProposalShadowed, _: int) -> None:
        proposal = self._realm.proposals.get(event.proposal_id)
        if proposal is None:
            return  # the fold says so
        if event.ruling.get("policyHash") != event.policy_hash:
            self._bad("WRONG_HASH", f"the policy's hash is {event.ruling.get('policyHash')}, not {event.policy_hash}")
        if shadowed_by(self._realm.shadow, proposal.submitted.actor["actorId"]) != event.name:
            self._bad("BAD_REFERENCE", f"the policy {event.name!r} does not shadow what this actor proposes")

    def _judged(self, event: ProposalJudged, _: int) -> None:
        proposal = self._realm.proposals.get(event.proposal_id)
        if proposal is None:
            return  # the fold says so
        if event.proposal_id in self._over:
            self._over.remove(event.proposal_id)
            if not fits_time_limit(proposal.ruling or {}, event.ruling):
                self._bad("BAD_EVENT", f"the end of its time does not lead to {event.ruling['verdict']!r}")
        shadowing = shadowed_by(self._realm.shadow, proposal.submitted.actor["actorId"])
        if proposal.status == "submitted" and shadowing is not None and not proposal.is_shadowed:
            self._bad("BAD_EVENT", f"the policy {shadowing!r} shadows it, and what it said was not recorded")
        bound = proposal.binding
        if bound is None:
            bound = self._realm.bindings.get(proposal.submitted.actor["actorId"])
        if bound != event.binding:
            self._bad("BAD_REFERENCE", "the binding is not that of the actor")
        policy = self._realm.policies.get(event.binding.get("policy", ""))
        told = event.ruling.get("policyHash")
        is_first = proposal.binding is None and event.ruling["verdict"] != "reject"
        if told is not None and is_first and (policy is None or policy.policy_hash != told):
            self._bad("BAD_REFERENCE", f"the policy {told} is not the one that was adopted")
        self._check_step(proposal, event)
        self._check_votes(proposal, event.ruling)

    def _clock(self, event: ClockConfirmed, _: int) -> None:
        self._confirmed = event.at

    def _rescheduled(self, event: ProposalRescheduled, _: int) -> None:
        proposal = self._realm.proposals.get(event.proposal_id)
        if proposal is None:
            return  # the fold says so
        if event.at != self._confirmed:
            self._bad("BAD_EVENT", "no confirmation of the clock was of that time")
        elif (event.deadline, event.effects) != later_times(proposal, event.at):
            self._bad("BAD_EVENT", "the new deadlines do not follow from the old ones")

    def _check_step(self, proposal: Proposal, event: ProposalJudged) -> None:
        """Check that a ruling goes up the binding's chain only, and that its deadline follows from that."""
        before, ruling = proposal.ruling or {}, event.ruling
        step, last = ruling.get("step", 0), before.get("step", 0)
        if not last <= step <= len(event.binding.get("then", ())):
            self._bad("BAD_EVENT", f"there is no way from step {last} to step {step}")
        if ruling["verdict"] != "wait":
            wanted = None
        elif proposal.binding is not None and step == last:
            wanted = proposal.deadline
        else:
            wait = ruling.get("timeoutMs")
            wanted = None if wait is None else event.at + wait
        if event.deadline != wanted:
            self._bad("BAD_EVENT", f"the deadline {event.deadline} does not follow from the ruling")

    def _check_votes(self, proposal: Proposal, told: Mapping[str, Any]) -> None:
        """Check that votes can be won, and that those who spoke are those whose answers were recorded, in order."""
        for one in told.get("trace", ()):
            quorum = one.get("quorum") or {"rule": "majority"}
            needed, members = quorum.get("threshold", 1), len(one.get("to", ()))
            if quorum["rule"] not in VOTE_RULES or needed < 1 or ("quorum" in one and needed > members):
                self._bad("BAD_EVENT", f"{members} cannot vote by the rule {dict(quorum)}")
        spoken = [(one["source"], one["answer"]) for one in told.get("trace", ()) if one["rule"] == HUMAN_ANSWER]
        answers = [
            (f"{one['by']['kind']}:{one['by']['actorId']}", one["choice"])
            for one in proposal.answers
            if one["choice"] not in REMARKS
        ]
        if spoken and spoken != answers:
            self._bad("BAD_EVENT", "the trace tells of answers that nobody gave")

    def _answered(self, event: HumanAnswered, _: int) -> None:
        by, to = event.answer["by"]["actorId"], event.answer.get("to")
        for actor_id in (by, to):
            if actor_id is not None and actor_id not in self._realm.actors:
                self._bad("BAD_REFERENCE", f"the actor {actor_id!r} who answered is not registered")
        proposal = self._realm.proposals.get(event.proposal_id)
        if proposal is None:
            return  # the fold says so
        if (by == proposal.submitted.actor["actorId"]) != (event.answer["choice"] == "reply"):
            self._bad("BAD_EVENT", f"{by!r} answered for a proposal of their own, or replied for somebody else")
        if event.proposal_id in self._over or (proposal.deadline is not None and event.at > proposal.deadline):
            self._bad("BAD_EVENT", f"{by!r} answered when the time for that was over")

    def _timed_out(self, event: HumanTimedOut, _: int) -> None:
        proposal = self._realm.proposals.get(event.proposal_id)
        if proposal is None:
            return  # the fold says so
        if event.deadline != proposal.deadline or event.at <= event.deadline or event.proposal_id in self._over:
            self._bad("BAD_EVENT", f"the time was not over: its deadline is {proposal.deadline}, and now is {event.at}")
        self._over.add(event.proposal_id)

    def _decided(self, event: DecisionMade, _: int) -> None:
        proposal, record = self._realm.proposals.get(event.proposal_id), event.decision
        if proposal is None:
            return  # the fold says so
        if record["proposalId"] != event.proposal_id:
            self._bad("BAD_REFERENCE", f"the decision is about proposal {record['proposalId']}")
        if event.proposal_id in self._over:
            self._bad("BAD_EVENT", "its time was over, and no ruling tells what that led to")
        if record["decidedAt"] != event.at:
            self._bad("BAD_EVENT", f"it is of {event.at} and was decided at {record['decidedAt']}")
        self._check_leases(proposal, event)
        self._check_votes(proposal, record)
        lacks, ruling = self._lacks_leases(proposal, event), proposal.ruling or {}
        for fault in faults_of_decision(ruling, record, lacks_leases=lacks, version=self.version):
            self._bad("BAD_EVENT", fault)
        if (record["decision"] == "approved") is not ("approvedScope" in record):
            self._bad("BAD_EVENT", "the approvedScope stands in an approval, and only there")

    def _lacks_leases(self, proposal: Proposal, event: DecisionMade) -> bool:
        arbitrated = self._realm.klis.settings is not None
        return arbitrated and proposal.wants_leases and event.decision["decision"] == "rejected"

    def _check_leases(self, proposal: Proposal, event: DecisionMade) -> None:
        """Compare the verdict that a decision names with the one that granted what the proposal holds."""
        held = self._realm.klis.sessions.get((proposal.submitted.actor["actorId"], event.proposal_id))
        granted = {lease.verdict_id for lease in held.leases()} if held is not None else set()
        if granted != ({event.verdict_id} - {None}):
            self._bad("BAD_REFERENCE", f"the decision names verdict {event.verdict_id}, which did not grant its leases")
        backup = self._backups.pop(event.proposal_id, None)
        if event.backup not in (None, backup):
            self._bad("BAD_REFERENCE", "whether there is a backup is not what the verdict says")

    def _verdict(self, event: VerdictGiven, _: int) -> None:
        realm = self._realm
        fault = channel_fault(realm.klis, event, runs=realm.runs, proposals=realm.proposals.keys())
        if fault is not None:
            self._bad("BAD_EVENT", f"verdict {event.verdict_id} is on a manifest that is not authenticated: {fault}")
        if event.status == "Granted" and event.request_id in self._realm.proposals:
            self._backups[event.request_id] = event.backup

    def _superseded(self, event: ProposalSuperseded, _: int) -> None:
        self._backups.pop(event.proposal_id, None)
        if event.epoch != self._realm.epoch:
            self._bad("BAD_REFERENCE", f"the epoch is {self._realm.epoch}, not {event.epoch}")

    def _started(self, event: ExecutionStarted, _: int) -> None:
        proposal = self._realm.proposals.get(event.proposal_id)
        if proposal is None:
            return  # the fold says so
        if event.seed != proposal.submitted.intent["intentId"]:
            self._bad("BAD_REFERENCE", "the seed is not the intentId")
        if event.attempt != (1 if proposal.started is None else proposal.started.attempt + 1):
            self._bad("BAD_EVENT", f"attempt {event.attempt} does not follow the one before")
        if event.enforcement not in self._modes:
            self._bad("BAD_REFERENCE", f"nobody chose the enforcement {event.enforcement!r}")
        branch = self._realm.branches.get(proposal.branch)
        if proposal.started is None and (branch is None or event.on_world != branch.head):
            self._bad("BAD_REFERENCE", f"world {event.on_world} is not the head of {proposal.branch!r}")

    def _requested(self, event: EffectRequested, _: int) -> None:
        proposal, asked = self._realm.proposals.get(event.proposal_id), event.requirement
        if proposal is None:
            return  # the fold says so
        told = proposal.submitted
        found = requirement_id(
            told.schema_hash,
            told.intent["intentId"],
            asked["actionId"],
            asked["nodePath"],
            asked["type"],
            asked["params"],
        )
        if found != asked["id"]:
            self._bad("WRONG_HASH", f"the requirement's id is {found}, not {asked['id']}")

    def _ended(self, event: ProposalCompleted | ProposalFailed, _: int) -> None:
        proposal = self._realm.proposals.get(event.proposal_id)
        if proposal is None:
            return  # the fold says so
        world = self._lineages.get(event.world_id)
        outcome = "failed" if isinstance(event, ProposalFailed) else "completed"
        if world.parent != event.parent or world.outcome != outcome:
            self._bad("BAD_REFERENCE", f"world {event.world_id} is no {outcome} world on {event.parent}")
        if event.branch != proposal.branch:
            self._bad("BAD_REFERENCE", f"the branch {event.branch!r} is not that of the proposal")
        sealed, self._sealed = self._sealed, None
        if sealed is not None and (sealed.created_by, sealed.world_id) != (event.proposal_id, event.world_id):
            self._bad("BAD_REFERENCE", f"world {sealed.world_id} was sealed just before, by {sealed.created_by}")
        if isinstance(event, ProposalFailed):
            self._check_error(event, world, None if sealed is None else sealed.error)
        else:
            branch = self._realm.branches.get(event.branch)
            if branch is not None:
                self._lineages.move_head(branch.head, event.world_id)

    def _check_error(self, event: ProposalFailed, world: KnownWorld, error: Mapping[str, Any] | None) -> None:
        """Compare an error with that of its world; of one that was sealed before, with what its hash covers."""
        if error is not None:
            is_same = error == event.error
        else:
            found = state_hash(world.data, errors=(event.error,), last_error=event.error)
            is_same = world_id(self._realm.schema_hash, found, event.parent) == event.world_id
        if not is_same:
            self._bad("BAD_EVENT", f"the error is not that of world {event.world_id}")

    def _within_scope(self, event: WorldSealed, maker: Proposal) -> None:
        """Hold the patches of an enforced execution to the approved scope (INT-13.5)."""
        if not event.patches or maker.started is None or maker.started.enforcement != "enforcing":
            return
        scope = (maker.decision or {}).get("approvedScope") or {}
        allowed = scope.get("allowedPaths")
        if allowed is None:
            return
        trie = compile_scope(allowed, maker.scope_rules)
        for wire in event.patches:
            if not allows(trie, Patch.from_wire(wire)):
                self._bad("BAD_EVENT", f"the patch of {wire['path']!r} lies outside of the approved scope")
