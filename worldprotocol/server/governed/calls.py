"""Calls of the tools of a program: the operation that begins one.

A call waits for its answer by the steps of ``worldprotocol.agents.tool_calls``, without a thread meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Annotated, Any, Final

from fastapi import Query, Request, Response

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.pipeline.callers import returns_to
from world.state.proposal import Proposal
from worldprotocol.agents.call_values import Allowed, Answer, Denied, StillWaiting, ToolCall
from worldprotocol.agents.tool_calls import ToolCalls
from worldprotocol.api.callers.sessions import caller_returned
from worldprotocol.server.bodies import CallToBegin
from worldprotocol.server.call import Authorized, Call, Key, answer
from worldprotocol.server.governed.presence import WaitingRequest
from worldprotocol.server.operation_table import handles
from worldprotocol.server.service import AgentsOfRealm

__all__ = ["WORKER", "agents_of", "begun"]

WORKER: Final = "calls"
"""Name of the worker in the claims of such calls."""

SLICE_S: Final = 5.0
"""Longest time between two looks at the proposal of a call that waits, in seconds."""

RETURNS_S: Final = 2.0
"""Time that a caller whose connection ended has to return with the key of its call, in seconds."""

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

    An attended call whose sender is gone is ended, unless the sender returns with its key.

    Args:
        call: the authorised request.
        request: the request, whose sender may go.
        calls: the calls of its sender.
        tool_call: the call.
        wait_s: longest wait, in seconds.

    Returns:
        The answer; None where the sender is gone.

    Raises:
        TooManyRequestsError: too many requests wait.
        RefusedError: as ``ToolCalls.submit``.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + wait_s
    with call.waits:
        async with _watched(request) as gone:
            while True:
                proposal = await call.run(partial(calls.submit, tool_call))
                with _waiting(call, tool_call, proposal.proposal_id) as waiting:
                    await _found_here(call, tool_call, proposal)
                    is_here = await _answered(call, gone, calls, tool_call, proposal, end)
                    look = partial(calls.look, tool_call, proposal.proposal_id)
                    answer = await call.run(look) if is_here else None
                    if call.hosted.log_watch.is_closed:
                        return answer
                    if gone.done():
                        claimed = tool_call.claim_key if isinstance(answer, Allowed) else None
                        await _departed(call, waiting, proposal.proposal_id, claimed)
                        return None
                if answer is not None and not (isinstance(answer, StillWaiting) and loop.time() < end):
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
        async with _watched(request) as gone:
            proposal = await call.run(partial(calls.submit, tool_call))
            name = proposal.proposal_id
            with _waiting(call, tool_call, name):
                is_here = await _answered(call, gone, calls, tool_call, proposal, end)
    return (name, await call.run(partial(calls.peek, tool_call, name))) if is_here else ("", None)


async def _answered(
    call: Call, gone: asyncio.Task[None], calls: ToolCalls, tool_call: ToolCall, proposal: Proposal, end: float
) -> bool:
    """Wait until a proposed call is answered, or the time is over, and return whether the sender is still there."""
    name, is_ready = proposal.proposal_id, partial(calls.is_answered, tool_call)
    while True:
        if calls.awaits_caller(proposal):
            proposal = await call.run(partial(calls.resumed, proposal))
        left = end - asyncio.get_running_loop().time()
        if gone.done() or is_ready(proposal) or left <= 0 or call.hosted.log_watch.is_closed:
            return not gone.done()
        read = partial(call.hosted.realm.proposal, name)
        is_next = partial(calls.is_next, tool_call)
        looking = call.hosted.log_watch.wait_until(name, read, is_next, min(left, SLICE_S))
        decided = asyncio.ensure_future(looking)
        try:
            await asyncio.wait({decided, gone}, return_when=asyncio.FIRST_COMPLETED)
            proposal = decided.result() if decided.done() else proposal
        finally:
            decided.cancel()


async def _found_here(call: Call, tool_call: ToolCall, proposal: Proposal) -> None:
    """Note that the caller of an attended call asks here, and record it where it asked another server before."""
    realm = call.hosted.realm
    if tool_call.attended is not None:
        agents_of(call).presence.ask(proposal.proposal_id, realm._acting.now_ms())
    if returns_to(proposal, realm._acting.worker):
        await call.run(partial(caller_returned, realm, proposal.proposal_id))


def _waiting(call: Call, tool_call: ToolCall, proposal_id: str) -> AbstractContextManager[WaitingRequest | None]:
    """Count the request of an attended call as one that waits."""
    is_attended = tool_call.attended is not None
    return agents_of(call).presence.waiting(proposal_id) if is_attended else nullcontext()


@asynccontextmanager
async def _watched(request: Request) -> AsyncIterator[asyncio.Task[None]]:
    """Yield a task that is done when the connection of a request has ended."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    watching = asyncio.create_task(gone())
    try:
        yield watching
    finally:
        watching.cancel()


async def _departed(call: Call, request: WaitingRequest | None, proposal_id: str, claimed: str | None) -> None:
    """End an attended call whose connection has ended, unless it has another caller; the answer was not sent."""
    if request is None:
        return
    agents = agents_of(call)
    request.leave()
    await asyncio.sleep(RETURNS_S)
    if request.is_last:  # an end that cannot be recorded now is recorded later
        agents.presence.depart(proposal_id, claimed)
        await call.run(partial(agents.absent(call.hosted.realm).end_departed, proposal_id))
