"""An agent of LangChain at the service desk: ``python -m examples.frameworks.langchain_agent [FOLDER]``.

The first run ends where a call waits for ann; the second one, another process, continues once she has decided.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

from examples.frameworks.desk import CALLS, REQUEST, TOOLS, Books, desk_realm, folder_of, show_waiting
from worldprotocol.agents.frameworks.langchain import GovernedTools


class ScriptedModel(BaseChatModel):
    """Calls all tools at once, and then repeats what they said; it needs no network."""

    def _generate(self, messages: list[BaseMessage], *args: Any, **more: Any) -> ChatResult:
        said = [str(one.content) for one in messages if isinstance(one, ToolMessage)]
        calls = [{"name": name, "args": given, "id": f"call-{at}"} for at, (name, given) in enumerate(CALLS)]
        message = AIMessage("\n".join(said)) if said else AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def bind_tools(self, tools: Sequence[Any], **more: Any) -> Any:
        """Return the model: its script names the tools."""
        return self

    @property
    def _llm_type(self) -> str:
        return "scripted"


def main(folder: Path) -> None:
    """Ask the agent, or go on where it stopped."""
    books = Books(folder)
    config: RunnableConfig = {"configurable": {"thread_id": "monday"}}
    with desk_realm(folder) as realm, SqliteSaver.from_conn_string(str(folder / "langchain.db")) as checkpointer:
        agent = create_agent(
            ScriptedModel(),
            tools=[books.refund, books.publish],
            middleware=[GovernedTools(realm, "bot", tools=TOOLS)],
            checkpointer=checkpointer,
        )
        is_new = agent.get_state(config).created_at is None
        given: Any = {"messages": [{"role": "user", "content": REQUEST}]} if is_new else Command(resume=True)
        found = agent.invoke(given, config)
        for waiting in found.get("__interrupt__", ()):
            show_waiting(folder, waiting.value["proposalId"], waiting.value["waitsFor"])
        if "__interrupt__" not in found:
            print(found["messages"][-1].content)


if __name__ == "__main__":
    main(folder_of(sys.argv))
