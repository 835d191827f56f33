"""An agent of Pydantic AI at the service desk: ``python -m examples.frameworks.pydantic_agent [FOLDER]``.

The first run ends where a call waits for ann, and its messages are stored; the second one, another process, continues.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import FunctionToolset

from examples.frameworks.desk import CALLS, REQUEST, TOOLS, Books, desk_realm, folder_of, show_waiting
from worldprotocol.agents.frameworks.pydantic_ai import GovernedToolset
from worldprotocol.api.realm import Realm

Output = str | DeferredToolRequests


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call all tools at once, and then repeat what they said."""
    parts = [part for message in messages for part in message.parts]
    said = [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]
    if said:
        return ModelResponse(parts=[TextPart("\n".join(said))])
    calls = [ToolCallPart(name, given, tool_call_id=f"call-{at}") for at, (name, given) in enumerate(CALLS)]
    return ModelResponse(parts=calls)


def desk_agent(realm: Realm, books: Books) -> Agent[None, Output]:
    """Return the agent with its governed tools."""
    tools: FunctionToolset[None] = FunctionToolset([books.refund, books.publish])
    governed = GovernedToolset(tools, realm, "bot", tools=TOOLS)
    return Agent(FunctionModel(script), toolsets=[governed], output_type=[str, DeferredToolRequests])


def main(folder: Path) -> None:
    """Ask the agent, or go on where it stopped."""
    stored = folder / "pydantic.json"
    with desk_realm(folder) as realm:
        agent = desk_agent(realm, Books(folder))
        if stored.exists():
            run = json.loads(stored.read_text("utf-8"))
            messages = ModelMessagesTypeAdapter.validate_python(run["messages"])
            going_on = DeferredToolResults(approvals=dict.fromkeys(run["waiting"], True))
            result = agent.run_sync(message_history=messages, deferred_tool_results=going_on)
        else:
            result = agent.run_sync(REQUEST)
        if isinstance(result.output, DeferredToolRequests):
            run = {
                "messages": json.loads(result.all_messages_json()),
                "waiting": [one.tool_call_id for one in result.output.approvals],
            }
            stored.write_text(json.dumps(run), "utf-8")
            for one in result.output.metadata.values():
                show_waiting(folder, one["proposalId"], one["waitsFor"])
        else:
            print(result.output)


if __name__ == "__main__":
    main(folder_of(sys.argv))
