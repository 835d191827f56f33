"""One request of a client: its actor, what the client declared, and the key of its call."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from uuid import uuid4

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from worldprotocol.agents.mcp.realm_access import RealmPort

__all__ = ["CALL_ID_KEYS", "TASKS", "McpRequest", "Settings"]

Context: TypeAlias = ServerRequestContext[Any, Any]

TASKS: Final = "io.modelcontextprotocol/tasks"
"""Identifier of the extension of tasks."""

CALL_ID_KEYS: Final = ("worldprotocol/callId", "claudecode/toolUseId")
"""Members of ``_meta`` with the client's own id of a call, which is the same for a repeated one."""

MAX_CALL_ID: Final = 1_000
SESSION_HEADER: Final = "mcp-session-id"


@dataclass(frozen=True, slots=True)
class Settings:
    """How the server answers.

    Args:
        access_of: returns the realm for a request, as the actor that sent it.
        wait_s: longest wait for the outcome of a call, in seconds, where the client takes no tasks.
        report_s: time between two reports to a client that waits, in seconds.
        look_s: time between two looks at whether the tools have changed, in seconds.
        process: id of this process, for keys of calls over stdio.
    """

    access_of: Callable[[Context], RealmPort]
    wait_s: float = 50.0
    report_s: float = 5.0
    look_s: float = 1.0
    process: str = field(default_factory=lambda: uuid4().hex)


@dataclass(frozen=True, slots=True)
class McpRequest:
    """A request, and the realm as its actor.

    Args:
        settings: how the server answers.
        context: the request, of the SDK.
        access: the realm.
    """

    settings: Settings
    context: Context
    access: RealmPort

    @classmethod
    def of(cls, settings: Settings, context: Context) -> McpRequest:
        """Return a request.

        Raises:
            MCPError: one of its texts is no Unicode text, or it is nested too deeply.
        """
        try:
            json.dumps(context.params, ensure_ascii=False, default=str).encode()
        except (UnicodeEncodeError, RecursionError):
            words = "A text of the request has half of a surrogate pair, or its values are nested too deeply."
            raise MCPError(types.INVALID_PARAMS, words) from None
        return cls(settings, context, settings.access_of(context))

    @property
    def is_modern(self) -> bool:
        """Whether its revision of the protocol has no sessions, tasks as an extension, and requests for input."""
        return self.context.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def takes_tasks(self) -> bool:
        """Whether the client declares the extension of tasks in this request."""
        declared = self._capabilities
        return self.is_modern and declared is not None and TASKS in (declared.extensions or {})

    @property
    def opens_urls(self) -> bool:
        """Whether the client declares elicitation of the mode URL."""
        declared = self._capabilities
        return declared is not None and declared.elicitation is not None and declared.elicitation.url is not None

    @property
    def _capabilities(self) -> types.ClientCapabilities | None:
        return self.context.session.client_capabilities

    @property
    def call_id(self) -> str | None:
        """The client's own id of the call; None where it states none."""
        meta = (self.context.params or {}).get("_meta")
        stated = meta if isinstance(meta, Mapping) else {}
        for name in CALL_ID_KEYS:
            given = stated.get(name)
            if isinstance(given, str) and 0 < len(given) <= MAX_CALL_ID:
                return given
        return None

    def key(self, actor_id: str) -> str | None:
        """Return the key of the call: that of its own id, else of its place in the session; None where it has neither.

        Args:
            actor_id: the actor.
        """
        basis: list[object] | None = None  # the id 1 is another one than "1"
        if self.call_id is not None:
            basis = ["call", self.call_id]
        elif self.context.request is None:
            basis = ["process", self.settings.process, self.context.request_id]
        elif (session := self.context.request.headers.get(SESSION_HEADER)) is not None:
            basis = ["session", session, self.context.request_id]
        if basis is None:
            return None
        return f"mcp-{hashlib.sha256(repr([actor_id, *basis]).encode()).hexdigest()[:48]}"

    def trace(self, tool: str) -> dict[str, Any]:
        """Return what is recorded with the proposal of a call.

        Args:
            tool: name of the tool.
        """
        stated = self.context.session.client_params
        client = None if stated is None else stated.client_info.name[:200]
        found = {"client": client, "protocol": self.context.protocol_version, "callId": self.call_id, "tool": tool}
        return {"mcp": {name: value for name, value in found.items() if value is not None}}
