"""Recorded values as answers show them: actors, sources, intents, rulings, decisions, errors and proposals.

Each has the members of the value in the log; a test compares them. Members that the value leaves out are absent.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import UNSET, UnsetType, field

from worldprotocol.operations.declaring import AnswerForm
from worldprotocol.operations.fields import HASH, ID, NOW, WORLD

__all__ = [
    "ACTOR",
    "PROPOSAL",
    "ActorForm",
    "BodyForm",
    "Choice",
    "DecisionForm",
    "ErrorForm",
    "ExplainedRule",
    "ExplainedRuling",
    "GivenAnswer",
    "LoggedForm",
    "OutcomeForm",
    "Part",
    "ProposalForm",
    "ProposalStatus",
    "RulingForm",
    "RulingPolicy",
    "ScopeForm",
    "SourceForm",
    "VerdictWord",
]

ActorKind = Literal["human", "agent", "system"]
SourceKind = Literal["ui", "api", "agent", "system"]
ProposalStatus = Literal[
    "submitted", "evaluating", "approved", "rejected", "superseded", "executing", "completed", "failed"
]
VerdictWord = Literal["approve", "reject", "wait"]
RuleAnswer = Literal["approve", "reject", "narrow", "escalate", "abstain", "delegate", "none", "error"]
Part = Literal["decided", "overruled", "narrowed", "agreed", "asked", "failed", "silent"]
Choice = Literal["approve", "reject", "narrow", "abstain", "ask", "reply", "delegate", "escalate"]


class ActorForm(AnswerForm, frozen=True, kw_only=True):
    """A person, an agent or a system."""

    actor_id: str
    kind: ActorKind
    name: str | None = None
    meta: dict[str, Any] | None = None


class SourceForm(AnswerForm, frozen=True, kw_only=True):
    """A source event, or the reference to one; `occurredAt` is in ms since 1970."""

    kind: SourceKind
    event_id: str
    payload: Any = None
    occurred_at: int | None = None


class ScopeForm(AnswerForm, frozen=True, kw_only=True):
    """Paths that an intent may write."""

    allowed_paths: list[str] | None = None
    note: str | None = None


class BodyForm(AnswerForm, frozen=True, kw_only=True):
    """What an intent requests."""

    type: str
    input: Any = None
    scope_proposal: ScopeForm | None = None


class OriginForm(AnswerForm, frozen=True, kw_only=True):
    """Where an intent comes from."""

    projection_id: str
    source: SourceForm
    actor: ActorForm
    note: str | None = None


class IntentMetaForm(AnswerForm, frozen=True, kw_only=True):
    """Facts about an intent that are not part of its meaning."""

    origin: OriginForm


class IntentForm(AnswerForm, frozen=True, kw_only=True):
    """One attempt at an intent."""

    body: BodyForm
    intent_id: str
    intent_key: str
    meta: IntentMetaForm


class QuorumForm(AnswerForm, frozen=True, kw_only=True):
    """How many of the asked people have to approve."""

    rule: Literal["unanimous", "majority", "threshold"]
    threshold: int | None = None


class OutcomeForm(AnswerForm, frozen=True, kw_only=True):
    """What one rule, or one person, said; `decisive` marks what decided."""

    rule: str
    source: str
    answer: RuleAnswer
    reason: str | None = None
    scope: ScopeForm | None = None
    to: list[str] | None = None
    quorum: QuorumForm | None = None
    decisive: bool | None = None


class RulingForm(AnswerForm, frozen=True, kw_only=True):
    """The verdict of an authority; `approvedScope` is null where an approval restricts nothing."""

    verdict: VerdictWord
    authority: str
    reason: str
    approved_scope: ScopeForm | UnsetType | None = UNSET
    trace: list[OutcomeForm] | None = None
    policy_hash: str | None = None
    ask: list[str] | None = None
    on_timeout: Literal["approve", "reject", "escalate"] | None = None
    timeout_ms: int | None = None
    step: int | None = None


class DecisionForm(AnswerForm, frozen=True, kw_only=True):
    """The decision about a proposal; `approvedScope` is null where an approval restricts nothing."""

    decision_id: str
    proposal_id: str
    authority: str
    decision: Literal["approved", "rejected"]
    reason: str
    decided_at: int
    approved_scope: ScopeForm | UnsetType | None = UNSET
    policy_hash: str | None = None
    trace: list[OutcomeForm] | None = None


class GivenAnswer(AnswerForm, frozen=True, kw_only=True):
    """What a person answered; `shown` is the hash of the entry of the inbox that the person was shown."""

    answer_id: str
    by: ActorForm
    choice: Choice
    scope: ScopeForm | None = None
    to: str | None = None
    reason: str
    shown: str | None = None


class ErrorPlace(AnswerForm, frozen=True, kw_only=True):
    """Where a computation failed."""

    action_id: str
    node_path: str


class ErrorForm(AnswerForm, frozen=True, kw_only=True):
    """Why a computation failed."""

    code: str
    message: str
    source: ErrorPlace
    timestamp: int
    context: dict[str, Any] | None = None


class EffectsForm(AnswerForm, frozen=True, kw_only=True):
    """How far the effects of a proposal are, by the ids of their requirements; `claimed` has the worker of each."""

    fulfilled: int
    under_way: list[str]
    in_doubt: list[str] | None = None
    offered: list[str] | None = None
    claimed: dict[str, str] | None = None


class CancellationForm(AnswerForm, frozen=True, kw_only=True):
    """Who cancelled an execution, why and when."""

    by: str
    reason: str
    at: int


class WaitsForm(AnswerForm, frozen=True, kw_only=True):
    """What an open proposal waits for, in words, and whether that is the answer of a person."""

    for_: str = field(name="for")
    people: bool


class WithdrawalForm(AnswerForm, frozen=True, kw_only=True):
    """Who withdrew a proposal, and why."""

    by: str
    reason: str


class LoggedForm(AnswerForm, frozen=True, kw_only=True):
    """An event of the log; one that rules of redaction hide has its position and its leaf hash alone."""

    position: int
    stream: str | None = None
    version: int | None = None
    topic: str | None = None
    schema_version: int | None = None
    state: dict[str, Any] | None = None
    leaf: str | None = None
    redacted: bool | None = None


class ProposalForm(AnswerForm, frozen=True, kw_only=True):
    """A proposal; one of which rules of redaction hide an event has its id, its status and `events` alone.

    ``history`` has its events where they are asked for, and ``position`` that of its submission in lists.
    """

    position: int | None = None
    proposal_id: str
    status: ProposalStatus
    actor: ActorForm | None = None
    intent: IntentForm | None = None
    branch: str | None = None
    base_world: str | None = None
    epoch: int | None = None
    execution_key: str | None = None
    schema_hash: str | None = None
    attempt: int | None = None
    submitted_at: int | None = None
    trace: dict[str, Any] | None = None
    ruling: RulingForm | None = None
    held: str | None = None
    deadline: int | None = None
    decision: DecisionForm | None = None
    world_id: str | None = None
    error: ErrorForm | None = None
    ended_reason: str | None = None
    approved_scope: ScopeForm | UnsetType | None = UNSET
    answers: list[GivenAnswer] | None = None
    effects: EffectsForm | None = None
    cancelled: CancellationForm | None = None
    rollback: Any = UNSET
    waits: WaitsForm | None = None
    withdrawn: WithdrawalForm | None = None
    redacted: bool | None = None
    events: list[LoggedForm] | None = None
    history: list[LoggedForm] | None = None


class RulingPolicy(AnswerForm, frozen=True, kw_only=True):
    """The policy that judged, and the position of its adoption; null where it was not adopted by then."""

    name: str
    hash: str
    position: int | None


class ExplainedRule(OutcomeForm, frozen=True, kw_only=True):
    """A rule with its part in the outcome; `reads` has the values that its condition read.

    ``because`` says why it does not apply, and ``answeredFrom`` where a rule in code answered.
    """

    role: Part
    description: str | None = None
    when: str | None = None
    because: str | None = None
    reads: dict[str, Any] | None = None
    answered_from: dict[str, Any] | None = None


class ExplainedRuling(AnswerForm, frozen=True, kw_only=True):
    """A ruling on an intent: what every rule, people and the engine said, and what would have to differ.

    ``changes`` is null for an approval; ``byDefault`` says that no rule applied.
    """

    actor: ActorForm
    action: str
    input: Any
    branch: str
    base_world: str
    submitted_at: int
    authority: str | None
    reason: str | None
    approved_scope: ScopeForm | None
    policy: RulingPolicy | None
    note: str | None
    rules: list[ExplainedRule]
    people: list[OutcomeForm]
    engine: OutcomeForm | None
    decided_by: list[str]
    by_default: bool
    changes: dict[str, Any] | None


ACTOR: Final = ActorForm(actor_id="bot", kind="agent")
PROPOSAL: Final = ProposalForm(
    proposal_id=ID,
    status="completed",
    actor=ACTOR,
    intent=IntentForm(
        body=BodyForm(type="order.place", input={"item": "tea"}),
        intent_id="order-17",
        intent_key=HASH,
        meta=IntentMetaForm(
            origin=OriginForm(projection_id="api:intent", source=SourceForm(kind="api", event_id=ID), actor=ACTOR)
        ),
    ),
    branch="main",
    base_world=WORLD,
    submitted_at=NOW,
)
