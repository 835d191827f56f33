"""Claude Agent SDK: hooks in the program that runs the agent. Extra ``claude-agent``.

    governed = GovernedHooks(realm, project=".")
    options = ClaudeAgentOptions(hooks=governed.hooks)

A call is held until it is decided. If its time ends first, it is refused, and the same call continues its proposal
later. A hook that fails blocks the call. Files of a project are read and written as by installed hooks
(``worldprotocol.agents.files.calls``), where the realm is local.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.extras import missing_extra
from worldprotocol.agents.command_terms import CommandTerms
from worldprotocol.agents.files.calls import FileCalls
from worldprotocol.agents.files.history import Reader
from worldprotocol.agents.frameworks.gate import ToolGate, Tools
from worldprotocol.agents.frameworks.outcomes import Begun, MadeBefore, Permit, Refusal
from worldprotocol.agents.hooks.claude_code import ClaudeCode
from worldprotocol.agents.hooks.forms import CallBegins, CallEnds, key_of
from worldprotocol.agents.project import Project
from worldprotocol.api.leasing.async_calls import in_thread
from worldprotocol.api.realm import Realm
from worldprotocol.api.remote.realm import RemoteRealm

try:
    from claude_agent_sdk import HookContext, HookInput, HookMatcher
    from claude_agent_sdk.types import HookEvent, HookJSONOutput
except ModuleNotFoundError as missing:
    raise missing_extra("Agents of the Claude Agent SDK", missing.name or "claude_agent_sdk", "claude-agent") from None

__all__ = ["GovernedHooks"]

CLIENT: Final = "claude-agent"
_LOGGER: Final = logging.getLogger("worldprotocol")
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
        self._gate = ToolGate(realm, actor, client=CLIENT, tools=tools, wait_s=wait_s, keep_results=False)
        self._is_of_project = project is not None
        self._project = Project(project or ".")
        is_local = project is not None and not isinstance(realm, RemoteRealm)
        self._files = FileCalls(self._project) if is_local else None
        self._realm, self._actor_id = realm, actor or ""
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
        subagent = cast(Mapping[str, Any], event).get("agent_id")
        agent_id = subagent if isinstance(subagent, str) else None
        begun = await self._gate.begun_async(partial(self._begun, begins, given, agent_id))
        if isinstance(begun, MadeBefore):
            return cast(HookJSONOutput, ClaudeCode().deny(begins, f"The call was made already: {begun.value}"))
        if not isinstance(begun, Permit):
            return cast(HookJSONOutput, ClaudeCode().deny(begins, begun.message))
        self._permits[begins.session, begins.call_id] = begun
        answer = ClaudeCode().allow(begins, f"Allowed by proposal {begun.proposal_id}.")
        if begun.approved != begun.given:
            answer["hookSpecificOutput"]["updatedInput"] = begun.arguments(given)
        return cast(HookJSONOutput, answer)

    def _begun(self, begins: CallBegins, given: Mapping[str, Any], agent_id: str | None) -> Begun:
        """Propose a call, and claim it where it is allowed and loses no change of another."""
        words = (begins.tool, given, begins.call_id, begins.session)
        if self._files is None or self._gate.has_action(begins.tool):
            return self._gate.begin(*words, begins.intent if self._is_of_project else None, agent_id)
        key = key_of(CLIENT, begins.session, begins.call_id)
        reader = Reader(self._actor_id, CLIENT, begins.session, agent_id)
        try:
            intent = self._files.proposed(self._realm, reader, key, begins.intent, has_own_id=True)
        except RefusedError as refused:
            if refused.code != ErrorCode.NOT_READ:
                raise
            return Refusal(refused.code, refused.message.rstrip("."))
        begun = self._gate.begin(*words, intent, agent_id)
        if not isinstance(begun, Permit):
            return begun
        proposal, refuse = self._realm.proposal(begun.proposal_id), partial(self._gate.refuse, begun)
        return self._files.checked(self._realm, proposal, (key, begins.intent.files), refuse) or begun

    def _made(self, permit: Permit, ended: CallEnds) -> None:
        """Report a call that ended, with what its files hold then."""
        touched: dict[str, Any] = {}
        if self._files is not None:
            key = key_of(CLIENT, ended.session, ended.call_id)
            if ended.outcome == "failed":
                self._files.forget(self._actor_id, key)
            else:
                try:
                    touched = self._files.end(self._realm, self._actor_id, key, is_partial=ended.is_partial)
                except Exception:  # the result is reported all the same
                    _LOGGER.exception("What the files of the call %s hold could not be read", permit.proposal_id)
        result = RuntimeError(str(ended.detail)) if ended.outcome == "failed" else ended.detail
        self._gate.made(permit, result, touched)

    async def _after(self, event: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
        ended = ClaudeCode().read(cast(Mapping[str, Any], event), self._project, terms=CommandTerms())
        assert isinstance(ended, CallEnds)
        permit = self._permits.pop((ended.session, ended.call_id), None)
        if permit is not None:
            await asyncio.shield(in_thread(partial(self._made, permit, ended), "worldprotocol-report"))
        return {}
