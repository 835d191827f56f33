"""Operations on jobs: start one of each kind, list, read, follow and cancel."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import orjson
from fastapi import Path, Response
from pydantic import BaseModel
from sse_starlette import EventSourceResponse, ServerSentEvent

from authority.policies.policy_file import policy_from_text
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.state.access import right_fault
from worldprotocol.api.callers.request_keys import check_key
from worldprotocol.server.call import Authorized, Call, Key, answer
from worldprotocol.server.connections.protocol import TAKEN_WITHIN_S
from worldprotocol.server.jobs.bodies import (
    BacktestToStart,
    JobToCancel,
    RecheckToStart,
    VerifyToStart,
    WhatIfToStart,
)
from worldprotocol.server.jobs.job import Job, JobRequest, Kind
from worldprotocol.server.log_watch import PING_S
from worldprotocol.server.operation_table import OPERATIONS, handles

JobId = Annotated[str, Path(min_length=1, max_length=200)]


@handles("verify.start")
async def start_verification(call: Authorized, body: VerifyToStart, idempotency_key: Key = None) -> Response:
    """Start a verification of the log; where an equal one is running, it is that one."""
    return answer(_verification(_start(call, "verify", body, idempotency_key)), 202)


@handles("verify.read")
async def read_verification(call: Authorized) -> Response:
    """Return progress or report of the newest verification."""
    return answer(_verification(call.hosted.jobs.newest("verify")))


@handles("verify.stream")
async def stream_verification(call: Authorized) -> Response:
    """Stream the progress of the newest verification (SSE); the last event, `ended`, has the report."""
    return _streamed(call, call.hosted.jobs.newest("verify"))


def _verification(job: Job) -> dict[str, Any]:
    wire = job.to_wire()
    return {**wire, "checked": wire["done"], "report": wire["result"]}


@handles("recheck.start")
async def start_recheck(call: Authorized, body: RecheckToStart, idempotency_key: Key = None) -> Response:
    """Start a recheck of the log; where an equal one is running, it is that one."""
    return answer(_start(call, "recheck", body, idempotency_key).to_wire(), 202)


@handles("whatif.start")
async def start_what_if(call: Authorized, body: WhatIfToStart, idempotency_key: Key = None) -> Response:
    """Start a what-if; where an equal one is running, it is that one. Nothing is written to the log."""
    _check_policies(call, [*body.policies], body.policyText, body.policyFormat)
    return answer(_start(call, "whatif", body, idempotency_key).to_wire(), 202)


@handles("backtest.start")
async def start_backtest(call: Authorized, body: BacktestToStart, idempotency_key: Key = None) -> Response:
    """Start a backtest; where an equal one is running, it is that one. Nothing is written to the log."""
    _check_policies(call, [] if body.policy is None else [body.policy], body.policyText, body.policyFormat)
    return answer(_start(call, "backtest", body, idempotency_key).to_wire(), 202)


def _start(call: Call, kind: Kind, body: BaseModel, key: str | None) -> Job:
    options = body.model_dump(by_alias=True)
    if kind == "whatif":
        options["insert"] = [{n: v for n, v in one.items() if v is not None} for one in options["insert"]]
    request = JobRequest(kind, options, call.actor_id, None if key is None else check_key(key))
    return call.hosted.jobs.start(call.realm.new_id(), request)


def _check_policies(call: Call, names: list[str], text: str | None, form: str) -> None:
    """Refuse policies that are not loaded, so that no text of a request is taken for a file or a module.

    Raises:
        RefusedError: ``UNKNOWN_POLICY``, ``INVALID_POLICY``.
    """
    known = call.hosted.realm._composed.policies.names()
    for name in names:
        if name not in known:
            raise RefusedError(
                ErrorCode.UNKNOWN_POLICY,
                f"No policy {name[:80]!r} is loaded by this server; it has {', '.join(known) or 'none'}. Give the "
                "text of a policy file as `policyText`.",
            )
    if text is not None:
        policy_from_text(text, f"policy.{form}")


@handles("jobs.list")
async def list_jobs(call: Authorized) -> Response:
    """List the jobs that this server keeps, newest first, without their results."""
    jobs = [one.to_wire(with_result=False) for one in call.hosted.jobs.listed if _fault(call, one) is None]
    return answer({"jobs": jobs})


@handles("jobs.read")
async def read_job(call: Authorized, job_id: JobId) -> Response:
    """Return a job, with its result once it is done."""
    return answer(_job(call, job_id).to_wire())


@handles("jobs.stream")
async def stream_job(call: Authorized, job_id: JobId) -> Response:
    """Stream the progress of a job (SSE); the last event, `ended`, has the result."""
    return _streamed(call, _job(call, job_id))


@handles("jobs.cancel")
async def cancel_job(call: Authorized, job_id: JobId, body: JobToCancel) -> Response:
    """Cancel a job; one that has ended stays as it is."""
    return answer(call.hosted.jobs.cancel(_job(call, job_id).job_id).to_wire())


def _job(call: Call, job_id: str) -> Job:
    """Return a job of a kind that the caller may start.

    Raises:
        RefusedError: ``NOT_FOUND``, ``RIGHT_MISSING``.
    """
    job = call.hosted.jobs.job(job_id)
    fault = _fault(call, job)
    if fault is not None:
        raise fault
    return job


def _fault(call: Call, job: Job) -> RefusedError | None:
    """Return why the caller may not see a job; None where it may start one of the kind."""
    wanted = OPERATIONS[f"{job.request.kind}.start"]
    found = right_fault(call.view, call.verified, wanted.rights, call.service.clock.now_ms())
    if found is not None:
        return RefusedError(found.code, found.message)
    if wanted.is_whole:
        try:
            call.visibility.check_whole()
        except RefusedError as refused:
            return refused
    return None


def _streamed(call: Call, job: Job) -> Response:
    call.check_waits()
    render = _verification if call.operation.name == "verify.stream" else Job.to_wire

    async def states() -> AsyncIterator[ServerSentEvent]:
        with call.waits:
            async for one in job.states():
                is_running = one["status"] == "running"
                shown = one if is_running else render(job)
                yield ServerSentEvent(orjson.dumps(shown).decode(), event="progress" if is_running else "ended")

    return event_source(states())


def event_source(events: AsyncIterator[ServerSentEvent]) -> Response:
    """Return a stream of events to one reader, which ends with its source or with the connection."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return EventSourceResponse(events, ping=PING_S, send_timeout=TAKEN_WITHIN_S, headers=headers)
