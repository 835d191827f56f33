"""An agent of the OpenAI Agents SDK at the service desk: ``python -m examples.frameworks.openai_agent [FOLDER]``.

The first run ends where a call waits for ann, and its state is stored; the second one, another process, continues.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, RunState, Tool, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from examples.frameworks.desk import CALLS, REQUEST, TOOLS, Books, desk_realm, folder_of, show_waiting
from worldprotocol.agents.frameworks.openai_agents import GovernedFunctionTools
from worldprotocol.api.waiting.waiting_words import waits_for


class ScriptedModel(Model):
    """Calls all tools at once, and then repeats what they said; it needs no network."""

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **more: Any) -> ModelResponse:  # noqa: A002  # the name is theirs
        """Return the next message of the script."""
        items = [] if isinstance(input, str) else input
        said = [str(one["output"]) for one in items if one.get("type") == "function_call_output"]
        output: list[Any] = [
            ResponseFunctionToolCall(name=name, arguments=json.dumps(given), call_id=f"call-{at}", type="function_call")
            for at, (name, given) in enumerate(CALLS)
        ]
        if said:
            text = ResponseOutputText(text="\n".join(said), type="output_text", annotations=[])
            output = [
                ResponseOutputMessage(
                    id="message-1", content=[text], role="assistant", status="completed", type="message"
                )
            ]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **more: Any) -> AsyncIterator[Any]:
        """Refuse to stream: this scripted model has whole messages only, and the agent asks for no others."""
        raise NotImplementedError("The scripted model does not stream.")


async def main(folder: Path) -> None:
    """Ask the agent, or go on where it stopped."""
    stored = folder / "openai.json"
    with desk_realm(folder) as realm:
        governed, books = GovernedFunctionTools(realm, "bot", tools=TOOLS), Books(folder)
        tools: list[Tool] = [governed(function_tool(one)) for one in (books.refund, books.publish)]
        agent = Agent("desk", model=ScriptedModel(), tools=tools)
        given: str | RunState[Any, Any] = REQUEST
        if stored.exists():
            given = await RunState.from_string(agent, stored.read_text("utf-8"))
            await governed.approve_decided(given)
        result = await Runner.run(agent, given, run_config=RunConfig(tracing_disabled=True))
        stored.write_text(result.to_state().to_string(), "utf-8")
        for proposal in realm.inbox():
            show_waiting(folder, proposal.proposal_id, waits_for(realm, proposal))
        if not result.interruptions:
            print(result.final_output)


if __name__ == "__main__":
    asyncio.run(main(folder_of(sys.argv)))
