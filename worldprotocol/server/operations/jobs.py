"""Streams of the progress of jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from fastapi import Response
from sse_starlette import EventSourceResponse, ServerSentEvent

from worldprotocol.operations.jobs import JobForm, VerificationForm, verified
from worldprotocol.server.call import Call
from worldprotocol.server.connections.protocol import TAKEN_WITHIN_S
from worldprotocol.server.log_watch import PING_S
from worldprotocol.server.operation_table import streams


@streams("verify.stream")
@streams("jobs.stream")
async def stream_job(call: Call, _: Any, begun: JobForm) -> Response:
    """Stream the states of a job; the last one has its result, or the report of a verification."""
    call.check_waits()
    job = call.hosted.jobs.job(begun.job_id)

    async def states() -> AsyncIterator[ServerSentEvent]:
        with call.waits:
            async for one in job.states():
                is_running = one.status == "running"
                shown = verified(job) if isinstance(begun, VerificationForm) and not is_running else one
                data = msgspec.json.encode(shown).decode()
                yield ServerSentEvent(data, event="progress" if is_running else "ended")

    return event_source(states())


def event_source(events: AsyncIterator[ServerSentEvent]) -> Response:
    """Return a stream of events to one reader, which ends with its source or with the connection."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return EventSourceResponse(events, ping=PING_S, send_timeout=TAKEN_WITHIN_S, headers=headers)
