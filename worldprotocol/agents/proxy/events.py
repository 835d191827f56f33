"""Events that the MCP proxy sends to the server, in the way of a coding agent's hooks, and the answers to them.

A call has an id within a session; ``process`` is the proxy that makes it, so that another proxy with the same call does
not make it as well. Answers have ``decision``, ``reason`` and members for programs (``forms.CallBegins``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.agents import intents
from worldprotocol.agents.command_terms import CommandTerms
from worldprotocol.agents.hooks.forms import (
    CallBegins,
    CallContinues,
    CallEnds,
    HookEvent,
    text_of,
)
from worldprotocol.agents.project import Project

__all__ = ["PROXY", "ProxyEvents", "begins", "continues", "ends"]

PROXY: Final = "mcp-proxy"
"""The name under which the proxy sends its events."""

PINS: Final = frozenset({"pinned", "changed", "new"})
OUTCOMES: Final = frozenset({"made", "failed", "not made"})
MAX_NUMBER: Final = 1e9
_PROCESS: Final = re.compile(r"[A-Za-z0-9-]{1,80}")

Outcome = Literal["made", "failed", "not made"]


def begins(call: Mapping[str, Any], *, wait_s: float) -> dict[str, Any]:
    """Return the event that asks whether a call may be made.

    Args:
        call: ``session``, ``callId``, ``process``, ``server``, ``name``, ``arguments``, ``integers``, ``pin``,
            ``timeLimitMs`` and ``excludesEqual``.
        wait_s: longest wait for the answer, in seconds.
    """
    return {"event": "begins", **call, "waitS": wait_s}


def continues(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return the event that extends the time of a call."""
    return {"event": "continues", **_named(call)}


def ends(call: Mapping[str, Any], outcome: Outcome, detail: Any) -> dict[str, Any]:
    """Return the event that reports a call.

    Args:
        call: as for ``begins``.
        outcome: see ``forms.CallEnds``.
        detail: ``sha256`` and ``bytes`` of its answer where it was made, else a sentence.
    """
    return {"event": "ends", **_named(call), "outcome": outcome, "detail": detail}


def _named(call: Mapping[str, Any]) -> dict[str, Any]:
    return {name: call[name] for name in ("session", "callId", "process")}


class ProxyEvents:
    """Adapter of the proxy; see ``forms.HookAdapter``."""

    def read(self, event: Mapping[str, Any], project: Project, *, terms: CommandTerms) -> HookEvent:
        """Return what an event means; see ``forms.HookAdapter.read``."""
        session, call_id, process = (text_of(event, name) for name in ("session", "callId", "process"))
        if not _PROCESS.fullmatch(process):
            raise _invalid("process", process)
        kind, worker = text_of(event, "event"), f"{PROXY}/{process}"
        if kind == "begins":
            return _begins(event, session, call_id, worker)
        if kind == "continues":
            return CallContinues(session, call_id, worker)
        if kind != "ends":
            raise _invalid("event", kind)
        outcome: Any = event.get("outcome")
        if outcome not in OUTCOMES:
            raise _invalid("outcome", outcome)
        detail = event.get("detail")
        digest = detail if outcome == "made" and isinstance(detail, Mapping) else None
        return CallEnds(session, call_id, outcome, detail, worker, digest)

    def allow(self, begun: CallBegins, reason: str) -> dict[str, Any]:
        """Return the answer that permits a call."""
        return {"decision": "allow", "reason": reason}

    def deny(self, begun: CallBegins, reason: str) -> dict[str, Any]:
        """Return the answer that refuses a call."""
        return {"decision": "deny", "reason": reason}


def _begins(event: Mapping[str, Any], session: str, call_id: str, worker: str) -> CallBegins:
    server, name, pin = text_of(event, "server"), text_of(event, "name"), text_of(event, "pin")
    if pin not in PINS:
        raise _invalid("pin", pin)
    arguments, limit, wait_s = event.get("arguments"), event.get("timeLimitMs"), event.get("waitS")
    for member, value in (("timeLimitMs", limit), ("waitS", wait_s)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_NUMBER:
            raise _invalid(member, value)
    assert limit is not None
    governed: intents.Governed = {"pin": pin, "timeLimitMs": int(limit)}
    if integers := event.get("integers"):
        governed["integers"] = integers
    intent = intents.mcp_call(server, name, arguments, **governed)
    return CallBegins(
        session,
        call_id,
        intent.input["tool"],
        intent,
        worker=worker,
        excludes_equal=event.get("excludesEqual") is not False,
        wait_s=wait_s,
        is_for_program=True,
    )


def _invalid(member: str, value: Any) -> RefusedError:
    return RefusedError(
        ErrorCode.INVALID_VALUE,
        f"The event of the proxy has {value!r:.100} as {member!r}; use the proxy of this version.",
    )
