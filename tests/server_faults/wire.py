"""Connections to a server byte by byte: requests that no HTTP library sends, and answers read as they arrive."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import orjson

from tests.server.served import Served
from tests.support.patience import PATIENCE_S


@dataclass(frozen=True)
class Address:
    """Where a server listens.

    Args:
        url: its address.
        tokens: an API token of each actor.
    """

    url: str
    tokens: Mapping[str, str]


@dataclass(frozen=True)
class Answer:
    """An answer of a server.

    Args:
        status: HTTP status.
        headers: header fields by name in lower case.
        body: the decoded body.
    """

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return orjson.loads(self.body)

    @property
    def is_problem(self) -> bool:
        """Whether it is a problem with the code of an error, and with the status of the answer."""
        if self.headers.get("content-type") != "application/problem+json":
            return False
        return self.json["status"] == self.status and bool(self.json["code"])


def read_answer(stream: BinaryIO, *, is_head: bool = False) -> Answer | None:
    """Read one answer; None at the end of the connection.

    Args:
        stream: the bytes.
        is_head: whether it answers a HEAD request, and so has no body.
    """
    line = stream.readline()
    if not line:
        return None
    version, status, _ = line.decode("ascii").split(" ", 2)
    assert version == "HTTP/1.1", line
    headers: dict[str, str] = {}
    while (field := stream.readline()) != b"\r\n":
        assert field.endswith(b"\r\n"), field
        name, _, value = field.decode("latin-1").partition(":")
        assert name.lower() not in headers, f"{name} is there twice"
        headers[name.lower()] = value.strip()
    assert not {"content-length", "transfer-encoding"} <= set(headers)
    if is_head or int(status) in (204, 304):
        return Answer(int(status), headers, b"")
    if headers.get("transfer-encoding") == "chunked":
        return Answer(int(status), headers, b"".join(_chunks(stream)))
    length = int(headers["content-length"])
    body = stream.read(length)
    assert len(body) == length
    return Answer(int(status), headers, body)


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    while size := int(stream.readline(), 16):
        yield stream.read(size)
        assert stream.read(2) == b"\r\n"
    assert stream.readline() == b"\r\n"


@contextmanager
def connected(served: Served | Address, *, receive_bytes: int | None = None) -> Iterator[socket.socket]:
    """Connect to a server.

    Args:
        served: the server.
        receive_bytes: size of the buffer in which the system keeps what is not read yet.
    """
    address = urlsplit(served.url)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_S)
        if receive_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.connect((address.hostname, address.port))
        yield connection


def exchanged(served: Served | Address, *parts: bytes) -> list[Answer]:
    """Send bytes, and return all answers until the server ends the connection.

    Args:
        served: the server.
        *parts: what is sent, each by a call of its own.
    """
    with connected(served) as connection:
        try:
            for part in parts:
                connection.sendall(part)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server has refused it already; the answer is there
        found = []
        with connection.makefile("rb") as stream:
            while (answer := read_answer(stream)) is not None:
                found.append(answer)
        return found


def request(
    served: Served | Address, method: str, target: str, *fields: str, body: bytes = b"", actor: str | None = "all"
) -> bytes:
    """Return a request as bytes; a field replaces the standard one of the same name.

    Args:
        served: the server.
        method: method.
        target: target as it is sent.
        *fields: header fields.
        body: content; its length is stated unless a field states one.
        actor: whose token is sent.
    """
    stated = {field.partition(":")[0].strip().lower() for field in fields}
    lines = [f"{method} {target} HTTP/1.1", *fields]
    if "host" not in stated:
        lines.append("Host: kiosk")
    if actor is not None and "authorization" not in stated:
        tokens = served.tokens if isinstance(served, Address) else served.place.tokens
        lines.append(f"Authorization: Bearer {tokens[actor]}")
    if body and "content-type" not in stated:
        lines.append("Content-Type: application/json")
    if body and not stated & {"content-length", "transfer-encoding"}:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
