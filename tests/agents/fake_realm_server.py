"""A server of hooks that a test steers: it answers, holds, cuts or refuses requests, and records them.

It notices when a client closes the connection of a request that it holds.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.support.patience import PATIENCE_S

ALLOW: Final = {
    "hookSpecificOutput": {
        "hookEventName": "PreToolUse",
        "permissionDecision": "allow",
        "permissionDecisionReason": "Allowed.",
    }
}
HELD: Final = b"held"
CUT: Final = b"cut"
LATER: Final = b"later"


@dataclass(frozen=True)
class Asked:
    """A request.

    Args:
        path: of the operation.
        headers: names in lower case.
        body: the content.
    """

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The content, read."""
        return json.loads(self.body)


def http(status: int, body: bytes, *, length: int | None = None) -> bytes:
    """Return an answer."""
    stated = len(body) if length is None else length
    return f"HTTP/1.1 {status} Said\r\nContent-Length: {stated}\r\n\r\n".encode() + body


@dataclass
class FakeServer:
    """What a server does, and what it was sent.

    Args:
        address: where it listens.
        answer: what it sends to hooks; ``HELD`` waits until the client leaves, ``CUT`` closes the connection.
        session_answer: what it sends to operations on sessions; ``LATER`` waits until the server is free.
        cuts: how many more connections are closed in place of an answer.
        tls: how connections are secured; None is not at all.
    """

    address: str
    answer: bytes = http(200, json.dumps(ALLOW).encode())
    session_answer: bytes = http(200, b"{}")
    cuts: int = 0
    asked: list[Asked] = field(default_factory=list)
    left: int = 0
    tls: ssl.SSLContext | None = None
    is_free: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def of(self, end: str) -> list[Asked]:
        """Return the requests whose path has this end."""
        return [one for one in self.asked if one.path.endswith(end)]

    def wait_for(self, is_so: Any) -> None:
        """Wait until something holds."""
        with self._changed:
            assert self._changed.wait_for(is_so, PATIENCE_S), self.asked

    def free(self) -> None:
        """Answer what waits."""
        with self._changed:
            self.is_free = True
            self._changed.notify_all()

    def serve(self, plain: socket.socket) -> None:
        """Take one request."""
        try:
            connection = plain if self.tls is None else self.tls.wrap_socket(plain, server_side=True)
        except OSError:
            plain.close()
            return
        with connection, suppress(OSError):  # a client may leave at any time
            received = b""
            while b"\r\n\r\n" not in received and (piece := connection.recv(65_536)):
                received += piece
            head, _, body = received.partition(b"\r\n\r\n")
            if not head:
                return
            first, *lines = head.decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            while len(body) < int(headers["content-length"]) and (piece := connection.recv(65_536)):
                body += piece
            asked = Asked(first.split()[1], headers, body)
            answer = self.answer if "/hooks/" in asked.path else self.session_answer
            with self._changed:
                self.asked.append(asked)
                if self.cuts > 0:
                    self.cuts, answer = self.cuts - 1, CUT
                self._changed.notify_all()
            if answer == LATER:
                with self._changed:
                    assert self._changed.wait_for(lambda: self.is_free, PATIENCE_S)
                connection.sendall(http(200, b"{}"))
            elif answer == HELD:
                self._hold(connection)
            elif answer != CUT:
                connection.sendall(answer)

    def _hold(self, connection: socket.socket) -> None:
        try:
            while connection.recv(1):
                pass
        except ConnectionError:
            pass
        with self._changed:
            self.left += 1
            self._changed.notify_all()


@contextmanager
def fake_server(path: Path | None, tls: ssl.SSLContext | None = None) -> Iterator[FakeServer]:
    """Listen on a Unix socket, or on TCP without a path, and serve until the block ends."""
    threads: list[threading.Thread] = []
    with socket.socket(socket.AF_INET if path is None else socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(("127.0.0.1", 0) if path is None else str(path))
        listening.listen(64)
        scheme = "http" if tls is None else "https"
        place = f"{scheme}://127.0.0.1:{listening.getsockname()[1]}" if path is None else f"unix:{path}"
        server = FakeServer(place, tls=tls)

        def accept() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                threads.append(threading.Thread(target=server.serve, args=(connection,), daemon=True))
                threads[-1].start()

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        yield server
        listening.shutdown(socket.SHUT_RDWR)
        accepting.join(PATIENCE_S)
    end = time.monotonic() + PATIENCE_S
    for one in threads:
        one.join(max(0.0, end - time.monotonic()))
