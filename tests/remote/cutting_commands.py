"""A TCP proxy that cuts the connection of the first answers about a realm, after they were executed."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit


class Cutting:
    """The proxy.

    Args:
        url: the server behind it.
        cuts: how many answers are cut.
        after: bytes of the answer that are passed on before it is cut.
    """

    def __init__(self, url: str, cuts: int, after: int) -> None:
        self._behind = urlsplit(url)
        self._left = cuts
        self._after = after
        self.cut = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def close(self) -> None:
        """End the proxy."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                self._pass(connection)

    def _pass(self, connection: socket.socket) -> None:
        """Pass requests and answers on, one connection at a time."""
        with socket.create_connection((self._behind.hostname or "", self._behind.port or 0)) as server:
            while request := _message(connection):
                server.sendall(request)
                line = request.partition(b"\r\n")[0]
                if b"/commands" in line:
                    self._until_executed(server, connection)
                else:
                    answer = _message(server)
                    if b"/v1/realms/" not in line:
                        connection.sendall(answer)
                        continue
                    connection.sendall(answer[: self._after] if self._left else answer)
                if self._left:
                    self._left -= 1
                    self.cut += 1
                    return

    def _until_executed(self, server: socket.socket, connection: socket.socket) -> None:
        """Read an answer to its end; pass it on, or its beginning where it is to be cut."""
        answer = b""
        while not answer.endswith(b"0\r\n\r\n") and (piece := server.recv(1 << 20)):
            answer += piece
        connection.sendall(answer[: self._after] if self._left else answer)


def _message(connection: socket.socket) -> bytes:
    """Return one request or answer with its body; empty at the end of the connection."""
    message = b""
    while True:
        head, end, body = message.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        if end and len(body) >= (0 if length is None else int(length[1])):
            return message
        piece = connection.recv(1 << 20)
        if not piece:
            return b""
        message += piece


@contextmanager
def cutting(url: str, *, cuts: int, after: int = 0) -> Iterator[Cutting]:
    """Run a proxy in front of a server."""
    proxy = Cutting(url, cuts, after)
    try:
        yield proxy
    finally:
        proxy.close()
