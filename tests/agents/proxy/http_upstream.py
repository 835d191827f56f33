"""An MCP server over streamable HTTP, of the official SDK; it prints its port, and notes each call that reaches it.

Usage: ``python http_upstream.py FOLDER``. The tool ``hang`` answers after ``FOLDER/go`` exists; ``add`` at once.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import uvicorn
from mcp.server.mcpserver import MCPServer

FOLDER = Path(sys.argv[1])
server = MCPServer("sums")


def note(line: str) -> None:
    """Note a call."""
    with (FOLDER / "calls").open("a", encoding="utf-8") as calls:
        calls.write(line + "\n")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    note("add")
    return a + b


@server.tool()
async def hang() -> str:
    """Answer late."""
    note("hang")
    while not (FOLDER / "go").exists():
        await asyncio.sleep(0.05)
    return "went"


def main() -> None:
    """Serve until the process is killed."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    settings = uvicorn.Config(server.streamable_http_app(), log_level="error", lifespan="on")
    asyncio.run(uvicorn.Server(settings).serve(sockets=[listener]))


if __name__ == "__main__":
    main()
