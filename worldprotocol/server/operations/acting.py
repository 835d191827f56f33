"""Operations that submit: intents and source events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import Header, Query, Response
from msgspec import structs
from pydantic import BaseModel

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.intent import IntentInstance
from world.model.source import SourceEvent
from world.state.proposal import Proposal
from worldprotocol.api.callers.keyed import has_source, projected, proposal_of_intent, submit_once
from worldprotocol.api.callers.request_keys import keyed, once
from worldprotocol.api.options import SubmitOptions
from worldprotocol.api.requests import ProjectionOutcome
from worldprotocol.api.telemetry.context import TRACEPARENT
from worldprotocol.server.bodies import IntentToSubmit, IntentWithOptions, IssuedIntent, SourceToProject
from worldprotocol.server.call import Authorized, Call, answer, timed_out
from worldprotocol.server.operation_table import handles

__all__ = ["Key"]

Wait = Annotated[float, Query(ge=0, le=3_600, description="Seconds to wait for the outcome; the server limits them.")]
Within = Annotated[
    float | None,
    Query(
        gt=0,
        le=3_600,
        description="Seconds after which a submitted intent is answered though its effects still run; "
        "request_timeout_s by default.",
    ),
]
History = Annotated[bool, Query(description="Add the events of the proposal, as the log holds them.")]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Key of the request, one of the actor's; a repeated request has one effect.",
    ),
]
Trace = Annotated[str | None, Header(description="W3C trace context, recorded with the proposal.")]


@handles("intents.submit")
async def submit(
    call: Authorized,
    body: IntentToSubmit | IssuedIntent | IntentWithOptions,
    wait: Wait = 0,
    within: Within = None,
    history: History = False,
    idempotency_key: Key = None,
    traceparent: Trace = None,
) -> Response:
    """Submit an intent; 200 once it has ended, 202 while people, leases or effects are waited for."""
    key, realm = idempotency_key, call.hosted.realm
    options: SubmitOptions = {} if isinstance(body, IssuedIntent) else _options(call, body)
    issued = body.intent if isinstance(body, IntentWithOptions) else body
    intent = None
    if isinstance(issued, IssuedIntent):
        intent = IntentInstance.read(issued.model_dump(exclude={"signature"}))
        options["signature"] = None if issued.signature is None else issued.signature.model_dump()
        if key is not None and key != intent.intent_id:
            raise RefusedError(
                ErrorCode.INVALID_VALUE,
                f"The Idempotency-Key {key} is not the intentId {intent.intent_id}; send the same, or no key.",
            )
        key = intent.intent_id
    name = realm.new_id() if intent is None else intent.intent_id
    options["trace"] = _traced(options.get("trace"), traceparent)
    continues = isinstance(issued, IntentToSubmit) and issued.continueOpen

    def run() -> Proposal:
        made = intent
        if made is None:
            assert isinstance(issued, IntentToSubmit)
            made = realm.issue(call.actor_id, issued.type, issued.input, scope=issued.scopeProposal, note=issued.note)
            made = structs.replace(made, intent_id=name)
        meant = {} if key is None else _meant(body, intent)
        caller = keyed(call.verified, key, call.operation.name, meant, checks=intent is None)
        return submit_once(realm, caller, made, continues=continues, **options)

    proposal = await _submitted(call, name, run, (within, wait))
    proposal = await waited(call, proposal, wait)
    shown = await rendered(call, proposal, history=history)
    return answer(shown, 200 if proposal.is_terminal else 202, location(call, proposal))


def _meant(body: BaseModel, intent: IntentInstance | None = None) -> dict[str, Any]:
    """Return what a submission means: it may be repeated with another trace, an issued intent with other options."""
    return body.model_dump(exclude={"trace"}) if intent is None else {"intent": intent.to_wire()}


def _options(call: Call, body: IntentToSubmit | IntentWithOptions | SourceToProject) -> SubmitOptions:
    """Return the options of a submission.

    Raises:
        RefusedError: ``RIGHT_MISSING`` for a base world that the caller may not read.
    """
    options: SubmitOptions = {"branch": body.branch, "trace": body.trace, "execution_key": body.executionKey}
    if body.baseWorld is not None:
        if not call.visibility.reads_all or call.visibility.rules:
            raise RefusedError(
                ErrorCode.RIGHT_MISSING,
                "`baseWorld` names any world; it needs the right reader without redaction, or auditor, besides actor.",
            )
        options["base_world"] = body.baseWorld
    options["fork_name"] = body.forkName
    options["allow_failed_base"] = body.allowFailedBase
    return options


@handles("events.project")
async def project(
    call: Authorized,
    body: SourceToProject,
    wait: Wait = 0,
    history: History = False,
    idempotency_key: Key = None,
    traceparent: Trace = None,
) -> Response:
    """Project a source event; 200 once its proposal has ended or no intent was selected, 202 while it waits."""
    wire = {"kind": body.kind, "eventId": body.eventId}
    optional = {"payload": body.payload, "occurredAt": body.occurredAt}
    source = SourceEvent.read(wire | {name: value for name, value in optional.items() if value is not None})
    options = _options(call, body)
    options["trace"] = _traced(options.get("trace"), traceparent)
    realm = call.hosted.realm

    def run() -> ProjectionOutcome:
        return once(
            realm,
            keyed(call.verified, idempotency_key, call.operation.name, _meant(body)),
            lambda acting: acting.project(source, call.actor_id, **options),
            again=lambda events: projected(realm.proposal(events[0].proposal_id)),
            is_same=has_source(source),
        )

    outcome = await call.run(run)
    proposal = outcome.proposal
    found: dict[str, Any] = {"projectionId": outcome.projection_id, "reason": outcome.reason, "proposal": None}
    if proposal is None:
        return answer(found)
    proposal = await waited(call, proposal, wait)
    found["proposal"] = await rendered(call, proposal, history=history)
    return answer(found, 200 if proposal.is_terminal else 202, location(call, proposal))


async def rendered(call: Call, proposal: Proposal, *, history: bool) -> dict[str, Any]:
    """Return a proposal that the caller has just changed, as JSON.

    Args:
        call: the request.
        proposal: the proposal.
        history: add its events up to that state.
    """
    if not history:
        return proposal.to_wire()
    log = call.hosted.realm.log
    events = await call.run(lambda: call.visibility.history(log.stream(proposal.proposal_id)))
    return proposal.to_wire() | {"history": events}


def _traced(trace: Mapping[str, Any] | None, traceparent: str | None) -> Mapping[str, Any] | None:
    """Return the trace of a submission with the trace context of its request, where that is valid."""
    if traceparent is None or not TRACEPARENT.fullmatch(traceparent):
        return trace
    return {**(trace or {}), "traceparent": traceparent}


def location(call: Call, proposal: Proposal) -> dict[str, str]:
    """Return the header field with the path of a proposal."""
    return {"Location": f"/v1/realms/{call.hosted.name}/proposals/{proposal.proposal_id}"}


async def _submitted(
    call: Call, intent_id: str, run: Callable[[], Proposal], seconds: tuple[float | None, float]
) -> Proposal:
    """Return the proposal of a submission; one whose effects take longer than a request may is returned as it is.

    Args:
        call: the request.
        intent_id: intentId of the submission.
        run: submits.
        seconds: ``within`` and ``wait`` of the request.
    """
    within, wait = seconds
    service = call.service
    longest = max(service.config.request_timeout_s, min(wait, service.config.max_wait_s))
    running = asyncio.ensure_future(service.threads.run(run))
    first = longest if within is None else min(within, longest)
    for time_s in (first, longest - first):
        await asyncio.wait([running], timeout=time_s)
        if running.done():
            return running.result()
        found = await service.threads.run(lambda: proposal_of_intent(call.hosted.realm, intent_id))
        if found is not None:
            break
    running.add_done_callback(lambda done: done.cancelled() or done.exception())
    if found is None:
        raise timed_out(service)
    return found


async def waited(call: Call, proposal: Proposal, wait: float) -> Proposal:
    """Return a proposal once it has ended, or after the time that the request may wait.

    Raises:
        TooManyRequestsError: too many requests wait.
    """
    service, realm, name = call.service, call.hosted.realm, proposal.proposal_id
    if proposal.is_terminal or wait == 0:
        return proposal
    seconds = min(wait, service.config.max_wait_s)
    with call.waits:
        return await call.hosted.log_watch.wait_until(
            name, lambda: realm.proposal(name), lambda found: found.is_terminal, seconds
        )
