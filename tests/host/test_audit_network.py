"""In-process interception of connections: by address, by name, and by what an HTTP request does."""

from __future__ import annotations

import asyncio
import http.client
import http.server
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.host.intercepting import Site, blocked
from tests.support.patience import PATIENCE_S


class Server:
    """A server on the loopback interface that remembers what reached it."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        told = self.requests

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                told.append(f"{self.command} {self.path}")
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            do_GET = do_POST = do_DELETE = answer  # noqa: N815 # the library's names

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site(tmp_path)
    monkeypatch.chdir(made.root)
    return made


def by_socket(port: int) -> None:
    with socket.socket() as client:
        client.connect(("127.0.0.1", port))


def by_datagram(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram:
        datagram.sendto(b"x", ("127.0.0.1", port))


def by_message(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram:
        datagram.sendmsg([b"x"], [], 0, ("127.0.0.1", port))


def by_http_client(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("GET", "/")


def by_urlopen(port: int) -> None:
    urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE_S).close()


def by_loop(port: int) -> None:
    asyncio.run(asyncio.open_connection("127.0.0.1", port))


def by_disguise(port: int) -> None:
    class Disguised(socket.socket):
        family = socket.AF_UNIX

    with Disguised(socket.AF_INET, socket.SOCK_STREAM) as disguised:
        disguised.connect(("127.0.0.1", port))


@pytest.mark.requirement("KO-2.1", "KO-3")
@pytest.mark.parametrize(
    "way",
    [by_socket, by_datagram, by_message, by_http_client, by_urlopen, by_loop, by_disguise],
    ids=lambda way: way.__name__,
)
@pytest.mark.slow
def test_a_connection_that_was_not_declared_is_not_made(site: Site, server: Server, way: Callable[[int], None]) -> None:
    with blocked(f"127.0.0.1:{server.port}"), site.session("CONSUMES URL:http://127.0.0.1:1/*", "MUTATES /*"):
        way(server.port)
    assert server.requests == []


@pytest.mark.requirement("KO-2.1")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_requests_are_told_by_what_they_do(site: Site, server: Server, host: str) -> None:
    place = f"http://{host}:{server.port}"
    with site.session(f"CONSUMES URL:{place}/read/*", f"MUTATES URL:{place}/write"):
        with urllib.request.urlopen(f"{place}/read/1", timeout=PATIENCE_S) as answer:
            assert answer.read() == b"ok"
        connection = http.client.HTTPConnection(host, server.port, timeout=PATIENCE_S)
        connection.request("POST", "/write", body=b"x")
        assert connection.getresponse().read() == b"ok"
        connection.close()
        with blocked(f"Agent attempted MUTATES on URL:{place}/read/1 but only declared CONSUMES"):
            urllib.request.urlopen(f"{place}/read/1", data=b"x", timeout=PATIENCE_S)
    assert server.requests == ["GET /read/1", "POST /write"]
    assert {f"CONSUMES URL:{place}/read/1", f"MUTATES URL:{place}/write"} <= site.observed()


@pytest.mark.requirement("KO-3")
def test_another_method_than_the_declared_one_is_not_sent(site: Site, server: Server) -> None:
    place = f"http://127.0.0.1:{server.port}"
    with blocked(f"DELETES on URL:{place}/thing"), site.session(f"CONSUMES URL:{place}/*"):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
        try:
            connection.request("DELETE", "/thing")
        finally:
            connection.close()
    assert server.requests == []


def test_an_address_is_known_by_the_name_that_led_to_it(site: Site, server: Server) -> None:
    with site.session(f"CONSUMES URL:http://localhost:{server.port}/*"):
        addresses = socket.getaddrinfo("localhost", server.port, socket.AF_INET, socket.SOCK_STREAM)
        socket.create_connection(addresses[0][4][:2], 10).close()  # type: ignore[arg-type]
        assert socket.gethostbyname("localhost") == "127.0.0.1"

        async def connect() -> None:
            _, writer = await asyncio.open_connection("localhost", server.port, family=socket.AF_INET)
            writer.close()
            await writer.wait_closed()

        asyncio.run(connect())
    assert not site.watch.is_over


@pytest.mark.requirement("KO-3")
def test_listening_is_stopped_too(site: Site) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with socket.socket() as listening, blocked(f"PROVIDES on URL:tcp://127.0.0.1:{port}"), site.session():
        listening.bind(("127.0.0.1", port))


@pytest.mark.requirement("KO-3")
def test_local_sockets_are_files(site: Site) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        with blocked("PROVIDES on /socket"), site.session():
            listening.bind("socket")
        assert not Path("socket").exists()
        with site.session("PROVIDES /socket"):
            listening.bind("socket")
        listening.listen()
        with socket.socket(socket.AF_UNIX) as client, blocked("MUTATES on /socket"), site.session():
            client.connect("socket")
        with socket.socket(socket.AF_UNIX) as client, blocked("abstract socket"), site.session("MUTATES /*"):
            client.connect(b"\0engine")
        with site.session():
            one, other = socket.socketpair()
            one.send(b"x")
            assert other.recv(1) == b"x"
            one.close()
            other.close()


def test_sockets_of_other_families_are_refused(site: Site) -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) as netlink:
        with blocked("address family"), site.session("MUTATES /*"):
            netlink.bind((0, 0))
        netlink.bind((0, 0))


def test_calls_that_fail_by_themselves_fail_as_they_always_do(site: Site) -> None:
    with site.session(), socket.socket() as client, pytest.raises(TypeError):
        client.connect("no address")
