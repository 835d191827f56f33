"""The MCP server on stdin and stdout, for one client that starts it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from mcp.server.stdio import stdio_server

from worldprotocol.agents.mcp.realm_access import RealmPort
from worldprotocol.agents.mcp.serving import server_of
from worldprotocol.agents.mcp.session import Settings

__all__ = ["serve_streams"]

THREADS: Final = 64
"""Calls of a realm on this machine at once; one whose effects are performed here holds a thread."""


async def serve_streams(access: RealmPort, wait_s: float) -> None:
    """Serve one client until it closes stdin; it may have closed stdout before.

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
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
    except* BrokenPipeError:
        pass  # the client reads no more; what it asked for is in the log
