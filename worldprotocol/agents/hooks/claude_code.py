"""Hooks of Claude Code and Codex: PreToolUse, PostToolUse, PostToolUseFailure, PermissionDenied and SessionEnd.

In: ``session_id``, ``cwd``, ``hook_event_name``, ``tool_name``, ``tool_input``, ``tool_use_id``. Out, for PreToolUse:
``hookSpecificOutput`` with ``permissionDecision`` and, for a confined command, ``updatedInput``; ``{}`` is no opinion.
Source: https://code.claude.com/docs/en/hooks, the form of versions 2.1.295 to 2.1.330.

Codex has the same events. A permission without a changed input is the absence of a decision there: it reports
``permissionDecision`` ``allow`` alone as a failure of the hook. A patch that fails has no PostToolUse; patches are
applied one at a time. Source: https://developers.openai.com/codex/hooks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from worldprotocol.agents import intents
from worldprotocol.agents.command_terms import CommandTerms
from worldprotocol.agents.files.uses import carries_context
from worldprotocol.agents.hooks.forms import (
    CallBegins,
    CallEnds,
    HookEvent,
    Other,
    SessionEnds,
    input_of,
    is_partial,
    names_of,
    text_of,
)
from worldprotocol.agents.project import Project

__all__ = ["ClaudeCode", "Codex"]

EDITS: Final = {"Edit": "file_path", "MultiEdit": "file_path", "Write": "file_path", "NotebookEdit": "notebook_path"}
READS: Final = {"Read": "file_path", "NotebookRead": "notebook_path"}
SEARCHES: Final = frozenset({"Glob", "Grep", "LS"})
SHELL: Final = "Bash"
PATCH: Final = "apply_patch"
"""The tool by which Codex edits files."""


class ClaudeCode:
    """Adapter of Claude Code; see ``forms.HookAdapter``."""

    def read(self, event: Mapping[str, Any], project: Project, *, terms: CommandTerms) -> HookEvent:
        """Return what an event means; see ``forms.HookAdapter.read``."""
        name = text_of(event, "hook_event_name")
        session = text_of(event, "session_id")
        if name == "PreToolUse":
            return self._begins(event, session, project, terms=terms)
        if name in ("PostToolUse", "PostToolUseFailure", "PermissionDenied"):
            call_id = text_of(event, "tool_use_id")
            if name == "PostToolUse":
                response = event.get("tool_response")
                return CallEnds(session, call_id, "made", response, is_partial=_shows_a_part(response))
            detail = event.get("error") or event.get("reason") or event.get("tool_response")
            return CallEnds(session, call_id, "failed" if name == "PostToolUseFailure" else "not made", detail)
        return SessionEnds(session) if name == "SessionEnd" else Other()

    def _begins(self, event: Mapping[str, Any], session: str, project: Project, *, terms: CommandTerms) -> CallBegins:
        tool, call_id, cwd = text_of(event, "tool_name"), text_of(event, "tool_use_id"), text_of(event, "cwd")
        given = input_of(event)
        if tool in EDITS:
            is_whole = not carries_context(given)  # NotebookEdit replaces a cell of which it names nothing
            intent = intents.edit(project, tool, text_of(given, EDITS[tool]), cwd, is_whole=is_whole)
        elif tool in READS:
            is_whole = not is_partial(given, "offset", "limit", "pages")
            intent = intents.read(project, tool, text_of(given, READS[tool]), cwd, is_whole=is_whole)
        elif tool in SEARCHES:
            patterns = names_of(given, "pattern" if tool == "Glob" else "glob", "include")
            intent = intents.search(project, tool, text_of(given, "path", ""), cwd, patterns)
        elif tool == SHELL:
            intent = intents.command(project, tool, text_of(given, "command"), cwd, terms=terms)
        elif tool == PATCH:
            intent = intents.patch(project, tool, text_of(given, "command"), cwd)
        elif tool == "WebFetch":
            intent = intents.fetch(tool, text_of(given, "url"))
        else:
            intent = intents.named_tool(tool, dict(given))
        return CallBegins(session, call_id, tool, intent, shell=given if tool == SHELL else None)

    def allow(self, begun: CallBegins, reason: str) -> dict[str, Any]:
        """Return the answer that permits a call."""
        answer = _decision("allow", reason)
        if begun.rewrites is not None:
            answer["hookSpecificOutput"]["updatedInput"] = dict(begun.rewrites)
        return answer

    def deny(self, begun: CallBegins, reason: str) -> dict[str, Any]:
        """Return the answer that refuses a call, with a reason for the agent."""
        return _decision("deny", reason)


class Codex(ClaudeCode):
    """Adapter of Codex; see ``forms.HookAdapter``."""

    def read(self, event: Mapping[str, Any], project: Project, *, terms: CommandTerms) -> HookEvent:
        """Return what an event means; see ``forms.HookAdapter.read``."""
        found = super().read(event, project, terms=terms)
        return replace(found, follows=True) if isinstance(found, CallBegins) and found.tool == PATCH else found

    def allow(self, begun: CallBegins, reason: str) -> dict[str, Any]:
        """Return the answer that permits a call."""
        if begun.rewrites is not None:
            return super().allow(begun, reason)
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse"}}


def _shows_a_part(response: Any) -> bool:
    """Return whether the answer of ``Read`` has fewer lines than its file."""
    file = response.get("file") if isinstance(response, Mapping) else None
    shown, lines = (file.get(name) if isinstance(file, Mapping) else None for name in ("numLines", "totalLines"))
    return isinstance(shown, int) and isinstance(lines, int) and shown < lines


def _decision(decision: str, reason: str) -> dict[str, Any]:
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": decision,
            "permissionDecisionReason": reason,
        }
    }
