"""Agents of the Claude Agent SDK whose tools are governed: the hooks, and the real Claude Code that the SDK brings."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

from examples.frameworks.claude_agent import PREFIX, desk_server, environment
from examples.frameworks.desk import REQUEST, TOOLS, Books
from examples.frameworks.scripted_messages import scripted_messages
from tests.agents.frameworks.proposals import LARGE, PAGES, SMALL, TOO_LARGE, approve, result_of, states
from worldprotocol.agents.frameworks.claude_agent import GovernedHooks
from worldprotocol.api.config import read_config
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.slow

GOVERNED = {f"{PREFIX}{name}": one for name, one in TOOLS.items()}


class Session:
    """Sends the events of a session to the hooks, as the SDK does."""

    def __init__(self, realm: Realm, **how: Any) -> None:
        self.governed = GovernedHooks(realm, "bot", **{"tools": GOVERNED, "wait_s": 0, **how})

    async def send(self, name: Any, tool: str, given: dict[str, Any], call_id: str, **more: Any) -> Any:
        event: Any = {
            "session_id": "s-1",
            "transcript_path": "",
            "cwd": "/",
            "hook_event_name": name,
            "tool_name": tool,
            "tool_input": given,
            "tool_use_id": call_id,
            **more,
        }
        [matcher] = self.governed.hooks[name]
        [hook] = matcher.hooks
        return await hook(event, call_id, {"signal": None})

    def before(self, tool: str, given: dict[str, Any], call_id: str = "toolu_1") -> dict[str, Any]:
        answer = asyncio.run(self.send("PreToolUse", f"{PREFIX}{tool}", given, call_id))
        told: dict[str, Any] = answer["hookSpecificOutput"]
        return told

    def after(self, tool: str = "refund", call_id: str = "toolu_1", **more: Any) -> None:
        name = "PostToolUseFailure" if "error" in more else "PostToolUse"
        more.setdefault("tool_response", "done")
        assert asyncio.run(self.send(name, f"{PREFIX}{tool}", {}, call_id, **more)) == {}


def test_a_hook_that_fails_blocks_and_has_more_time_than_the_call_waits(realm: Realm):
    hooks = GovernedHooks(realm, "bot", wait_s=700).hooks
    [before] = hooks["PreToolUse"]
    assert (before.matcher, before.on_failure, before.timeout) == (None, "block", 760)


def test_an_allowed_call_is_reported_after_it_was_made(realm: Realm):
    session = Session(realm)
    assert session.before("refund", SMALL)["permissionDecision"] == "allow"
    assert states(realm) == ["executing"]
    session.after()
    [proposal] = realm.proposals()
    assert proposal.status == "completed"
    assert set(result_of(proposal)) == {"sha256", "bytes"}


def test_a_call_that_failed_is_recorded_as_failed(realm: Realm):
    session = Session(realm)
    session.before("refund", SMALL)
    session.after(error="the bank does not answer")
    [proposal] = realm.proposals()
    assert (proposal.status, result_of(proposal)) == ("failed", "TOOL_FAILED")


def test_a_rejected_call_is_denied_with_the_reason(realm: Realm):
    told = Session(realm).before("refund", TOO_LARGE)
    assert told["permissionDecision"] == "deny"
    assert "agents make no refunds above 1000. Nothing was done." in told["permissionDecisionReason"]


def test_a_narrowed_call_gets_another_input(realm: Realm):
    told = Session(realm).before("publish", PAGES)
    assert (told["permissionDecision"], told["updatedInput"]) == ("allow", {"pages": ["home", "help"]})


def test_a_call_waits_and_the_same_call_continues_it_in_another_process(realm: Realm):
    told = Session(realm).before("refund", LARGE, "toolu_1")
    assert told["permissionDecision"] == "deny"
    assert "Not yet: it waits for an answer of ann" in told["permissionDecisionReason"]
    assert approve(realm) in told["permissionDecisionReason"]
    again = Session(realm)
    assert again.before("refund", LARGE, "toolu_2")["permissionDecision"] == "allow"
    again.after(call_id="toolu_2")
    assert states(realm) == ["completed"]


def test_a_call_is_held_until_it_is_decided(realm: Realm):
    session = Session(realm, wait_s=60)

    async def held() -> Any:
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(session.send("PreToolUse", f"{PREFIX}refund", LARGE, "toolu_1"))
            while not realm.inbox():
                await asyncio.sleep(0.01)
            assert not asking.done()
            approve(realm)
        return asking.result()

    assert asyncio.run(held())["hookSpecificOutput"]["permissionDecision"] == "allow"


def test_parallel_and_repeated_events_are_one_proposal_for_each_call(realm: Realm):
    session = Session(realm)

    async def at_once() -> list[Any]:
        ids = [f"toolu_{number % 4}" for number in range(8)]
        given = {"amount": 1}
        async with asyncio.TaskGroup() as tasks:
            asked = [
                tasks.create_task(session.send("PreToolUse", f"{PREFIX}refund", {"order": one, **given}, one))
                for one in ids
            ]
        return [one.result()["hookSpecificOutput"]["permissionDecision"] for one in asked]

    assert sorted(asyncio.run(at_once())) == ["allow"] * 4 + ["deny"] * 4
    assert len(states(realm)) == 4


def test_tools_without_an_action_are_those_of_any_agent_or_of_a_project(realm: Realm, tmp_path: Path):
    session = Session(realm)
    asyncio.run(session.send("PreToolUse", "Bash", {"command": "ls"}, "toolu_1"))
    [proposal] = realm.proposals()
    assert proposal.intent.body.input == {"tool": "Bash", "arguments": {"command": "ls"}}
    with pytest.raises(Exception, match=r"command\.run"):  # the domain of the desk does not have it, so it is blocked
        asyncio.run(Session(realm, project=tmp_path).send("PreToolUse", "Bash", {"command": "ls"}, "toolu_2"))


def test_claude_code_makes_no_call_where_the_hook_fails(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    hooks = GovernedHooks(realm, "bot", tools=GOVERNED).hooks
    realm.close()
    for name in ("CLAUDECODE", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    async def run() -> str:
        with scripted_messages(REQUEST, [(f"{PREFIX}refund", SMALL)]) as url:
            options = ClaudeAgentOptions(
                model="scripted",
                mcp_servers={"desk": desk_server(Books(tmp_path))},
                hooks=hooks,
                cwd=tmp_path,
                setting_sources=[],
                env=environment(url, tmp_path),
            )
            said = [one async for one in query(prompt=REQUEST, options=options)]
        assert isinstance(said[-1], ResultMessage)
        return str(said[-1].result)

    assert "hook" in asyncio.run(run())
    assert not (tmp_path / "books.txt").exists()


@pytest.fixture
def coding(tmp_path: Path) -> Iterator[Realm]:
    """Return a realm of coding agents."""
    shutil.copytree(str(files("worldprotocol") / "templates" / "coding-agents"), tmp_path / "realm")
    with Realm.from_config(read_config(tmp_path / "realm" / "world.toml"), create=True) as opened:
        opened.register("bot", "agent", binding={"kind": "auto_approve"})
        yield opened


def test_files_of_a_project_are_read_and_written_as_by_installed_hooks(coding: Realm, tmp_path: Path):
    file = tmp_path / "project" / "app.py"
    file.parent.mkdir()
    file.write_text("x = 1\n")
    session = Session(coding, tools={}, project=file.parent)

    def before(tool: str, call_id: str, **more: Any) -> dict[str, Any]:
        given = {"file_path": str(file), **({"content": "x = 2\n"} if tool == "Write" else {})}
        told = asyncio.run(session.send("PreToolUse", tool, given, call_id, **more))["hookSpecificOutput"]
        return {"decision": told["permissionDecision"], "reason": told["permissionDecisionReason"]}

    def after(tool: str, call_id: str) -> None:
        assert asyncio.run(session.send("PostToolUse", tool, {}, call_id, tool_response="done")) == {}

    size = coding.log.head().size
    unread = before("Write", "w1")
    assert (unread["decision"], "has not read all of it" in unread["reason"]) == ("deny", True)
    assert coding.log.head().size == size
    assert before("Read", "r1")["decision"] == "allow"
    [lease] = coding.realm().klis.leases.values()
    assert lease.triple.resource.text.startswith("CONTENT:sha256-")
    after("Read", "r1")
    file.write_text("x = 3\n")  # outside of the protocol
    stale = before("Write", "w2")
    assert (stale["decision"], "is not what this session last read" in stale["reason"]) == ("deny", True)
    [ended] = [one for one in coding.proposals() if one.intent.body.type == "file.edit"]
    assert (ended.error and ended.error.code, dict(coding.realm().klis.leases)) == ("STALE_READ", {})
    assert before("Read", "r2")["decision"] == "allow"
    after("Read", "r2")
    assert before("Write", "w3", agent_id="sub")["decision"] == "deny"  # a subagent has its own reading
    assert before("Write", "w4")["decision"] == "allow"
    file.write_text("x = 2\n")
    after("Write", "w4")
    assert before("Write", "w5")["decision"] == "allow"  # it wrote what is there
    after("Write", "w5")
    assert not coding.realm().klis.leases
