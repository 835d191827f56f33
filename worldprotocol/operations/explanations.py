"""Operations that explain: why a proposal or a verdict about leases was decided, and the way from source to worlds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import Meta, convert

from worldprotocol.operations import AnswerForm, OperationCall, RequestForm, operation
from worldprotocol.operations.acting.lease_requests import Granted
from worldprotocol.operations.fields import HASH, ID, NOW, WORLD, At, NamedClaim
from worldprotocol.operations.proposals import visible_proposal
from worldprotocol.operations.records import (
    ACTOR,
    ErrorForm,
    ExplainedRule,
    ExplainedRuling,
    GivenAnswer,
    ProposalStatus,
    RulingPolicy,
)

if TYPE_CHECKING:
    from world.read_models.trace import TraceStep

IdPrefix = Annotated[str, Meta(min_length=1, max_length=200)]
_ALL: Final = "reader auditor actor approver"


class ExplainProposal(RequestForm, frozen=True, kw_only=True):
    """What is explained, and a point in the past; absent, now."""

    named: Annotated[
        IdPrefix,
        Meta(description="The beginning of the id of a proposal, intent, decision or verdict, or the id of a request."),
    ]
    at: At | None = None


class LaterEvent(AnswerForm, frozen=True, kw_only=True):
    """What the log says later about a request for leases, or its leases."""

    position: int
    at: int
    topic: str
    status: str | None = None
    verdict_id: str | None = None
    lease_ids: list[str] | None = None
    by: str | None = None
    reason: str | None = None


class ExplainedVerdict(AnswerForm, frozen=True, kw_only=True):
    """A verdict about leases: what was asked, a sentence for each conflict, the rule, and what happened next."""

    verdict_id: str
    position: int
    at: int
    status: Literal["Granted", "Wait", "Die"]
    cause: str | None
    agent_id: str
    priority: int
    session_id: str
    request_id: str
    channel: dict[str, Any] | None
    asked: list[NamedClaim]
    reasons: list[str]
    more_conflicts: bool
    rule: str
    retry_after_ms: int | None
    leases: list[Granted]
    after: list[LaterEvent]


class ExplainedProposal(ExplainedRuling, frozen=True, kw_only=True):
    """Why a proposal was decided as it was: every rule, and the answers of people; without a ruling, no verdict."""

    kind: Literal["proposal"]
    proposal_id: str
    status: ProposalStatus
    ended_reason: str | None
    verdict: Literal["approved", "rejected", "approve", "reject", "wait"] | None
    answers: list[GivenAnswer]
    error: ErrorForm | None


class ExplanationForm(AnswerForm, frozen=True, kw_only=True):
    """The explanation of a proposal with the last verdict about its leases, or of a verdict alone."""

    proposal: ExplainedProposal | None
    verdict: ExplainedVerdict | None


@operation(
    "proposals.explain",
    "GET /proposals/{named}/explanation",
    _ALL,
    kind="whole",
    example=(
        ExplainProposal(named=ID),
        ExplanationForm(
            proposal=ExplainedProposal(
                kind="proposal",
                proposal_id=ID,
                status="completed",
                ended_reason=None,
                actor=ACTOR,
                action="order.place",
                input={"item": "tea"},
                branch="main",
                base_world=WORLD,
                submitted_at=NOW,
                verdict="approved",
                authority="policy_rules:house",
                reason="small orders",
                approved_scope=None,
                policy=RulingPolicy(name="house", hash=HASH, position=4),
                note=None,
                rules=[
                    ExplainedRule(rule="small", source="house.toml:3", answer="approve", decisive=True, role="decided")
                ],
                people=[],
                engine=None,
                decided_by=["small"],
                by_default=False,
                changes=None,
                answers=[],
                error=None,
            ),
            verdict=None,
        ),
    ),
)
def explain_proposal(call: OperationCall, request: ExplainProposal) -> ExplanationForm:
    """Explain a proposal, or a verdict about leases, from the record: every rule, the conflicts, and what followed.

    An actor and an approver name a proposal of their own by its whole id, and do not see what conditions read.
    """
    from worldprotocol.api.lookup.verdict_explanation import find_explained, verdict_wire
    from worldprotocol.policy_tools.proposal_explanation import LoadedCode
    from worldprotocol.policy_tools.proposal_explanation import explain_proposal as explained

    _check_named(call, request.named)
    realm, then = call.hosted.realm, call.moment(request.at)
    proposal_id, found = find_explained(then, request.named)
    code = None
    if call.visibility.reads_all:  # conditions read the state
        code = LoadedCode(
            lambda: realm._composed.domain,
            lambda name: realm._composed.policies.get(name),  # noqa: PLW0108  # a realm that only reads has none
        )
    wire = {
        "proposal": None if proposal_id is None else explained(then, proposal_id, code),
        "verdict": None if found is None else verdict_wire(then, *found),
    }
    return convert(wire, ExplanationForm)


class TraceOrigin(RequestForm, frozen=True, kw_only=True):
    """What is traced, and a point in the past; absent, now."""

    named: Annotated[
        IdPrefix,
        Meta(
            description="The beginning of the id of a source event, an intent, a proposal, a decision, a verdict, an "
            "effect or a world; or an event's position."
        ),
    ]
    at: At | None = None


class TracedStep(AnswerForm, frozen=True, kw_only=True):
    """A step on the way from a source event to worlds: in words, with what it is made of, and the steps after it."""

    kind: str
    id: str
    position: int | None
    at: int | None
    words: str
    facts: dict[str, Any]
    steps: list[TracedStep]


@operation(
    "proposals.trace",
    "GET /proposals/{named}/trace",
    _ALL,
    kind="whole",
    example=(
        TraceOrigin(named=ID),
        TracedStep(kind="source", id=ID, position=7, at=NOW, words="an event of api", facts={}, steps=[]),
    ),
)
def trace_origin(call: OperationCall, request: TraceOrigin) -> TracedStep:
    """Return the way from a source event through projection, intent, proposal and decision to the worlds it led to.

    An actor and an approver name a proposal of their own by its whole id.
    """
    from worldprotocol.api.lookup.traces import traced

    _check_named(call, request.named)
    return _step(traced(call.moment(request.at), request.named))


def _check_named(call: OperationCall, named: str) -> None:
    """Refuse a name that is no proposal of the caller, where the caller may not read everything.

    Raises:
        RefusedError: ``UNKNOWN_PROPOSAL``.
    """
    from worldprotocol.operations.visibility import unknown_proposal

    if not call.visibility.reads_all and not call.visibility.may_see(visible_proposal(call, named)):
        raise unknown_proposal(named)


def _step(step: TraceStep) -> TracedStep:
    return TracedStep(
        kind=step.kind,
        id=step.name,
        position=step.position,
        at=step.at,
        words=step.words,
        facts=dict(step.facts),
        steps=[_step(one) for one in step.steps],
    )
