"""Agents of different makers on one file: each sends its documented events, and is told who holds the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.agents.guarded import Agent, passed_on
from tests.agents.hooked import Claude, hooked, proposals
from tests.agents.test_recorded_events import RECORDED
from tests.server.served import Served

pytestmark = pytest.mark.slow

PATCH = "*** Begin Patch\n*** Update File: {path}\n@@\n-x\n+y\n*** End Patch\n"
AFTER: dict[str, dict[str, Any]] = {
    "codex": {"hook_event_name": "PostToolUse", "tool_response": "Success."},
    "gemini": {"hook_event_name": "AfterTool", "tool_response": {"llmContent": "ok", "returnDisplay": "ok"}},
    "cursor": {"hook_event_name": "postToolUse", "tool_output": "{}", "duration": 12},
}
"""What an event after a call has besides what the one before it has."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with hooked(tmp_path_factory.mktemp("kinds"), "wait_s = 0") as running:
        yield running


@pytest.fixture
def agent(served: Served) -> Iterator[Agent]:
    """Return a process that runs hooks, and lives longer than its calls."""
    started = Agent(served.url)
    yield started
    started.close()


def editing(served: Served, client: str) -> dict[str, Any]:
    """Return the recorded event before an edit, of a file in the project."""
    project = served.place.folder.parent / "project"
    document = next(one for one in RECORDED if one["client"] == client)
    tool = {"codex": "apply_patch", "gemini": "replace", "cursor": "StrReplace"}[client]
    event = next(one["event"] for one in document["events"] if one["event"].get("tool_name") == tool)
    event = json.loads(json.dumps(event).replace(f'"{document["root"]}', f'"{project}'))
    name = "command" if client == "codex" else "file_path"
    path = str(project / "src/app.py")
    return {
        **event,
        "tool_input": {**event["tool_input"], name: PATCH.format(path=path) if client == "codex" else path},
    }


def refusal(client: str, answer: dict[str, Any]) -> str | None:
    inner = answer.get("hookSpecificOutput", answer)
    if "deny" not in (inner.get("permissionDecision"), inner.get("decision"), inner.get("permission")):
        return None
    return str(inner.get("permissionDecisionReason") or inner.get("reason") or inner.get("agent_message"))


@pytest.mark.parametrize("client", sorted(AFTER))
def test_the_second_agent_is_told_who_holds_the_file_and_gets_it_afterwards(
    served: Served, agent: Agent, client: str
) -> None:
    first, event = Claude(served, "claude", f"first-{client}"), editing(served, client)
    decision, _, begun = first.edit("src/app.py")
    assert decision == "allow"
    refused = passed_on(served, agent, client, event, "other")
    why = refusal(client, json.loads(refused.out))
    assert why is not None
    assert refused.code == (0 if client == "codex" else 2)  # the answer of Codex says it by itself
    for words in ("claude holds MUTATES on /src/app.py since 20", "Nothing was done", "repeat exactly this call later"):
        assert words in why
    first.after(begun["id"])
    while (why := refusal(client, json.loads(passed_on(served, agent, client, event, "other").out))) is not None:
        assert "waits for" in why, why  # it died, and is tried again when the verdict says
    held, _, _ = first.edit("src/app.py")
    assert held == "deny"  # now the other way round
    assert passed_on(served, agent, client, event | AFTER[client], "other").code == 0
    done = [one for one in proposals(served) if one["actor"]["actorId"] == "other"]
    assert done[-1]["status"] == "completed"
    ends = {"hook_event_name": "SessionEnd", "session_id": first.session, "cwd": event.get("cwd"), "reason": "other"}
    passed_on(served, agent, "claude-code", ends)  # gives up the call that was held
    with served.place.realm() as realm:
        assert not realm.realm().klis.leases
