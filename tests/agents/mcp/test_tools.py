"""Tools of the MCP server: what is offered, and what calls are answered with."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import jsonschema
import mcp_types as types
import pytest
from mcp.client._memory import InMemoryTransport
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from tests.agents.mcp.clients import call_id, told, words
from tests.agents.mcp.inprocess import INBOX, Library, opened
from worldprotocol.agents.mcp.own_tools import OWN_TOOLS

MODES = ("auto", "legacy")
OWN = ["proposal_status", "proposal_withdraw", "lease_acquire", "lease_release", "lease_list"]
ACTIONS = [
    "book-add", "book-bind", "book-burn", "book-buy", "book-lend", "book-print", "library-close", "library-open__all",
]  # fmt: skip


@pytest.fixture
def library() -> Iterator[Library]:
    made = opened()
    with made.realm:
        yield made


async def names(client: Client) -> list[str]:
    return [one.name for one in (await client.list_tools(cache_mode="bypass")).tools]


@pytest.mark.parametrize("mode", MODES)
def test_the_tools_are_the_actions_that_are_available_to_the_actor(library: Library, mode: str) -> None:
    async def run() -> None:
        async with library.client(mode) as client:
            assert await names(client) == ACTIONS + OWN
            assert not (await client.call_tool("library-close", {})).is_error
            assert await names(client) == [one for one in ACTIONS if one != "book-lend"] + OWN
            refused = await client.call_tool("book-lend", {"title": "Emma"})
            assert refused.is_error
            assert "not available now" in words(refused)
            assert "ACTION_UNAVAILABLE" in words(refused)
            with pytest.raises(MCPError, match="no tool 'book-eat'"):
                await client.call_tool("book-eat", {})

    asyncio.run(run())


def test_a_tool_has_the_schema_and_the_words_of_its_action(library: Library) -> None:
    async def run() -> None:
        async with library.client() as client:
            tools = {one.name: one for one in (await client.list_tools()).tools}
        adding = tools["book-add"]
        assert adding.description is not None
        assert adding.description.startswith("Put a book on a shelf.")
        assert adding.input_schema["required"] == ["title"]
        assert set(adding.input_schema["properties"]) == {"title", "shelf"}
        for name in OWN_TOOLS:  # no words of the source: names of classes, their docstrings
            schema = tools[name].input_schema
            assert not {"title", "description"} & set(schema)
            assert not [one for one in schema["properties"].values() if "title" in one]
        for one in tools.values():
            jsonschema.Draft202012Validator.check_schema(one.input_schema)
            if one.output_schema is not None:
                jsonschema.Draft202012Validator.check_schema(one.output_schema)

    asyncio.run(run())


@pytest.mark.parametrize("mode", MODES)
def test_what_is_completed_is_answered_with_structured_content(library: Library, mode: str) -> None:
    async def run() -> None:
        async with library.client(mode) as client:
            done = await client.call_tool("book-add", {"title": "Emma"})
        proposal = library.realm.proposal(told(done)["proposalId"])
        assert not done.is_error
        assert told(done) == {
            "proposalId": proposal.proposal_id,
            "action": "book.add",
            "status": "completed",
            "message": words(done),
            "worldId": proposal.world_id,
            "changes": [
                {"op": "set", "path": "books.a", "value": "Emma"},
                {"op": "set", "path": "count", "value": 1},
            ],
        }
        assert library.data()["books"] == {"a": "Emma"}
        assert proposal.submitted.trace is not None
        assert proposal.submitted.trace["mcp"]["tool"] == "book-add"

    asyncio.run(run())


@pytest.mark.parametrize("mode", MODES)
def test_what_is_rejected_or_fails_is_an_error_with_the_reason_and_what_to_change(library: Library, mode: str) -> None:
    async def run() -> None:
        async with library.client(mode) as client:
            rejected = await client.call_tool("book-burn", {"title": "Emma"})
            failed = await client.call_tool("book-lend", {"title": "Emma"})
            invalid = await client.call_tool("book-add", {"name": "Emma"})
        assert rejected.is_error
        assert told(rejected)["status"] == "rejected"
        assert told(rejected)["code"] == "REJECTED"
        assert "books are not burned; ask for a new shelf" in words(rejected)
        assert "change the input" in words(rejected)
        assert failed.is_error
        assert told(failed)["status"] == "failed"
        assert told(failed)["code"] == "NO_SUCH_BOOK"
        assert "the library has no book Emma" in words(failed)
        assert "Remove the cause" in words(failed)
        assert invalid.is_error
        assert "title" in words(invalid)
        assert library.data() == {"books": {}, "is_open": True, "count": 0}

    asyncio.run(run())


@pytest.mark.parametrize("mode", MODES)
def test_a_call_that_waits_is_answered_with_the_id_and_its_state_is_read_later(library: Library, mode: str) -> None:
    async def run() -> None:
        async with library.client(mode) as client:
            waiting = await client.call_tool("book-buy", {"title": "Emma"})
            assert not waiting.is_error
            assert told(waiting)["status"] == "evaluating"
            assert told(waiting)["waitsFor"].startswith("an answer of ann")
            assert "proposal_status" in words(waiting)
            again = await client.call_tool("book-buy", {"title": "Emma"})
            name = told(waiting)["proposalId"]
            assert told(again)["proposalId"] == name, "a repeated call asks nobody twice"
            assert len(library.realm.inbox()) == 1
            assert told(await client.call_tool("proposal_status", {"proposalId": name}))["status"] == "evaluating"
            library.answer()
            status = await client.call_tool("proposal_status", {"proposalId": name, "wait_s": 30})
            assert (told(status)["status"], status.is_error) == ("completed", False)
            assert library.data()["books"] == {"a": "Emma"}

    asyncio.run(run())


def test_a_call_waits_for_the_answer_of_a_person(library: Library) -> None:
    async def run() -> None:
        reports: list[str | None] = []
        asked = asyncio.Event()

        async def report(progress: float, total: float | None, message: str | None) -> None:
            reports.append(message)
            asked.set()

        async with library.client("legacy", wait_s=60) as client, asyncio.TaskGroup() as tasks:
            calling = tasks.create_task(client.call_tool("book-buy", {"title": "Emma"}, progress_callback=report))
            await asyncio.wait_for(asked.wait(), 30)
            await asyncio.to_thread(library.answer, "reject")
            rejected = await calling
        assert rejected.is_error
        assert "as ann says" in words(rejected)
        assert reports[0] is not None
        assert "an answer of ann" in reports[0]

    asyncio.run(run())


def test_a_client_that_cancels_its_wait_withdraws_nothing(library: Library) -> None:
    async def run() -> None:
        reached = asyncio.Event()

        async def report(progress: float, total: float | None, message: str | None) -> None:
            reached.set()

        async with library.client("legacy", wait_s=60) as client:
            async with asyncio.TaskGroup() as tasks:
                calling = tasks.create_task(client.call_tool("book-buy", {"title": "Emma"}, progress_callback=report))
                await asyncio.wait_for(reached.wait(), 30)
                calling.cancel()
            (open_one,) = library.realm.inbox()
            status = await client.call_tool("proposal_status", {"proposalId": open_one.proposal_id})
        assert told(status)["status"] == "evaluating"

    asyncio.run(run())


def test_a_withdrawn_call_is_not_done(library: Library) -> None:
    async def run() -> None:
        async with library.client() as client, library.client(actor="other") as other:
            name = told(await client.call_tool("book-buy", {"title": "Emma"}))["proposalId"]
            for tool in ("proposal_status", "proposal_withdraw"):
                more = {"reason": "mine"} if tool == "proposal_withdraw" else {}
                foreign = await other.call_tool(tool, {"proposalId": name, **more})
                assert foreign.is_error
                assert f"other has no proposal '{name}'" in words(foreign)
            done = await client.call_tool("proposal_withdraw", {"proposalId": name, "reason": "too dear"})
            assert (told(done)["status"], told(done)["code"], done.is_error) == ("superseded", "WITHDRAWN", False)
            assert "Withdrawn by claude: too dear" in words(done)
            ended = await client.call_tool("proposal_withdraw", {"proposalId": name, "reason": "again"})
            assert ended.is_error
            assert "NOT_RUNNING" in words(ended)
        assert not library.realm.inbox()

    asyncio.run(run())


def test_agents_that_share_files_lease_them(library: Library) -> None:
    async def run() -> None:
        async with library.client() as client, library.client(actor="other") as other:
            wanted = {"resources": ["FILE:/src/app.py", "FILE:/src/lib.py"]}
            granted = told(await client.call_tool("lease_acquire", wanted))
            assert granted["status"] == "Granted"
            assert len(granted["leases"]) == 2
            refused = await other.call_tool("lease_acquire", {"resources": ["FILE:/src/app.py"]})
            assert refused.is_error
            assert "claude has MUTATES on FILE:/src/app.py" in words(refused)
            listed = told(await other.call_tool("lease_list", {}))["leases"]
            assert {one["resource"] for one in listed} == set(wanted["resources"])
            mine = {"leaseIds": [one["leaseId"] for one in granted["leases"]], "sessionId": granted["sessionId"]}
            foreign = await other.call_tool("lease_release", mine)
            assert foreign.is_error, words(foreign)
            assert set(told(await client.call_tool("lease_release", mine))["states"].values()) == {"Released"}
            again = await other.call_tool("lease_acquire", {"resources": wanted["resources"][:1]})
            assert words(again).startswith("Granted: 1 lease in session")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("tool", "arguments", "fault"),
    [
        ("proposal_status", {}, "proposalId: Field required"),
        ("proposal_status", {"proposalId": 7}, "proposalId: Input should be a valid string"),
        ("proposal_status", {"proposalId": "x", "more": 1}, "more: Extra inputs are not permitted"),
        ("proposal_status", {"proposalId": "x" * 2_000}, "at most 1000 characters"),
        ("proposal_status", {"proposalId": "nothing"}, "claude has no proposal 'nothing'"),
        ("proposal_withdraw", {"proposalId": "nothing", "reason": ""}, "reason: String should have at least 1"),
        ("lease_acquire", {"resources": []}, "resources: List should have at least 1 item"),
        ("lease_acquire", {"resources": ["FILE:/a"], "ttl_s": -1}, "ttl_s: Input should be greater than 0"),
        ("lease_acquire", {"resources": ["\u0000"]}, "Refused"),
        ("lease_acquire", {"resources": ["FILE:/a"], "predicate": "EATS"}, "EATS"),
        ("lease_release", {"leaseIds": ["x"], "sessionId": "y"}, "Refused"),
        ("lease_list", {"all": True}, "all: Extra inputs are not permitted"),
    ],
)
def test_arguments_that_are_not_valid_are_refused(
    library: Library, tool: str, arguments: dict[str, object], fault: str
) -> None:
    async def run() -> None:
        async with library.client() as client:
            refused = await client.call_tool(tool, arguments)
        assert refused.is_error
        assert fault in words(refused)

    asyncio.run(run())


@pytest.mark.parametrize("revision", HANDSHAKE_PROTOCOL_VERSIONS)
def test_clients_of_earlier_revisions_are_served(library: Library, revision: str) -> None:
    async def run() -> None:
        async with library.speaking(revision) as session:
            assert session.protocol_version == revision
            assert [one.name for one in (await session.list_tools()).tools] == ACTIONS + OWN
            done = await session.call_tool("book-add", {"title": "Emma"})
            assert not done.is_error
            assert told(done)["status"] == "completed"
            waiting = await session.call_tool("book-buy", {"title": "Persuasion"})
            status = await session.call_tool("proposal_status", {"proposalId": told(waiting)["proposalId"]})
            assert told(status)["status"] == "evaluating"
            assert len((await session.list_resources()).resources) == 5
        trace = library.realm.proposal(told(done)["proposalId"]).submitted.trace
        assert trace is not None
        assert trace["mcp"]["protocol"] == revision

    asyncio.run(run())


def test_a_client_of_an_unknown_revision_is_offered_the_newest_with_a_handshake(library: Library) -> None:
    async def run() -> None:
        async with library.speaking("1999-01-01") as session:
            assert session.protocol_version == HANDSHAKE_PROTOCOL_VERSIONS[-1]

    asyncio.run(run())


def test_people_are_asked_by_a_link_to_the_inbox_and_never_by_a_form(library: Library) -> None:
    async def run() -> None:
        asked: list[types.ElicitRequestParams] = []

        async def elicited(_: object, params: types.ElicitRequestParams) -> types.ElicitResult:
            asked.append(params)
            await asyncio.to_thread(library.answer)
            return types.ElicitResult(action="accept")

        for mode in MODES:
            async with library.client(mode, wait_s=60, elicitation_callback=elicited) as client:
                done = await client.call_tool("book-buy", {"title": f"Emma {mode}"})
            assert told(done)["status"] == "completed", mode
        for one in asked:
            assert isinstance(one, types.ElicitRequestURLParams)
            assert one.url == INBOX
            assert "book.buy waits for an answer of ann" in one.message
        assert len(asked) == 2

    asyncio.run(run())


def test_a_client_that_accepts_the_link_has_decided_nothing(library: Library) -> None:
    async def run() -> None:
        async def elicited(_: object, __: types.ElicitRequestParams) -> types.ElicitResult:
            return types.ElicitResult(action="accept", content={"approve": True})

        for mode in MODES:
            async with library.client(mode, elicitation_callback=elicited) as client:
                waiting = await client.call_tool("book-buy", {"title": "Emma"})
            assert told(waiting)["status"] == "evaluating", mode
        assert len(library.realm.inbox()) == 1

    asyncio.run(run())


@pytest.mark.parametrize("state", ["own-other-call", "foreign", "nonsense"])
def test_the_state_of_another_call_is_refused(library: Library, state: str) -> None:
    async def run() -> None:
        async with library.client() as client, library.client(actor="other") as other:
            mine = told(await client.call_tool("book-buy", {"title": "Emma"}))["proposalId"]
            foreign = told(await other.call_tool("book-buy", {"title": "Other"}))["proposalId"]
            given = {"own-other-call": mine, "foreign": foreign, "nonsense": "nonsense"}[state]
            with pytest.raises(MCPError, match=r"requestState is not that of this call|claude has no proposal"):
                await client.session.call_tool("book-add", {"title": "Emma"}, request_state=given)
        assert library.data()["books"] == {}

    asyncio.run(run())


def test_a_call_with_an_id_of_its_own_is_made_once(library: Library) -> None:
    async def run() -> None:
        meta = call_id("call-1")
        async with library.client() as client:
            first = await client.call_tool("book-add", {"title": "Emma"}, meta=meta)
        async with library.client() as client:  # a process that was started again
            again = await client.call_tool("book-add", {"title": "Emma"}, meta=meta)
            other = await client.call_tool("book-add", {"title": "Persuasion"}, meta=meta)
            new = await client.call_tool("book-add", {"title": "Emma"}, meta=call_id("call-2"))
        assert told(again)["proposalId"] == told(first)["proposalId"] != told(new)["proposalId"]
        assert other.is_error
        assert "IDEMPOTENCY_CONFLICT" in words(other)
        assert library.data()["count"] == 2

    asyncio.run(run())


def test_a_repeated_call_of_an_ended_proposal_is_not_answered_with_an_open_one(library: Library) -> None:
    async def run() -> None:
        async with library.client() as client:
            meta = call_id("call-1")
            first = told(await client.call_tool("book-buy", {"title": "Emma"}, meta=meta))["proposalId"]
            library.answer("reject")
            open_one = told(await client.call_tool("book-buy", {"title": "Emma"}))["proposalId"]
            again = told(await client.call_tool("book-buy", {"title": "Emma"}, meta=meta))
            assert (again["proposalId"], again["status"]) == (first, "rejected")
            assert first != open_one

    asyncio.run(run())


def test_calls_whose_ids_differ_in_their_type_alone_are_two(library: Library) -> None:
    async def run() -> None:
        async with InMemoryTransport(library.server()) as (read, write):
            given = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
            call = {"name": "book-add", "arguments": {"title": "Emma"}}
            requests = ((0, "initialize", given), (1, "tools/call", call), ("1", "tools/call", call))
            for number, method, params in requests:
                request = types.JSONRPCRequest(jsonrpc="2.0", id=number, method=method, params=params)
                await write.send(SessionMessage(request))
                answer = await read.receive()
                assert isinstance(answer, SessionMessage)
                assert isinstance(answer.message, types.JSONRPCResponse)
                assert answer.message.id == number
        assert library.data()["count"] == 2

    asyncio.run(run())
