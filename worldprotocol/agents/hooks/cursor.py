"""Hooks of Cursor: preToolUse, postToolUse, postToolUseFailure and sessionEnd.

In: ``conversation_id``, ``workspace_roots``, ``tool_name``, ``tool_input``, ``tool_use_id``. Out, for preToolUse:
``permission`` with ``agent_message``. It is not known to run a changed ``updated_input``, so its commands are never
confined: a person decides about each.
Source: https://cursor.com/docs/hooks.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    content_id,
    input_of,
    is_partial,
    names_of,
    text_of,
)
from worldprotocol.agents.intents import Intent
from worldprotocol.agents.project import Project

__all__ = ["CursorAgent"]

EDITS: Final = frozenset({"Write", "Edit", "StrReplace", "EditNotebook"})
DELETES: Final = "Delete"
READS: Final = frozenset({"Read", "ReadLints"})
PARTS: Final = ("offset", "limit", "start_line", "end_line", "start_line_one_indexed", "end_line_one_indexed_inclusive")
SEARCHES: Final = frozenset({"Grep", "Glob", "LS", "SemanticSearch"})
SHELL: Final = "Shell"
ENDS: Final = {"postToolUse": "made", "postToolUseFailure": "failed"}


class CursorAgent:
    """Adapter of Cursor; see ``forms.HookAdapter``."""

    def read(self, event: Mapping[str, Any], project: Project, *, terms: CommandTerms) -> HookEvent:
        """Return what an event means; see ``forms.HookAdapter.read``."""
        name = text_of(event, "hook_event_name")
        session = text_of(event, "conversation_id", event.get("session_id"))
        if name == "sessionEnd":
            return SessionEnds(session)
        if name not in ("preToolUse", *ENDS):
            return Other()
        tool, given = text_of(event, "tool_name"), input_of(event)
        own = event.get("tool_use_id")
        call_id = own if isinstance(own, str) and own else content_id(tool, given)
        if name == "postToolUse":
            return CallEnds(session, call_id, "made", event.get("tool_output"))
        if name == "postToolUseFailure":
            return CallEnds(session, call_id, "failed", event.get("error_message"))
        intent = _intent(event, tool, given, project, CommandTerms(leases_reads=terms.leases_reads))
        stated = event.get("cursor_version")
        version = stated if isinstance(stated, str) else None
        return CallBegins(session, call_id, tool, intent, has_own_id=call_id == own, version=version)

    def allow(self, begun: CallBegins, reason: str) -> dict[str, Any]:
        """Return the answer that permits a call."""
        return {"permission": "allow"}

    def deny(self, begun: CallBegins, reason: str) -> dict[str, Any]:
        """Return the answer that refuses a call, with a reason for the agent."""
        return {"permission": "deny", "agent_message": reason, "user_message": reason}


def _cwd(event: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """Return the working directory of a call: that of the tool, of the event, or the first root of the workspace."""
    roots = event.get("workspace_roots")
    first = roots[0] if isinstance(roots, list) and roots else None
    for one in (given.get("working_directory"), event.get("cwd"), first):
        if isinstance(one, str) and one:
            return one
    return text_of(event, "cwd")


def _intent(
    event: Mapping[str, Any], tool: str, given: Mapping[str, Any], project: Project, terms: CommandTerms
) -> Intent:
    cwd = _cwd(event, given)
    named = given.get("file_path") or given.get("path") or given.get("target_file") or given.get("target_notebook")
    if tool in EDITS:
        path = text_of({"file_path": named}, "file_path")
        return intents.edit(project, tool, path, cwd, is_whole=not carries_context(given))
    if tool == DELETES:
        return intents.delete(project, tool, text_of({"file_path": named}, "file_path"), cwd)
    if tool in READS:
        path, is_whole = text_of({"file_path": named}, "file_path"), not is_partial(given, *PARTS)
        return intents.read(project, tool, path, cwd, is_whole=is_whole)
    if tool in SEARCHES:
        patterns = names_of(given, *(("glob_pattern", "pattern") if tool == "Glob" else ("glob", "include")))
        folder = text_of({"path": named or given.get("target_directory") or ""}, "path", "")
        return intents.search(project, tool, folder, cwd, patterns)
    if tool == "WebFetch":
        return intents.fetch(tool, text_of(given, "url"))
    if tool == SHELL:
        return intents.command(project, tool, text_of(given, "command"), cwd, terms=terms)
    if tool.startswith("MCP:"):
        server, _, called = tool.removeprefix("MCP:").strip().rpartition("/")
        return intents.mcp_call(server or "unnamed", called, dict(given))
    return intents.other(tool, dict(given))
