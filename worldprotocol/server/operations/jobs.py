"""Streams of jobs: the progress of one, and of the newest verification."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from fastapi import Path, Response
from sse_starlette import EventSourceResponse, ServerSentEvent

from worldprotocol.operations.jobs import job_of, verified
from worldprotocol.server.call import Authorized, Call
from worldprotocol.server.connections.protocol import TAKEN_WITHIN_S
from worldprotocol.server.jobs.job import Job
from worldprotocol.server.log_watch import PING_S
from worldprotocol.server.operation_table import handles

JobId = Annotated[str, Path(min_length=1, max_length=200)]


@handles("verify.stream")
async def stream_verification(call: Authorized) -> Response:
    """Stream the progress of the newest verification (SSE); the last event, `ended`, has the report."""
    return _streamed(call, call.hosted.jobs.newest("verify"))


@handles("jobs.stream")
async def stream_job(call: Authorized, job_id: JobId) -> Response:
    """Stream the progress of a job (SSE); the last event, `ended`, has the result."""
    job_of(call, job_id)
    return _streamed(call, call.hosted.jobs.job(job_id))


def _streamed(call: Call, job: Job) -> Response:
    call.check_waits()
    is_verification = call.operation.name == "verify.stream"

    async def states() -> AsyncIterator[ServerSentEvent]:
        with call.waits:
            async for one in job.states():
                is_running = one.status == "running"
                shown = verified(job) if is_verification and not is_running else one
                data = msgspec.json.encode(shown).decode()
                yield ServerSentEvent(data, event="progress" if is_running else "ended")

    return event_source(states())


def event_source(events: AsyncIterator[ServerSentEvent]) -> Response:
    """Return a stream of events to one reader, which ends with its source or with the connection."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return EventSourceResponse(events, ping=PING_S, send_timeout=TAKEN_WITHIN_S, headers=headers)
