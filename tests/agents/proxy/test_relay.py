"""The relay between a client and an upstream, both simulated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from worldprotocol.agents.proxy import relay
from worldprotocol.agents.proxy.governed_call import CallPlace, CallSettings, GovernedCall
from worldprotocol.agents.proxy.pins import Pins
from worldprotocol.agents.proxy.realm_client import RealmClient
from worldprotocol.agents.proxy.relay import Relay
from worldprotocol.agents.proxy.upstream import PeerStreams
from worldprotocol.agents.proxy.upstream_session import UpstreamSession
from worldprotocol.api.remote.addresses import read_server_address

PING = JSONRPCRequest(jsonrpc="2.0", id="p", method="ping")
NOTE = JSONRPCNotification(jsonrpc="2.0", method="notifications/roots/list_changed")


@dataclass
class Client:
    """A client that sends messages, and ends its stream once it got some.

    Args:
        says: the messages.
        wants: how many it waits for.
        got: what it was sent.
    """

    says: Sequence[JSONRPCMessage]
    wants: int
    got: list[Any] = field(default_factory=list)

    async def __aiter__(self) -> AsyncIterator[SessionMessage | Exception]:
        """Yield its messages."""
        for one in self.says:
            yield SessionMessage(one)
        while len(self.got) < self.wants:
            await anyio.sleep(0)

    async def send(self, item: SessionMessage, /) -> None:
        """Keep a message."""
        self.got.append(item.message.model_dump(by_alias=True, exclude_none=True))


class Deaf:
    """An upstream that takes nothing."""

    async def __aiter__(self) -> AsyncIterator[SessionMessage | Exception]:
        """Say nothing."""
        await anyio.sleep_forever()
        yield ValueError()

    async def send(self, item: SessionMessage, /) -> None:
        """Never return."""
        await anyio.sleep_forever()


def served(client: Client) -> list[Any]:
    """Serve a client until it ends its stream, and return what it got."""

    async def run() -> None:
        relaying = Relay(PeerStreams(client, client), frozenset())
        upstream = UpstreamSession(PeerStreams(Deaf(), Deaf()), relaying.from_upstream)
        async with RealmClient(read_server_address("http://127.0.0.1:1"), "main", None) as realm:
            await relaying.run(CallPlace(realm, upstream, "deaf", "s", "p", CallSettings()))

    asyncio.run(run())
    return client.got


def test_an_upstream_that_takes_nothing_does_not_keep_the_client_from_being_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay, "HELD_S", 0.01)
    assert served(Client([NOTE, NOTE, PING], 1)) == [{"jsonrpc": "2.0", "id": "p", "result": {}}]


TOOL = {"name": "t", "inputSchema": {"type": "object"}}


class Lister:
    """An upstream that lists one tool, and keeps what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: asyncio.Queue[SessionMessage] = asyncio.Queue()

    async def __aiter__(self) -> AsyncIterator[SessionMessage | Exception]:
        """Yield the answers."""
        while True:
            yield await self.answers.get()

    async def send(self, item: SessionMessage, /) -> None:
        """Answer."""
        assert isinstance(item.message, JSONRPCRequest)
        self.asked.append(item.message.method)
        answer = JSONRPCResponse(jsonrpc="2.0", id=item.message.id, result={"tools": [TOOL]})
        self.answers.put_nowait(SessionMessage(answer))


class LateRealm(RealmClient):
    """A realm that takes a question up after the report that its call is not made."""

    def __init__(self) -> None:
        super().__init__(read_server_address("http://127.0.0.1:1"), "main", None)
        self.done: list[str] = []
        self.asked, self.reported = asyncio.Event(), asyncio.Event()

    async def pins(self, server: str) -> Pins | None:
        return Pins.listed([TOOL], None)

    async def decide(self, event: Any) -> dict[str, Any]:
        self.asked.set()
        return await asyncio.shield(self._judged())  # also where the caller has gone

    async def _judged(self) -> dict[str, Any]:
        await self.reported.wait()
        self.done.append("allowed")
        return {"decision": "allow", "proposalId": "p"}

    async def send(self, event: Any) -> dict[str, Any]:
        self.done.append(event["outcome"])
        self.reported.set()
        return {}


def test_a_call_that_is_given_up_while_the_realm_is_asked_leaves_no_permission() -> None:
    async def run() -> None:
        async def take(_: Any) -> None:
            return

        lister, realm = Lister(), LateRealm()
        async with realm, anyio.create_task_group() as tasks:
            upstream = UpstreamSession(PeerStreams(lister, lister), take)
            tasks.start_soon(upstream.run)
            place = CallPlace(realm, upstream, "lister", "s", "p", CallSettings())
            async with asyncio.TaskGroup() as calls:
                calling = calls.create_task(GovernedCall(place, "1", "t", {}).made())
                await realm.asked.wait()
                calling.cancel()
            tasks.cancel_scope.cancel()
        assert calling.cancelled()
        assert realm.done == ["not made", "allowed", "not made"]
        assert lister.asked == ["tools/list"]

    asyncio.run(run())
