"""HTTP/1.1 as it should not be sent: smuggled requests, heads out of bounds, methods, versions, targets, pipelining.

The server parses with httptools (llhttp); the requests are bytes on a socket, so no client corrects them.
"""

from __future__ import annotations

import json

import pytest

from tests.server.served import ORDER, PATH, Served
from tests.server_faults.wire import connected, exchanged, read_answer, request
from worldprotocol.server.connections.protocol import MAX_HEAD_BYTES

pytestmark = pytest.mark.slow

BODY = json.dumps(ORDER).encode()
HIDDEN = b"POST %s/intents HTTP/1.1\r\nHost: kiosk\r\nContent-Length: 0\r\n\r\n" % PATH.encode()
"""A request that an intermediary would take for a part of a body."""


def size(served: Served) -> int:
    with served.place.realm() as realm:
        return realm.log.head().size


CHUNKED = "Transfer-Encoding: chunked"
SMUGGLED: dict[str, tuple[tuple[str, ...], bytes]] = {
    "CL.TE": ((f"Content-Length: {len(HIDDEN) + 5}", CHUNKED), b"0\r\n\r\n" + HIDDEN),
    "TE.CL": ((CHUNKED, "Content-Length: 4"), b"5c\r\n" + HIDDEN + b"\r\n0\r\n\r\n"),
    "two equal lengths": (("Content-Length: 2", "Content-Length: 2"), b"{}" + HIDDEN),
    "two lengths": (("Content-Length: 2", f"Content-Length: {len(HIDDEN) + 2}"), b"{}" + HIDDEN),
    "list of lengths": (("Content-Length: 2, 2",), b"{}" + HIDDEN),
    "negative length": (("Content-Length: -2",), b"{}" + HIDDEN),
    "signed length": (("Content-Length: +2",), b"{}" + HIDDEN),
    "hexadecimal length": (("Content-Length: 0x2",), b"{}" + HIDDEN),
    "length with an underscore": (("Content-Length: 1_0",), b"{}" + HIDDEN),
    "length with a space": (("Content-Length: 2 2",), b"{}" + HIDDEN),
    "length beyond 64 bits": (("Content-Length: 18446744073709551618",), b"{}" + HIDDEN),
    "space before the colon": (("Content-Length : 2",), b"{}" + HIDDEN),
    "space before the name": ((" Content-Length: 2",), b"{}" + HIDDEN),
    "folded field": (("X-One: a\r\n Content-Length: 2",), b"{}" + HIDDEN),
    "folded coding": (("Transfer-Encoding:\r\n chunked",), b"0\r\n\r\n" + HIDDEN),
    "bare line feed": (("X-One: a\nTransfer-Encoding: chunked",), b"0\r\n\r\n" + HIDDEN),
    "bare carriage return": (("X-One: a\rTransfer-Encoding: chunked",), b"0\r\n\r\n" + HIDDEN),
    "NUL in a field": (("X-One: a\x00b",), b"0\r\n\r\n" + HIDDEN),
    "name without colon": (("X-One",), HIDDEN),
    "unknown coding": (("Transfer-Encoding: xchunked",), b"0\r\n\r\n" + HIDDEN),
    "coding with a tab": (("Transfer-Encoding:\x0bchunked",), b"0\r\n\r\n" + HIDDEN),
    "coding after chunked": (("Transfer-Encoding: chunked, identity",), b"0\r\n\r\n" + HIDDEN),
    "coding twice": ((CHUNKED, CHUNKED), b"0\r\n\r\n" + HIDDEN),
    "coding twice, differing": ((CHUNKED, "Transfer-Encoding: identity"), b"0\r\n\r\n" + HIDDEN),
    "chunk of hexadecimal prefix": ((CHUNKED,), b"0x2\r\n{}\r\n0\r\n\r\n" + HIDDEN),
    "chunk of negative size": ((CHUNKED,), b"-2\r\n{}\r\n0\r\n\r\n" + HIDDEN),
    "chunk size beyond 64 bits": ((CHUNKED,), b"10000000000000002\r\n{}\r\n0\r\n\r\n" + HIDDEN),
    "chunk size with a space": ((CHUNKED,), b"2 \r\n{}\r\n0\r\n\r\n" + HIDDEN),
    "chunk without size": ((CHUNKED,), b"\r\n{}\r\n0\r\n\r\n" + HIDDEN),
    "chunk longer than its size": ((CHUNKED,), b"2\r\n{}{}\r\n0\r\n\r\n" + HIDDEN),
    "chunk extension with a bare line feed": ((CHUNKED,), b"2;a\n{}\r\n0\r\n\r\n" + HIDDEN),
    "chunk that ends with a bare line feed": ((CHUNKED,), b"2\r\n{}\n0\r\n\r\n" + HIDDEN),
    "two hosts": (("Host: kiosk", "Host: other"), HIDDEN),
    "another protocol": (("Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABk"), HIDDEN),
    "websocket": (("Upgrade: websocket", "Connection: Upgrade"), HIDDEN),
}


@pytest.mark.parametrize("name", SMUGGLED)
@pytest.mark.parametrize("is_split", [False, True])
def test_an_ambiguous_request_is_refused_and_nothing_behind_it_is_read(
    served: Served, name: str, is_split: bool
) -> None:
    fields, rest = SMUGGLED[name]
    head = request(served, "POST", f"{PATH}/intents", *fields)
    before = size(served)
    answers = exchanged(served, head, rest) if is_split else exchanged(served, head + rest)
    assert len(answers) == 1, answers
    assert answers[0].status in (400, 413)
    assert answers[0].is_problem
    assert answers[0].headers["connection"] == "close"
    assert size(served) == before


def test_chunks_in_any_pieces_are_one_body(served: Served) -> None:
    pieces = [b"%x;name=value\r\n%s\r\n" % (len(part), part) for part in (BODY[:1], BODY[1:30], BODY[30:])]
    head = request(served, "POST", f"{PATH}/intents", CHUNKED, "Content-Type: application/json", "Connection: close")
    whole = head + b"".join(pieces) + b"0\r\nX-End: yes\r\n\r\n"
    [answer] = exchanged(served, whole)
    assert (answer.status, answer.json["status"]) == (200, "completed")
    [answer] = exchanged(served, *(whole[place : place + 1] for place in range(len(whole))))
    assert answer.status == 200


@pytest.mark.parametrize(
    ("target", "fields"),
    [
        (PATH, (f"X-Long: {'a' * MAX_HEAD_BYTES}",)),
        (PATH, tuple(f"X-{number}: {'a' * 100}" for number in range(MAX_HEAD_BYTES // 100))),
        (f"{PATH}/worlds/HEAD/state?path={'a' * MAX_HEAD_BYTES}", ()),
        (f"/{'a' * MAX_HEAD_BYTES}", ()),
    ],
)
def test_a_head_over_the_limit_is_refused(served: Served, target: str, fields: tuple[str, ...]) -> None:
    data = request(served, "GET", target, *fields)
    for parts in ([data], [data[place : place + 1_000] for place in range(0, len(data), 1_000)]):
        [answer] = exchanged(served, *parts)
        assert (answer.status, answer.json["code"]) == (431, "REQUEST_HEAD_TOO_LARGE")
    unended = data.rpartition(b"\r\n\r\n")[0][: MAX_HEAD_BYTES + 300]  # the head never ends
    [answer] = exchanged(served, unended)
    assert answer.status == 431


def test_a_head_below_the_limit_is_read(served: Served) -> None:
    [answer] = exchanged(
        served, request(served, "GET", PATH, f"X-Long: {'a' * (MAX_HEAD_BYTES - 1_000)}", "Connection: close")
    )
    assert answer.status == 200


@pytest.mark.parametrize(
    "version", ["HTTP/0.9", "HTTP/2.0", "HTTP/1.2", "HTTP/9.9", "HTTP/1", "http/1.1", "ICE/1.0", ""]
)
def test_other_versions_are_refused(served: Served, version: str) -> None:
    line = f"GET {PATH} {version}".rstrip()
    data = request(served, "GET", PATH).replace(f"GET {PATH} HTTP/1.1".encode(), line.encode(), 1)
    [answer] = exchanged(served, data)
    assert (answer.status, answer.is_problem) == (400, True)


def test_http_1_0_gets_one_answer_and_no_stream(served: Served) -> None:
    read = request(served, "GET", PATH).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    [answer] = exchanged(served, read + read)
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    without_host = read.replace(b"Host: kiosk\r\n", b"")
    assert exchanged(served, without_host)[0].status == 403  # the server has names, and this request none
    stream = request(served, "GET", f"{PATH}/log/stream").replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    [answer] = exchanged(served, stream)
    assert (answer.status, answer.is_problem) == (400, True)
    chunked = request(served, "POST", f"{PATH}/intents", CHUNKED).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    [answer] = exchanged(served, chunked + b"0\r\n\r\n" + HIDDEN)
    assert (answer.status, answer.is_problem) == (400, True)


def test_a_request_without_host_is_refused(served: Served) -> None:
    data = request(served, "GET", PATH).replace(b"Host: kiosk\r\n", b"")
    [answer] = exchanged(served, data)
    assert (answer.status, answer.is_problem) == (400, True)


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND", "PURGE", "QUERY"])
@pytest.mark.parametrize("path", [PATH, f"{PATH}/intents", "/healthz"])
def test_another_method_is_a_problem_that_names_the_allowed_one(served: Served, method: str, path: str) -> None:
    with connected(served) as connection, connection.makefile("rb") as stream:
        for _ in range(2):  # the connection remains usable
            connection.sendall(request(served, method, path))
            answer = read_answer(stream, is_head=method == "HEAD")
            assert answer is not None
            assert answer.status == 405
            assert answer.headers["allow"] == ("POST" if path.endswith("intents") else "GET")
            assert method == "HEAD" or answer.json["code"] == "METHOD_NOT_ALLOWED"


@pytest.mark.parametrize("method", ["FROB", "get", "GE T", "G\x00T", "CONNECT", "PRI", "É"])
def test_an_unknown_method_is_refused(served: Served, method: str) -> None:
    [answer] = exchanged(served, request(served, method, PATH))
    assert (answer.status, answer.is_problem) == (400, True)


@pytest.mark.parametrize(
    "target",
    [
        "*", "", "v1/realms", "kiosk:80", f"{PATH}/worlds/%", f"{PATH}/worlds/%2", f"{PATH}/worlds/%zz",
        f"{PATH}/worlds/%2e%2e/%2e%2e/etc/passwd", f"{PATH}/worlds/..%2f..%2fetc%2fpasswd", f"{PATH}/worlds/%00",
        f"{PATH}/worlds/%c0%ae%c0%ae%2f", f"{PATH}/worlds/%ff%fe", f"{PATH}/worlds/%252e%252e%252f", f"{PATH}//worlds",
        f"{PATH}/worlds/", f"{PATH};a=b", f"{PATH}/worlds/a%0d%0aSet-Cookie:x", "/v1/realms/main%00", "/v1/realms/MAIN",
        "/v1/realms/%6dain/../main", "/realms/main/", "/realms/main/log/", "/realms", "/realms/",
        "/v1/realms/m%61in%2f", f"/{PATH}", f"{PATH}?a=%ff&b=%00&%zz",
        f"{PATH}/worlds/HEAD/state?path=%ff", f"{PATH}/worlds/HEAD/state?path=%f0%9f%98%80",
        f"{PATH}/log?after=%31%30%30a",
        f"{PATH}/log?after=1e9", f"{PATH}/log?after=٣", f"{PATH}/log?after=1&after=x", f"{PATH}/log?limit=1;after=0",
        f"{PATH}/receipts/%30", f"{PATH}/receipts/1%20", f"{PATH}/receipts/0x1", f"{PATH}#fragment", "/v1/errors/%2e",
        f"http://evil.example{PATH}/worlds/none", f"//evil.example{PATH}",
    ],
)  # fmt: skip
def test_a_strange_target_is_no_fault_and_no_redirect(served: Served, target: str) -> None:
    data = request(served, "GET", "TARGET", "Connection: close").replace(b"TARGET", target.encode(), 1)
    [answer] = exchanged(served, data)
    assert answer.status in (200, 400, 404), answer
    assert answer.is_problem or answer.status == 200 or target.startswith("/realms/")
    assert "location" not in answer.headers
    assert "set-cookie" not in answer.headers


def test_pipelined_requests_are_answered_in_order(served: Served) -> None:
    orders = [ORDER | {"input": {"item": f"tea-{number}", "number": "pipe"}} for number in range(20)]
    data = b"".join(
        request(served, "POST", f"{PATH}/intents", f"Idempotency-Key: pipe-{number}", body=json.dumps(one).encode())
        + request(served, "GET", f"{PATH}/worlds/HEAD/state?path=orders.pipe")
        for number, one in enumerate(orders)
    )
    with connected(served) as connection, connection.makefile("rb") as stream:
        connection.sendall(data)
        for number in range(20):
            submitted, read = read_answer(stream), read_answer(stream)
            assert submitted is not None
            assert read is not None
            assert submitted.json["intent"]["body"]["input"]["item"] == f"tea-{number}"
            assert read.json["value"] == f"tea-{number}"


def test_many_pipelined_requests_in_any_pieces_are_all_answered(served: Served) -> None:
    data = request(served, "GET", "/healthz", f"X-Long: {'a' * 1_000}") * 200  # beyond the limit of one head in all
    for size_of_piece in (len(data), 100_003, 7_919):
        with connected(served) as connection, connection.makefile("rb") as stream:
            for place in range(0, len(data), size_of_piece):
                connection.sendall(data[place : place + size_of_piece])
            assert [answer.status for _ in range(200) if (answer := read_answer(stream)) is not None] == [200] * 200


def test_nonsense_behind_a_request_does_not_change_its_answer(served: Served) -> None:
    before = size(served)
    submit = request(served, "POST", f"{PATH}/intents", "Idempotency-Key: first-1", body=BODY)
    [answer] = exchanged(served, submit + b"\x00nonsense\r\n\r\n")
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    assert size(served) > before
    [again] = exchanged(served, submit.replace(b"Host:", b"Connection: close\r\nHost:"))
    assert again.json["proposalId"] == answer.json["proposalId"]


def test_a_refused_body_ends_the_connection_before_the_next_request(served: Served) -> None:
    large = b"{" + b" " * 200_000 + b"}"
    answers = exchanged(served, request(served, "POST", f"{PATH}/intents", body=large) + HIDDEN)
    assert [one.status for one in answers] == [413]
    assert answers[0].headers["connection"] == "close"


def test_expect_continue_is_answered_before_the_body(served: Served) -> None:
    head = request(served, "POST", f"{PATH}/intents", "Expect: 100-continue", f"Content-Length: {len(BODY)}",
                   "Content-Type: application/json")  # fmt: skip
    with connected(served) as connection, connection.makefile("rb") as stream:
        connection.sendall(head)
        assert stream.readline() == b"HTTP/1.1 100 Continue\r\n"
        assert stream.readline() == b"\r\n"
        connection.sendall(BODY)
        answer = read_answer(stream)
        assert answer is not None
        assert answer.status == 200
