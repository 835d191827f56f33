"""LangChain and LangGraph: a middleware through which an agent calls its tools. Extra ``langchain``.

    agent = create_agent(model, tools=[refund], middleware=[GovernedTools(realm)], checkpointer=checkpointer)

A call that waits for people interrupts the graph. What ``Command(resume=...)`` brings is not an answer: the realm is
asked again, and the graph is interrupted again until the people that the policy names have decided.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from world.extras import missing_extra
from worldprotocol.agents.frameworks.gate import ToolGate, Tools
from worldprotocol.agents.frameworks.outcomes import MadeBefore, Pause, Permit, Refusal
from worldprotocol.api.realm import Realm

try:
    from langchain.agents.middleware import AgentMiddleware, ToolCallRequest
    from langchain_core.messages import AIMessage, ToolMessage
    from langgraph.types import Command, interrupt
except ModuleNotFoundError as missing:
    raise missing_extra("Agents of LangChain", missing.name or "langchain", "langchain") from None

__all__ = ["GovernedTools"]

Result = ToolMessage | Command[Any]


class GovernedTools(AgentMiddleware):
    """Governs every tool call of an agent.

    Args:
        realm: the realm: open for acting, or connected.
        actor: id of the agent's actor; None is the one that the server verified.
        tools: by name of the tool its action, or a ``GovernedTool``; other tools are ``tool.use``.
        wait_s: how long a call is held before the graph is interrupted, in seconds.

    Raises:
        RefusedError: ``UNKNOWN_ACTOR`` for a local realm without an actor.
    """

    def __init__(
        self, realm: Realm, actor: str | None = None, *, tools: Tools | None = None, wait_s: float = 0.0
    ) -> None:
        super().__init__()
        self._gate = ToolGate(realm, actor, client="langchain", tools=tools, wait_s=wait_s)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Result]) -> Result:
        """Make a call once the realm allows it; else the model reads why not, or the graph is interrupted."""
        begun = self._gate.begin(*_call_of(request))
        while isinstance(begun, Pause):
            interrupt(begun.to_wire(request.tool_call["name"], request.tool_call["args"]))
            begun = self._gate.begin(*_call_of(request))
        if isinstance(begun, Permit):
            return self._gate.make(begun, partial(handler, _allowed(request, begun)), _recorded)
        return _message(request, begun)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Result]]
    ) -> Result:
        """Make a call of an asynchronous agent; see ``wrap_tool_call``."""
        begun = await self._gate.begin_async(*_call_of(request))
        while isinstance(begun, Pause):
            interrupt(begun.to_wire(request.tool_call["name"], request.tool_call["args"]))
            begun = await self._gate.begin_async(*_call_of(request))
        if isinstance(begun, Permit):
            return await self._gate.make_async(begun, partial(handler, _allowed(request, begun)), _recorded)
        return _message(request, begun)


def _call_of(request: ToolCallRequest) -> tuple[str, dict[str, Any], str, str]:
    """Return name, arguments and id of a call, and within what it is unique: the thread and the model's message."""
    call, config, state = request.tool_call, request.runtime.config, request.state
    messages = state.get("messages", ()) if isinstance(state, Mapping) else getattr(state, "messages", ())
    said = (one for one in reversed(messages) if isinstance(one, AIMessage) and _has(one, call["id"]))
    message = next((one.id for one in said if one.id), "")
    session = f"{config.get('configurable', {}).get('thread_id', '')}/{message}"
    return call["name"], call["args"], call["id"] or "", session


def _has(message: AIMessage, call_id: str | None) -> bool:
    return any(one["id"] == call_id for one in message.tool_calls)


def _allowed(request: ToolCallRequest, permit: Permit) -> ToolCallRequest:
    call = request.tool_call
    return request.override(tool_call={**call, "args": permit.arguments(call["args"])})


def _message(request: ToolCallRequest, begun: MadeBefore | Refusal) -> ToolMessage:
    call = request.tool_call
    if isinstance(begun, Refusal):
        return ToolMessage(begun.message, tool_call_id=call["id"], name=call["name"], status="error")
    content = begun.value if isinstance(begun.value, list) else begun.message
    return ToolMessage(content, tool_call_id=call["id"], name=call["name"])


def _recorded(result: Result) -> Any:
    if not isinstance(result, ToolMessage):
        return repr(result)
    return RuntimeError(str(result.content)) if result.status == "error" else result.content
