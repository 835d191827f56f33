"""Notifications of changes: of the tools that are offered, and of the resources.

A client of the revision 2026-07-28 listens (``subscriptions/listen``); an earlier one is notified in its session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
import mcp_types as types
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated, ToolsListChanged
from mcp.shared.exceptions import MCPError

from projections.tools import tools_of
from world.errors import RefusedError
from worldprotocol.agents.mcp.realm_access import RealmPort
from worldprotocol.agents.mcp.resources import LISTED
from worldprotocol.agents.mcp.session import Context, McpRequest, Settings

__all__ = ["listen", "notify_session"]


async def _seen(access: RealmPort) -> tuple[int, object]:
    """Return the position of the last event, and a value that is another one once other tools are offered."""
    position, actor = await access.position(), await access.identity()
    return position, (actor.rights, tools_of(await access.catalog()).to_wire()["tools"])


async def _watch(
    request: McpRequest,
    seen: tuple[int, object],
    tools_changed: Callable[[], Awaitable[None]],
    moved: Callable[[], Awaitable[None]],
) -> None:
    """Call back whenever the log has grown, or the tools have changed, until the realm refuses to answer."""
    position, tools = seen
    with suppress(RefusedError):
        while True:
            await asyncio.sleep(request.settings.look_s)
            if await request.access.position() == position:
                continue
            before = tools
            position, tools = await _seen(request.access)
            await moved()
            if tools != before:
                await tools_changed()


async def listen(
    settings: Settings, context: Context, params: types.SubscriptionsListenRequestParams
) -> types.SubscriptionsListenResult:
    """Serve a stream of notifications until the client leaves, or the realm refuses to answer."""
    request, bus = McpRequest.of(settings, context), InMemorySubscriptionBus()
    handler = ListenHandler(bus)
    seen = await _seen(request.access)

    async def moved() -> None:
        for uri in LISTED:
            await bus.publish(ResourceUpdated(uri=uri))

    async def watch() -> None:
        await _watch(request, seen, lambda: bus.publish(ToolsListChanged()), moved)
        handler.close()

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        found = await handler(context, params)
        group.cancel_scope.cancel()
    return found


async def notify_session(settings: Settings, context: Context) -> None:
    """Begin to notify a session of an earlier revision, until it ends."""
    request = McpRequest.of(settings, context)
    try:
        seen = await _seen(request.access)
    except RefusedError:
        return

    async def quiet() -> None:
        return

    async def watch() -> None:
        with suppress(MCPError, anyio.ClosedResourceError, anyio.BrokenResourceError):  # the session has ended
            await _watch(request, seen, context.session.send_tool_list_changed, quiet)

    watching = asyncio.ensure_future(watch())
    context.session._connection.exit_stack.callback(watching.cancel)  # the SDK names the end of a session nowhere else
