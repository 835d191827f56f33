"""Proposals: the list, and one with its timeline, the world that it made, and the commands of operators on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final
from urllib.parse import quote

import orjson
from fastapi import Query, Request, Response

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.read_models.trace import trace_proposal
from world.state.proposal import TRANSITIONS
from worldprotocol.operations import jobs
from worldprotocol.operations.declaring import Declared
from worldprotocol.operations.proposals import cancel_proposal, list_proposals, read_proposal, settle_proposal
from worldprotocol.operations.worlds import diff_worlds, read_world
from worldprotocol.server.call import Call
from worldprotocol.server.pages.page_call import (
    PageCall,
    answerable,
    form_fault,
    job_shown,
    job_started,
    open_form,
    open_page,
)
from worldprotocol.server.pages.page_table import shows
from worldprotocol.server.pages.proposal_timeline import doubts, pending, timeline

MOST: Final = 50

DONE: Final = {"settle": "The effect is resolved.", "cancel": "The execution is cancelled."}


@shows("proposals")
async def proposals(
    request: Request,
    after: Annotated[int, Query(ge=0, le=2**53)] = 0,
    status: Annotated[str, Query(max_length=40)] = "",
    actor: Annotated[str, Query(max_length=500)] = "",
) -> Response:
    """Show proposals in the order of submission; the address holds the filter."""
    opened = await open_page(request, "proposals.list")
    wanted = {"actor": actor or None, "status": status or None, "after": after, "limit": MOST}
    found = await opened.shown(list_proposals, wanted)
    values = {"title": "Proposals", **found, "after": after, "status": status, "actor_id": actor}
    values["statuses"] = ["", *TRANSITIONS]
    return await opened.show("proposals", values)


@shows("proposal")
async def proposal(
    request: Request,
    proposal_id: str,
    done: Annotated[str, Query(max_length=20)] = "",
    job: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """Show one proposal with its timeline, and its recheck or the what-if without it that the address names."""
    opened = await open_page(request, "proposals.read")
    more: dict[str, Any] = {"done": DONE.get(done, "")}
    found, refusal = await job_shown(opened, job, lambda one: _is_about(one, proposal_id))
    more |= {"job": found} | ({"refusal": refusal} if refusal else {})
    return await _shown(opened, proposal_id, more)


def _is_about(job: Mapping[str, Any], proposal_id: str) -> bool:
    """Return whether a job is the recheck of a proposal, or the what-if without it."""
    options = job["options"]
    if job["kind"] == "recheck":
        return bool(options["proposal"] == proposal_id)
    return bool(job["kind"] == "whatif" and options["drop"] == [proposal_id])


async def _shown(opened: PageCall, proposal_id: str, more: Mapping[str, Any], status: int = 200) -> Response:
    found = await opened.shown(read_proposal, {"proposalId": proposal_id})
    call = opened.call
    values: dict[str, Any] = {
        "title": f"Proposal {proposal_id}",
        "one": found,
        "steps": [],
        "doubts": [],
        "pending": pending(found),
        "is_asked": any(one.proposal_id == proposal_id for one in answerable(call)),
        "may_settle": opened.may("proposals.settle"),
        "may_recheck": opened.may("recheck.start") and opened.may("jobs.read"),
        "diff": None,
        "done": "",
        "refusal": "",
        "typed": {},
        "may_what_if": opened.may("whatif.start") and opened.may("jobs.read"),
        "job": None,
    }
    if "redacted" not in found:
        top = await call.run(lambda: trace_proposal(call.hosted.realm.archive, proposal_id))
        steps = await call.run(lambda: _visible(call, timeline(top)))
        values |= {"steps": steps, "doubts": [] if call.visibility.rules else doubts(top, found)}
        values["diff"] = await _made(opened, found)
    return await opened.show("proposal", {**values, **more}, status)


def _visible(call: Call, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the steps whose events are not hidden from the caller; they are of several streams."""
    if not call.visibility.rules:
        return steps
    archive = call.hosted.realm.archive
    events = [archive.event_at(place) for place in sorted({one["position"] for one in steps} - {None})]
    shown = {event.position for event, is_hidden in call.visibility.events(events) if not is_hidden}
    return [one for one in steps if one["position"] in shown]


async def _made(opened: PageCall, found: Mapping[str, Any]) -> Any:
    """Return the difference that a proposal made, None where there is none or the caller may not read it."""
    if found["status"] != "completed" or not opened.may("worlds.diff"):
        return None
    made = await opened.shown(read_world, {"worldId": found["worldId"]})
    if made.get("parent") is None:
        return None
    return await opened.shown(diff_worlds, {"worldId": made["parent"], "with": made["worldId"]})


@shows("settle")
async def settle(request: Request, proposal_id: str) -> Response:
    """Record what became of an effect in doubt."""

    def members(form: Mapping[str, str]) -> dict[str, Any]:
        value = None
        if form.get("choice") == "happened" and form.get("value", "").strip():
            try:
                value = orjson.loads(form["value"])
            except ValueError:
                raise RefusedError(
                    ErrorCode.INVALID_VALUE,
                    'The result of the effect is not JSON; a text is written in quotes, such as "r-17".',
                ) from None
        named = {name: form.get(name, "") for name in ("choice", "reason")}
        return {**named, "effect": form.get("effect") or None, "value": value}

    return await _command(request, proposal_id, settle_proposal, members)


@shows("cancel")
async def cancel(request: Request, proposal_id: str) -> Response:
    """Cancel an approved execution."""
    return await _command(request, proposal_id, cancel_proposal, lambda form: {"reason": form.get("reason", "")})


async def _command(
    request: Request,
    proposal_id: str,
    operation: Declared[Any, Any],
    members: Callable[[Mapping[str, str]], dict[str, Any]],
) -> Response:
    """Run a command of the API with the fields of a form, and show the proposal as it is then."""
    opened, form = await open_form(request, operation.name)
    try:
        await opened.ask(operation, {"proposalId": proposal_id, **members(form)})
    except RefusedError as error:
        words, status = form_fault(error)
        return await _shown(opened, proposal_id, {"refusal": words, "typed": form}, status)
    return opened.redirect(f"proposals/{proposal_id}?done={operation.name.partition('.')[2]}")


@shows("recheck_proposal")
async def recheck(request: Request, proposal_id: str) -> Response:
    """Start a recheck of the steps of one proposal, and show the proposal with it."""
    return await _job(request, proposal_id, jobs.start_recheck, {"proposal": proposal_id, "all": True})


@shows("what_if_proposal")
async def what_if(request: Request, proposal_id: str) -> Response:
    """Start a what-if without a proposal, and show the proposal with it."""
    return await _job(request, proposal_id, jobs.start_what_if, {"drop": [proposal_id]})


async def _job(
    request: Request, proposal_id: str, operation: Declared[Any, Any], members: Mapping[str, Any]
) -> Response:
    opened, _ = await open_form(request, operation.name)
    await opened.ask(read_proposal, {"proposalId": proposal_id})
    try:
        job_id = await job_started(opened, operation, members)
    except RefusedError as refused:
        words, status = form_fault(refused)
        return await _shown(opened, proposal_id, {"refusal": words}, status)
    return opened.redirect(f"proposals/{proposal_id}?job={job_id}#{operation.tag}")


@shows("cancel_job")
async def cancel_job(request: Request, job_id: str) -> Response:
    """Cancel a job, and show the page that started it."""
    opened, _ = await open_form(request, "jobs.cancel")
    job = await opened.ask(jobs.cancel_job, {"jobId": job_id})
    options = job.options
    about = [options["proposal"]] if job.kind == "recheck" else options.get("drop") or []
    page = f"proposals/{quote(about[0], safe='')}" if len(about) == 1 and about[0] else "policies/backtest"
    return opened.redirect(f"{page}?job={job.job_id}")
