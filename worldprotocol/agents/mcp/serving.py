"""The MCP server of a realm, of the official SDK: on stdin and stdout, or with the transport of the caller.

It speaks all revisions of the protocol that the SDK does. Tools are the actions that are available to the actor, and
tools for proposals and leases. A call that waits is a task for clients that declare the extension of tasks, whose id is
that of the proposal: the log has it, so any process of the realm continues it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, TypeVar

import mcp_types as types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import decode_header_value
from pydantic import BaseModel

from projections.tools import tools_of
from world.errors import RefusedError, WorldProtocolError
from world.model.immutable_json import thaw
from worldprotocol.agents.mcp.calls import Answer, act, outcome, own_proposal, task_of
from worldprotocol.agents.mcp.changes import listen, notify_session
from worldprotocol.agents.mcp.outcomes import OUTCOME_SCHEMA, is_open
from worldprotocol.agents.mcp.own_tools import OWN_TOOLS, call_own, own_tools
from worldprotocol.agents.mcp.realm_access import RealmPort
from worldprotocol.agents.mcp.resources import list_resources, list_templates, read_resource
from worldprotocol.agents.mcp.session import TASKS, Context, McpRequest, Settings
from worldprotocol.agents.mcp.stdio_transport import stdio_transport

__all__ = ["serve_streams", "server_of"]

R = TypeVar("R")

_LOGGER = logging.getLogger("worldprotocol.mcp")

INSTRUCTIONS: Final = (
    "Each tool is an action of a governed realm. A call is judged by the realm's policies before it is done: it is "
    "completed, rejected with the reason, or waits for a person or for resources that others use. A call that waits is "
    "answered with the id of its proposal; do something else, and ask proposal_status later. Do not repeat a rejected "
    "call unchanged. Lease what you share with other agents (lease_acquire), and release it when you are done."
)

REFUSED: Final = -32000
"""Code of a request that the realm refuses, in the range that the protocol leaves to servers."""


THREADS: Final = 64
"""Calls of a realm on this machine at once; one whose effects are performed here holds a thread."""


class TaskParams(types.RequestParams):
    """Parameters of ``tasks/get`` and ``tasks/cancel``."""

    task_id: str


class TaskUpdateParams(TaskParams):
    """Parameters of ``tasks/update``."""

    input_responses: dict[str, Any]


def server_of(settings: Settings) -> Server[Any]:
    """Return the server.

    Args:
        settings: how it answers.
    """

    async def list_tools(context: Context, _: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=await _refusable(_tools(McpRequest.of(settings, context))))

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> Any:
        return await _refusable(_called(McpRequest.of(settings, context), params))

    async def resources(context: Context, _: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        actor = await _refusable(settings.access_of(context).identity())
        return types.ListResourcesResult(resources=list_resources(actor))

    async def templates(context: Context, _: types.PaginatedRequestParams | None) -> types.ListResourceTemplatesResult:
        actor = await _refusable(settings.access_of(context).identity())
        return types.ListResourceTemplatesResult(resource_templates=list_templates(actor))

    async def read(context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        return await _refusable(read_resource(McpRequest.of(settings, context), params.uri))

    async def listening(
        context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        return await listen(settings, context, params)

    server = _RealmServer(
        "world-protocol",
        version=_version(),
        title="World Protocol",
        instructions=INSTRUCTIONS,
        get_tool_input_schema=lambda _: None,  # no tool has arguments in header fields
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=resources,
        on_list_resource_templates=templates,
        on_read_resource=read,
        on_subscriptions_listen=listening,
    )
    server.extensions = {TASKS: {}}
    _add_tasks(server, settings)

    async def initialized(context: Context, _: types.NotificationParams) -> None:
        await notify_session(settings, context)

    server.add_notification_handler("notifications/initialized", types.NotificationParams, initialized)
    return server


async def serve_streams(access: RealmPort, wait_s: float) -> int:
    """Serve one client until it closes stdin or the process gets SIGINT or SIGTERM, and return the exit code.

    The client may have closed stdout before.

    Args:
        access: the realm, as the actor of the client.
        wait_s: longest wait for the outcome of a call, in seconds, where the client takes no tasks.

    Raises:
        RefusedError: what prevents reading who the actor is.
    """
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    await access.identity()
    server = server_of(Settings(lambda _: access, wait_s))
    try:
        async with stdio_transport() as transport:
            await server.run(transport.receive, transport.send, server.create_initialization_options())
    except* BrokenPipeError:
        pass  # the client reads no more; what it asked for is in the log
    return transport.exit_code


class _RealmServer(Server[Any]):
    """A server whose tools change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Return what is declared to sessions of earlier revisions, which have no extension of tasks."""
        changing = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(changing, experimental_capabilities, extensions or {})


async def _tools(request: McpRequest) -> list[types.Tool]:
    actor = await request.access.identity()
    if not actor.has("actor"):
        return own_tools(actor)
    catalog = await request.access.catalog()
    titles = {one.type: one.label for one in catalog.actions}
    actions = [
        types.Tool(
            name=one.name,
            title=titles[one.action] or one.action,
            description=one.description,
            input_schema=thaw(one.input_schema),
            output_schema=OUTCOME_SCHEMA,
            annotations=types.ToolAnnotations(read_only_hint=False),
        )
        for one in tools_of(catalog).tools.values()
    ]
    return actions + own_tools(actor)


async def _called(request: McpRequest, params: types.CallToolRequestParams) -> Answer:
    if params.name in OWN_TOOLS:
        return await call_own(request, params)
    return await act(request, params)


def _add_tasks(server: Server[Any], settings: Settings) -> None:
    """Serve the methods of the extension of tasks."""

    async def get(context: Context, params: TaskParams) -> dict[str, Any]:
        request = _declared(settings, context, params.task_id)
        proposal = await _refusable(own_proposal(request, params.task_id))
        task = task_of(proposal)
        if task["status"] == "completed":
            found = await _refusable(outcome(request, proposal))
            task["result"] = found.model_dump(by_alias=True, mode="json", exclude_none=True)
        return task

    async def update(context: Context, params: TaskUpdateParams) -> dict[str, Any]:
        await _refusable(own_proposal(_declared(settings, context, params.task_id), params.task_id))
        return {}  # people answer in the inbox: no request for input is outstanding here, so none is answered

    async def cancel(context: Context, params: TaskParams) -> dict[str, Any]:
        request = _declared(settings, context, params.task_id)
        proposal = await _refusable(own_proposal(request, params.task_id))
        if is_open(proposal):
            await _withdrawn(request, params.task_id)
        return {}

    handlers: tuple[tuple[str, type[BaseModel], Any], ...] = (
        ("tasks/get", TaskParams, get),
        ("tasks/update", TaskUpdateParams, update),
        ("tasks/cancel", TaskParams, cancel),
    )
    for method, params, handler in handlers:
        server.add_request_handler(method, params, handler)


async def _withdrawn(request: McpRequest, proposal_id: str) -> None:
    """Withdraw a proposal; the execution of one that was decided meanwhile continues, which the protocol permits."""
    try:
        await request.access.withdraw(proposal_id, "The client cancelled the task.")
    except RefusedError as refused:
        if refused.code not in ("RIGHT_MISSING", "NOT_RUNNING"):
            raise _error(refused) from None


def _declared(settings: Settings, context: Context, task_id: str) -> McpRequest:
    """Return a request of a client that declares the extension of tasks.

    Raises:
        MCPError: it does not, or its header names another task than its body.
    """
    request = McpRequest.of(settings, context)
    if not request.is_modern:
        raise MCPError(types.METHOD_NOT_FOUND, "Method not found", context.method)
    if not request.takes_tasks:
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            f"{context.method} needs the extension {TASKS} among the capabilities of the request.",
            {"requiredCapabilities": {"extensions": {TASKS: {}}}},
        )
    if context.request is not None and decode_header_value(context.request.headers.get("mcp-name")) != task_id:
        raise MCPError(types.HEADER_MISMATCH, "The header Mcp-Name is not the taskId of the request; send the same.")
    return request


async def _refusable(answer: Awaitable[R]) -> R:
    """Return an answer, or raise what prevents it as an error of the protocol, without what is internal."""
    try:
        return await answer
    except MCPError:
        raise
    except WorldProtocolError as refused:
        raise _error(refused) from None
    except Exception:
        _LOGGER.exception("A request over MCP failed")
        words = "The request failed inside the server, whose own log has the cause."
        raise MCPError(types.INTERNAL_ERROR, words) from None


def _error(refused: WorldProtocolError) -> MCPError:
    return MCPError(REFUSED, f"{refused.message} [{refused.code}]", {"code": str(refused.code)})


def _version() -> str:
    try:
        return version("world-protocol")
    except PackageNotFoundError:
        return ""
