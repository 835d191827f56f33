"""OpenAI Agents SDK: function tools that ask before they run. Extra ``openai-agents``.

    governed = GovernedFunctionTools(realm)
    agent = Agent("desk", tools=[governed(refund)])

A call that waits for people interrupts the run (``needs_approval``). Its state can be stored; once they have decided,
it continues: ``await governed.approve_decided(state)``, then ``Runner.run(agent, state)``. ``RunState.approve`` itself
is not their answer: the guardrail of the tool's input rejects a call that the realm has not allowed.
"""

from __future__ import annotations

import copy
import json
from functools import partial
from typing import Any

from world.extras import missing_extra
from worldprotocol.agents.frameworks.gate import ToolGate, Tools
from worldprotocol.agents.frameworks.outcomes import MadeBefore, Pause, Permit
from worldprotocol.api.realm import Realm

try:
    from agents import FunctionTool, RunContextWrapper, RunState, ToolGuardrailFunctionOutput, ToolInputGuardrail
    from agents.tool import (
        maybe_invoke_function_tool_failure_error_function,
        set_function_tool_failure_error_function,
    )
    from agents.tool_context import ToolContext
    from agents.tool_guardrails import ToolInputGuardrailData
except ModuleNotFoundError as missing:
    raise missing_extra("Agents of OpenAI", missing.name or "agents", "openai-agents") from None

__all__ = ["GovernedFunctionTools"]

NO_OBJECT = "Refused: the arguments are no JSON object. Nothing was done."


class GovernedFunctionTools:
    """Makes governed tools of the function tools of an agent.

    Args:
        realm: the realm: open for acting, or connected.
        actor: id of the agent's actor; None is the one that the server verified.
        tools: by name of the tool its action, or a ``GovernedTool``; other tools are ``tool.use``.
        wait_s: how long a call is held before the run is interrupted, in seconds.
        session: name of the conversation, where the model's ids of calls are unique within one only.

    Raises:
        RefusedError: ``UNKNOWN_ACTOR`` for a local realm without an actor.
    """

    def __init__(
        self,
        realm: Realm,
        actor: str | None = None,
        *,
        tools: Tools | None = None,
        wait_s: float = 0.0,
        session: str = "",
    ) -> None:
        self._gate = ToolGate(realm, actor, client="openai-agents", tools=tools, wait_s=wait_s)
        self._session = session
        self._names: set[str] = set()

    def __call__(self, tool: FunctionTool) -> FunctionTool:
        """Return a tool whose calls are intents; the given one stays as it is."""
        if tool.needs_approval is False:
            self._names.add(tool.name)
        raising = set_function_tool_failure_error_function(copy.copy(tool), None)
        guardrail: ToolInputGuardrail[Any] = ToolInputGuardrail(partial(self._guard, tool.name), name="governed")

        async def needs_approval(context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
            own = tool.needs_approval
            if own is True or (callable(own) and await own(context, arguments, call_id)):
                return True
            return isinstance(await self._gate.look_async(tool.name, arguments, call_id, self._session), Pause)

        async def invoke(context: ToolContext[Any], given: str) -> Any:
            arguments = _arguments(given)
            if arguments is None:
                return NO_OBJECT
            begun = await self._gate.begin_async(tool.name, arguments, context.tool_call_id, self._session)
            if not isinstance(begun, Permit):
                return begun.message
            allowed = json.dumps(begun.arguments(arguments))  # not the text, which may be read in another way
            try:
                return await self._gate.make_async(begun, partial(raising.on_invoke_tool, context, allowed))
            except Exception as error:
                said = await maybe_invoke_function_tool_failure_error_function(
                    function_tool=tool, context=context, error=error
                )
                if said is None:
                    raise
                return said

        guardrails = [*(tool.tool_input_guardrails or ()), guardrail]
        governed = copy.copy(tool)
        governed.on_invoke_tool, governed.needs_approval = invoke, needs_approval
        governed.tool_input_guardrails = guardrails
        return governed

    async def approve_decided(self, state: RunState[Any, Any]) -> None:
        """Approve the interrupted calls that the realm has decided; it allows or refuses them when the state continues.

        Calls that wait still stay interrupted, and so do those of tools that need an approval of the program itself.

        Args:
            state: the state of an interrupted run.
        """
        for one in state.get_interruptions():
            if one.name in self._names:
                given = _arguments(one.arguments or "") or {}
                found = await self._gate.look_async(one.name, given, one.call_id or "", self._session)
                if not isinstance(found, Pause):
                    state.approve(one)

    async def _guard(self, tool: str, data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        context = data.context
        arguments = _arguments(context.tool_arguments)
        if arguments is None:
            return ToolGuardrailFunctionOutput.reject_content(NO_OBJECT)
        found = await self._gate.look_async(tool, arguments, context.tool_call_id, self._session)
        if found is None:
            return ToolGuardrailFunctionOutput.allow()
        named = None if isinstance(found, MadeBefore) else {"proposalId": found.proposal_id}
        return ToolGuardrailFunctionOutput.reject_content(found.message, named)


def _arguments(given: str) -> dict[str, Any] | None:
    try:
        found = json.loads(given or "{}")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
