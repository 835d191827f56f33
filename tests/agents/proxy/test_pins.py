"""Pins: which tools are as a person has agreed to, what differs, and what a proxy sends to the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from world.errors import RefusedError
from worldprotocol.agents.command_terms import CommandTerms
from worldprotocol.agents.hooks.forms import CallBegins, CallContinues, CallEnds
from worldprotocol.agents.project import Project
from worldprotocol.agents.proxy.events import ProxyEvents, begins, continues, ends
from worldprotocol.agents.proxy.pins import Pins, definition_of, differences, pins_in, statuses

TOOL = {
    "name": "query",
    "description": "Read rows.",
    "inputSchema": {"type": "object", "properties": {"sql": {"type": "string"}}},
    "annotations": {"readOnlyHint": True},
}
CALL = {
    "session": "s",
    "callId": "1",
    "process": "p-1",
    "server": "db",
    "name": "query",
    "arguments": {},
    "pin": "pinned",
    "timeLimitMs": 1_000,
    "excludesEqual": True,
}


def pins(*tools: dict[str, Any]) -> Pins:
    found = Pins.read(Pins.listed(tools or (TOOL,), None).wire())
    assert found is not None
    return found


@pytest.mark.parametrize(
    "member",
    [
        {"description": "Read rows. "},
        {"title": "Query"},
        {"inputSchema": {"type": "object"}},
        {"inputSchema": {"type": "object", "properties": {"sql": {"type": "string", "description": "x"}}}},
        {"outputSchema": {"type": "object"}},
        {"annotations": {"readOnlyHint": False}},
        {"annotations": {"readOnlyHint": 1}},
        {"annotations": None},
        {"description": float("nan")},
        {"description": "\ud800"},
    ],
)
def test_any_change_of_what_an_agent_reads_changes_a_tool(member: dict[str, Any]) -> None:
    assert statuses([TOOL], pins()) == {"query": "pinned"}
    assert statuses([{**TOOL, **member}], pins()) == {"query": "changed"}


def test_members_that_are_not_pinned_are_neither_compared_nor_passed_on() -> None:
    tool = {**TOOL, "icons": [{"src": "https://icons.example"}], "_meta": {"note": "obey"}, "execution": {}}
    assert statuses([tool], pins()) == {"query": "pinned"}
    assert definition_of(tool) == TOOL


def test_a_tool_that_is_listed_twice_has_changed() -> None:
    assert statuses([TOOL, TOOL], pins()) == {"query": "changed"}
    assert statuses([TOOL, {**TOOL, "name": "other"}], pins()) == {"query": "pinned", "other": "new"}
    assert statuses([TOOL], None) == {"query": "new"}


@pytest.mark.parametrize(
    ("notes", "is_repeatable"),
    [
        ({"readOnlyHint": True}, True),
        ({"idempotentHint": True}, True),
        ({"idempotentHint": True, "destructiveHint": True}, True),
        ({"readOnlyHint": False}, False),
        ({"readOnlyHint": "true"}, False),
        ({"idempotentHint": 1}, False),
        ({}, False),
        (None, False),
        (["readOnlyHint"], False),
    ],
)
def test_only_pinned_hints_that_are_true_permit_a_repetition(notes: Any, is_repeatable: bool) -> None:
    assert pins({**TOOL, "annotations": notes}).is_repeatable("query") is is_repeatable
    assert pins().is_repeatable("other") is False


def test_differences_are_lines_in_which_nothing_is_hidden() -> None:
    now = Pins.listed([{**TOOL, "description": "Read rows.\u202e\x1b[2J"}, {"name": "a\nb"}], "Obey.")
    lines = differences(pins(), now)
    assert 'tool "query": changed' in lines
    assert '-  "description": "Read rows.",' in lines
    assert '+  "description": "Read rows.\\u202e\\u001b[2J",' in lines
    assert 'tool "a\\nb": added' in lines
    assert "instructions: added" in lines
    assert differences(pins(), pins()) == []
    assert differences(None, pins())[0] == 'tool "query": added'
    assert 'tool "query": removed' in differences(pins(), Pins({}))


def test_what_is_no_pin_in_the_state_is_none() -> None:
    others: list[Any] = [
        {},
        {"mcp": 5},
        {"mcp": {"db": 5}},
        {"mcp": {"db": {"tools": 5}}},
        {"mcp": {"other": {}}},
        None,
    ]
    assert Pins.read(pins_in({"mcp": {"db": pins().wire()}}, "db")) == pins()
    for data in others:
        assert Pins.read(pins_in(data, "db")) is None


def test_events_of_a_proxy_read_as_they_were_written(tmp_path: Path) -> None:
    def read(event: dict[str, Any]) -> Any:
        return ProxyEvents().read(event, Project(tmp_path), terms=CommandTerms())

    begun = read(begins(CALL, wait_s=2.5))
    assert isinstance(begun, CallBegins)
    assert (begun.worker, begun.wait_s, begun.excludes_equal) == ("mcp-proxy/p-1", 2.5, True)
    assert begun.intent.action == "mcp.call"
    assert begun.intent.input == {
        "server": "db", "name": "query", "arguments": {}, "tool": "mcp__db__query", "pin": "pinned",
        "timeLimitMs": 1_000,
    }  # fmt: skip
    assert isinstance(read(continues(CALL)), CallContinues)
    ended = read(ends(CALL, "made", {"sha256": "0", "bytes": 1}))
    assert isinstance(ended, CallEnds)
    assert (ended.outcome, ended.digest) == ("made", {"sha256": "0", "bytes": 1})


@pytest.mark.parametrize(
    "member",
    [
        {"pin": "mine"},
        {"process": "p/1"},
        {"timeLimitMs": True},
        {"timeLimitMs": -1},
        {"timeLimitMs": 1e12},
        {"name": ""},
        {"session": 5},
        {"event": "other"},
        {"waitS": None},
    ],
)
def test_events_in_another_form_are_refused(tmp_path: Path, member: dict[str, Any]) -> None:
    event = {**begins(CALL, wait_s=1), **member}
    with pytest.raises(RefusedError):
        ProxyEvents().read(event, Project(tmp_path), terms=CommandTerms())
