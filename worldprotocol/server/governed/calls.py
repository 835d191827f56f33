"""Calls of the tools of coding agents, as their hooks send them.

A call waits for its answer by the steps of ``worldprotocol.agents.tool_calls``, without a thread meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Final

from fastapi import Request

from world.pipeline.callers import returns_to
from world.state.proposal import Proposal
from worldprotocol.agents.call_values import Allowed, Answer, StillWaiting, ToolCall
from worldprotocol.agents.tool_calls import ToolCalls
from worldprotocol.api.callers.sessions import caller_returned
from worldprotocol.operations.acting.agents import agents_of as known_agents
from worldprotocol.operations.acting.calls import SLICE_S
from worldprotocol.server.call import Call
from worldprotocol.server.governed.presence import WaitingRequest
from worldprotocol.server.service import AgentsOfRealm

__all__ = ["agents_of", "begun"]

RETURNS_S: Final = 2.0
"""Time that a caller whose connection ended has to return with the key of its call, in seconds."""


def agents_of(call: Call) -> AgentsOfRealm:
    """Return how the realm of a request takes calls of coding agents.

    Raises:
        RefusedError: ``HOOKS_NOT_CONFIGURED``.
    """
    return known_agents(call.hosted.name, call.hosted.agents)


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
