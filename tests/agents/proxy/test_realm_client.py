"""What the proxy makes of answers of a server: decisions, refusals, and what is none of these."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest

from worldprotocol.agents.proxy.events import begins
from worldprotocol.agents.proxy.realm_client import RealmClient, RealmError
from worldprotocol.api.remote.addresses import read_server_address

pytestmark = pytest.mark.slow

CALL = {"session": "s", "callId": "1", "process": "p", "server": "db", "name": "query", "arguments": {}}


class Answering(BaseHTTPRequestHandler):
    """Answers each request with the same status and body."""

    answer: ClassVar[tuple[int, bytes]] = (200, b"")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        status, body = self.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Write no lines."""


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def decided(url: str, arguments: Any = None) -> dict[str, Any]:
    async def ask() -> dict[str, Any]:
        async with RealmClient(read_server_address(url), "main", "token") as realm:
            return await realm.decide(begins({**CALL, "arguments": arguments}, wait_s=0))

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("status", "body", "is_final"),
    [
        (200, b"", False),
        (200, b"[]", False),
        (200, b"{}", False),
        (200, b'{"decision": "ask"}', False),
        (200, b'{"decision": true}', False),
        (200, b"\xff", False),
        (302, b"{}", True),
        (401, b'{"code": "NOT_SIGNED_IN", "detail": "no token"}', True),
        (413, b'{"code": "TOO_LARGE"}', True),
        (429, b'{"code": "TOO_MANY_REQUESTS"}', False),
        (500, b'{"code": "SERVER_FAILED"}', False),
        (503, b'{"code": "SERVER_STOPPING"}', False),
        (503, b"<html>", False),
    ],
)
def test_whatever_is_no_decision_is_an_error_that_is_repeated_or_final(
    url: str, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes, is_final: bool
) -> None:
    monkeypatch.setattr(Answering, "answer", (status, body))
    with pytest.raises(RealmError) as raised:
        decided(url)
    assert raised.value.is_final is is_final


def test_decisions_are_returned(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for decision in ("allow", "deny"):
        monkeypatch.setattr(Answering, "answer", (200, json.dumps({"decision": decision}).encode()))
        assert decided(url) == {"decision": decision}


def test_arguments_without_a_form_in_json_are_refused_before_they_are_sent(url: str) -> None:
    for value in (float("nan"), "\ud800"):
        with pytest.raises(RealmError) as raised:
            decided(url, value)
        assert raised.value.is_final


def test_a_server_that_is_not_there_is_asked_again() -> None:
    with pytest.raises(RealmError) as raised:
        decided("http://127.0.0.1:9")
    assert not raised.value.is_final
