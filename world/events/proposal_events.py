"""Events of proposals, from projection to terminal state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from world.events.base import Event, ObjectEvent
from world.events.caller_events import Attended
from world.events.resource_values import ResourceExistence
from world.events.verification import IntentSignature, Verification
from world.model.actor import ActorRef
from world.model.decision import DecisionRecord, HumanAnswer, Ruling
from world.model.intent import IntentBody, IntentInstance
from world.model.member_types import JsonObject
from world.model.record import Record
from world.model.snapshot import ErrorValue
from world.model.source import SourceEvent

__all__ = [
    "DecisionMade",
    "HumanAnswered",
    "HumanTimedOut",
    "ProjectedResult",
    "ProjectionRecorded",
    "ProposalCompleted",
    "ProposalFailed",
    "ProposalHeld",
    "ProposalJudged",
    "ProposalSubmitted",
    "ProposalSuperseded",
]


class ProjectedResult(Record, frozen=True, kw_only=True, forbid_unknown_fields=False, omit_defaults=True):
    """Result of a projection: an intent's body, or none with an optional reason."""

    kind: Literal["intent", "none"]
    reason: str | None = None
    body: IntentBody | None = None


class ProjectionRecorded(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A projection was run on a source event and returned ``result`` (INT-12.2)."""

    TOPIC: ClassVar[str] = "projection.recorded"
    record_id: str
    projection_id: str
    considered: list[str]
    actor: ActorRef
    source: SourceEvent
    schema_hash: str
    world_id: str
    result: ProjectedResult
    proposal_id: str | None = None
    intent_id: str | None = None
    intent_key: str | None = None


class ProposalSubmitted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """An intent was submitted as a proposal.

    ``scope_rules`` is the version of the scope rules (``world.model.scope_patterns``); the default is 1. ``migration``
    is the identity of the migration that the adoption of a domain made with it (``world.model.adoption``). ``signed``
    is the actor's signature of the intent, where it was signed. ``attended`` says how a call of a tool is attended: an
    approval that comes later takes nothing for it before its caller asks again (``proposal.held``, cause ``caller``).
    """

    TOPIC: ClassVar[str] = "proposal.submitted"
    proposal_id: str
    actor: ActorRef
    intent: IntentInstance
    branch: str
    base_world: str
    epoch: int
    execution_key: str
    schema_hash: str
    attempt: int
    trace: JsonObject | None = None
    scope_rules: int | None = None
    migration: str | None = None
    verified: Verification | None = None
    signed: IntentSignature | None = None
    attended: Attended | None = None


class ProposalJudged(ObjectEvent, frozen=True, kw_only=True):
    """An Authority gave its first ruling on a proposal, or a new ruling after an answer or a timeout."""

    TOPIC: ClassVar[str] = "proposal.judged"
    TEXTS: ClassVar[Mapping[str, tuple[str, ...]]] = {"binding": ("kind",)}
    proposal_id: str
    ruling: Ruling
    binding: JsonObject
    deadline: int | None = None


class ProposalHeld(Event, frozen=True, kw_only=True):
    """A proposal waits: the program's policy, domain or workspace differs from the one in force, or a caller is away.

    ``cause`` is ``policy``, ``code``, ``schema``, ``workspace``, ``effect`` or ``caller``; ``names`` are the policy,
    the functions, or the type of the effect whose handler the process does not have.
    ``in_force`` is the recorded hash of the policy or the schema, or the id of the realm's workspace;
    ``at_hand`` is that of the program; absent where it has none, and for code. A proposal that waits for a workspace
    was approved by its ruling, and a process that has the workspace requests its leases. So was one that waits for its
    caller: its leases are requested when the call is repeated.
    """

    TOPIC: ClassVar[str] = "proposal.held"
    proposal_id: str
    cause: Literal["policy", "code", "schema", "workspace", "effect", "caller"]
    names: list[str]
    in_force: str | None = None
    at_hand: str | None = None


class HumanAnswered(Event, frozen=True, kw_only=True):
    """A person answered a waiting proposal."""

    TOPIC: ClassVar[str] = "human.answered"
    proposal_id: str
    answer: HumanAnswer
    verified: Verification | None = None


class HumanTimedOut(Event, frozen=True, kw_only=True):
    """The time limit for the answers of people passed."""

    TOPIC: ClassVar[str] = "human.timed_out"
    proposal_id: str
    deadline: int


class DecisionMade(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The single terminal decision about a proposal was made.

    ``verdict_id`` is the verdict that granted its leases, and ``backup`` is True if a backup was made for them; earlier
    logs do not record them. ``workspace`` is the id of the workspace that holds the backup, as in the verdict. Since
    version 2, the trace shows where the engine overruled a ruling (``world.model.overruling``). ``existence`` is
    present in a rejection because a resource that the proposal depends on does not exist
    (``world.pipeline.leasing.existence``).
    """

    TOPIC: ClassVar[str] = "decision.made"
    VERSION: ClassVar[int] = 2
    proposal_id: str
    decision: DecisionRecord
    verdict_id: str | None = None
    backup: bool | None = None
    existence: list[ResourceExistence] | None = None
    workspace: str | None = None


class ProposalSuperseded(Event, frozen=True, kw_only=True):
    """An undecided proposal ended: by a branch switch (WP-epoch), the adoption of another schema, or a withdrawal.

    ``reason`` is recorded for an adoption, with ``successor``, the id of the proposal that carries its intent on; for a
    withdrawal, with ``by``, who withdrew it; and for a call whose caller left or did not ask again.
    """

    TOPIC: ClassVar[str] = "proposal.superseded"
    proposal_id: str
    epoch: int
    reason: str | None = None
    successor: str | None = None
    by: str | None = None
    verified: Verification | None = None


class ProposalCompleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The execution succeeded; ``world_id`` is the resulting World, the new head of the branch."""

    TOPIC: ClassVar[str] = "proposal.completed"
    proposal_id: str
    world_id: str
    parent: str
    branch: str


class ProposalFailed(Event, frozen=True, kw_only=True):
    """The execution failed; ``world_id`` is the World with the error, and the branch's head is unchanged."""

    TOPIC: ClassVar[str] = "proposal.failed"
    proposal_id: str
    world_id: str
    parent: str
    branch: str
    error: ErrorValue
