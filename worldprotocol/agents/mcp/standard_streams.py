"""The MCP server on stdin and stdout, for one client that starts it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from worldprotocol.agents.mcp.realm_access import RealmPort
from worldprotocol.agents.mcp.serving import server_of
from worldprotocol.agents.mcp.session import Settings
from worldprotocol.agents.stdio_transport import stdio_transport

__all__ = ["serve_streams"]

THREADS: Final = 64
"""Calls of a realm on this machine at once; one whose effects are performed here holds a thread."""


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
