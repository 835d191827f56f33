"""Claude Agent SDK: hooks in the program that runs the agent. Extra ``claude-agent``.

    governed = GovernedHooks(realm, project=".")
    options = ClaudeAgentOptions(hooks=governed.hooks)

A call is held until it is decided. If its time ends first, it is refused, and the same call continues its proposal
later. A hook that fails blocks the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from world.extras import missing_extra
from worldprotocol.agents.command_terms import CommandTerms
from worldprotocol.agents.frameworks.gate import ToolGate, Tools
from worldprotocol.agents.frameworks.outcomes import MadeBefore, Permit
from worldprotocol.agents.hooks.claude_code import ClaudeCode
from worldprotocol.agents.hooks.forms import CallBegins, CallEnds
from worldprotocol.agents.project import Project
from worldprotocol.api.realm import Realm

try:
    from claude_agent_sdk import HookContext, HookInput, HookMatcher
    from claude_agent_sdk.types import HookEvent, HookJSONOutput
except ModuleNotFoundError as missing:
    raise missing_extra("Agents of the Claude Agent SDK", missing.name or "claude_agent_sdk", "claude-agent") from None

__all__ = ["GovernedHooks"]

ANSWER_S: Final = 60.0
"""Time that a hook has beside the wait of the call, in seconds."""


class GovernedHooks:
    """Governs every tool call of an agent by its hooks.

    Args:
        realm: the realm: open for acting, or connected.
        actor: id of the agent's actor; None is the one that the server verified.
        tools: by name of the tool, such as ``mcp__desk__refund``, its action, or a ``GovernedTool``.
        project: the folder that the agent works in: other tools are the actions of the domain of coding agents, as with
            installed hooks; None: they are ``tool.use``.
        wait_s: how long a call is held, in seconds.

    Raises:
        RefusedError: ``UNKNOWN_ACTOR`` for a local realm without an actor.
    """

    def __init__(
        self,
        realm: Realm,
        actor: str | None = None,
        *,
        tools: Tools | None = None,
        project: str | Path | None = None,
        wait_s: float = 540.0,
    ) -> None:
        self._gate = ToolGate(realm, actor, client="claude-agent", tools=tools, wait_s=wait_s, keep_results=False)
        self._is_of_project = project is not None
        self._project = Project(project or ".")
        self._timeout_s = wait_s + ANSWER_S
        self._permits: dict[tuple[str, str], Permit] = {}

    @property
    def hooks(self) -> dict[HookEvent, list[HookMatcher]]:
        """The hooks for ``ClaudeAgentOptions``."""
        after = HookMatcher(hooks=[self._after], timeout=ANSWER_S)
        before = HookMatcher(hooks=[self._before], timeout=self._timeout_s, on_failure="block")
        return {"PreToolUse": [before], "PostToolUse": [after], "PostToolUseFailure": [after]}

    async def _before(self, event: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
        begins = ClaudeCode().read(cast(Mapping[str, Any], event), self._project, terms=CommandTerms())
        assert isinstance(begins, CallBegins)
        given: dict[str, Any] = event.get("tool_input") or {}  # type: ignore[assignment]
        intent = begins.intent if self._is_of_project else None
        begun = await self._gate.begin_async(begins.tool, given, begins.call_id, begins.session, intent)
        if isinstance(begun, MadeBefore):
            return cast(HookJSONOutput, ClaudeCode().deny(begins, f"The call was made already: {begun.value}"))
        if not isinstance(begun, Permit):
            return cast(HookJSONOutput, ClaudeCode().deny(begins, begun.message))
        self._permits[begins.session, begins.call_id] = begun
        answer = ClaudeCode().allow(begins, f"Allowed by proposal {begun.proposal_id}.")
        if begun.approved != begun.given:
            answer["hookSpecificOutput"]["updatedInput"] = begun.arguments(given)
        return cast(HookJSONOutput, answer)

    async def _after(self, event: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
        ended = ClaudeCode().read(cast(Mapping[str, Any], event), self._project, terms=CommandTerms())
        assert isinstance(ended, CallEnds)
        permit = self._permits.pop((ended.session, ended.call_id), None)
        if permit is not None:
            result = RuntimeError(str(ended.detail)) if ended.outcome == "failed" else ended.detail
            await self._gate.made_async(permit, result)
        return {}
