"""Workers whose server is away, answers that it is not ready, or is none: what they go on with, and what ends them."""

from __future__ import annotations

import json
import logging
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from host import find_effects, handler
from tests.remote.test_command_client import certificate
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.waiting.till import until
from world.errors import RefusedError, WorldProtocolError
from worldprotocol import Worker
from worldprotocol.api.executing.remote_effects import RemoteEffects
from worldprotocol.api.waiting import outages
from worldprotocol.api.waiting.backoff import Backoff

pytestmark = pytest.mark.requirement("HC-journal", "HC-handlers")

Answer = tuple[int, Mapping[str, str], bytes]
JSON = {"Content-Type": "application/problem+json"}
NONE = (200, {"Content-Type": "application/json"}, b'{"now": 1, "claim": null}')


def problem(code: str, status: int) -> Answer:
    return status, JSON, json.dumps({"code": code, "detail": f"It is {code}."}).encode()


AWAY: list[Answer] = [
    problem("LOG_UNAVAILABLE", 503),
    problem("LOG_DAMAGED", 500),
    problem("OF_A_LATER_RELEASE", 503),
    problem("TOO_MANY_REQUESTS", 429),
    (500, {}, b"broken"),
    (502, {"Content-Type": "text/html"}, b"<html>"),
    (504, {"Content-Type": "text/html"}, b"<html>"),
]
"""Answers after which a worker goes on trying."""


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(outages, "LONGEST_PAUSE_S", 0.01)


READY = (200, {"Content-Type": "application/json"}, b'{"status": "ok"}')


def unready(code: str) -> Answer:
    details = {"realms": [{"name": "main", "ready": False, "code": code, "cause": f"its {code}"}]}
    return 503, JSON, json.dumps({"code": code, "detail": "1 of 1 realms.", "details": details}).encode()


@contextmanager
def answering(
    *script: Answer, readiness: Sequence[Answer] = (READY,), port: int = 0, tls: ssl.SSLContext | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Run a server that answers with a script, and then with the last of it.

    Yield its port, and what came: the keys of posts, and the paths of other requests unless the server is ready.
    """
    keys: list[str] = []
    left, asked = list(script), list(readiness)

    class Scripted(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            keys.append(self.headers["Idempotency-Key"])
            self.answer(*(left.pop(0) if len(left) > 1 else left[0]))

        def do_GET(self) -> None:
            answer = asked.pop(0) if len(asked) > 1 else asked[0]
            if answer is not READY:
                keys.append(self.path)
            self.answer(*answer)

        def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", port), Scripted)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_address[1], keys
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def worker_of(port: int, scheme: str = "http") -> Worker:
    effects = find_effects(entry_points=False)
    effects.add(handler("oven.bake")(lambda _params, _call: "baked"))
    return Worker(
        RemoteEffects(f"{scheme}://127.0.0.1:{port}", "main", "t", effects), types=["oven.bake"], name="mule-1"
    )


@contextmanager
def running(worker: Worker) -> Iterator[list[WorldProtocolError | None]]:
    """Run a worker in a thread; the list has how it ended."""
    ends: list[WorldProtocolError | None] = []

    def run() -> None:
        try:
            worker.run()
            ends.append(None)
        except WorldProtocolError as error:
            ends.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield ends
    finally:
        worker.stop()
        thread.join(PATIENCE_S)


def test_a_worker_claims_nothing_before_its_realm_would_accept_a_write(caplog: pytest.LogCaptureFixture) -> None:
    before = [unready("STORAGE_FULL"), unready("SCHEMA_MISMATCH"), *AWAY]
    with caplog.at_level(logging.WARNING), answering(NONE, readiness=[*before, READY]) as (port, came):
        with running(worker_of(port)) as ends:
            until(lambda: len(came) > len(before))
        assert ends == [None]
    assert came[: len(before)] == ["/readyz?realm=main"] * len(before)
    assert not came[len(before)].startswith("/")
    assert "would accept no write: its STORAGE_FULL [STORAGE_FULL]" in caplog.records[0].message


@pytest.mark.parametrize("answer", [unready("LOG_FENCED"), problem("UNKNOWN_REALM", 404), (404, {}, b"hidden")])
def test_a_worker_whose_server_does_not_say_whether_its_realm_is_ready_claims(answer: Answer) -> None:
    with (
        answering(problem("RIGHT_MISSING", 403), readiness=[answer]) as (port, came),
        pytest.raises(RefusedError) as ended,
    ):
        worker_of(port).run()
    assert (ended.value.code, len(came)) == ("RIGHT_MISSING", 2)


def test_a_worker_that_works_once_does_not_wait_until_its_realm_is_ready() -> None:
    with answering(NONE, readiness=[unready("LOG_BUSY")]) as (port, came), pytest.raises(RefusedError) as ended:
        worker_of(port).run(once=True)
    assert (ended.value.code, came) == ("LOG_UNAVAILABLE", ["/readyz?realm=main"])


@pytest.mark.parametrize(
    ("last", "code"),
    [
        (problem("SIGN_IN_REQUIRED", 401), "SIGN_IN_REQUIRED"),
        (problem("RIGHT_MISSING", 403), "RIGHT_MISSING"),
        (problem("UNKNOWN_REALM", 404), "UNKNOWN_REALM"),
        ((404, {"Content-Type": "text/html"}, b"<html>"), "INVALID_ADDRESS"),
        ((200, {"Content-Type": "text/html"}, b"<html>"), "INVALID_ADDRESS"),
        ((302, {"Location": "/elsewhere"}, b""), "INVALID_ADDRESS"),
    ],
    ids=["401", "403", "404", "404 of another server", "200 of another server", "302"],
)
def test_a_worker_goes_on_trying_until_an_answer_ends_it(last: Answer, code: str) -> None:
    with answering(*AWAY, last) as (port, keys), pytest.raises(RefusedError) as ended:
        worker_of(port).run()
    assert ended.value.code == code
    assert len(keys) == len(AWAY) + 1
    assert len(set(keys)) == 1  # a claim whose answer was lost is returned again


def test_a_worker_is_started_before_its_server(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    with caplog.at_level(logging.WARNING), running(worker_of(port)) as ends:
        until(lambda: bool(caplog.records))
        assert ends == []
        with answering(*AWAY, NONE, port=port) as (_, keys):
            until(lambda: len(keys) > len(AWAY) + 1)
    assert ends == [None]
    said = [record.message for record in caplog.records]
    assert len(said) == 2  # a line for the outage, however many attempts there were, and one for its end
    assert said[0].startswith("The claim of worker mule-1 is repeated until it succeeds: The server http://127.0.0.1:")
    assert said[1] == "The claim of worker mule-1 has succeeded."


def test_a_worker_is_stopped_while_its_server_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "FIRST_PAUSE_S", 2 * PATIENCE_S)
    monkeypatch.setattr(outages, "LONGEST_PAUSE_S", 2 * PATIENCE_S)
    with running(worker_of(free_port())) as ends:
        assert ends == []
    assert ends == [None]


def test_a_worker_that_works_once_waits_for_no_server() -> None:
    with pytest.raises(RefusedError) as ended:
        worker_of(free_port()).run(once=True)
    assert ended.value.code == "LOG_UNAVAILABLE"


def test_a_certificate_that_is_not_trusted_ends_a_worker(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate(tmp_path))
    with answering(NONE, tls=context) as (port, keys), pytest.raises(RefusedError) as ended:
        worker_of(port, "https").run()
    assert (ended.value.code, keys) == ("LOG_UNAVAILABLE", [])


def test_pauses_double_up_to_the_longest_and_are_shortened_by_chance() -> None:
    whole = Backoff(1.0, 5.0, lambda: 1.0)
    assert [whole.pause_s() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    whole.reset()
    assert whole.pause_s() == 1.0
    assert Backoff(1.0, 5.0, lambda: 0.0).pause_s() == 0.5
    assert len({Backoff(1.0, 5.0).pause_s() for _ in range(8)}) > 1
