"""An agent of the Claude Agent SDK at the service desk: ``python -m examples.frameworks.claude_agent [FOLDER]``.

The first run ends without the refund that waits for ann; the second one, another process, resumes the session. Claude
Code, which the SDK brings, asks a script on this machine instead of a model.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, query, tool

from examples.frameworks.desk import CALLS, REQUEST, TOOLS, Books, desk_realm, folder_of, show_waiting
from examples.frameworks.scripted_messages import scripted_messages
from worldprotocol.agents.frameworks.claude_agent import GovernedHooks
from worldprotocol.api.waiting.waiting_words import waits_for

PREFIX = "mcp__desk__"


def environment(url: str, folder: Path) -> dict[str, str]:
    """Return variables that make Claude Code ask the script, keep its files in the folder, and send nothing outside."""
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "scripted",
        "CLAUDE_CONFIG_DIR": str(folder / "claude"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "127.0.0.1",
    }


def desk_server(books: Books) -> Any:
    """Return the tools of the desk as an MCP server within this process."""

    @tool("refund", "Pay money back for an order.", {"order": str, "amount": int})
    async def refund(given: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": books.refund(**given)}]}

    @tool("publish", "Publish pages of the web site.", {"pages": list[str]})
    async def publish(given: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": books.publish(**given)}]}

    return create_sdk_mcp_server("desk", tools=[refund, publish])


async def main(folder: Path) -> None:
    """Ask the agent, or go on where it stopped."""
    stored = folder / "session.txt"
    session = stored.read_text("utf-8") if stored.exists() else None
    calls = [(f"{PREFIX}{name}", given) for name, given in CALLS]
    tools = {f"{PREFIX}{name}": one for name, one in TOOLS.items()}
    with desk_realm(folder) as realm, scripted_messages(REQUEST, calls) as url:
        options = ClaudeAgentOptions(
            model="scripted",
            mcp_servers={"desk": desk_server(Books(folder))},
            hooks=GovernedHooks(realm, "bot", tools=tools, wait_s=0).hooks,
            cwd=folder,
            setting_sources=[],
            env=environment(url, folder),
            resume=session,
        )
        async for message in query(prompt="Go on." if session else REQUEST, options=options):
            if isinstance(message, ResultMessage):
                stored.write_text(message.session_id, "utf-8")
                print(message.result)
        for proposal in realm.inbox():
            show_waiting(folder, proposal.proposal_id, waits_for(realm, proposal))


if __name__ == "__main__":
    asyncio.run(main(folder_of(sys.argv)))
