"""Calls of actions as tools: submitted, awaited, and answered with the outcome, a task, or the id of what waits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import mcp_types as types
from mcp.shared.exceptions import MCPError

from projections.catalog import ActionCatalog
from projections.tools import ToolSet, tool_name, tools_of
from world.errors import RefusedError
from worldprotocol.agents.mcp.outcomes import is_open, outcome_of, refusal, result, words_of
from worldprotocol.agents.mcp.session import McpRequest

__all__ = ["POLL_MS", "Answer", "act", "outcome", "own_proposal", "task_of"]

POLL_MS: Final = 2_000
"""Time between two looks at a task that is suggested to clients, in ms."""

OPENED: Final = "approval"
"""Key of the request to open the inbox."""

Answer: TypeAlias = types.CallToolResult | types.InputRequiredResult | dict[str, Any]


async def act(request: McpRequest, params: types.CallToolRequestParams) -> Answer:
    """Answer a call of an action.

    Args:
        request: the request.
        params: its tool and arguments.

    Raises:
        MCPError: there is no such tool.
    """
    access = request.access
    actor = await access.identity()
    try:
        if params.request_state is not None:
            proposal = await _continued(request, params)
        else:
            catalog = await access.catalog()
            tools = tools_of(catalog)
            if params.name not in tools.tools:
                return _not_offered(catalog, tools, params.name)
            body = tools.body(params.name, params.arguments)
            key = request.key(actor.actor_id)
            submitted = await access.submit(body, key, request.trace(params.name))
            proposal = await access.proposal(submitted["proposalId"])
    except RefusedError as refused:
        return refusal(refused)
    asks_person = is_open(proposal) and proposal.get("waits", {}).get("people", False)
    if asks_person and request.is_modern and params.request_state is None and (asked := _to_open(request, proposal)):
        return types.InputRequiredResult(
            input_requests={OPENED: types.ElicitRequest(params=asked)}, request_state=proposal["proposalId"]
        )
    if is_open(proposal) and request.takes_tasks:
        return {"resultType": "task", **task_of(proposal)}
    return await outcome(request, await _waited(request, proposal))


def _not_offered(catalog: ActionCatalog, tools: ToolSet, name: str) -> types.CallToolResult:
    """Return the refusal of a tool that is not offered now.

    Raises:
        MCPError: there is no such tool.
    """
    for one in catalog.actions:
        if tool_name(one.type) == name:
            why = (one.availability.reason or "its condition does not hold").rstrip(".")
            return result(
                f"Refused: {one.type} is not available now: {why}. List the tools again to see what is. "
                "[ACTION_UNAVAILABLE]",
                None,
                is_error=True,
            )
    known = ", ".join(tools.tools) or "none"
    raise MCPError(types.INVALID_PARAMS, f"There is no tool {name[:80]!r}; the actions are: {known}.")


async def _continued(request: McpRequest, params: types.CallToolRequestParams) -> dict[str, Any]:
    """Return the proposal of a call that is repeated with the answer to a request for input.

    Raises:
        MCPError: the state is that of another call.
    """
    proposal = await own_proposal(request, str(params.request_state))
    body, given = proposal.get("intent", {}).get("body", {}), params.arguments or {}
    forms = [given, given.get("input")] if given else [given, None]  # how an action takes its input (``Tool.takes``)
    if tool_name(body.get("type", "")) != params.name or body.get("input") not in forms:
        raise MCPError(types.INVALID_PARAMS, "requestState is not that of this call; repeat the call without it.")
    return proposal


async def own_proposal(request: McpRequest, proposal_id: str) -> dict[str, Any]:
    """Return a proposal of the actor.

    Args:
        request: the request.
        proposal_id: the proposal.

    Raises:
        MCPError: the actor has no such proposal.
    """
    actor = await request.access.identity()
    try:
        found = await request.access.proposal(proposal_id)
    except RefusedError as refused:
        if refused.code not in ("UNKNOWN_PROPOSAL", "RIGHT_MISSING"):
            raise
    else:
        is_own = found.get("actor", {}).get("actorId") == actor.actor_id
        if is_own or found.get("redacted"):  # its status alone, where rules withhold it
            return found
    raise MCPError(types.INVALID_PARAMS, f"{actor.actor_id} has no proposal {proposal_id[:80]!r}.")


async def outcome(request: McpRequest, proposal: Mapping[str, Any]) -> types.CallToolResult:
    """Return the result of a proposal as it is now; with the changes of the state, where the actor may read them.

    Args:
        request: the request.
        proposal: JSON, as ``RealmPort.proposal`` returns it.
    """
    if proposal["status"] == "completed" and not proposal.get("redacted"):
        actor = await request.access.identity()
        if actor.has("reader", "auditor"):
            with suppress(RefusedError):  # rules of redaction hide the world
                return outcome_of(proposal, await request.access.patches(proposal["worldId"]))
    return outcome_of(proposal)


# Waiting


async def _waited(request: McpRequest, proposal: dict[str, Any]) -> dict[str, Any]:
    """Return a proposal once it has ended, or after the time that a call may wait."""
    if not is_open(proposal):
        return proposal
    loop = asyncio.get_running_loop()
    begin = loop.time()
    opening = _opening(request, proposal)
    try:
        while is_open(proposal) and (left := begin + request.settings.wait_s - loop.time()) > 0:
            waited, words = loop.time() - begin, words_of(proposal)[0]
            await request.context.session.report_progress(waited, request.settings.wait_s, words)
            try:
                proposal = await request.access.proposal(proposal["proposalId"], min(left, request.settings.report_s))
            except RefusedError:  # the server stops, or cannot read the log: what is known is answered
                return proposal
    finally:
        if opening is not None:
            opening.cancel()
    if opening is not None and not is_open(proposal):
        await request.context.session.send_elicit_complete(
            proposal["proposalId"], related_request_id=request.context.request_id
        )
    return proposal


def _to_open(request: McpRequest, proposal: Mapping[str, Any]) -> types.ElicitRequestURLParams | None:
    """Return the request to open the page where people answer; None where the client opens none, or there is none."""
    url = request.access.inbox_url
    if url is None or not request.opens_urls:
        return None
    name = proposal["proposalId"]
    return types.ElicitRequestURLParams(
        message=f"{proposal['intent']['body']['type']} waits for {proposal['waits']['for']}. The inbox shows what it "
        "would do; who may answer decides there, after sign-in.",
        url=url,
        elicitation_id=None if request.is_modern else name,
    )


def _opening(request: McpRequest, proposal: Mapping[str, Any]) -> asyncio.Task[None] | None:
    """Ask a client of an earlier revision to open the inbox, while the call waits; the answer decides nothing."""
    waits = proposal.get("waits", {})
    asked = _to_open(request, proposal) if waits.get("people") and not request.is_modern else None
    if asked is None or not request.context.session.can_send_request:
        return None

    async def ask() -> None:
        with suppress(MCPError):  # the client cannot: people find the proposal in their inbox all the same
            await request.context.session.elicit_url(
                asked.message, asked.url, asked.elicitation_id or "", request.context.request_id
            )

    return asyncio.ensure_future(ask())


# Tasks


def task_of(proposal: Mapping[str, Any]) -> dict[str, Any]:
    """Return the task of a proposal, whose id is that of the proposal, without its result.

    Args:
        proposal: JSON, as ``RealmPort.proposal`` returns it.
    """
    changed = max(
        proposal.get("submittedAt", 0),
        (proposal.get("decision") or {}).get("decidedAt", 0),
        (proposal.get("cancelled") or {}).get("at", 0),
    )
    return {
        "taskId": proposal["proposalId"],
        "status": _task_status(proposal),
        "statusMessage": words_of(proposal)[0],
        "createdAt": _moment(proposal.get("submittedAt", 0)),
        "lastUpdatedAt": _moment(changed),
        "ttlMs": None,
        "pollIntervalMs": POLL_MS,
    }


def _task_status(proposal: Mapping[str, Any]) -> str:
    if is_open(proposal):
        return "working"
    return "cancelled" if "withdrawn" in proposal or "cancelled" in proposal else "completed"


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
