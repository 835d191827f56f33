"""What became of a call, as the result of a tool: in words for the model, and as structured content for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import mcp_types as types

from world.errors import WorldProtocolError

__all__ = ["OUTCOME_SCHEMA", "TERMINAL", "is_open", "outcome_of", "refusal", "result", "words_of"]

TERMINAL: Final = frozenset({"completed", "rejected", "failed", "superseded"})
MOST_CHANGES: Final = 50
"""Changes of the state that a result lists."""

_TEXT: Final = {"type": "string"}

OUTCOME_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "proposalId": {**_TEXT, "description": "Id of the proposal; the tool proposal_status takes it."},
        "action": {**_TEXT, "description": "The action that was asked for."},
        "status": {
            "enum": [
                "submitted",
                "evaluating",
                "approved",
                "executing",
                "completed",
                "rejected",
                "failed",
                "superseded",
            ]
        },
        "message": {**_TEXT, "description": "What became of it, and what to do next."},
        "waitsFor": {**_TEXT, "description": "What an open proposal waits for."},
        "worldId": {**_TEXT, "description": "The world that the action made."},
        "changes": {
            "type": "array",
            "items": {"type": "object"},
            "description": f"Changes of the state, {MOST_CHANGES} at most, where the caller may read it.",
        },
        "code": {**_TEXT, "description": "Code of what prevented it."},
    },
    "required": ["proposalId", "action", "status", "message"],
}
"""JSON Schema of the structured content of all tools that have a proposal."""


def is_open(proposal: Mapping[str, Any]) -> bool:
    """Return whether a proposal has not ended."""
    return proposal["status"] not in TERMINAL


def outcome_of(proposal: Mapping[str, Any], patches: Sequence[Any] = ()) -> types.CallToolResult:
    """Return the result of a call whose proposal is as given.

    Args:
        proposal: JSON, as ``RealmPort.proposal`` returns it.
        patches: the patches of its world, JSON.
    """
    message, code = words_of(proposal)
    shown: dict[str, Any] = {
        "proposalId": proposal["proposalId"],
        "action": "" if _is_hidden(proposal) else proposal["intent"]["body"]["type"],
        "status": proposal["status"],
        "message": message,
    }
    if is_open(proposal) and "waits" in proposal:
        shown["waitsFor"] = proposal["waits"]["for"]
    if proposal["status"] == "completed" and not _is_hidden(proposal):
        shown["worldId"] = proposal["worldId"]
        shown |= {"changes": list(patches[:MOST_CHANGES])} if patches else {}
    if code is not None:
        shown["code"] = code
    return result(message, shown, is_error=proposal["status"] in TERMINAL - {"completed"})


def words_of(proposal: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return what became of a proposal in words, and the code of what prevented it."""
    name, status = proposal["proposalId"], proposal["status"]
    if _is_hidden(proposal):
        ending = "has not ended" if is_open(proposal) else f"is {status}"
        return f"Proposal {name} {ending}; the rules of your right withhold the rest.", None
    action = proposal["intent"]["body"]["type"]
    if status == "completed":
        return f"Done: {action} is completed (proposal {name}, world {proposal['worldId']}).", None
    if status == "rejected":
        why = _sentence(proposal["decision"].get("reason")) or "no reason was stated."
        words = (
            f"Rejected: {why} Nothing was changed. The same call is decided in the same way until the input, the state "
            f"or the policy is another: change the input, or ask a person. (proposal {name})"
        )
        return words, "REJECTED"
    if status == "failed":
        error = proposal["error"]
        words = (
            f"Failed: {_sentence(error['message'])} [{error['code']}] It was approved, and its execution changed "
            f"nothing in the state. Remove the cause before you repeat the call. (proposal {name})"
        )
        return words, str(error["code"])
    if status == "superseded":
        return _superseded(proposal)
    waits = proposal.get("waits", {}).get("for") or f"its execution ({status})"
    words = (
        f"Not yet: it waits for {waits}. Nothing was changed so far. Proposal {name} stays open: look at it later with "
        f'proposal_status {{"proposalId": "{name}"}}.'
    )
    return words, None


def _is_hidden(proposal: Mapping[str, Any]) -> bool:
    """Return whether rules of redaction withhold all but the status."""
    return bool(proposal.get("redacted", False))


def _superseded(proposal: Mapping[str, Any]) -> tuple[str, str]:
    name, withdrawn = proposal["proposalId"], proposal.get("withdrawn")
    if withdrawn is not None:
        why = _sentence(withdrawn["reason"])
        return f"Withdrawn by {withdrawn['by']}: {why} Nothing was changed. (proposal {name})", "WITHDRAWN"
    words = (
        "Superseded: another branch or domain was brought into force before it was decided. Nothing was changed. List "
        f"the tools again, and repeat the call if it is still wanted. (proposal {name})"
    )
    return words, "SUPERSEDED"


def result(message: str, shown: Mapping[str, Any] | None, *, is_error: bool = False) -> types.CallToolResult:
    """Return the result of a tool: a sentence, and JSON as text and as structured content.

    Args:
        message: the sentence.
        shown: JSON; None where there is nothing but the sentence.
        is_error: whether the tool did not do what was asked.
    """
    content: list[types.ContentBlock] = [types.TextContent(text=message)]
    if shown is not None:
        content.append(types.TextContent(text=json.dumps(shown, ensure_ascii=False, separators=(",", ":"))))
    return types.CallToolResult(
        content=content, structured_content=None if shown is None else dict(shown), is_error=is_error
    )


def refusal(error: WorldProtocolError, what: str = "") -> types.CallToolResult:
    """Return the result of a call that the realm refused before there was a proposal.

    Args:
        error: the refusal.
        what: words before its message.
    """
    return result(f"Refused: {what}{_sentence(error.message)} [{error.code}]", None, is_error=True)


def _sentence(text: str | None) -> str:
    return "" if not text else f"{text.rstrip().rstrip('.')}."
