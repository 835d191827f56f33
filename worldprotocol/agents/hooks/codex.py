"""Hooks of Codex: the events of Claude Code, with one difference in the answers.

A permission without a changed input is the absence of a decision: Codex reports ``permissionDecision`` ``allow`` alone
as a failure of the hook. A patch that fails has no PostToolUse; patches are applied one at a time. Source: https://developers.openai.com/codex/hooks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from worldprotocol.agents.hooks.claude_code import PATCH, ClaudeCode
from worldprotocol.agents.hooks.forms import CallBegins, Confinement, HookEvent
from worldprotocol.agents.project import Project

__all__ = ["Codex"]


class Codex(ClaudeCode):
    """Adapter of Codex; see ``forms.HookAdapter``."""

    def read(self, event: Mapping[str, Any], project: Project, *, confinement: Confinement | None) -> HookEvent:
        """Return what an event means; see ``forms.HookAdapter.read``."""
        found = super().read(event, project, confinement=confinement)
        return replace(found, follows=True) if isinstance(found, CallBegins) and found.tool == PATCH else found

    def allow(self, begun: CallBegins, reason: str) -> dict[str, Any]:
        """Return the answer that permits a call."""
        if begun.rewrites is not None:
            return super().allow(begun, reason)
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse"}}
