"""Calls that wait as tasks: a task is a proposal, so it outlives the process that was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

from tests.agents.mcp.clients import TASKS, Tasks, TaskStarted, task_method, told
from tests.agents.mcp.inprocess import Library, opened

BUY = {"title": "Emma"}


@pytest.fixture
def library() -> Iterator[Library]:
    made = opened()
    with made.realm:
        yield made


@asynccontextmanager
async def tasking(library: Library, actor: str = "claude") -> AsyncIterator[Client]:
    async with library.client(actor=actor, extensions=[Tasks()]) as client:
        yield client


async def started(client: Client, tool: str = "book-buy") -> TaskStarted:
    found = await client.session.call_tool(tool, BUY, allow_claimed=True)
    assert isinstance(found, TaskStarted), found
    return found


def test_a_call_that_waits_is_a_task_whose_id_is_the_proposal(library: Library) -> None:
    async def run() -> None:
        async with tasking(library) as client:
            assert client.server_capabilities.extensions == {TASKS: {}}
            task = await started(client)
            proposal = library.realm.proposal(task.task_id)
            assert (task.status, task.ttl_ms) == ("working", None)
            assert task.poll_interval_ms == 2_000
            assert task.status_message is not None
            assert "an answer of ann" in task.status_message
            assert datetime.fromisoformat(task.created_at).timestamp() * 1_000 == proposal.submitted.at
            looked = await task_method(client.session, "tasks/get", taskId=task.task_id)
            assert looked["status"] == "working"
            assert "result" not in looked

            library.answer()
            done = await task_method(client.session, "tasks/get", taskId=task.task_id)
            assert (done["taskId"], done["status"]) == (task.task_id, "completed")
            assert done["result"]["structuredContent"]["status"] == "completed"
            assert done["result"]["isError"] is False
            assert library.data()["books"] == {"a": "Emma"}

    asyncio.run(run())


def test_a_rejected_task_is_completed_with_an_error_of_the_tool(library: Library) -> None:
    async def run() -> None:
        async with tasking(library) as client:
            task = await started(client)
            library.answer("reject")
            done = await task_method(client.session, "tasks/get", taskId=task.task_id)
            assert done["status"] == "completed"
            assert done["result"]["isError"] is True
            assert done["result"]["structuredContent"]["code"] == "REJECTED"

    asyncio.run(run())


def test_what_ends_at_once_is_no_task(library: Library) -> None:
    async def run() -> None:
        async with tasking(library) as client:
            done = await client.call_tool("book-add", BUY)
            assert told(done)["status"] == "completed"
            rejected = await client.call_tool("book-burn", BUY)
            assert rejected.is_error

    asyncio.run(run())


def test_a_cancelled_task_is_withdrawn(library: Library) -> None:
    async def run() -> None:
        async with tasking(library) as client:
            task = await started(client)
            for _ in range(2):
                answer = await task_method(client.session, "tasks/cancel", taskId=task.task_id)
                assert answer["resultType"] == "complete"
                assert "taskId" not in answer
            looked = await task_method(client.session, "tasks/get", taskId=task.task_id)
            assert looked["status"] == "cancelled"
            assert "result" not in looked
            assert not library.realm.inbox()
            assert library.realm.proposal(task.task_id).status == "superseded"

    asyncio.run(run())


def test_a_task_that_was_decided_goes_on_when_it_is_cancelled(library: Library) -> None:
    async def run() -> None:
        async with tasking(library) as client:
            task = await started(client, "book-print")
            assert library.realm.proposal(task.task_id).status == "executing"
            await task_method(client.session, "tasks/cancel", taskId=task.task_id)
            looked = await task_method(client.session, "tasks/get", taskId=task.task_id)
            assert looked["status"] == "working"

    asyncio.run(run())


def test_a_new_process_goes_on_with_the_tasks_of_the_one_before(library: Library) -> None:
    async def run() -> None:
        async with tasking(library) as client:
            task = await started(client)
        async with tasking(library) as client:
            assert (await task_method(client.session, "tasks/get", taskId=task.task_id))["status"] == "working"
            assert (await started(client)).task_id == task.task_id, "a repeated call continues its proposal"

    asyncio.run(run())


def test_updates_decide_nothing(library: Library) -> None:
    async def run() -> None:
        async with tasking(library) as client:
            task = await started(client)
            given: dict[str, Any] = {"approval": {"action": "accept", "content": {"approve": True}}}
            answer = await task_method(client.session, "tasks/update", taskId=task.task_id, inputResponses=given)
            assert answer["resultType"] == "complete"
            assert (await task_method(client.session, "tasks/get", taskId=task.task_id))["status"] == "working"
            assert len(library.realm.inbox()) == 1

    asyncio.run(run())


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_tasks_of_others_and_unknown_ones_are_refused(library: Library, method: str) -> None:
    async def run() -> None:
        more: dict[str, Any] = {"inputResponses": {}} if method == "tasks/update" else {}
        async with tasking(library) as client, tasking(library, "other") as other:
            task = await started(client)
            for name in (task.task_id, "nothing", "", "\x00", "x" * 100_000):
                with pytest.raises(MCPError, match="other has no proposal") as refused:
                    await task_method(other.session, method, taskId=name, **more)
                assert refused.value.error.code == -32602
            with pytest.raises(MCPError) as malformed:
                await task_method(client.session, method, taskId=7, **more)
            assert malformed.value.error.code == -32602
        assert library.realm.proposal(task.task_id).status == "evaluating"

    asyncio.run(run())


def test_only_clients_that_declare_the_extension_have_tasks(library: Library) -> None:
    async def run() -> None:
        async with library.client() as client:
            waiting = told(await client.call_tool("book-buy", BUY))
            assert waiting["status"] == "evaluating"
            with pytest.raises(MCPError) as refused:
                await task_method(client.session, "tasks/get", taskId=waiting["proposalId"])
            assert refused.value.error.code == -32021
            assert refused.value.error.data == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        async with library.client("legacy") as client:
            assert client.server_capabilities.extensions is None
            assert client.server_capabilities.tasks is None
            with pytest.raises(MCPError) as unknown:
                await task_method(client.session, "tasks/get", taskId=waiting["proposalId"])
            assert unknown.value.error.code == -32601

    asyncio.run(run())
