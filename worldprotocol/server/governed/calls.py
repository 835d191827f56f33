"""Calls of the tools of a program: the operations that begin one and report its result.

A call waits for its answer by the steps of ``worldprotocol.agents.tool_calls``, without a thread meanwhile.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any, Final

from fastapi import Query, Request, Response

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.state.effect_claim import EffectClaim
from worldprotocol.agents.call_values import Allowed, Answer, Denied, StillWaiting, ToolCall
from worldprotocol.agents.tool_calls import ToolCalls
from worldprotocol.server.bodies import CallToBegin, EffectResultToRecord
from worldprotocol.server.call import Authorized, Call, answer
from worldprotocol.server.operation_table import handles
from worldprotocol.server.operations.acting import Key
from worldprotocol.server.operations.effects import completed
from worldprotocol.server.service import AgentsOfRealm

__all__ = ["WORKER", "agents_of", "begun"]

WORKER: Final = "calls"
"""Name of the worker in the claims of such calls."""

SLICE_S: Final = 5.0
"""Longest time between two looks at whether the caller is still there, in seconds."""

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
        name, told = await _asked(call, request, calls, tool_call, wait_s)
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


def agents_of(call: Call) -> AgentsOfRealm:
    """Return how the realm of a request takes calls of coding agents.

    Raises:
        RefusedError: ``HOOKS_NOT_CONFIGURED``.
    """
    if call.hosted.agents is None:
        raise RefusedError(
            ErrorCode.HOOKS_NOT_CONFIGURED,
            f"The realm {call.hosted.name} takes no hooks: add the section [agents] to its world.toml, and start the "
            "server again.",
        )
    return call.hosted.agents


def _form(found: Answer) -> dict[str, Any]:
    named = {"proposalId": found.proposal.proposal_id}
    if isinstance(found, Allowed):
        return {"answer": "allowed", **named, "claim": found.claim.to_wire()}
    if isinstance(found, Denied):
        result = None if found.result is None else found.result.to_wire()
        return {"answer": "denied", **named, "code": found.code, "reason": found.reason, "result": result}
    return {"answer": "waiting", **named, "waitsFor": found.waits_for}


async def begun(call: Call, request: Request, calls: ToolCalls, tool_call: ToolCall, wait_s: float) -> Answer | None:
    """Propose a call, and wait until it may be made, must not, or the time is over.

    Args:
        call: the authorised request.
        request: the request, whose sender may go.
        calls: the calls of its sender.
        tool_call: the call.
        wait_s: longest wait, in seconds.

    Returns:
        The answer; None where the sender is gone, and nothing was claimed.

    Raises:
        TooManyRequestsError: too many requests wait.
        RefusedError: as ``ToolCalls.submit``.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + wait_s
    with call.waits:
        while True:
            name = await _answered(call, request, calls, tool_call, end)
            if name is None:
                return None
            answer = await call.run(partial(calls.look, tool_call, name))
            if answer is not None and not (isinstance(answer, StillWaiting) and loop.time() < end):
                return answer
            if call.hosted.log_watch.is_closed:
                return answer


async def _asked(
    call: Call, request: Request, calls: ToolCalls, tool_call: ToolCall, wait_s: float
) -> tuple[str, Denied | StillWaiting | None]:
    """Propose a call, and wait until it is decided; nothing is claimed. Arguments and errors are those of ``begun``.

    Returns:
        The id of its proposal, and the answer; None where it may be begun, or the sender is gone.
    """
    end = asyncio.get_running_loop().time() + wait_s
    with call.waits:
        name = await _answered(call, request, calls, tool_call, end)
    return ("", None) if name is None else (name, await call.run(partial(calls.peek, tool_call, name)))


async def _answered(call: Call, request: Request, calls: ToolCalls, tool_call: ToolCall, end: float) -> str | None:
    """Propose a call, wait until it is answered or the time is over, and return its proposal; None: the sender left."""
    proposal = await call.run(partial(calls.submit, tool_call))
    name, is_ready = proposal.proposal_id, partial(calls.is_answered, tool_call)
    while not is_ready(proposal):
        left = end - asyncio.get_running_loop().time()
        if left <= 0 or call.hosted.log_watch.is_closed:
            break
        read = partial(call.hosted.realm.proposal, name)
        proposal = await call.hosted.log_watch.wait_until(name, read, is_ready, min(left, SLICE_S))
        if await request.is_disconnected():
            return None
    return name
