"""The examples of the agents' documentation read as what they mean, and the answers have the documented forms."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.tables import for_each
from world.errors import RefusedError
from worldprotocol.agents.command_terms import CommandTerms
from worldprotocol.agents.hook_client import is_decision, refusal
from worldprotocol.agents.hooks.clients import CLIENTS
from worldprotocol.agents.hooks.forms import (
    CallBegins,
    CallEnds,
    HookEvent,
    Other,
    SessionEnds,
    rewritten,
)
from worldprotocol.agents.hooks.settings import HookPlace
from worldprotocol.agents.project import Project

RECORDED = [json.loads(path.read_text()) for path in sorted((Path(__file__).parent / "recorded").glob("*.json"))]
HOOK = HookPlace("https://realms.example:8437", "main", "/etc/agents/token")
CASES = [
    pytest.param(document, case, id=f"{document['client']} {number} {case['event']['hook_event_name']}")
    for document in RECORDED
    for number, case in enumerate(document["events"])
]
AGENTS = sorted(CLIENTS.keys() - {"mcp-proxy"})
"""The proxy of this project has no form but its own."""


def read(document: Any, event: Any, *, is_confined: bool = False) -> HookEvent:
    project = Project(document["root"])
    return CLIENTS[document["client"]].read(event, project, terms=CommandTerms("namespaces" if is_confined else "none"))


def test_every_agent_has_recorded_examples() -> None:
    assert sorted(one["client"] for one in RECORDED) == AGENTS
    for one in RECORDED:
        assert "https://" in one["source"]
        assert "version" in one["source"]


@for_each(("document", "case"), CASES)
def test_an_example_means(document: Any, case: Any) -> None:
    if "refused" in case:
        with pytest.raises(RefusedError, match=case["refused"]):
            read(document, case["event"])
        return
    found = read(document, case["event"])
    if "begins" in case:
        assert isinstance(found, CallBegins)
        expected = dict(case["begins"])
        assert found.call_id == expected.pop("call_id", found.call_id)
        assert found.intent.action == expected.pop("action")
        assert {name: found.intent.input[name] for name in expected} == expected
        assert found.tool == case["event"]["tool_name"]
        if "whole" in case:
            assert sorted(found.intent.files.whole) == case["whole"]
    elif "ends" in case:
        assert isinstance(found, CallEnds)
        expected = case["ends"]
        assert found.outcome == expected["outcome"]
        assert found.detail == expected.get("detail", found.detail)
        assert found.is_partial == expected.get("partial", False)
        if "of" in expected:  # no id of its own: it is the same call as before
            begun = read(document, document["events"][expected["of"]]["event"])
            assert isinstance(begun, CallBegins)
            assert found.call_id == begun.call_id
        else:
            assert found.call_id == expected["call_id"]
    elif "session_ends" in case:
        assert found == SessionEnds(case["session_ends"])
    else:
        assert found == Other()


def answers(client: str, *, is_confined: bool) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Return the answers that permit and refuse a shell command, and the command itself."""
    document = next(one for one in RECORDED if one["client"] == client)
    event = next(
        one["event"]
        for one in document["events"]
        if one.get("begins", {}).get("action") == "command.run" and one["event"]["tool_name"] != "apply_patch"
    )
    event = {**event, "tool_input": {**event["tool_input"], "command": "make x"}}
    begun = read(document, event, is_confined=is_confined)
    assert isinstance(begun, CallBegins)
    begun = replace(begun, rewrites=rewritten(HOOK, "K", begun, Path("/srv/project")) if is_confined else None)
    adapter = CLIENTS[client]
    return adapter.allow(begun, "fine"), adapter.deny(begun, "because"), "make x"


ALLOWS: dict[str, dict[str, Any]] = {
    "claude-code": {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "allow",
            "permissionDecisionReason": "fine",
        }
    },
    "codex": {"hookSpecificOutput": {"hookEventName": "PreToolUse"}},
    "gemini": {"decision": "allow"},
    "cursor": {"permission": "allow"},
}
DENIES: dict[str, dict[str, Any]] = {
    "claude-code": {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": "because",
        }
    },
    "gemini": {"decision": "deny", "reason": "because"},
    "cursor": {"permission": "deny", "agent_message": "because", "user_message": "because"},
}
DENIES["codex"] = DENIES["claude-code"]


@pytest.mark.parametrize("client", AGENTS)
def test_answers_have_the_documented_form(client: str) -> None:
    allow, deny, _ = answers(client, is_confined=False)
    assert (allow, deny) == (ALLOWS[client], DENIES[client])
    assert (is_decision(client, allow), refusal(client, allow)) == (True, None)
    assert (is_decision(client, deny), refusal(client, deny)) == (True, "because")


LINE = "worldctl --server https://realms.example:8437 run --realm main --call K --token-file /etc/agents/token"


@pytest.mark.parametrize("client", ["claude-code", "codex", "gemini"])
def test_a_confined_command_is_changed_in_the_documented_form(client: str) -> None:
    allow, _, text = answers(client, is_confined=True)
    inner = allow.get("hookSpecificOutput", {})
    [given] = [one for one in (inner.get("updatedInput"), inner.get("tool_input")) if one]
    assert given["command"] == f"{LINE} -- bash -c '{text}'"
    if client in ("claude-code", "codex"):  # Codex accepts a changed input with this decision only
        assert inner["permissionDecision"] == "allow"
    assert is_decision(client, allow)


def test_cursor_is_not_known_to_run_a_changed_command_so_that_none_is_confined() -> None:
    allow, _, _ = answers("cursor", is_confined=True)
    assert allow == ALLOWS["cursor"]


@for_each("client", AGENTS)
@for_each(
    "answer",
    [
        {},
        {"decision": "approve"},
        {"permission": "ask"},
        {"permissionDecision": "allow"},
        {"hookSpecificOutput": None},
        {"hookSpecificOutput": {"hookEventName": "PostToolUse", "permissionDecision": "allow"}},
        {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "ask"}},
        {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": True}},
        {"code": "INVALID_VALUE", "message": "x"},
    ],
)
def test_other_answers_are_no_decisions(client: str, answer: dict[str, Any]) -> None:
    assert not is_decision(client, answer)
