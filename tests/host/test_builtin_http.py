"""Built-in HTTP effects against a real server on the loopback interface."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from host import EffectFailure
from tests.host.effect_calls import HANDLERS, make
from tests.support.patience import PATIENCE_S
from tests.support.tables import for_each
from world.errors import RefusedError


class Server:
    """A server that notes what it is asked and answers by path."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.released = threading.Event()
        served = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *given: Any) -> None:
                """Keep quiet."""

            def __getattr__(self, name: str) -> Any:
                if name.startswith("do_"):
                    return lambda: served.answer(self)
                raise AttributeError(name)

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=lambda: self.http.serve_forever(0.02), daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.released.set()
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()

    def answer(self, asked: BaseHTTPRequestHandler) -> None:
        body = asked.rfile.read(int(asked.headers.get("content-length", 0)))
        self.seen.append((asked.command, asked.path, {k.lower(): v for k, v in asked.headers.items()}, body))
        _, name, *rest = asked.path.partition("?")[0].split("/")
        getattr(self, f"answer_{name}")(asked, *rest)

    def give(self, asked: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
        asked.send_response(status)
        asked.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            asked.send_header(name.replace("_", "-"), value)
        asked.end_headers()
        if asked.command != "HEAD":
            asked.wfile.write(body)

    def answer_echo(self, asked: Any) -> None:
        self.give(
            asked, 200, b'{"b": 1, "a": [true]}', Content_Type="application/json; charset=utf-8", Set_Cookie="s=1"
        )

    def answer_text(self, asked: Any) -> None:
        self.give(asked, 200, "täglich".encode(), Content_Type="text/plain")

    def answer_bytes(self, asked: Any) -> None:
        self.give(asked, 200, b"\xff\x00", Content_Type="application/json")

    def answer_status(self, asked: Any, status: str) -> None:
        self.give(asked, int(status), b"because", Retry_After="7")

    def answer_size(self, asked: Any, size: str) -> None:
        self.give(asked, 200, b"x" * int(size))

    def answer_to(self, asked: Any, *rest: str) -> None:
        self.give(asked, int(rest[0]), Location="/" + "/".join(rest[1:]))

    def answer_away(self, asked: Any) -> None:
        self.give(asked, 302, Location=f"http://localhost:{self.http.server_port}/echo")

    def answer_round(self, asked: Any) -> None:
        self.give(asked, 302, Location="/round")

    def answer_hang(self, asked: Any) -> None:
        self.released.wait(PATIENCE_S)

    def answer_drip(self, asked: Any) -> None:
        asked.send_response(200)
        asked.send_header("Content-Length", "100000")
        asked.end_headers()
        try:
            while not self.released.wait(0.02):
                asked.wfile.write(b"x")
        except OSError:
            asked.close_connection = True

    def answer_drop(self, asked: Any) -> None:
        asked.close_connection = True
        asked.connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def failed(answer: Any) -> EffectFailure:
    assert isinstance(answer, EffectFailure), answer
    return answer


def get(server: Server, path: str, **params: Any) -> Any:
    return make("http.get", {"url": server.url + path, **params})


def test_a_request_carries_the_idempotency_key_and_json_comes_back_as_json(server: Server) -> None:
    told = make(
        "http.post", {"url": f"{server.url}/echo?x=1", "json": {"ä": None}, "headers": {"X-Token": "t"}}, key="k:1"
    )
    ((method, path, headers, body),) = server.seen
    assert (method, path, json.loads(body)) == ("POST", "/echo?x=1", {"ä": None})
    assert headers["idempotency-key"] == "k:1"
    assert headers["x-token"] == "t"
    assert headers["content-type"] == "application/json"
    assert headers["accept-encoding"] == "identity"
    assert (told["status"], told["json"]) == (200, {"a": [True], "b": 1})
    assert "set-cookie" not in told["headers"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST", "PATCH"])
def test_every_method_reaches_the_server(server: Server, method: str) -> None:
    told = make("http.request", {"method": method, "url": f"{server.url}/text"})
    assert server.seen[0][0] == method
    assert told.get("text") == (None if method == "HEAD" else "täglich")


def test_a_body_is_json_or_text_or_bytes(server: Server) -> None:
    for body in ({"json": None}, {"json": [1]}, {"text": "ä"}, {"base64": base64.b64encode(b"\xff").decode()}, {}):
        make("http.post", {"url": f"{server.url}/text", **body})
    assert [body for _, _, _, body in server.seen] == [b"null", b"[1]", "ä".encode(), b"\xff", b""]
    assert "content-type" not in server.seen[-1][2]


def test_what_is_no_text_comes_back_as_base64(server: Server) -> None:
    told = get(server, "/bytes")
    assert base64.b64decode(told["base64"]) == b"\xff\x00"
    assert (told["size"], told["sha256"]) == (2, hashlib.sha256(b"\xff\x00").hexdigest())


@pytest.mark.parametrize("size", [1024 * 1024 - 10, 1024 * 1024 + 1, 3_000_000])
def test_what_fits_into_no_result_is_told_by_size_and_hash(server: Server, size: int) -> None:
    assert "text" in get(server, "/size/1000000")
    answer = failed(get(server, f"/size/{size}"))
    assert answer.code == "EFFECT_RESULT_TOO_LARGE"
    assert answer.context == {"status": 200, "size": size, "sha256": hashlib.sha256(b"x" * size).hexdigest()}


@pytest.mark.parametrize(
    ("effect", "status", "retryable"),
    [
        ("http.get", 404, False),
        ("http.get", 500, False),
        ("http.get", 429, True),
        ("http.get", 502, True),
        ("http.get", 503, True),
        ("http.get", 504, True),
        ("http.post", 429, True),
        ("http.post", 503, True),
        ("http.post", 502, False),  # what is behind may have done it
    ],
)
def test_another_status_than_expected_is_a_failure_that_may_be_worth_a_retry(
    server: Server, effect: str, status: int, retryable: bool
) -> None:
    url = f"{server.url}/status/{status}"
    answer = failed(make(effect, {"url": url}))
    assert (answer.code, answer.retryable) == ("HTTP_STATUS", retryable)
    assert answer.context is not None
    assert (answer.context["status"], answer.context["body"]) == (status, "because")
    assert answer.context["retryAfter"] == "7"
    assert make(effect, {"url": url, "expect": [200, status]})["status"] == status


def test_redirects_are_followed_within_the_same_origin_only(server: Server) -> None:
    told = get(server, "/to/302/to/307/echo")
    assert told["status"] == 200
    assert told["url"] == f"{server.url}/echo"
    assert failed(get(server, "/away")).code == "HTTP_STATUS"
    away = get(server, "/away", expect=[302])
    assert away["headers"]["location"].startswith("http://localhost:")
    assert failed(get(server, "/round")).code == "HTTP_TOO_MANY_REDIRECTS"
    assert [path for _, path, _, _ in server.seen].count("/round") == 6


def test_a_redirected_request_keeps_or_changes_its_method_as_the_standard_says(server: Server) -> None:
    make("http.post", {"url": f"{server.url}/to/307/text", "text": "a"})
    make("http.post", {"url": f"{server.url}/to/303/text", "text": "a"})
    assert [(method, body) for method, path, _, body in server.seen if path == "/text"] == [
        ("POST", b"a"),
        ("GET", b""),
    ]


@pytest.mark.parametrize("path", ["/hang", "/drip"])
@pytest.mark.slow
def test_the_time_limit_is_for_all_of_it_however_slowly_a_server_drips(server: Server, path: str) -> None:
    answer = failed(get(server, path, timeoutMs=300))  # the server itself would go on for many minutes
    assert (answer.code, answer.retryable) == ("HTTP_TIMED_OUT", True)
    posted = failed(make("http.post", {"url": server.url + path, "timeoutMs": 300}))
    assert (posted.code, posted.retryable) == ("HTTP_TIMED_OUT", False)
    keyed = failed(make("http.post", {"url": server.url + path, "timeoutMs": 300, "idempotent": True}))
    assert keyed.retryable


@pytest.mark.parametrize("path", ["/hang", "/drip"])
def test_a_cancelled_request_is_cut_off(server: Server, path: str) -> None:
    answer = failed(make("http.get", {"url": server.url + path}, is_cancelled=lambda: bool(server.seen)))
    assert answer.code == "EFFECT_CANCELLED"


def test_nothing_is_sent_when_the_leases_were_lost_or_nobody_waits(server: Server) -> None:
    def lost() -> None:
        raise RefusedError("LEASE_LOST", "gone")

    with pytest.raises(RefusedError, match="gone"):
        make("http.get", {"url": f"{server.url}/echo"}, check=lost)
    assert failed(make("http.get", {"url": f"{server.url}/echo"}, is_cancelled=lambda: True)).code == "EFFECT_CANCELLED"
    assert server.seen == []


def test_a_connection_that_fails_may_be_tried_again_and_one_that_breaks_only_where_that_does_no_harm(
    server: Server,
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        refused = failed(make("http.post", {"url": f"http://127.0.0.1:{free.getsockname()[1]}/"}))
    assert (refused.code, refused.retryable) == ("HTTP_CONNECT_FAILED", True)
    assert failed(make("http.get", {"url": "http://no-such-host.invalid/"})).code == "HTTP_CONNECT_FAILED"
    broken = failed(get(server, "/drop"))
    assert (broken.code, broken.retryable) == ("HTTP_BROKEN_OFF", True)
    assert not failed(make("http.post", {"url": f"{server.url}/drop"})).retryable


def test_a_connection_without_trusted_encryption_is_no_connection(server: Server) -> None:
    answer = failed(make("http.get", {"url": server.url.replace("http:", "https:") + "/echo"}))
    assert (answer.code, answer.retryable) == ("HTTP_TLS_FAILED", False)
    assert server.seen == []


def test_the_environment_sends_nobody_elsewhere(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert get(server, "/echo")["status"] == 200


@for_each(
    ("params", "path"),
    [
        ({}, "$.url"),
        ({"url": "ftp://host/"}, "$.url"),
        ({"url": "/relative"}, "$.url"),
        ({"url": "http://"}, "$.url"),
        ({"url": "http://h/%zz"}, "$.url"),
        ({"url": "http://h/", "headers": {"a b": "c"}}, "$.headers.a b.[key]"),
        ({"url": "http://h/", "headers": {"a": "b\r\nc: d"}}, "$.headers.a"),
        ({"url": "http://h/", "headers": {"a": "ä"}}, "$.headers.a"),
        ({"url": "http://h/", "headers": {"Host": "other"}}, "$.headers"),
        ({"url": "http://h/", "timeoutMs": 0}, "$.timeoutMs"),
        ({"url": "http://h/", "json": 1, "text": ""}, "$"),
        ({"url": "http://h/", "base64": "%"}, "$"),
        ({"url": "http://h/", "expect": [99]}, "$.expect[0]"),
        ({"url": "http://h/", "method": "GET"}, "$.method"),
    ],
)
def test_wrong_parameters_are_named_and_nothing_is_sent(params: dict[str, Any], path: str) -> None:
    answer = failed(make("http.post", params))
    assert answer.code == "EFFECT_INVALID_INPUT"
    assert answer.context is not None
    assert path in [fault["path"] for fault in answer.context["faults"]]


@pytest.mark.requirement("KO-2.1")
@pytest.mark.parametrize(
    ("method", "predicate"),
    [
        ("GET", "CONSUMES"),
        ("HEAD", "CONSUMES"),
        ("OPTIONS", "CONSUMES"),
        ("POST", "MUTATES"),
        ("PUT", "MUTATES"),
        ("PATCH", "MUTATES"),
        ("DELETE", "DELETES"),
    ],
)
def test_a_request_tells_what_it_touches_by_its_method(method: str, predicate: str) -> None:
    params = {"method": method, "url": "HTTPS://API.example:443/a/../b/*?q=*#f"}
    assert HANDLERS["http.request"].triples(params) == [(predicate, "URL:https://api.example/b/%2A?q=%2A")]


@pytest.mark.requirement("HC-journal")
def test_a_request_may_be_repeated_where_its_method_or_its_sender_says_so() -> None:
    def terms(effect: str, **params: Any) -> Any:
        return HANDLERS[effect].terms_for({"url": "http://h/", "timeoutMs": 1_000, **params})

    for method in ("GET", "HEAD", "OPTIONS", "PUT", "DELETE"):
        assert terms("http.request", method=method).idempotent
    for method in ("POST", "PATCH"):
        assert not terms("http.request", method=method).idempotent
        assert terms("http.request", method=method, idempotent=True).idempotent
    assert terms("http.get").idempotent
    assert not terms("http.post").idempotent
    assert terms("http.post").time_limit_ms > 1_000
    assert not HANDLERS["http.request"].terms_for({"method": "GET"}).idempotent  # faulty parameters promise nothing
