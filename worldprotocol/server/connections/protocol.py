"""HTTP/1.1 of uvicorn and httptools, with limits: size and time of a request's head, and time to take an answer.

A connection that is idle, or whose request does not arrive, is closed; one that takes nothing of its answer is aborted.
The body has limits of its own (``worldprotocol.server.limits``).
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from world.error_codes import ErrorCode
from worldprotocol.server.problems import problem

__all__ = ["HEAD_WITHIN_S", "KEEP_ALIVE_S", "MAX_HEAD_BYTES", "TAKEN_WITHIN_S", "HttpConnection"]

HEAD_WITHIN_S: Final = 10.0
"""Time within which the head of a request has to arrive: from the connection for the first one, else from its first
byte, in seconds."""

KEEP_ALIVE_S: Final = 30
"""Time for which a connection may be idle between two requests, in seconds."""

TAKEN_WITHIN_S: Final = 30.0
"""Time within which a client has to take a part of what waits to be sent to it, in seconds."""

LINGER_S: Final = 5.0
"""Time for which the rest of a refused request is read and discarded, in seconds.

A connection that is closed with unread bytes is reset, and the client may lose the answer."""

MAX_HEAD_BYTES: Final = 65_536
"""Size of the head of a request: its target and its header fields."""

_TOO_LARGE: Final = (
    ErrorCode.REQUEST_HEAD_TOO_LARGE,
    f"The head of the request has more than {MAX_HEAD_BYTES} bytes; send fewer or shorter fields.",
)
_UCRED: Final = struct.Struct("3i")


class _RefusedHeadError(Exception):
    """The head of a request is not accepted; httptools reports it as a fault of the request."""


class HttpConnection(HttpToolsProtocol):
    """A connection with limits, which notes the user of a Unix socket's peer."""

    _head_bytes = 0
    _is_in_head = False
    _has_begun = False
    _refusal: tuple[ErrorCode, str] | None = None
    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _unsent = 0
    _is_ended = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, with the time limit of the first head."""
        connection = transport.get_extra_info("socket")
        if connection.family == socket.AF_UNIX:
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
            self.app_state = {**self.app_state, "peer_uid": _UCRED.unpack(credentials)[1]}
        super().connection_made(transport)
        self._limit_head(HEAD_WITHIN_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """End, with the timers."""
        self._limit_head(None)
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        super().connection_lost(exc)

    # The head of a request

    def data_received(self, data: bytes) -> None:
        """Parse what arrived; a head that grows beyond its limit without an end is refused."""
        if self._is_ended:
            return
        before, self._has_begun = self._head_bytes, False
        super().data_received(data)
        if self._is_in_head and not self._has_begun and not self._is_ended:
            self._head_bytes = before + len(data)  # with the field that is not complete
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refusal = _TOO_LARGE
                self.send_400_response("")

    def on_message_begin(self) -> None:
        """Begin a head."""
        self._head_bytes, self._is_in_head, self._has_begun = 0, True, True
        self._limit_head(HEAD_WITHIN_S)
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take a part of the target."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header field."""
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the request."""
        self._head_bytes, self._is_in_head = 0, False
        self._limit_head(None)
        version, names = self.parser.get_http_version(), [name for name, _ in self.headers]
        if version not in {"1.0", "1.1"}:
            self._refuse(f"The version HTTP/{version} is not supported; send HTTP/1.1.")
        if self.parser.should_upgrade():
            self._refuse("This server does not switch protocols; leave the field Upgrade out.")
        if names.count(b"host") > 1 or (version == "1.1" and b"host" not in names):
            self._refuse("The request has to have exactly one field Host.")
        if version == "1.0" and b"transfer-encoding" in names:
            self._refuse("HTTP/1.0 has no field Transfer-Encoding; send HTTP/1.1, or Content-Length.")
        super().on_headers_complete()
        self.cycle.transport = _Ending(self)  # type: ignore[assignment]  # has what a cycle calls

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refusal = _TOO_LARGE
            raise _RefusedHeadError

    def _refuse(self, words: str) -> None:
        self._refusal = ErrorCode.INVALID_VALUE, words
        raise _RefusedHeadError

    def _limit_head(self, seconds: float | None) -> None:
        """Close the connection unless a head arrives in time; None ends the limit."""
        if self._head_timer is not None:
            self._head_timer.cancel()
        self._head_timer = None if seconds is None else self.loop.call_later(seconds, self._end_late)

    def _end_late(self) -> None:
        """Close the connection, unless an earlier request is being answered, for which reading may be paused."""
        if self.cycle is not None and not self.cycle.response_complete and not self._is_ended:
            self._limit_head(HEAD_WITHIN_S)
        else:
            self._close()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that cannot be read as a problem, and close the connection.

        Where earlier requests are being answered, the answer to the last of them ends the connection instead.
        """
        self._is_in_head = False
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if not self.pipeline and not cycle.more_body:
                cycle.keep_alive = False
                return
            is_mixed = bool(self.pipeline) or cycle.response_started
            cycle.disconnected = True
            cycle.message_event.set()
            if is_mixed:
                self._close()
                return
        code, words = self._refusal or (ErrorCode.INVALID_VALUE, "The request is not valid HTTP/1.1.")
        answer = problem(code, words)
        lines = [STATUS_LINE[answer.status_code]]
        for name, value in (*answer.raw_headers, (b"connection", b"close")):
            lines += [name, b": ", value, b"\r\n"]
        self.transport.write(b"".join([*lines, b"\r\n", bytes(answer.body)]))
        self.end(is_unread=True)

    # Answers

    def on_response_complete(self) -> None:
        """Limit the time in which the answer has to be taken, and that until the next request."""
        if self._is_ended:
            self.pipeline.clear()
        super().on_response_complete()
        if not self.pipeline and not self._is_in_head and not self._is_ended and not self.transport.is_closing():
            self._limit_head(KEEP_ALIVE_S)
        self._limit_writing()

    def pause_writing(self) -> None:
        """Limit the time in which a part has to be taken."""
        super().pause_writing()
        self._limit_writing()

    def _limit_writing(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        if unsent and self._write_timer is None:
            self._unsent = unsent
            self._write_timer = self.loop.call_later(TAKEN_WITHIN_S, self._check_writing)

    def _check_writing(self) -> None:
        """Abort a connection that took nothing since the last check."""
        self._write_timer = None
        if 0 < self._unsent <= self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self._limit_writing()

    def end(self, *, is_unread: bool) -> None:
        """End the connection after what was written.

        Args:
            is_unread: whether a part of the request was not read, which is discarded then.
        """
        self._is_ended = True
        if is_unread and self.transport.can_write_eof():
            self.transport.write_eof()
            self.flow.resume_reading()
            self._limit_head(LINGER_S)
            self._limit_writing()
        else:
            self._close()

    def _close(self) -> None:
        """Close the connection; what was written has to be taken in time."""
        self._is_ended = True
        self.transport.close()
        self._limit_writing()


class _Ending:
    """The transport of one request's cycle, which ends the connection without a reset.

    Args:
        connection: the connection.
    """

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection
        self._cycle = connection.cycle
        self.write = connection.transport.write
        self.is_closing = connection.transport.is_closing

    def close(self) -> None:
        """End the connection."""
        self._connection.end(is_unread=self._cycle.more_body)
