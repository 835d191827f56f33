"""Whether an answer to the event before a call is a decision in the form of an agent; anything else blocks the call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["is_decision", "refusal"]


def is_decision(client: str, answer: Mapping[str, Any]) -> bool:
    """Return whether an answer permits or refuses a call.

    Args:
        client: the agent.
        answer: the server's.
    """
    return refusal(client, answer) is not None or _permits(client, answer)


def refusal(client: str, answer: Mapping[str, Any]) -> str | None:
    """Return the reason of an answer that refuses a call; None for any other.

    Args:
        client: the agent.
        answer: the server's.
    """
    decision, reason = _decided(client, answer)
    return str(reason or "The realm refused this.") if decision == "deny" else None


def _decided(client: str, answer: Mapping[str, Any]) -> tuple[Any, Any]:
    if client == "gemini":
        return answer.get("decision"), answer.get("reason")
    if client == "cursor":
        return answer.get("permission"), answer.get("agent_message")
    inner = _inner(answer)
    return inner.get("permissionDecision"), inner.get("permissionDecisionReason")


def _permits(client: str, answer: Mapping[str, Any]) -> bool:
    inner = _inner(answer)
    if client == "codex" and "permissionDecision" not in inner:
        return dict(answer) == {"hookSpecificOutput": {"hookEventName": "PreToolUse"}}
    return bool(_decided(client, answer)[0] == "allow")


def _inner(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = answer.get("hookSpecificOutput")
    is_form = isinstance(inner, Mapping) and inner.get("hookEventName") == "PreToolUse"
    return inner if is_form and isinstance(inner, Mapping) else {}
