"""The operations by which a program with its own tools begins a call, and reports its result."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request, Response

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.state.effect_claim import EffectClaim
from worldprotocol.agents.call_values import Allowed, Answer, Denied, ToolCall
from worldprotocol.agents.tool_calls import ToolCalls
from worldprotocol.server.bodies import CallToBegin, EffectResultToRecord
from worldprotocol.server.call import Authorized, answer
from worldprotocol.server.governed.calls import asked, begun
from worldprotocol.server.operation_table import handles
from worldprotocol.server.operations.acting import Key
from worldprotocol.server.operations.effects import completed

__all__ = ["WORKER"]

WORKER = "calls"
"""Name of the worker in the claims of such calls."""

Wait = Annotated[float, Query(ge=0, le=3_600, description="Seconds to wait for people and resources.")]


@handles("calls.begin")
async def begin_call(
    call: Authorized, request: Request, body: CallToBegin, wait: Wait = 0, idempotency_key: Key = None
) -> Response:
    """Propose a call of a tool; `answer` is `allowed` with the claim, `denied` with the reason, or `waiting`.

    With `claim` false nothing is begun, and `open` is in place of `allowed`.
    """
    if idempotency_key is None:
        raise RefusedError(
            ErrorCode.INVALID_VALUE, "The call has no Idempotency-Key; send the caller's own id of the call."
        )
    tool_call = ToolCall(
        idempotency_key,
        body.action,
        body.input,
        trace=body.trace,
        branch=body.branch,
        scope=tuple(body.scope),
        attempt=body.attempt,
    )
    calls = ToolCalls(call.realm, call.actor_id, WORKER)
    wait_s = min(wait, call.service.config.max_wait_s)
    if not body.claim:
        name, told = await asked(call, request, calls, tool_call, wait_s)
        return answer({"answer": "open", "proposalId": name} if told is None else _form(told))
    found = await begun(call, request, calls, tool_call, wait_s)
    return answer({"answer": "waiting"} if found is None else _form(found))  # the caller is gone


@handles("calls.report")
async def report_call(call: Authorized, body: EffectResultToRecord) -> Response:
    """Record the result of a call that the caller began; a repetition changes nothing."""

    def check(claim: EffectClaim) -> None:
        if call.hosted.realm.proposal(claim.proposal_id).submitted.actor.actor_id != call.actor_id:
            raise RefusedError(
                ErrorCode.CLAIM_LOST, f"The call {claim.proposal_id} is of another actor, who reports its result."
            )

    return await completed(call, body, check)


def _form(found: Answer) -> dict[str, Any]:
    named = {"proposalId": found.proposal.proposal_id}
    if isinstance(found, Allowed):
        return {"answer": "allowed", **named, "claim": found.claim.to_wire()}
    if isinstance(found, Denied):
        result = None if found.result is None else found.result.to_wire()
        return {"answer": "denied", **named, "code": found.code, "reason": found.reason, "result": result}
    return {"answer": "waiting", **named, "waitsFor": found.waits_for}
