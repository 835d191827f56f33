"""Operations on effects that workers perform: list; claim, heartbeat and complete; those in doubt, and what is found.

A claim belongs to the verified actor; a completion by another one is refused and recorded. Effects in doubt are listed
for workers whose handlers look them up, and any of them reports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import Meta, convert, field, structs, to_builtins

from worldprotocol.operations import AnswerForm, Awaited, OperationCall, RequestForm, Unhashed, operation
from worldprotocol.operations.fields import HASH, ID, NOW, WORLD, AtPoint, Name, Seconds
from worldprotocol.operations.records import (
    ACTOR,
    ActorForm,
    BodyForm,
    IntentForm,
    IntentMetaForm,
    OriginForm,
    ProposalStatus,
    ScopeForm,
    SourceForm,
)

if TYPE_CHECKING:
    from world.state.effect_claim import EffectClaim
    from world.state.proposal import Proposal

_WORKS: Final = "worker"
Types = Annotated[list[Name], Meta(max_length=1_000)]


class OfferedForm(AnswerForm, frozen=True, kw_only=True):
    """An effect that workers perform; times are in ms since 1970.

    ``since`` is when it was last offered, claimed or extended, and ``claimableFrom`` the end of a backoff.
    """

    proposal_id: str
    actor_id: str
    action: str
    requirement_id: str
    effect: str
    params: Any
    state: Literal["offered", "claimed", "in doubt"]
    requested_at: int
    since: int
    idempotent: bool
    failures: int
    claimable_from: int = 0
    workspace: str | None = None
    worker: str | None = None
    token: int | None = None
    deadline: int | None = None


class InDoubtForm(AnswerForm, frozen=True, kw_only=True):
    """An effect of which it is unknown whether it happened."""

    proposal_id: str
    actor_id: str
    action: str
    requirement_id: str
    effect: str
    params: Any
    requested_at: int
    idempotency_key: str


class ListedEffects(AnswerForm, frozen=True, kw_only=True):
    """The effects that workers perform, and all that are in doubt, the first requested first."""

    effects: list[OfferedForm]
    in_doubt: list[InDoubtForm]


@operation(
    "effects.list",
    "GET /effects",
    "reader auditor operator",
    kind="whole",
    example=(
        AtPoint(at="HEAD"),
        ListedEffects(
            effects=[
                OfferedForm(
                    proposal_id=ID,
                    actor_id="bot",
                    action="send",
                    requirement_id=HASH,
                    effect="mail.send",
                    params={"to": "rome"},
                    state="offered",
                    requested_at=NOW,
                    since=NOW,
                    idempotent=True,
                    failures=0,
                )
            ],
            in_doubt=[],
        ),
    ),
)
def list_effects(call: OperationCall, request: AtPoint) -> ListedEffects:
    """List the effects that wait for workers, are claimed, or are in doubt, and all that are in doubt."""
    from world.read_models.live.offered_effects import offered_effects
    from worldprotocol.api.host import in_doubt

    view = call.view_at(request.at)
    found = {"effects": [one.to_wire() for one in offered_effects(view)], "inDoubt": in_doubt(view)}
    return convert(found, ListedEffects)


class RequirementForm(AnswerForm, frozen=True, kw_only=True):
    """An effect that a computation requires."""

    id: str
    type: str
    params: dict[str, Any]
    action_id: str
    node_path: str


class DeclaredForm(AnswerForm, frozen=True, kw_only=True):
    """What an effect may touch."""

    predicate: str
    resource: str
    confidence: str


class CalledForm(AnswerForm, frozen=True, kw_only=True):
    """An effect of an execution, with all that its handler needs; times are in ms since 1970."""

    proposal_id: str
    requirement: RequirementForm
    idempotency_key: str
    attempt: int
    intent: IntentForm
    now: int
    seed: str
    on_world: str
    requested_at: int
    fencing_token: int
    actor: ActorForm | None = None
    approved_scope: ScopeForm | None = None
    scope_rules: int
    declared: list[DeclaredForm] | None = None
    declaration_required: bool
    types: dict[str, Any]
    ignores_case: bool
    ignores_normal_form: bool


class DoubtForm(CalledForm, frozen=True, kw_only=True):
    """An effect in doubt that a worker can look up; `askedAt` is when the request was recorded."""

    asked_at: int


class UnreadableForm(AnswerForm, frozen=True, kw_only=True):
    """An effect in doubt for which no worker can be given what it needs to look it up."""

    proposal_id: str
    requirement_id: str
    reason: str


class ClaimForm(CalledForm, frozen=True, kw_only=True):
    """An effect that one worker may perform until `deadline`; see `world.state.effect_claim.EffectClaim`."""

    claim_id: str
    token: int
    deadline: int
    worker: str
    time_limit_ms: int
    idempotent: bool
    workspace: str | None = None
    subject: str | None = None


CLAIM: Final = ClaimForm(
    proposal_id=ID,
    requirement=RequirementForm(
        id=HASH, type="mail.send", params={"to": "rome"}, action_id="send", node_path="actions.send.0"
    ),
    idempotency_key=f"order-17:{HASH}",
    attempt=1,
    intent=IntentForm(
        body=BodyForm(type="send", input={"to": "rome"}),
        intent_id="order-17",
        intent_key=HASH,
        meta=IntentMetaForm(
            origin=OriginForm(projection_id="api:intent", source=SourceForm(kind="api", event_id=ID), actor=ACTOR)
        ),
    ),
    now=NOW,
    seed="order-17",
    on_world=WORLD,
    requested_at=NOW,
    fencing_token=0,
    scope_rules=2,
    declaration_required=True,
    types={},
    ignores_case=False,
    ignores_normal_form=False,
    claim_id=ID,
    token=19,
    deadline=NOW + 35_000,
    worker="mailer-1",
    time_limit_ms=30_000,
    idempotent=True,
)
"""A claim, for examples."""

_CLAIM: Final[dict[str, Any]] = to_builtins(CLAIM)
_REPORT: Final[dict[str, Any]] = {"result": {"value": {"receipt": "r-1"}}}
_DOUBT: Final = DoubtForm(
    asked_at=NOW,
    **{name: getattr(CLAIM, name) for name in CalledForm.__struct_fields__},
)


class EffectTrace(AnswerForm, frozen=True, kw_only=True):
    """W3C trace context of the proposal of an effect."""

    traceparent: str


class ClaimedEffect(AnswerForm, frozen=True, kw_only=True):
    """A claim, or null; the trace of its proposal, and the time with which its deadline is compared."""

    claim: ClaimForm | None
    now: int
    trace: EffectTrace | None


def _claimed(call: OperationCall, claim: EffectClaim | None) -> ClaimedEffect:
    """Return a claim with the trace of its proposal and the present time."""
    known = None if claim is None else call.hosted.realm.realm().proposals.get(claim.proposal_id)
    recorded = None if known is None else (known.submitted.trace or {}).get("traceparent")
    return ClaimedEffect(
        claim=None if claim is None else convert(claim.to_wire(), ClaimForm),
        now=call.clock.now_ms(),
        trace=None if recorded is None else EffectTrace(traceparent=recorded),
    )


class ClaimEffect(RequestForm, frozen=True, kw_only=True):
    """What a worker performs: types of effects (absent, all), and the workspaces that it has; and its name.

    `proposalId` limits the claim to the effects of one proposal.
    """

    worker: Name
    proposal_id: Name | None = None
    types: Types | None = None
    workspaces: Annotated[list[Name], Meta(max_length=100)] = field(default_factory=list)
    wait: Annotated[Seconds, Unhashed, Meta(description="Seconds to wait for an effect; the server limits them.")] = 0


@operation(
    "effects.claim",
    "POST /effects:claim",
    _WORKS,
    is_keyed=True,
    awaited=Awaited(
        "",
        lambda _, answer: answer.claim is not None,
        pause_s=lambda call, most: call.hosted.realm._next_offer_s(most),
    ),
    example=(
        ClaimEffect(worker="mailer-1", types=["mail.send"]),
        ClaimedEffect(claim=CLAIM, now=NOW, trace=None),
    ),
)
def claim_effect(call: OperationCall, request: ClaimEffect) -> ClaimedEffect:
    """Claim the effect that was offered first; `claim` is null where none is offered within the time to wait."""
    from worldprotocol.api.callers.request_keys import check_key

    claim = call.realm.claim_effect(
        request.types,
        worker=request.worker,
        workspaces=tuple(request.workspaces),
        proposal_id=request.proposal_id,
        key=None if call.key is None else check_key(call.key),
    )
    return _claimed(call, claim)


class ExtendClaim(RequestForm, frozen=True, kw_only=True):
    """A claim of the caller, as the answer to `:claim` or `:heartbeat` has it."""

    claim: dict[str, Any]


def _claim_of_caller(call: OperationCall, wire: dict[str, Any]) -> EffectClaim:
    """Return the claim that a request names, as one of the caller."""
    from world.state.effect_claim import EffectClaim, read_form

    return structs.replace(read_form(EffectClaim, wire), subject=call.actor_id)


@operation(
    "effects.heartbeat",
    "POST /effects:heartbeat",
    _WORKS,
    is_keyed=True,
    example=(ExtendClaim(claim=_CLAIM), ClaimedEffect(claim=CLAIM, now=NOW, trace=None)),
)
def extend_claim(call: OperationCall, request: ExtendClaim) -> ClaimedEffect:
    """Extend a claim of the caller by the time limit of its effect from now."""
    return _claimed(call, call.realm.heartbeat_effect(_claim_of_caller(call, request.claim)))


class ReportResult(RequestForm, frozen=True, kw_only=True):
    """The result of an effect that the caller claimed."""

    claim: dict[str, Any]
    report: dict[str, Any]


class ReportedEffect(AnswerForm, frozen=True, kw_only=True):
    """The proposal of an effect, and its status."""

    proposal_id: str
    status: ProposalStatus


def _reported(proposal: Proposal) -> ReportedEffect:
    return ReportedEffect(proposal_id=proposal.proposal_id, status=proposal.status)


def completed(
    call: OperationCall, request: ReportResult, check: Callable[[EffectClaim], None] = lambda _: None
) -> ReportedEffect:
    """Record the result of a claim of the caller.

    Args:
        call: the call.
        request: the claim and its result.
        check: refuses claims.

    Raises:
        RefusedError: ``INVALID_VALUE``, and the codes of ``Realm.complete_effect`` and ``check``.
    """
    from world.state.effect_claim import EffectReport, read_form

    claim, performed = _claim_of_caller(call, request.claim), read_form(EffectReport, request.report).performed
    check(claim)
    return _reported(call.realm.complete_effect(claim, performed))


@operation(
    "effects.complete",
    "POST /effects:complete",
    _WORKS,
    is_keyed=True,
    example=(
        ReportResult(claim=_CLAIM, report=_REPORT),
        ReportedEffect(proposal_id=ID, status="completed"),
    ),
)
def complete_effect(call: OperationCall, request: ReportResult) -> ReportedEffect:
    """Record the result of an effect that the caller claimed; a repetition changes nothing."""
    return completed(call, request)


class ListDoubts(RequestForm, frozen=True, kw_only=True):
    """Types of effects that a worker performs."""

    types: Annotated[Types, Meta(description="Type of effects, once or more.")] = field(name="type")


class ListedDoubts(AnswerForm, frozen=True, kw_only=True):
    """Effects in doubt that a worker can look up, and those for which none can be given what it needs."""

    doubts: list[DoubtForm]
    unreadable: list[UnreadableForm]


@operation(
    "effects.doubts",
    "GET /effects/doubts",
    _WORKS,
    example=(ListDoubts(types=["mail.send"]), ListedDoubts(doubts=[_DOUBT], unreadable=[])),
)
def list_doubts(call: OperationCall, request: ListDoubts) -> ListedDoubts:
    """List the effects in doubt, of types that workers perform, that a worker without a workspace can look up.

    Those of which a worker cannot be given what it needs are named in ``unreadable``, with the reason.
    """
    from world.state.effect_claim import EffectDoubt

    found = call.realm._claims.doubts(request.types)
    doubts = [one.to_wire() for one in found if isinstance(one, EffectDoubt)]
    unreadable = [one.to_wire() for one in found if not isinstance(one, EffectDoubt)]
    return convert({"doubts": doubts, "unreadable": unreadable}, ListedDoubts)


class ReportFound(RequestForm, frozen=True, kw_only=True):
    """What the caller found out about an effect in doubt, as the answer to `GET /effects/doubts` has it."""

    doubt: dict[str, Any]
    report: dict[str, Any]


@operation(
    "effects.found",
    "POST /effects:found",
    _WORKS,
    is_keyed=True,
    example=(
        ReportFound(doubt=to_builtins(_DOUBT), report=_REPORT),
        ReportedEffect(proposal_id=ID, status="completed"),
    ),
)
def record_found(call: OperationCall, request: ReportFound) -> ReportedEffect:
    """Record the result of an effect in doubt that the caller looked up; a repetition changes nothing."""
    from world.state.effect_claim import EffectDoubt, EffectReport, read_form

    doubt, performed = read_form(EffectDoubt, request.doubt), read_form(EffectReport, request.report).performed
    return _reported(call.realm._claims.found(doubt, performed))
