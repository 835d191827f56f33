"""Resources of the MCP server, and notifications of what has changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.subscriptions import listen
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourceUpdated, ToolsListChanged

from tests.agents.mcp.clients import told
from tests.agents.mcp.inprocess import Library, opened

BASE = "worldprotocol://realm"


@pytest.fixture
def library() -> Iterator[Library]:
    made = opened()
    with made.realm:
        yield made


async def read(client: Client, path: str) -> Any:
    (content,) = (await client.read_resource(BASE + path, cache_mode="bypass")).contents
    assert isinstance(content, types.TextResourceContents)
    assert content.mime_type == "application/json"
    return json.loads(content.text)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_worlds_branches_inbox_leases_and_proposals_are_resources(library: Library, mode: str) -> None:
    async def run() -> None:
        async with library.client(mode) as client, library.client(mode, actor="ann") as ann:
            listed = {one.uri for one in (await client.list_resources()).resources}
            paths = ("/inbox", "/worlds", "/branches", "/leases", "/worlds/HEAD/state")
            assert listed == {BASE + one for one in paths}
            templates = {one.uri_template for one in (await client.list_resource_templates()).resource_templates}
            assert templates == {
                f"{BASE}/worlds/{{worldId}}",
                f"{BASE}/worlds/{{worldId}}/state",
                f"{BASE}/proposals/{{proposalId}}",
            }
            done = told(await client.call_tool("book-add", {"title": "Emma"}))
            waiting = told(await client.call_tool("book-buy", {"title": "Persuasion"}))
            await client.call_tool("lease_acquire", {"resources": ["FILE:/a"]})

            world = done["worldId"]
            assert (await read(client, "/worlds/HEAD/state"))["value"]["books"] == {"a": "Emma"}
            assert (await read(client, f"/worlds/{world}/state"))["worldId"] == world
            assert (await read(client, f"/worlds/{world}"))["patches"] == done["changes"]
            assert [one["heads"] for one in (await read(client, "/worlds"))["worlds"]] == [["main"], []]
            assert [one["head"] for one in (await read(client, "/branches"))["branches"]] == [world]
            assert [one["resource"] for one in (await read(client, "/leases"))["leases"]] == ["FILE:/a"]
            assert (await read(client, f"/proposals/{waiting['proposalId']}"))["status"] == "evaluating"
            assert (await read(client, "/inbox"))["inbox"] == []
            (asked,) = (await read(ann, "/inbox"))["inbox"]
            assert asked["proposalId"] == waiting["proposalId"]
            assert (asked["wants"]["type"], asked["onTimeout"], asked["overdue"]) == ("book.buy", "reject", False)

    asyncio.run(run())


@pytest.mark.parametrize(
    "uri",
    [
        f"{BASE}/nothing",
        f"{BASE}/worlds/nothing",
        f"{BASE}/worlds/nothing/state",
        f"{BASE}/proposals/nothing",
        f"{BASE}/worlds/..%2F..%2Fetc%2Fpasswd/state",
        "file:///etc/passwd",
        "worldprotocol://other/worlds",
        "",
        "x" * 100_000,
    ],
)
def test_unknown_resources_are_refused(library: Library, uri: str) -> None:
    async def run() -> None:
        for mode, code in (("auto", -32602), ("legacy", -32002)):
            async with library.client(mode) as client:
                with pytest.raises(MCPError, match="There is no resource") as refused:
                    await client.read_resource(uri)
                assert refused.value.error.code == code

    asyncio.run(run())


def test_a_client_that_listens_is_notified_of_changed_tools_and_resources(library: Library) -> None:
    async def run() -> None:
        async with library.client() as client:
            inbox = f"{BASE}/inbox"
            async with listen(client.session, tools_list_changed=True, resource_subscriptions=[inbox]) as changes:
                await client.call_tool("library-close", {})
                seen: list[object] = []
                async with asyncio.timeout(30):
                    async for one in changes:
                        seen.append(one)
                        if ToolsListChanged() in seen and ResourceUpdated(uri=inbox) in seen:
                            break

    asyncio.run(run())


def test_a_session_of_an_earlier_revision_is_notified_of_changed_tools(library: Library) -> None:
    async def run() -> None:
        changed = asyncio.Event()

        async def receive(message: object) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                changed.set()

        async with library.client("legacy", message_handler=receive) as client:
            await client.list_tools()
            await client.call_tool("library-close", {})
            await asyncio.wait_for(changed.wait(), 30)

    asyncio.run(run())
