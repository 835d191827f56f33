"""The proxy in front of two public MCP servers, used through the official client: allow, deny, ask, and pins."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, TextContent

from tests.agents.proxy.proxied import agent, answered, pinned, pinned_by_command, proposals, status, tool, until
from tests.cli.realm import COMMAND, ROOT, environment
from tests.server.served import Served

pytestmark = pytest.mark.slow

GIT = [sys.executable, "-m", "mcp_server_git"]
CLOCK = [sys.executable, "-m", "mcp_server_time"]


@pytest.fixture(scope="module", autouse=True)
def _pinned(served: Served) -> None:
    pinned_by_command(served, "git", GIT)
    pinned_by_command(served, "clock", CLOCK)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for words in (["init", "-q"], ["config", "user.email", "a@example.com"], ["config", "user.name", "A"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    (tmp_path / "a.txt").write_text("one\n")
    for words in (["add", "a.txt"], ["commit", "-qm", "Begin"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    (tmp_path / "a.txt").write_text("two\n")
    return tmp_path


def commits(repository: Path) -> list[str]:
    said = subprocess.run(
        ["git", "-C", str(repository), "log", "--format=%s"], capture_output=True, text=True, check=True
    )
    return said.stdout.split("\n")[:-1]


T = TypeVar("T")


def used(served: Served, name: str, words: list[str], use: Callable[[Client], Awaitable[T]], *options: str) -> T:
    """Use a proxy through the official client."""
    server = StdioServerParameters(
        command=COMMAND[0],
        args=[*COMMAND[1:], "mcp", "proxy", "--server", served.url, "--name", name, *options, "--", *words],
        env=environment() | {"WORLDCTL_TOKEN": served.place.tokens["claude"], "PYTHONWARNINGS": "default"},
    )

    async def connected() -> T:
        async with Client(server) as client:
            return await use(client)

    return asyncio.run(connected())


def said(result: CallToolResult) -> str:
    return " ".join(one.text for one in result.content if isinstance(one, TextContent))


def test_allowed_calls_reach_the_git_server_and_forbidden_ones_do_not(served: Served, repository: Path) -> None:
    path = str(repository)

    async def use(client: Client) -> tuple[list[str], list[CallToolResult]]:
        names = [tool.name for tool in (await client.list_tools()).tools]
        calls = ["git_status", "git_add", "git_reset", "git_log"]
        given = {"git_add": {"files": ["a.txt"]}}
        return names, [await client.call_tool(name, {"repo_path": path, **given.get(name, {})}) for name in calls]

    names, (status, add, reset, log) = used(served, "git", GIT, use)
    assert {"git_status", "git_add", "git_reset", "git_log", "git_commit"} <= set(names)
    assert not status.is_error
    assert "a.txt" in said(status)
    assert not add.is_error
    assert reset.is_error
    assert "git_reset loses changes" in said(reset)
    staged = subprocess.run(["git", "-C", path, "diff", "--staged", "--name-only"], capture_output=True, check=True)
    assert staged.stdout == b"a.txt\n"  # the reset was not made
    assert not log.is_error
    assert "Begin" in said(log)
    made = [(one["intent"]["body"]["input"]["name"], one["status"]) for one in proposals(served, "git")]
    assert made[-4:] == [
        ("git_status", "completed"),
        ("git_add", "completed"),
        ("git_reset", "rejected"),
        ("git_log", "completed"),
    ]


def test_a_commit_waits_for_a_person_and_is_made_once(served: Served, repository: Path) -> None:
    given = {"repo_path": str(repository), "message": "Change a"}
    subprocess.run(["git", "-C", str(repository), "add", "a.txt"], check=True)
    with agent(served, "git", GIT, "--wait", "0") as first:
        is_error, words, told = first.call("git_commit", **given)
    assert is_error
    assert "an answer of ann" in words
    assert "repeat exactly this call later" in words
    assert commits(repository) == ["Begin"]
    answered(served, told["proposalId"])
    with agent(served, "git", GIT) as later:
        is_error, words, _ = later.call("git_commit", **given)
        assert not is_error, words
        assert commits(repository) == ["Change a", "Begin"]
        found = [one for one in proposals(served, "git") if one["intent"]["body"]["input"]["arguments"] == given]
        assert [(one["proposalId"], one["status"]) for one in found] == [(told["proposalId"], "completed")]

        open_call = later.start("git_commit", **{**given, "message": "No"})
        until(lambda: status(served, "git"), "evaluating")
        answered(served, proposals(served, "git")[-1]["proposalId"], "reject")
        assert later.answer(open_call)["result"]["isError"] is True
    assert commits(repository) == ["Change a", "Begin"]


def test_the_time_server_answers_as_without_the_proxy(served: Served) -> None:
    given = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}

    async def use(client: Client) -> CallToolResult:
        return await client.call_tool("convert_time", given)

    async def bare() -> CallToolResult:
        server = StdioServerParameters(command=CLOCK[0], args=CLOCK[1:])
        async with Client(server) as client:
            return await client.call_tool("convert_time", given)

    through, direct = used(served, "clock", CLOCK, use), asyncio.run(bare())
    assert not through.is_error
    assert through.content == direct.content
    assert through.structured_content == direct.structured_content


def test_another_server_under_the_same_name_is_refused_until_a_person_pins_it(served: Served) -> None:
    pinned(served, "tools", tool("convert_time"))
    with agent(served, "tools", GIT) as swapped:
        assert swapped.tools == []
        is_error, words, told = swapped.call("git_status", repo_path="/nowhere")
        assert (is_error, told["code"]) == (True, "REJECTED")
        assert "is not as it was pinned" in words
        assert "worldctl mcp pin" in words

        by_agent = pinned_by_command(served, "tools", GIT, "claude")
        assert 'tool "git_status": added' in by_agent["differences"]
        assert 'tool "convert_time": removed' in by_agent["differences"]
        assert by_agent["status"] == "evaluating"  # an agent only proposes it
        assert swapped.tools == []
        answered(served, by_agent["proposalId"])
        until(lambda: "git_status" in swapped.tools)
        assert swapped.call("git_status", repo_path=str(ROOT))[0] is False
