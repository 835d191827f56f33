"""The tools of the server itself: the state of a proposal, its withdrawal, and leases.

No action has a tool of these names: ``projections.tools`` writes an underscore twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from world.errors import RefusedError
from worldprotocol.agents.mcp.calls import outcome, own_proposal
from worldprotocol.agents.mcp.outcomes import OUTCOME_SCHEMA, is_open, refusal, result
from worldprotocol.agents.mcp.realm_access import McpActor
from worldprotocol.agents.mcp.session import McpRequest

__all__ = ["OWN_TOOLS", "call_own", "own_tools"]


class _Arguments(BaseModel):
    """Base of the arguments of a tool: unknown members are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class StatusArguments(_Arguments):
    """Arguments of ``proposal_status``."""

    proposalId: str = Field(min_length=1, max_length=1_000, description="Id that a call was answered with.")  # noqa: N815
    wait_s: float = Field(default=0, ge=0, le=600, description="Seconds to wait for its end; the server limits them.")


class WithdrawArguments(_Arguments):
    """Arguments of ``proposal_withdraw``."""

    proposalId: str = Field(min_length=1, max_length=1_000, description="An undecided proposal of yours.")  # noqa: N815
    reason: str = Field(min_length=1, max_length=10_000, description="Why; it is recorded.")


class AcquireArguments(_Arguments):
    """Arguments of ``lease_acquire``."""

    resources: list[str] = Field(
        min_length=1, max_length=100, description="Such as FILE:/src/app.py, FILE:/src/* or URL:https://host/path."
    )
    predicate: str = Field(
        default="MUTATES", description="MUTATES to change, PROVIDES to create, DELETES to remove, CONSUMES to read."
    )
    sessionId: str | None = Field(  # noqa: N815
        default=None, min_length=1, max_length=200, description="That of leases which you hold, to add to them."
    )
    ttl_s: float | None = Field(
        default=None, gt=0, le=86_400, description="Seconds after which the leases end if you do not release them."
    )


class ReleaseArguments(_Arguments):
    """Arguments of ``lease_release``."""

    leaseIds: list[str] = Field(min_length=1, max_length=1_000)  # noqa: N815
    sessionId: str = Field(min_length=1, max_length=1_000, description="As lease_acquire returned it.")  # noqa: N815


class NoArguments(_Arguments):
    """Arguments of ``lease_list``."""


async def _status(request: McpRequest, given: StatusArguments) -> types.CallToolResult:
    proposal = await own_proposal(request, given.proposalId)
    if is_open(proposal) and given.wait_s > 0:
        seconds = min(given.wait_s, request.settings.wait_s)
        proposal = await request.access.proposal(given.proposalId, seconds)
    found = await outcome(request, proposal)
    return found.model_copy(update={"is_error": False})  # the state is the answer, whatever it is


async def _withdraw(request: McpRequest, given: WithdrawArguments) -> types.CallToolResult:
    await own_proposal(request, given.proposalId)
    await request.access.withdraw(given.proposalId, given.reason)
    found = await outcome(request, await request.access.proposal(given.proposalId))
    return found.model_copy(update={"is_error": False})


async def _acquire(request: McpRequest, given: AcquireArguments) -> types.CallToolResult:
    actor = await request.access.identity()
    wanted: dict[str, Any] = {"resources": given.resources, "predicate": given.predicate}
    wanted |= {} if given.sessionId is None else {"sessionId": given.sessionId}
    wanted |= {} if given.ttl_s is None else {"ttlMs": max(1, round(given.ttl_s * 1_000))}
    verdict = await request.access.acquire(wanted, request.key(actor.actor_id))
    names = ("status", "sessionId", "leases", "conflicts", "ttlMs", "retryAfterMs")
    shown = {name: verdict[name] for name in names if verdict.get(name) is not None}
    if verdict["status"] == "Granted":
        seconds = (verdict.get("ttlMs") or 0) / 1_000
        until = f" They end after {seconds:g} s unless you release them." if seconds else ""
        count = len(verdict["leases"])
        granted = f"{count} {'lease' if count == 1 else 'leases'}"
        return result(f"Granted: {granted} in session {verdict['sessionId']}.{until}", shown)
    held = ", ".join(
        dict.fromkeys(f"{one['holder']} has {one['predicate']} on {one['resource']}" for one in verdict["conflicts"])
    )
    again = verdict.get("retryAfterMs")
    later = f"in {again / 1_000:g} s" if again else "later"
    return result(
        f"Not granted: {held or 'others use these resources'}. Nothing is leased. Do something else, and request them "
        f"again {later}.",
        shown,
        is_error=True,
    )


async def _release(request: McpRequest, given: ReleaseArguments) -> types.CallToolResult:
    actor = await request.access.identity()
    states = await request.access.release(given.leaseIds, given.sessionId, request.key(actor.actor_id))
    return result(f"Released: {', '.join(states)}.", {"states": states})


async def _list(request: McpRequest, _: NoArguments) -> types.CallToolResult:
    actor = await request.access.identity()
    found = await request.access.leases(own=not actor.has("reader", "auditor"))
    words = [
        f"{one['agentId']} has {one['predicate']} on {one['resource']} (lease {one['leaseId']}, session "
        f"{one['sessionId']})"
        for one in found["leases"]
    ]
    return result("; ".join(words) or "No leases are in force.", found)


def _schema(arguments: type[_Arguments]) -> dict[str, Any]:
    """Return the schema of arguments without the words that Pydantic takes from names and docstrings of the source."""
    schema = arguments.model_json_schema()
    schema.pop("description", None)
    for part in (schema, *schema["properties"].values()):
        part.pop("title", None)
    return schema


_Handler: TypeAlias = Callable[[McpRequest, Any], Awaitable[types.CallToolResult]]

_LEASE: Final = {"type": "object", "required": ["leaseId", "predicate", "resource"]}

_TOOLS: Final[Mapping[str, tuple[type[_Arguments], _Handler, types.Tool]]] = {
    name: (arguments, handler, types.Tool(name=name, input_schema=_schema(arguments), **more))
    for name, arguments, handler, more in (
        (
            "proposal_status",
            StatusArguments,
            _status,
            {
                "title": "State of a proposal",
                "description": "Return what became of a call that was answered with a proposal's id.",
                "output_schema": OUTCOME_SCHEMA,
                "annotations": types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
            },
        ),
        (
            "proposal_withdraw",
            WithdrawArguments,
            _withdraw,
            {
                "title": "Withdraw a proposal",
                "description": "Withdraw a call that still waits, so that it is not done.",
                "output_schema": OUTCOME_SCHEMA,
                "annotations": types.ToolAnnotations(read_only_hint=False, open_world_hint=False),
            },
        ),
        (
            "lease_acquire",
            AcquireArguments,
            _acquire,
            {
                "title": "Lease resources",
                "description": "Lease files or other resources before you use them, all or none, so that other agents "
                "do not use them meanwhile. Release them as soon as you are done.",
                "annotations": types.ToolAnnotations(
                    read_only_hint=False, destructive_hint=False, open_world_hint=False
                ),
            },
        ),
        (
            "lease_release",
            ReleaseArguments,
            _release,
            {
                "title": "Release leases",
                "description": "Release leases of yours.",
                "annotations": types.ToolAnnotations(
                    read_only_hint=False, destructive_hint=False, open_world_hint=False
                ),
            },
        ),
        (
            "lease_list",
            NoArguments,
            _list,
            {
                "title": "Leases in force",
                "description": "List the leases in force: all of them for readers, else your own.",
                "output_schema": {
                    "type": "object",
                    "properties": {"leases": {"type": "array", "items": _LEASE}},
                    "required": ["leases"],
                },
                "annotations": types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
            },
        ),
    )
}

OWN_TOOLS: Final = frozenset(_TOOLS)
"""Names of the tools of the server itself."""


def own_tools(actor: McpActor) -> list[types.Tool]:
    """Return the tools of the server itself that an actor has a right to."""
    return [tool for _, _, tool in _TOOLS.values()] if actor.has("actor") else []


async def call_own(request: McpRequest, params: types.CallToolRequestParams) -> types.CallToolResult:
    """Answer a call of a tool of the server itself.

    Args:
        request: the request.
        params: its tool, one of ``OWN_TOOLS``, and arguments.
    """
    arguments, handler, _ = _TOOLS[params.name]
    try:
        given = arguments.model_validate(params.arguments or {})
    except ValidationError as invalid:
        faults = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}" for one in invalid.errors())
        return result(f"Refused: the arguments of {params.name} are not valid: {faults}.", None, is_error=True)
    try:
        return await handler(request, given)
    except RefusedError as refused:
        return refusal(refused)
    except MCPError as unknown:
        return result(f"Refused: {unknown.error.message}", None, is_error=True)
