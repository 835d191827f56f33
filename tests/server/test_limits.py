"""Limits: bodies, slow clients, rates, waits; and requests that are malformed."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.server.served import ORDER, PATH, Served, founded, serving
from tests.support.tables import for_each
from worldprotocol.server.call import answer
from worldprotocol.server.limits import Rates, Waits
from worldprotocol.server.problems import TooManyRequestsError


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a server with tight limits."""
    limits = "max_body_bytes = 1000\nrequest_timeout_s = 1\nmax_waits = 2\nmax_wait_s = 60\nburst = 10000"
    with serving(founded(tmp_path_factory.mktemp("tight"), server=limits)) as running:
        yield running


def sent(served: Served, *parts: bytes) -> bytes:
    """Send bytes to a server and return all that it answers until it closes the connection or the answer is whole."""
    address = urlsplit(served.url)
    with socket.create_connection((address.hostname, address.port or 80), timeout=60) as connection:
        for part in parts:
            connection.sendall(part)
        received = b""
        while chunk := connection.recv(65_536):
            received += chunk
            if b"\r\n\r\n" in received and (b"}" in received.partition(b"\r\n\r\n")[2]):
                break
    return received


def head(served: Served, *fields: str, actor: str = "kid") -> bytes:
    lines = [f"POST {PATH}/intents HTTP/1.1", "Host: kiosk", "Content-Type: application/json", *fields]
    lines += [f"Authorization: Bearer {served.place.tokens[actor]}", "", ""]
    return "\r\n".join(lines).encode()


def test_a_body_over_the_limit_is_refused_before_and_while_it_is_read(tight: Served) -> None:
    large = json.dumps(ORDER | {"note": "n" * 2_000}).encode()
    declared = sent(tight, head(tight, f"Content-Length: {len(large)}"))
    assert declared.startswith(b"HTTP/1.1 413 ")
    assert b"REQUEST_TOO_LARGE" in declared
    chunked = sent(tight, head(tight, "Transfer-Encoding: chunked"), f"{len(large):x}\r\n".encode() + large + b"\r\n")
    assert chunked.startswith(b"HTTP/1.1 413 ")


def test_a_body_that_does_not_arrive_is_given_up(tight: Served) -> None:
    assert b"REQUEST_TIMED_OUT" in sent(tight, head(tight, "Content-Length: 100"), b"{")


@pytest.mark.parametrize(
    "fields",
    [
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: xchunked",),
        ("Content-Length: -1",),
        ("Content-Length: +5",),
        ("Content-Length : 5",),
    ],
)
def test_an_ambiguous_length_is_refused_and_no_second_request_is_read(tight: Served, fields: tuple[str, ...]) -> None:
    smuggled = f"GET /healthz HTTP/1.1\r\nHost: kiosk\r\nX: {'}'}\r\n\r\n".encode()
    answer = sent(tight, head(tight, *fields) + b"0\r\n\r\n" + smuggled)
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 413 ", b"HTTP/1.1 501 ")), answer
    assert b'"status":"ok"' not in answer
    assert answer.count(b"HTTP/1.1 ") == 1


@for_each(
    "body",
    [
        b"", b"{", b"null", b"[]", b"NaN", b'"x"', b"\xff\xfe", b"{}", b'{"type": 5}', b'{"type": ""}',
        b'{"type": "order.place", "input": NaN}', b'{"type": "order.place", "actorId": "ann"}',
        b'{"type": "order.place", "input": {"item": "\\ud800"}}', b"[" * 900,
        b'{"type": "order.place", "input": {"item": "tea"}, "scopeProposal": {"allowedPaths": 7}}',
        b'{"type": "order.place", "input": 1e999}',
        b'{"type": "order.place", "input": {"item": "tea"}, "branch": "no"}',
        b'{"type": "order.none"}', b'{"type": "order.place", "input": {"item": 5}}',
    ],
)  # fmt: skip
def test_a_malformed_body_is_a_problem_and_never_a_fault(tight: Served, body: bytes) -> None:
    answer = sent(tight, head(tight, f"Content-Length: {len(body)}") + body)
    status = int(answer.split()[1])
    assert 400 <= status < 500, answer
    assert b"application/problem+json" in answer


@for_each(
    "path",
    [
        f"{PATH}/worlds/..%2f..%2fetc%2fpasswd", f"{PATH}/worlds/%00", f"{PATH}/worlds/HEAD/state?path=%00",
        f"{PATH}/worlds/HEAD/state?path=__class__", f"{PATH}/receipts/0", f"{PATH}/receipts/-1",
        f"{PATH}/receipts/999999999999999999999", f"{PATH}/log?after=-1", f"{PATH}/log?types=nothing",
        f"{PATH}/log?limit=100000", "/v1/realms/..%2f..%2fetc", "/v1/realms/none", "/../../etc/passwd",
        "/v1/errors/NO_CODE", f"{PATH}/proposals/%ff", f"{PATH}/proposals/none",
    ],
)  # fmt: skip
def test_a_strange_path_is_a_problem_and_never_a_fault_or_a_redirect(tight: Served, path: str) -> None:
    with tight.client("all") as client:
        answer = client.get(path, follow_redirects=False)
    assert 400 <= answer.status_code < 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"]
    assert "root:" not in answer.text


def test_a_path_that_names_a_host_leads_nowhere(tight: Served) -> None:
    for target in ("//evil.example/", "http://evil.example/", "/\\evil.example/"):
        answer = sent(tight, f"GET {target} HTTP/1.1\r\nHost: kiosk\r\nConnection: close\r\n\r\n".encode())
        assert answer.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 400 ", b"HTTP/1.1 200 ")), answer
        assert b"location:" not in answer.lower()
        assert b'evil.example/"' not in answer


def test_requests_that_wait_are_limited(tight: Served) -> None:
    with tight.client("bot") as bot:
        name = bot.post(f"{PATH}/intents", json=ORDER).json()["proposalId"]
        streams = [bot.stream("GET", f"{PATH}/log/stream", params={"after": 0}) for _ in range(2)]
        lines = [stream.__enter__().iter_lines() for stream in streams]
        for one in lines:
            next(one)
        refused = bot.get(f"{PATH}/proposals/{name}", params={"wait": 60})
        assert (refused.status_code, refused.json()["code"]) == (429, "TOO_MANY_REQUESTS")
        assert refused.headers["retry-after"] == "1"
        for stream in streams:
            stream.__exit__(None, None, None)


def test_rates_are_of_each_subject_and_refill_with_time() -> None:
    now = [0.0]
    rates = Rates(2, 3, lambda: now[0])
    for subject in ("a", "b"):
        for _ in range(3):
            rates.take(subject)
        with pytest.raises(TooManyRequestsError) as refused:
            rates.take(subject)
        assert refused.value.retry_after_s == 1
    now[0] = 0.5
    rates.take("a")
    with pytest.raises(TooManyRequestsError):
        rates.take("a")
    now[0] = 100.0
    for _ in range(3):
        rates.take("a")
    with pytest.raises(TooManyRequestsError):
        rates.take("a")


def test_waits_are_counted_until_they_end() -> None:
    waits = Waits(1)
    with waits.one("a"), pytest.raises(TooManyRequestsError), waits.one("b"):
        pass
    with waits.one("a"):
        assert waits.count == 1
    assert waits.count == 0


def test_one_subject_leaves_waits_to_the_others() -> None:
    waits = Waits(20)
    with ExitStack() as held:
        for _ in range(18):
            held.enter_context(waits.one("a"))
        with pytest.raises(TooManyRequestsError):
            waits.check("a")
        for _ in range(2):
            held.enter_context(waits.one("b"))
        with pytest.raises(TooManyRequestsError):
            waits.check("c")
    waits.check("a")
    assert waits.count == 0


def test_every_answer_forbids_sniffing_and_active_content(tight: Served) -> None:
    with tight.client("all") as client:
        for path in ("/healthz", PATH, f"{PATH}/none", "/openapi.json"):
            headers: Any = client.get(path).headers
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
            assert "server" not in headers


@pytest.mark.slow
def test_a_second_server_on_the_socket_of_a_running_one_is_refused(tight: Served, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="Another server listens"), serving(tight.place):
        pass


@pytest.mark.parametrize("given", ["build \ud83d", 2**70, json.loads("[" * 300 + "]" * 300)])
def test_an_answer_repeats_json_that_no_log_can_hold(given: object) -> None:
    """Hooks repeat the input of a tool, of which a part alone is recorded."""
    assert json.loads(bytes(answer({"tool_input": given}).body)) == {"tool_input": given}
