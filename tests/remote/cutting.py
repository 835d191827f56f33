"""A proxy before a server that loses answers, answers that the server is busy, and cuts what is open."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

BUSY = (
    b"HTTP/1.1 %d Busy\r\nContent-Type: text/plain\r\nContent-Length: 4\r\nRetry-After: 0\r\n"
    b"Connection: close\r\n\r\nbusy"
)


class Cutter:
    """A proxy; ``losses`` answers to requests with ``wanted`` in their first line are lost, and ``busy`` are refused.

    Args:
        url: the server.
    """

    def __init__(self, url: str) -> None:
        """Listen on a free port."""
        parts = urlsplit(url)
        self._target = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.wanted = b"POST "
        self.losses = 0
        self.busy: list[int] = []
        self.requests: list[bytes] = []
        self.is_endless = False
        self._open: set[socket.socket] = set()
        self._mutex = threading.Lock()
        self._all: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def cut(self) -> None:
        """Cut all connections."""
        with self._mutex:
            ends = list(self._open)
        for one in ends:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Listen no more, and cut all connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()
        for one in self._all:
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._all.append(client)
            server = socket.create_connection(self._target)
            self._all.append(server)
            with self._mutex:
                self._open |= {client, server}
            last: list[bytes] = [b""]
            for source, sink, is_answer in ((client, server, False), (server, client, True)):
                thread = threading.Thread(target=self._pump, args=(source, sink, last, is_answer), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pump(self, source: socket.socket, sink: socket.socket, last: list[bytes], is_answer: bool) -> None:
        try:
            while data := source.recv(65_536):
                if not is_answer and data[:5] in (b"POST ", b"GET /"):
                    last[0] = data.split(b"\r\n", 1)[0]
                    self.requests.append(last[0])
                    if self.wanted in last[0] and self.busy:
                        source.sendall(BUSY % self.busy.pop(0))
                        break
                if is_answer and self.wanted in last[0] and self._loses():
                    break
                sink.sendall(data)
        except OSError:
            pass
        finally:
            with self._mutex:
                self._open -= {source, sink}
            for one in (source, sink):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def _loses(self) -> bool:
        with self._mutex:
            if self.is_endless:
                return True
            self.losses -= 1
            return self.losses >= 0


@contextmanager
def cutting(url: str) -> Iterator[Cutter]:
    """Run a proxy before a server."""
    proxy = Cutter(url)
    try:
        yield proxy
    finally:
        proxy.close()
