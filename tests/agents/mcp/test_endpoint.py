"""The MCP server as processes: `/mcp` of a server and ``worldctl mcp``, with clients of the official SDK."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tests.agents.mcp.clients import (
    LIMITS,
    Tasks,
    TaskStarted,
    call_id,
    founded,
    http_of,
    over_http,
    over_stdio,
    task_method,
    told,
    words,
)
from tests.agents.mcp.inprocess import began
from tests.cli.realm import COMMAND, CliRealm, environment
from tests.server.served import Served, serving, stopped
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.slow

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A running server of this module."""
    folder: Path = tmp_path_factory.mktemp("served")
    with serving(founded(folder, f"{LIMITS}max_body_bytes = 100000\nmcp_wait_s = 1")) as running:
        yield running


@asynccontextmanager
async def connected(served: Served, way: str) -> AsyncIterator[Client]:
    """Connect in one of the ways in which a client reaches a realm."""
    transport, _, mode = way.partition("-")
    if transport == "http":
        async with over_http(served, mode=mode) as client:
            yield client
    else:
        variables = {"WORLDCTL_TOKEN": served.place.tokens["claude"]}
        arguments = ["--server", served.url, "--wait", "1"]
        if transport == "log":
            variables, arguments = {}, ["--actor", "claude", "--wait", "1"]
        async with over_stdio(served.place, *arguments, mode=mode, variables=variables) as client:
            yield client


def answer(served: Served, proposal_id: str, choice: str = "approve") -> None:
    """Answer a proposal as ann."""
    with served.client("ann") as client:
        body = {"choice": choice, "reason": "as ann says"}
        given = client.post(f"/v1/realms/main/proposals/{proposal_id}:answer", json=body)
        assert given.status_code == 200, given.text


@pytest.mark.parametrize("way", ["http-auto", "http-legacy", "server-auto", "log-auto", "log-legacy"])
def test_a_realm_is_used_over_http_and_stdio(served: Served, way: str) -> None:
    async def run() -> None:
        async with connected(served, way) as client:
            names = {one.name for one in (await client.list_tools()).tools}
            assert {"book-add", "library-open__all", "proposal_status", "lease_acquire"} <= names
            done = await client.call_tool("book-add", {"title": way, "shelf": way})
            assert told(done)["status"] == "completed"
            assert {"op": "set", "path": f"books.{way}", "value": way} in told(done)["changes"]
            burned = await client.call_tool("book-burn", {"title": "Emma"})
            assert burned.is_error
            assert "books are not burned" in words(burned)
            waiting = told(await client.call_tool("book-buy", {"title": "Emma", "shelf": way}))
            assert waiting["status"] == "evaluating"
            assert waiting["waitsFor"].startswith("an answer of ann")
            answer(served, waiting["proposalId"])
            found = await client.call_tool("proposal_status", {"proposalId": waiting["proposalId"], "wait_s": 60})
            assert told(found)["status"] == "completed"
            (state,) = (await client.read_resource("worldprotocol://realm/worlds/HEAD/state")).contents
            assert isinstance(state, types.TextResourceContents)
            assert json.loads(state.text)["value"]["books"][way] == "Emma"
            for path in ("inbox", "worlds", "branches", "leases"):
                assert (await client.read_resource(f"worldprotocol://realm/{path}")).contents
            leased = told(await client.call_tool("lease_acquire", {"resources": [f"FILE:/{way}"]}))
            mine = {"leaseIds": [one["leaseId"] for one in leased["leases"]], "sessionId": leased["sessionId"]}
            assert not (await client.call_tool("lease_release", mine)).is_error
        with served.place.realm() as realm:
            verified = realm.proposal(told(done)["proposalId"]).submitted.verified
            assert verified is not None
            assert verified.method == ("unauthenticated" if way.startswith("log") else "token")
            assert verified.key is not None

    asyncio.run(run())


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18"])
def test_earlier_revisions_are_spoken_over_http(served: Served, revision: str) -> None:
    async def run() -> None:
        async with (
            http_of(served, "claude") as http,
            streamable_http_client(served.url + "/mcp", http_client=http) as (
                read,
                write,
            ),
            ClientSession(read, write) as session,
        ):
            assert (await began(session, revision)).protocol_version == revision
            assert len((await session.list_tools()).tools) > 5
            done = await session.call_tool("book-add", {"title": revision, "shelf": "old"})
            assert told(done)["status"] == "completed"

    asyncio.run(run())


def test_tools_and_resources_are_those_of_the_rights(served: Served) -> None:
    async def run() -> None:
        for mode in ("auto", "legacy"):
            async with over_http(served, "clerk", mode=mode) as clerk:
                assert (await clerk.list_tools()).tools == []
                listed = {one.name for one in (await clerk.list_resources()).resources}
                assert listed == {"worlds", "branches", "leases", "worlds/HEAD/state"}
                refused = await clerk.call_tool("book-add", {"title": "Emma"})
                assert refused.is_error
                assert "RIGHT_MISSING" in words(refused)
                refused = await clerk.call_tool("lease_acquire", {"resources": ["FILE:/a"]})
                assert refused.is_error
                assert "RIGHT_MISSING" in words(refused)
            async with over_http(served, "other", mode=mode) as other:
                assert {one.name for one in (await other.list_resources()).resources} == {"inbox", "leases"}
                with pytest.raises(MCPError, match="needs one of the rights reader, auditor"):
                    await other.read_resource("worldprotocol://realm/worlds/HEAD/state")
                done = await other.call_tool("book-add", {"title": "Emma", "shelf": "other"})
                assert told(done)["status"] == "completed"
                assert "changes" not in told(done)

    asyncio.run(run())


def test_what_rules_withhold_is_not_in_results(served: Served) -> None:
    async def run() -> None:
        async with over_http(served, "veiled", extensions=[Tasks()]) as client:
            done = await client.call_tool("book-add", {"title": "secret-title", "shelf": "veiled"})
            assert told(done)["status"] == "completed"
            assert "secret-title" not in str(done)
            task = await client.session.call_tool("book-buy", {"title": "secret-title"}, allow_claimed=True)
            assert isinstance(task, TaskStarted)
            assert (await task_method(client.session, "tasks/get", taskId=task.task_id))["status"] == "working"
            await task_method(client.session, "tasks/cancel", taskId=task.task_id)
            ended = await client.call_tool("proposal_status", {"proposalId": task.task_id})
            assert told(ended)["status"] == "superseded"
            assert "secret-title" not in str(ended)

    asyncio.run(run())


def test_nonsense_on_stdio_is_refused_and_the_process_continues(served: Served) -> None:
    lines = [*NONSENSE.values(), b"x" * 3_000_000, json.dumps(INITIALIZE).encode()]
    listing = {"jsonrpc": "2.0", "id": "last", "method": "tools/list"}
    lines += [b'{"jsonrpc":"2.0","method":"notifications/initialized"}', json.dumps(listing).encode()]
    process = subprocess.Popen(
        [*COMMAND, "mcp", "--actor", "claude"],
        cwd=served.place.folder, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write(b"".join(one + b"\n" for one in lines))
    process.stdin.flush()
    for line in process.stdout:
        answered = json.loads(line)
        if answered.get("id") == "last":
            assert "book-add" in str(answered["result"])
            break
    process.stdin.close()
    assert process.wait(60) == 0
    assert b"Traceback" not in process.stderr.read()
    process.stdout.close()
    process.stderr.close()


def test_requests_without_a_valid_credential_are_refused(served: Served) -> None:
    token = served.place.tokens["claude"]
    for header, status in (
        ({}, 401),
        ({"Authorization": "Bearer wp1_nonsense"}, 401),
        ({"Authorization": f"Bearer {token}x"}, 401),
        ({"Authorization": token}, 401),
        ({"Authorization": f"Bearer {served.place.tokens['nil']}"}, 403),
    ):
        for method in ("POST", "GET", "DELETE"):
            for path in ("/mcp", "/mcp/main"):
                with served.client() as client:
                    body = json.dumps(INITIALIZE) if method == "POST" else None
                    found = client.request(method, path, content=body, headers=ACCEPT | header)
                assert found.status_code == status, (header, method, path, found.text)
                assert found.headers["content-type"] == "application/problem+json"
                assert "mcp-session-id" not in found.headers
                if status == 401:
                    assert found.headers["www-authenticate"].startswith("Bearer")
    with served.client("claude") as client:
        assert client.post("/mcp/other", json=INITIALIZE, headers=ACCEPT).status_code == 404


def test_a_session_belongs_to_the_actor_that_began_it(served: Served) -> None:
    with served.client("claude") as client, served.client("other") as other:
        begun = client.post("/mcp", json=INITIALIZE, headers=ACCEPT)
        session = {"Mcp-Session-Id": begun.headers["mcp-session-id"]}
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        assert other.post("/mcp", json=listing, headers=ACCEPT | session).status_code == 404
        assert other.delete("/mcp", headers=ACCEPT | session).status_code == 404
        assert client.post("/mcp", json=listing, headers=ACCEPT | session).status_code == 200
        assert client.delete("/mcp", headers=ACCEPT | session).status_code == 200
        assert client.post("/mcp", json=listing, headers=ACCEPT | session).status_code == 404


def test_the_sessions_of_an_actor_are_limited(served: Served) -> None:
    with served.client("clerk") as clerk, served.client("claude") as client:
        begun = [clerk.post("/mcp", json=INITIALIZE, headers=ACCEPT) for _ in range(100)]
        assert {one.status_code for one in begun} == {200}
        refused = clerk.post("/mcp", json=INITIALIZE, headers=ACCEPT)
        assert (refused.status_code, refused.json()["code"]) == (429, "TOO_MANY_REQUESTS")
        assert client.post("/mcp", json=INITIALIZE, headers=ACCEPT).status_code == 200, "others are served"
        clerk.delete("/mcp", headers=ACCEPT | {"Mcp-Session-Id": begun[0].headers["mcp-session-id"]})
        assert clerk.post("/mcp", json=INITIALIZE, headers=ACCEPT).status_code == 200


def test_pages_of_other_sites_are_refused(served: Served) -> None:
    with served.client("claude") as client:
        for more in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
            assert client.post("/mcp", json=INITIALIZE, headers=ACCEPT | more).status_code == 403


NONSENSE: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"{",
    "no UTF-8": b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
    "a number": b"7",
    "null": b"null",
    "a text": b'"tools/call"',
    "an empty batch": b"[]",
    "a batch": json.dumps([INITIALIZE, INITIALIZE]).encode(),
    "another version": b'{"jsonrpc":"1.0","id":1,"method":"tools/list"}',
    "no method": b'{"jsonrpc":"2.0","id":1}',
    "a method that is no text": b'{"jsonrpc":"2.0","id":1,"method":7}',
    "params that are a list": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[1]}',
    "an id that is an object": b'{"jsonrpc":"2.0","id":{},"method":"tools/list"}',
    "an answer to nothing": b'{"jsonrpc":"2.0","id":99,"result":{}}',
    "a deep body": b"[" * 40_000,
    "a deep object": b'{"a":' * 15_000 + b"1" + b"}" * 15_000,
    "a large number": b'{"jsonrpc":"2.0","id":' + b"9" * 20_000 + b',"method":"tools/list"}',
    "a lone surrogate": b'{"jsonrpc":"2.0","id":"\\ud800","method":"tools/list"}',
    "arguments that are a text": json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "book-add", "arguments": "x"}}
    ).encode(),
    "a tool that is no text": json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": {}, "arguments": {}}}
    ).encode(),
}


@pytest.mark.parametrize("about", NONSENSE)
def test_nonsense_is_refused_and_the_server_goes_on(served: Served, about: str) -> None:
    modern = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "book-add"}
    with served.client("claude") as client:
        begun = client.post("/mcp", json=INITIALIZE, headers=ACCEPT)
        session = {"Mcp-Session-Id": begun.headers["mcp-session-id"]}
        for more in ({}, modern, session, {"MCP-Protocol-Version": "1999-01-01"}):
            found = client.post("/mcp", content=NONSENSE[about], headers=ACCEPT | more)
            is_harmless = found.status_code == 202 or '"error"' in found.text or found.status_code in (404, 406)
            assert found.status_code < 500, (more, found.text)
            assert is_harmless, (more, found.status_code, found.text)
            assert "Traceback" not in found.text
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        assert "book-add" in client.post("/mcp", json=listing, headers=ACCEPT | session).text
    assert "Traceback" not in (served.place.folder / "server.log").read_text()


@pytest.mark.parametrize("member", ["arguments", "_meta", "requestState", "name"])
def test_half_of_a_surrogate_pair_is_refused(served: Served, member: str) -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    params: dict[str, Any] = {"name": "book-add", "arguments": {"title": "Emma"}, "_meta": meta}
    params[member] = {
        "arguments": {"title": "\ud800"},
        "_meta": meta | {"worldprotocol/callId": "\ud800"},
        "requestState": "\ud800",
        "name": "\ud800",
    }[member]
    fields = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "book-add"}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    with served.client("claude") as client:
        refused = client.post("/mcp", content=body, headers=ACCEPT | fields)
    assert refused.json()["error"]["code"] in (-32602, -32020), refused.text
    assert "Traceback" not in (served.place.folder / "server.log").read_text()


def test_a_body_above_the_limit_is_refused(served: Served) -> None:
    body = json.dumps(INITIALIZE | {"params": "x" * 100_000})
    with served.client("claude") as client:
        assert client.post("/mcp", content=body, headers=ACCEPT).status_code == 413


def test_a_client_that_leaves_in_the_middle_of_a_call_finds_its_proposal(served: Served) -> None:
    params = {"name": "book-buy", "arguments": {"title": "Sanditon", "shelf": "left"}}
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
    modern: dict[str, Any] = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    names = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "book-buy"}
    with served.client("claude") as client:
        begun = client.post("/mcp", json=INITIALIZE, headers=ACCEPT)
        session = {"Mcp-Session-Id": begun.headers["mcp-session-id"]}
        with pytest.raises(httpx.ReadTimeout):
            client.post("/mcp", json=call, headers=ACCEPT | session, timeout=0.3)
        with pytest.raises(httpx.ReadTimeout):
            client.post("/mcp", json=call | {"params": params | {"_meta": modern}}, headers=ACCEPT | names, timeout=0.3)

    async def run() -> None:
        async with over_http(served) as client:
            waiting = told(await client.call_tool("book-buy", params["arguments"]))  # type: ignore[arg-type]
            with served.client("ann") as ann:
                inbox = ann.get("/v1/realms/main/inbox").json()["inbox"]
            assert [one["proposalId"] for one in inbox if one["wants"]["input"]["shelf"] == "left"] == [
                waiting["proposalId"]
            ]
            answer(served, waiting["proposalId"], "reject")

    asyncio.run(run())
    assert "Traceback" not in (served.place.folder / "server.log").read_text()


@pytest.mark.parametrize("way", ["server", "log"])
def test_a_call_whose_effects_take_long_is_a_task_at_once(tmp_path: Path, way: str) -> None:
    place, gate = founded(tmp_path, f"{LIMITS}request_timeout_s = 3600"), tmp_path / "gate"

    async def use(client: Client) -> None:
        async with asyncio.timeout(60):
            task = await client.session.call_tool("book-bind", {"title": "Emma"}, allow_claimed=True)
        assert isinstance(task, TaskStarted)
        assert (await task_method(client.session, "tasks/get", taskId=task.task_id))["status"] == "working"
        gate.touch()
        while (done := await task_method(client.session, "tasks/get", taskId=task.task_id))["status"] == "working":
            await asyncio.sleep(0.02)
        assert done["result"]["structuredContent"]["status"] == "completed"

    async def over_the_server(served: Served) -> None:
        async with over_http(served, extensions=[Tasks()]) as client:
            await use(client)

    async def over_the_log() -> None:
        variables = {"LIBRARY_GATE": str(gate)}
        async with over_stdio(place, "--actor", "claude", variables=variables, extensions=[Tasks()]) as client:
            await use(client)

    if way == "log":
        asyncio.run(over_the_log())
        return
    with serving(place, LIBRARY_GATE=str(gate)) as served:
        asyncio.run(over_the_server(served))


def test_fifty_clients_at_once(served: Served) -> None:
    with served.client("claude") as client:
        before = client.get("/v1/realms/main/worlds/HEAD/state").json()["value"]["count"]

    async def one(number: int) -> str:
        mode, actor = ("auto", "legacy")[number % 2], ("claude", "other")[number % 3 == 0]
        async with over_http(served, actor, mode=mode) as client:
            assert len((await client.list_tools()).tools) >= 12
            done = told(await client.call_tool("book-add", {"title": f"{number}", "shelf": f"n{number}"}))
            assert done["status"] == "completed", done
            status = told(await client.call_tool("proposal_status", {"proposalId": done["proposalId"]}))
            assert status["worldId"] == done["worldId"]
            return str(done["worldId"])

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(one(number)) for number in range(50)]
        assert len({one.result() for one in asked}) == 50

    asyncio.run(run())
    with served.client("claude") as client:
        state = client.get("/v1/realms/main/worlds/HEAD/state").json()["value"]
    assert state["count"] == before + 50
    assert all(state["books"][f"n{number}"] == f"{number}" for number in range(50))


def test_tasks_survive_a_server_that_is_killed(tmp_path: Path) -> None:
    place, gate = founded(tmp_path), tmp_path / "gate"
    book = {"title": "Emma", "shelf": "a"}

    async def begin(served: Served) -> tuple[str, str]:
        async with over_http(served, extensions=[Tasks()]) as client:
            bound = await client.session.call_tool("book-bind", book, allow_claimed=True, meta=call_id("bind-1"))
            bought = await client.session.call_tool("book-buy", book, allow_claimed=True)
            assert isinstance(bound, TaskStarted)
            assert isinstance(bought, TaskStarted)
            while not gate.with_suffix(".bound").exists():
                await asyncio.sleep(0.01)
            served.process.kill()
            return bound.task_id, bought.task_id

    async def go_on(served: Served, bound: str, bought: str) -> None:
        async with over_http(served, extensions=[Tasks()]) as client:
            assert (await task_method(client.session, "tasks/get", taskId=bought))["status"] == "working"
            await task_method(client.session, "tasks/cancel", taskId=bought)
            assert (await task_method(client.session, "tasks/get", taskId=bought))["status"] == "cancelled"
            while (done := await task_method(client.session, "tasks/get", taskId=bound))["status"] == "working":
                await asyncio.sleep(0.02)
            assert done["result"]["structuredContent"]["status"] == "completed"
            assert done["result"]["structuredContent"]["changes"][0]["value"] == "Emma, bound"
            again = await client.call_tool("book-bind", book, meta=call_id("bind-1"))
            assert told(again)["proposalId"] == bound, "a repeated call is the same proposal"

    with serving(place, LIBRARY_GATE=str(gate)) as served:
        bound, bought = asyncio.run(begin(served))
    gate.touch()
    with serving(place, LIBRARY_GATE=str(gate)) as served:
        asyncio.run(go_on(served, bound, bought))
    assert len(set(gate.with_suffix(".bound").read_text().splitlines())) == 1, "one key for the effect"


def test_a_process_on_stdio_that_is_killed_leaves_its_calls_to_the_next_one(tmp_path: Path) -> None:
    place = founded(tmp_path)
    words_of_command = [*COMMAND, "mcp", "--actor", "claude", "--wait", "60"]

    def killed_while_it_waits() -> None:
        lines = [
            INITIALIZE,
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {
                "jsonrpc": "2.0",
                "id": 2,
                "method": "tools/call",
                "params": {"name": "book-buy", "arguments": {"title": "Emma"}, "_meta": {"progressToken": 1}},
            },
        ]
        process = subprocess.Popen(
            words_of_command, cwd=place.folder, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"".join(json.dumps(one).encode() + b"\n" for one in lines))
        process.stdin.flush()
        while b"notifications/progress" not in process.stdout.readline():
            pass
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()

    async def go_on() -> None:
        async with over_stdio(place, "--actor", "claude", "--wait", "0") as client:
            waiting = told(await client.call_tool("book-buy", {"title": "Emma"}))
            with Realm.open_read_only(place.log) as realm:
                assert [one.proposal_id for one in realm.inbox()] == [waiting["proposalId"]]
            CliRealm(place.folder)("decide", waiting["proposalId"], "approve", "--by", "ann")
            asked = {"proposalId": waiting["proposalId"], "wait_s": 60}
            assert told(await client.call_tool("proposal_status", asked))["status"] in ("completed", "evaluating")
            done = await client.call_tool("proposal_status", {"proposalId": waiting["proposalId"]})
            assert told(done)["status"] == "completed"

    killed_while_it_waits()
    asyncio.run(go_on())


def test_people_are_led_to_the_inbox_of_the_server(tmp_path: Path) -> None:
    place = founded(tmp_path, f"{LIMITS}mcp_wait_s = 600\n[server.peers]\n{os.getuid()} = 'claude'")

    async def run(served: Served) -> None:
        asked: list[object] = []

        async def elicited(_: object, params: types.ElicitRequestParams) -> types.ElicitResult:
            assert isinstance(params, types.ElicitRequestURLParams)
            asked.append(params.url)
            with served.client("ann") as ann:
                inbox = await asyncio.to_thread(ann.get, "/v1/realms/main/inbox")
            await asyncio.to_thread(answer, served, inbox.json()["inbox"][0]["proposalId"])
            return types.ElicitResult(action="accept")

        for mode in ("auto", "legacy"):
            async with over_http(served, mode=mode, elicitation_callback=elicited) as client:
                done = await client.call_tool("book-buy", {"title": "Emma", "shelf": mode})
                assert told(done)["status"] == "completed"
        assert asked == [f"{served.url}/realms/main/inbox"] * 2
        async with over_stdio(place) as client:  # the socket of the server beside the log, and its user
            done = await client.call_tool("book-add", {"title": "Emma"})
        with place.realm() as realm:
            verified = realm.proposal(told(done)["proposalId"]).submitted.verified
            assert verified is not None
            assert (verified.method, verified.actor_id) == ("peer", "claude")

    with serving(place) as served:
        asyncio.run(run(served))


def test_a_stopped_server_answers_the_calls_that_wait(tmp_path: Path) -> None:
    place = founded(tmp_path, f"{LIMITS}mcp_wait_s = 600")

    async def run(served: Served) -> None:
        reached = asyncio.Event()

        async def report(progress: float, total: float | None, message: str | None) -> None:
            reached.set()

        async with asyncio.TaskGroup() as tasks, over_http(served, mode="legacy") as client:
            await client.list_tools()  # results are checked by the client against the schemas of the list
            calling = tasks.create_task(client.call_tool("book-buy", {"title": "Emma"}, progress_callback=report))
            await asyncio.wait_for(reached.wait(), 60)
            stopping = tasks.create_task(asyncio.to_thread(stopped, served))
            assert told(await calling)["status"] == "evaluating"
        assert stopping.result() == 0

    with serving(place) as served:
        asyncio.run(run(served))
    assert "Traceback" not in (place.folder / "server.log").read_text()


def test_a_client_on_stdio_that_reads_no_more_is_no_fault(tmp_path: Path) -> None:
    place = founded(tmp_path)
    process = subprocess.Popen(
        [*COMMAND, "mcp", "--actor", "claude"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=place.folder,
        env=environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stdin.write('{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
    process.stdin.close()
    with process.stderr:
        assert (process.stderr.read(), process.wait(60)) == ("", 0)


def test_the_command_says_what_is_missing(tmp_path: Path) -> None:
    place = founded(tmp_path)
    realm = CliRealm(tmp_path)
    assert "--actor ID" in realm("mcp", code=2).err
    assert "UNKNOWN_ACTOR" in realm("mcp", "--actor", "nobody", code=1).err
    assert "go with --server" in realm("mcp", "--actor", "claude", "--realm", "main", code=2).err
    with serving(place) as served:
        assert "SIGN_IN_REQUIRED" in realm("mcp", "--server", served.url, code=1).err
        assert "TOKEN_NOT_VALID" in realm("mcp", "--server", served.url, WORLDCTL_TOKEN="w\u00e9", code=1).err
        wrong = realm("mcp", "--server", served.url, WORLDCTL_TOKEN="wp1_wrong", code=1)
        assert "TOKEN_NOT_VALID" in wrong.err
        token = served.place.tokens["claude"]
        other = realm("mcp", "--server", served.url, "--actor", "other", WORLDCTL_TOKEN=token, code=1)
        assert "NOT_THE_VERIFIED_ACTOR" in other.err
