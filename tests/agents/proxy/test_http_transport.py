"""Upstreams over HTTP that answer without an end, compressed, cut off, or not at all: the request fails alone."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, PARSE_ERROR, JSONRPCError, JSONRPCNotification, JSONRPCRequest

from worldprotocol.agents.proxy import http_transport, upstream, upstream_session
from worldprotocol.agents.proxy.governed_call import WITHOUT_ANSWER
from worldprotocol.agents.proxy.upstream import UpstreamError, connected
from worldprotocol.agents.proxy.upstream_session import UpstreamSession
from worldprotocol.agents.unusable_messages import UNUSABLE_ANSWER

LIMIT = 100_000
JSON = "content-type: application/json\r\n"
STREAM = "content-type: text/event-stream\r\n"

Answer = Callable[[asyncio.StreamWriter, dict[str, Any]], Awaitable[None]]


async def say(writer: asyncio.StreamWriter, head: str, body: bytes = b"") -> None:
    """Write the beginning of an answer that ends with its connection."""
    writer.write(f"HTTP/1.1 200 OK\r\n{head}connection: close\r\n\r\n".encode() + body)
    await writer.drain()


def endless(head: str, begin: bytes) -> Answer:
    """Return what begins an answer and never ends it."""

    async def answer(writer: asyncio.StreamWriter, _: dict[str, Any]) -> None:
        await say(writer, head, begin)
        while True:
            writer.write(b"x" * 65_536)
            await writer.drain()

    return answer


def once(head: str, body: bytes) -> Answer:
    """Return what writes an answer and closes the connection."""

    async def answer(writer: asyncio.StreamWriter, _: dict[str, Any]) -> None:
        await say(writer, head, body)

    return answer


async def silent(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    """Answer the requests, but not the notifications."""
    if "id" in message:
        await say(writer, JSON, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {}}).encode())
    else:
        await asyncio.Event().wait()


async def heard(answer: Answer, ask: Callable[[UpstreamSession], Awaitable[Any]]) -> Any:
    """Return what a session finds out about a server that answers each message in a way."""
    serving = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.current_task())
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length: ")[2].partition("\r\n")[0] or 0)
            await answer(writer, json.loads(await reader.readexactly(length)))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client is gone, or the test is over
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def take(_: JSONRPCRequest | JSONRPCNotification) -> None:
        return

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    async with connected([url]) as streams, anyio.create_task_group() as tasks:
        session = UpstreamSession(streams, take)
        tasks.start_soon(session.run)
        found = await ask(session)
        tasks.cancel_scope.cancel()
    server.close()
    for one in serving:
        assert one is not None
        one.cancel()
    await asyncio.wait([one for one in serving if one is not None])
    return found


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (endless(JSON, b'{"jsonrpc": "2.0", "id": 1, "result": {"x": "'), PARSE_ERROR),
        (endless(STREAM, b"data: "), CONNECTION_CLOSED),
        (once(JSON + "content-encoding: gzip\r\n", zlib.compress(b"x" * 10_000_000)), INTERNAL_ERROR),
        (once(JSON + "content-length: 100\r\n", b'{"jsonrpc'), PARSE_ERROR),
    ],
    ids=["endless", "endless event", "compressed", "cut off"],
)
def test_an_answer_that_is_none_fails_its_request_alone(
    answer: Answer, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_transport, "MAX_BODY_BYTES", LIMIT)
    monkeypatch.setattr(upstream, "MAX_BODY_BYTES", LIMIT)

    async def ask(session: UpstreamSession) -> list[Any]:
        return [await session.ask("tools/call", {"name": "t"}, 30.0) for _ in range(2)]

    for found in asyncio.run(heard(answer, ask)):
        assert isinstance(found, JSONRPCError)
        assert found.error.code == code
        assert len(found.error.message) < 1_000


UNUSABLE = [
    b'{"jsonrpc": "2.0", "id": 1, "result": {"text": "\\ud83d"}}',
    b'{"jsonrpc": "2.0", "id": 1, "result": {"number": NaN}}',
    b'{"jsonrpc": "2.0", "id": 1, "result": {"number": 1e400}}',
    b'{"jsonrpc": "2.0", "id": 1, "result": 7}',
    b'{"jsonrpc": "2.0", "id": 1, "result": {"deep": ' + b"[" * 5_000 + b"]" * 5_000 + b"}}",
    b'{"jsonrpc": "2.0", "id": 1, "result": {"digits": ' + b"9" * 5_000 + b"}}",
]


def in_parts(events: bytes) -> Answer:
    """Return what writes a stream of events in small parts."""

    async def answer(writer: asyncio.StreamWriter, _: dict[str, Any]) -> None:
        await say(writer, STREAM)
        for begin in range(0, len(events), 7):
            writer.write(events[begin : begin + 7])
            await writer.drain()

    return answer


@pytest.mark.parametrize("text", UNUSABLE, ids=["half", "NaN", "infinite", "form", "deep", "digits"])
@pytest.mark.parametrize("is_stream", [False, True])
def test_an_answer_that_is_whole_and_cannot_be_used_is_stated_as_that(text: bytes, is_stream: bool) -> None:
    noise = b": \r\n\r\nevent: message\r\nid: 7\r\ndata: {\r\ndata: }\r\n\r\n"
    answer = in_parts(noise + b"data: " + text + b"\r\n\r\n") if is_stream else once(JSON, text)

    async def ask(session: UpstreamSession) -> Any:
        return await session.ask("tools/call", {"name": "t"}, 30.0)

    found = asyncio.run(heard(answer, ask))
    assert isinstance(found, JSONRPCError)
    assert found.error.code == UNUSABLE_ANSWER
    assert UNUSABLE_ANSWER not in WITHOUT_ANSWER  # so the call has failed, and is not in doubt


def test_events_arrive_as_they_were_sent() -> None:
    told = b'event: message\ndata: {"jsonrpc": "2.0",\ndata: "id": 1, "result": {"a": 18446744073709551617}}\n\n'

    async def ask(session: UpstreamSession) -> Any:
        return (await session.ask("tools/call", {"name": "t"}, 30.0)).model_dump()["result"]

    assert asyncio.run(heard(in_parts(told), ask)) == {"a": 2**64 + 1}


def test_a_notification_that_is_not_answered_holds_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_transport, "RECEIPT_S", 0.05)

    async def ask(session: UpstreamSession) -> Any:
        await session.notify("notifications/initialized")
        return (await session.ask("ping", None, 30.0)).model_dump()["result"]

    assert asyncio.run(heard(silent, ask)) == {}


def test_a_page_with_too_many_tools_is_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_session, "MAX_TOOLS", 2)
    page = {"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": name} for name in "abc"]}}

    async def ask(session: UpstreamSession) -> None:
        with pytest.raises(UpstreamError, match="at most 2 on"):
            await session.tools()

    asyncio.run(heard(once(JSON, json.dumps(page).encode()), ask))


@pytest.mark.parametrize(
    ("url", "header"),
    [
        ("http://127.0.0.1:9/mcp", "Authorization: Bearer hidden\u00e9"),
        ("http://127.0.0.1:9/mcp", "Authorization: Bearer hidden\nX: y"),
        ("http://127.0.0.1:9/mcp", "hidden"),
        ("http://127.0.0.1:99999/?key=hidden", "X: y"),
        ("http://[::1/?key=hidden", "X: y"),
        ("http://\udcff/?key=hidden", "X: y"),
    ],
)
def test_headers_and_urls_that_cannot_be_sent_are_refused_without_being_shown(
    url: str, header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIELD", header)

    async def connect() -> None:
        async with connected([url], ["FIELD"]):
            pass

    with pytest.raises(UpstreamError) as refused:
        asyncio.run(connect())
    assert "hidden" not in str(refused.value)
