"""Hooks of Gemini CLI: BeforeTool, AfterTool and SessionEnd.

Events have no id of a call, so a call is known by its content; equal calls of one session follow one another. Out, for
BeforeTool: ``decision`` ``allow`` or ``deny`` with ``reason``. Source: https://geminicli.com/docs/hooks/reference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

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

__all__ = ["Gemini"]

EDITS: Final = frozenset({"write_file", "replace", "edit"})
READS: Final = frozenset({"read_file"})
SEARCHES: Final = {"list_directory": "path", "glob": "path", "search_file_content": "path", "grep_search": "path"}
SHELL: Final = "run_shell_command"
_CUT: Final = "file content has been truncated"
MAX_REMARK: Final = 500
"""Characters of an answer in which ``read_file`` says that it was cut."""

_URL: Final = re.compile(r"https?://[^\s<>\"']+")


class Gemini:
    """Adapter of Gemini CLI; see ``forms.HookAdapter``."""

    def read(self, event: Mapping[str, Any], project: Project, *, terms: CommandTerms) -> HookEvent:
        """Return what an event means; see ``forms.HookAdapter.read``."""
        name, session = text_of(event, "hook_event_name"), text_of(event, "session_id")
        if name == "SessionEnd":
            return SessionEnds(session)
        if name not in ("BeforeTool", "AfterTool"):
            return Other()
        tool, given = text_of(event, "tool_name"), input_of(event)
        call_id = content_id(tool, given)
        if name == "AfterTool":
            response = event.get("tool_response")
            error = response.get("error") if isinstance(response, Mapping) else None
            outcome: Literal["failed", "made"] = "failed" if error else "made"
            return CallEnds(session, call_id, outcome, error or response, is_partial=_shows_a_part(response))
        intent = _intent(event, tool, given, project, terms=terms)
        shell = given if tool == SHELL else None
        return CallBegins(session, call_id, tool, intent, has_own_id=False, shell=shell)

    def allow(self, begun: CallBegins, reason: str) -> dict[str, Any]:
        """Return the answer that permits a call."""
        answer: dict[str, Any] = {"decision": "allow"}
        if begun.rewrites is not None:
            answer["hookSpecificOutput"] = {"tool_input": dict(begun.rewrites)}
        return answer

    def deny(self, begun: CallBegins, reason: str) -> dict[str, Any]:
        """Return the answer that refuses a call, with a reason for the agent."""
        return {"decision": "deny", "reason": reason}


def _intent(
    event: Mapping[str, Any], tool: str, given: Mapping[str, Any], project: Project, *, terms: CommandTerms
) -> Intent:
    cwd = text_of(event, "cwd")
    if tool in EDITS:
        return intents.edit(project, tool, text_of(given, "file_path"), cwd, is_whole=not carries_context(given))
    if tool in READS:
        named = given.get("file_path") or given.get("absolute_path")
        is_whole = not is_partial(given, "offset", "limit", "start_line", "end_line")
        return intents.read(project, tool, text_of({"file_path": named}, "file_path"), cwd, is_whole=is_whole)
    if tool in SEARCHES:
        named = given.get("dir_path") or given.get(SEARCHES[tool]) or ""
        patterns = names_of(given, "pattern" if tool == "glob" else "glob", "include", "include_pattern")
        return intents.search(project, tool, text_of({"path": named}, "path", ""), cwd, patterns)
    if tool == "read_many_files":
        return _read_many(project, tool, given, cwd)
    if tool == "web_fetch" and len(urls := _URL.findall(text_of(given, "prompt", ""))) == 1:
        return intents.fetch(tool, urls[0])
    if tool == SHELL:
        below = given.get("dir_path") or given.get("directory") or ""
        where = f"{cwd}/{below}" if isinstance(below, str) and below else cwd
        return intents.command(project, tool, text_of(given, "command"), where, terms=terms)
    context = event.get("mcp_context")
    if isinstance(context, Mapping):
        return intents.mcp_call(text_of(context, "server_name"), text_of(context, "tool_name", tool), dict(given))
    return intents.named_tool(tool, dict(given))


def _shows_a_part(response: Any) -> bool:
    """Return whether the answer of ``read_file`` says that it was cut."""
    content = response.get("llmContent") if isinstance(response, Mapping) else None
    return isinstance(content, str) and _CUT in content[:MAX_REMARK]


def _read_many(project: Project, tool: str, given: Mapping[str, Any], cwd: str) -> Intent:
    """Return the intent of reading the files of several patterns."""
    return intents.search(project, tool, "", cwd, names_of(given, "include", "paths"))
