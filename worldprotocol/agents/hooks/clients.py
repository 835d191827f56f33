"""The coding agents whose hooks are known, by the name in paths and commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from worldprotocol.agents.hooks.claude_code import ClaudeCode, Codex
from worldprotocol.agents.hooks.cursor import CursorAgent
from worldprotocol.agents.hooks.forms import HookAdapter
from worldprotocol.agents.hooks.gemini import Gemini
from worldprotocol.agents.proxy.events import PROXY, ProxyEvents

__all__ = ["CLIENTS"]

CLIENTS: Final[Mapping[str, HookAdapter]] = {
    "claude-code": ClaudeCode(),
    "codex": Codex(),
    "gemini": Gemini(),
    "cursor": CursorAgent(),
    PROXY: ProxyEvents(),  # no agent, but `worldctl mcp proxy`
}
"""Adapters by the name of the agent."""
