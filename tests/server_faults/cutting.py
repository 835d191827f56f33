"""A TCP proxy that cuts the connection at a known byte: of the request, or of the answer, which follows the commit."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from tests.support.patience import PATIENCE_S

ABORT = struct.pack("ii", 1, 0)
"""Value of SO_LINGER with which a closed connection is reset."""


class Cutter:
    """A proxy of one server.

    Args:
        server: address of the server.
    """

    def __init__(self, server: tuple[str, int]) -> None:
        """Listen on a port of its own."""
        self._server = server
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.after = 0
        self.cuts = 0
        self._thread = threading.Thread(target=self._accept, name="cutter")
        self._thread.start()

    def close(self) -> None:
        """Accept no more connections."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            with client, socket.create_connection(self._server, timeout=PATIENCE_S) as server:
                client.settimeout(PATIENCE_S)
                forward = threading.Thread(target=_forward, args=(client, server), name="cutter of one")
                forward.start()
                self._answer(client, server)
                forward.join()

    def _answer(self, client: socket.socket, server: socket.socket) -> None:
        """Forward ``after`` bytes of an answer, and cut both sides once the server has sent more."""
        left = self.after
        while data := server.recv(65_536):
            client.sendall(data[:left])
            if len(data) > left:
                self.cuts += 1
                break
            left -= len(data)
        for one in (client, server):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def _forward(client: socket.socket, server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := client.recv(65_536):
            server.sendall(data)


@contextmanager
def cutting(url: str) -> Iterator[Cutter]:
    """Run a proxy before a server."""
    address = urlsplit(url)
    assert address.hostname is not None
    assert address.port is not None
    cutter = Cutter((address.hostname, address.port))
    try:
        yield cutter
    finally:
        cutter.close()


def abort(connection: socket.socket) -> None:
    """Reset a connection."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
    connection.close()
