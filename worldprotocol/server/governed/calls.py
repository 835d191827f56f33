"""A call of a tool that waits for its answer: the steps of ``worldprotocol.agents.tool_calls`` without a thread."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from fastapi import Request

from worldprotocol.agents.call_values import Answer, Denied, StillWaiting, ToolCall
from worldprotocol.agents.tool_calls import ToolCalls
from worldprotocol.server.call import Call

__all__ = ["asked", "begun"]

SLICE_S: Final = 5.0
"""Longest time between two looks at whether the caller is still there, in seconds."""


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


async def asked(
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
