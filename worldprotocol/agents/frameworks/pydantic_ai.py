"""Pydantic AI: a toolset around the tools of an agent. Extra ``pydantic-ai``.

    agent = Agent(model, toolsets=[GovernedToolset(tools, realm)], output_type=[str, DeferredToolRequests])

A call that waits for people ends the run with ``DeferredToolRequests``, whose metadata has the proposal. The approval
in ``DeferredToolResults`` is not the answer of these people: the realm is asked again, and the call is deferred again
until they have decided.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from world.extras import missing_extra
from worldprotocol.agents.frameworks.gate import ToolGate, Tools
from worldprotocol.agents.frameworks.outcomes import MadeBefore, Pause, Permit
from worldprotocol.api.realm import Realm

try:
    from pydantic_ai import ApprovalRequired, RunContext
    from pydantic_ai.exceptions import ToolFailed
    from pydantic_ai.tools import AgentDepsT
    from pydantic_ai.toolsets import ToolsetTool, WrapperToolset
except ModuleNotFoundError as missing:
    raise missing_extra("Agents of Pydantic AI", missing.name or "pydantic_ai", "pydantic-ai") from None

__all__ = ["GovernedToolset"]


@dataclass
class GovernedToolset(WrapperToolset[AgentDepsT]):
    """Governs every call of a toolset.

    Args:
        wrapped: the toolset.
        realm: the realm: open for acting, or connected.
        actor: id of the agent's actor; None is the one that the server verified.
        tools: by name of the tool its action, or a ``GovernedTool``; other tools are ``tool.use``.
        wait_s: how long a call is held before it is deferred, in seconds.

    Raises:
        RefusedError: ``UNKNOWN_ACTOR`` for a local realm without an actor.
    """

    realm: Realm
    actor: str | None = None
    _: KW_ONLY
    tools: Tools | None = None
    wait_s: float = 0.0
    _gate: ToolGate = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Ask for no call yet."""
        self._gate = ToolGate(self.realm, self.actor, client="pydantic-ai", tools=self.tools, wait_s=self.wait_s)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        """Make a call once the realm allows it; else return the reason to the model, or defer it.

        Raises:
            ApprovalRequired: it waits for people or resources.
            ToolFailed: it must not be made; the model gets the reason.
        """
        begun = await self._gate.begin_async(name, tool_args, ctx.tool_call_id or "", ctx.conversation_id or "")
        if isinstance(begun, Permit):
            allowed = begun.arguments(tool_args)
            return await self._gate.make_async(begun, lambda: self.wrapped.call_tool(name, allowed, ctx, tool))
        if isinstance(begun, MadeBefore):
            return begun.value
        if isinstance(begun, Pause):
            raise ApprovalRequired(begun.to_wire(name, {}))
        raise ToolFailed(begun.message)
