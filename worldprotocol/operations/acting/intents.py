"""Operations that submit: intents and source events."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta, structs, to_builtins

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.operations import AnswerForm, Awaited, InHeader, OperationCall, RequestForm, Unhashed, operation
from worldprotocol.operations.calling import invalid
from worldprotocol.operations.fields import Name, Seconds, ShownHistory
from worldprotocol.operations.proposals import OPEN, changed_proposal
from worldprotocol.operations.records import PROPOSAL, ProposalForm, SourceKind

if TYPE_CHECKING:
    from world.events.verification import IntentSignature
    from world.model.intent import IntentInstance
    from world.model.source import SourceEvent
    from worldprotocol.api.options import SubmitOptions
    from worldprotocol.api.requests import ProjectionOutcome

Wait = Annotated[Seconds, Unhashed, Meta(description="Seconds to wait for the outcome; the server limits them.")]
Within = Annotated[
    float,
    Meta(
        gt=0,
        le=3_600,
        description="Seconds after which a submitted intent is answered though its effects still run; "
        "request_timeout_s by default.",
    ),
]
Trace = Annotated[str, Meta(description="W3C trace context, recorded with the proposal.")]


class SubmissionRequest(RequestForm, frozen=True, kw_only=True):
    """How an intent is submitted; `baseWorld` without `branch` is a fork, and needs the right to read all."""

    branch: Name | None = None
    base_world: Name | None = None
    fork_name: Name | None = None
    allow_failed_base: bool = False
    trace: dict[str, Any] | None = None
    execution_key: Name | None = None
    wait: Wait = 0
    history: ShownHistory = False
    traceparent: Annotated[Trace | None, InHeader("traceparent")] = None


class SignatureOfIntent(RequestForm, frozen=True, kw_only=True):
    """A signature of an IntentInstance by a registered key of its actor (docs/server.md, Signed intents)."""

    key_id: Name
    issued_at: Annotated[int, Meta(ge=0, le=2**53)]
    signature: Name


class IssuedIntent(RequestForm, frozen=True, kw_only=True):
    """An IntentInstance that the caller issued, and its signature by a key of its actor; its actor is the caller."""

    body: dict[str, Any]
    intent_id: Name
    intent_key: Name
    meta: dict[str, Any]
    signature: SignatureOfIntent | None = None


class SubmitIntent(SubmissionRequest, frozen=True, kw_only=True):
    """An intent of the caller that the server issues: `type`, `input`, `scopeProposal`, `note` and `continueOpen`.

    Or one that the caller issued: its members and its signature, without options; or `intent` with options.
    """

    type: Name | None = None
    input: Any = None
    scope_proposal: dict[str, Any] | None = None
    note: str | None = None
    continue_open: Annotated[
        bool, Meta(description="Return the open, undecided proposal of the same intentKey, where there is one.")
    ] = False
    body: dict[str, Any] | None = None
    intent_id: Name | None = None
    intent_key: Name | None = None
    meta: dict[str, Any] | None = None
    signature: SignatureOfIntent | None = None
    intent: IssuedIntent | None = None
    within: Annotated[Within | None, Unhashed] = None


_OWN: Final = attrgetter("type", "input", "scope_proposal", "note", "continue_open")
_ISSUED: Final = attrgetter("body", "intent_id", "intent_key", "meta", "signature")
_OPTIONS: Final = attrgetter("branch", "base_world", "fork_name", "allow_failed_base", "trace", "execution_key")


def _is_given(*values: Any) -> bool:
    return any(one is not None and one is not False for one in values)


def _issued(request: SubmitIntent) -> IssuedIntent | None:
    """Return the intent that the caller issued; None for one that the server issues.

    Raises:
        RefusedError: ``INVALID_VALUE`` for a request that names none of both, or parts of several.
    """
    own, issued = _is_given(*_OWN(request)), _is_given(*_ISSUED(request))
    if request.type is not None and not issued and request.intent is None:
        return None
    if request.intent is not None and not own and not issued:
        return request.intent
    if issued and not own and request.intent is None and not _is_given(*_OPTIONS(request)):
        *required, signature = _ISSUED(request)
        if None in required:
            raise invalid("body", "An issued intent has `body`, `intentId`, `intentKey` and `meta`")
        body, intent_id, intent_key, meta = required
        return IssuedIntent(body=body, intent_id=intent_id, intent_key=intent_key, meta=meta, signature=signature)
    raise invalid("body", "Give the `type` of an intent, or one that you issued, or that as `intent` with its options")


def signed_intent(issued: IssuedIntent) -> tuple[IntentInstance, IntentSignature | None]:
    """Return an intent that its caller issued, and its signature.

    Args:
        issued: the intent, of which nothing is verified.

    Raises:
        RefusedError: ``INVALID_VALUE``, ``NOT_CANONICAL``.
    """
    from world.events.verification import IntentSignature
    from world.model.intent import IntentInstance

    wire = to_builtins(issued)
    signature = wire.pop("signature", None)
    return IntentInstance.read(wire), None if signature is None else IntentSignature.read(signature)


def _options(call: OperationCall, request: SubmissionRequest) -> SubmitOptions:
    """Return the options of a submission.

    Raises:
        RefusedError: ``RIGHT_MISSING`` for a base world that the caller may not read.
    """
    trace: Mapping[str, Any] | None = request.trace
    if request.traceparent is not None:
        from worldprotocol.api.telemetry.context import TRACEPARENT

        if TRACEPARENT.fullmatch(request.traceparent):
            trace = {**(trace or {}), "traceparent": request.traceparent}
    options: SubmitOptions = {"branch": request.branch, "trace": trace, "execution_key": request.execution_key}
    if request.base_world is not None:
        if not call.visibility.reads_all or call.visibility.rules:
            raise RefusedError(
                ErrorCode.RIGHT_MISSING,
                "`baseWorld` names any world; it needs the right reader without redaction, or auditor, besides actor.",
            )
        options["base_world"] = request.base_world
    options["fork_name"] = request.fork_name
    options["allow_failed_base"] = request.allow_failed_base
    return options


def _meant(request: SubmissionRequest) -> dict[str, Any]:
    """Return what a submission means: it may be repeated with another trace."""
    meant: dict[str, Any] = to_builtins(structs.replace(request, trace=None))
    return meant


def _submitted(call: OperationCall, request: SubmitIntent) -> ProposalForm | None:
    """Return the proposal of an intent that was submitted meanwhile; None where it is not yet recorded."""
    from worldprotocol.api.callers.keyed import proposal_of_intent

    issued = _issued(request)
    proposal = proposal_of_intent(call.hosted.realm, (issued and issued.intent_id) or call.made_id or "")
    return None if proposal is None else changed_proposal(call, proposal, history=request.history)


def _status(answer: ProposalForm | None) -> int:
    return 202 if answer is not None and answer.status in OPEN else 200


def _place(answer: ProposalForm | None) -> str | None:
    return None if answer is None else f"/proposals/{answer.proposal_id}"


def _now(call: OperationCall, request: SubmitIntent, answer: ProposalForm) -> ProposalForm:
    """Return the proposal of an answer as it is now."""
    return changed_proposal(call, call.hosted.realm.proposal(answer.proposal_id), history=request.history)


@operation(
    "intents.submit",
    "POST /intents",
    "actor",
    is_keyed=True,
    interim=_submitted,
    awaited=Awaited(lambda _, answer: answer.proposal_id, lambda _, answer: answer.status not in OPEN, _now),
    location=_place,
    status=_status,
    statuses=(200, 202),
    example=(SubmitIntent(type="order.place", input={"item": "tea"}), PROPOSAL),
)
def submit(call: OperationCall, request: SubmitIntent) -> ProposalForm:
    """Submit an intent as the caller.

    200 once it has ended, 202 while people, leases or effects are waited for. The key of an intent that the caller
    issued is its intentId, which the `Idempotency-Key` may repeat.
    """
    from worldprotocol.api.callers.keyed import submit_once
    from worldprotocol.api.callers.request_keys import keyed

    realm, key, issued = call.hosted.realm, call.key, _issued(request)
    options = _options(call, request)
    if issued is None:
        intent = realm.issue(
            call.actor_id, request.type or "", request.input, scope=request.scope_proposal, note=request.note
        )
        intent = structs.replace(intent, intent_id=call.made_id or intent.intent_id)
        meant = {} if key is None else _meant(request)
    else:
        intent, options["signature"] = signed_intent(issued)
        if key is not None and key != intent.intent_id:
            raise RefusedError(
                ErrorCode.INVALID_VALUE,
                f"The Idempotency-Key {key} is not the intentId {intent.intent_id}; send the same, or no key.",
            )
        key, meant = intent.intent_id, {"intent": intent.to_wire()}
    caller = keyed(call.verified, key, submit.name, meant, submit.unhashed, checks=issued is None)
    proposal = submit_once(realm, caller, intent, continues=request.continue_open, **options)
    return changed_proposal(call, proposal, history=request.history)


class ProjectSource(SubmissionRequest, frozen=True, kw_only=True):
    """A source event, projected for the caller."""

    kind: SourceKind
    event_id: Name
    payload: Any = None
    occurred_at: int | None = None


class ProjectedSource(AnswerForm, frozen=True, kw_only=True):
    """Outcome of a projection: null as `projectionId` where all declined, as `proposal` where no intent was selected.

    ``reason`` is why the projection selected no intent.
    """

    projection_id: str | None
    reason: str | None
    proposal: ProposalForm | None


def _projected(call: OperationCall, outcome: ProjectionOutcome, *, history: bool) -> ProjectedSource:
    """Return the outcome of a projection as an answer."""
    proposal = outcome.proposal
    return ProjectedSource(
        projection_id=outcome.projection_id,
        reason=outcome.reason,
        proposal=None if proposal is None else changed_proposal(call, proposal, history=history),
    )


def _is_over(_: ProjectSource, answer: ProjectedSource) -> bool:
    return answer.proposal is None or answer.proposal.status not in OPEN


def _outcome_now(call: OperationCall, request: ProjectSource, answer: ProjectedSource) -> ProjectedSource:
    """Return the outcome of a projection with its proposal as that is now."""
    name = "" if answer.proposal is None else answer.proposal.proposal_id
    proposal = changed_proposal(call, call.hosted.realm.proposal(name), history=request.history)
    return structs.replace(answer, proposal=proposal)


@operation(
    "events.project",
    "POST /events",
    "actor",
    is_keyed=True,
    awaited=Awaited(lambda _, answer: answer.proposal.proposal_id if answer.proposal else "", _is_over, _outcome_now),
    location=lambda answer: _place(answer.proposal),
    status=lambda answer: _status(answer.proposal),
    statuses=(200, 202),
    example=(
        ProjectSource(kind="api", event_id="mail-17", payload={"text": "one tea"}),
        ProjectedSource(projection_id="orders", reason=None, proposal=PROPOSAL),
    ),
)
def project(call: OperationCall, request: ProjectSource) -> ProjectedSource:
    """Project a source event to an intent of the caller.

    200 once its proposal has ended or no intent was selected, 202 while it waits.
    """
    from worldprotocol.api.callers.keyed import has_source, projected
    from worldprotocol.api.callers.request_keys import keyed, once

    realm, source, options = call.hosted.realm, _source(request), _options(call, request)
    meant = {} if call.key is None else _meant(request)
    outcome = once(
        realm,
        keyed(call.verified, call.key, project.name, meant, project.unhashed),
        lambda acting: acting.project(source, call.actor_id, **options),
        again=lambda events: projected(realm.proposal(events[0].proposal_id)),
        is_same=has_source(source),
    )
    return _projected(call, outcome, history=request.history)


def _source(request: ProjectSource) -> SourceEvent:
    from world.model.source import SourceEvent

    members = {"kind": request.kind, "eventId": request.event_id}
    optional = {"payload": request.payload, "occurredAt": request.occurred_at}
    return SourceEvent.read(members | {name: value for name, value in optional.items() if value is not None})
