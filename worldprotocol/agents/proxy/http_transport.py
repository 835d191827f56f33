"""HTTP transport to an upstream: limits the size of answers, refuses compressed ones, and isolates failed requests.

The transport of the SDK has no limit for bodies, ends the connection of all requests when one body is cut off, and
sends nothing else until a notification is answered. It states the same error for an answer that cannot be used as for
one that is cut off: what takes the place of the former is put into the body here (``unusable_messages``).
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Final

import httpx2
from mcp_types import INTERNAL_ERROR, JSONRPCMessage

from worldprotocol.agents.proxy.upstream_process import MAX_LINE_BYTES
from worldprotocol.agents.unusable_messages import Unusable, in_place_of, read_message

__all__ = ["MAX_BODY_BYTES", "LimitedTransport"]

MAX_BODY_BYTES: Final = MAX_LINE_BYTES
"""Longest body, and longest event of a stream; what is longer is cut off, so that it is no answer."""

RECEIPT_S: Final = 30.0
"""Time in which messages that have no answer must be received, in seconds."""

_EVENT_END: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
PLAIN: Final = "identity"
UNAVAILABLE: Final = 503
NOT_USABLE: Final = 502


class LimitedTransport(httpx2.AsyncHTTPTransport):
    """See the module. A request that cannot be sent is answered as unavailable, with the reason."""

    def __init__(self) -> None:
        """Connect to nothing yet; calls that wait for people upstream hold a connection each."""
        super().__init__(limits=httpx2.Limits(max_connections=None))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request."""
        request.headers["Accept-Encoding"] = PLAIN  # the size of what is compressed is not known
        if not _has_answer(request):
            times = {**request.extensions.get("timeout", {}), "read": RECEIPT_S}
            request.extensions = {**request.extensions, "timeout": times}
        try:
            response = await super().handle_async_request(request)
        except httpx2.TransportError as error:
            reason = f"{request.url.copy_with(query=None)} cannot be reached: {str(error) or type(error).__name__}"
            fault = {"jsonrpc": "2.0", "id": None, "error": {"code": INTERNAL_ERROR, "message": reason}}
            return httpx2.Response(UNAVAILABLE, json=fault, request=request)
        if response.headers.get("content-encoding", PLAIN).strip().lower() != PLAIN:
            await response.aclose()
            return httpx2.Response(NOT_USABLE, request=request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        is_endless = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        body = _LimitedBody(response.stream, None if is_endless else MAX_BODY_BYTES)
        if response.is_success and _has_answer(request):
            response.headers.pop("content-length", None)  # of the body that was received
            response.stream = _UsableEvents(body) if is_endless else _UsableDocument(body)
        else:
            response.stream = body
        return response


class _LimitedBody(httpx2.AsyncByteStream):
    """A body that ends where it is too long, or where its connection fails.

    Args:
        stream: the body.
        limit: its longest size, in bytes; None is unlimited.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, limit: int | None) -> None:
        self._stream = stream
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield its parts."""
        size = 0
        try:
            async for part in self._stream:
                size += len(part)
                if self._limit is not None and size > self._limit:
                    return
                yield part
        except httpx2.TransportError:
            return

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()


class _UsableDocument(httpx2.AsyncByteStream):
    """A body of one message, with what takes its place where it cannot be used.

    Args:
        body: the body.
    """

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the whole body."""
        text = b"".join([part async for part in self._body])
        found = read_message(text)
        message = (
            in_place_of(found) if isinstance(found, Unusable) and found.is_json else None
        )  # else it may be cut off
        yield text if message is None else _text_of(message)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._body.aclose()


class _UsableEvents(httpx2.AsyncByteStream):
    """A stream of events, with what takes the place of messages that cannot be used.

    Args:
        body: the stream.
    """

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield each event as soon as it is whole; one that is too long ends the stream."""
        pending = bytearray()
        async for part in self._body:
            searched = max(0, len(pending) - 3)
            pending += part
            begin = 0
            for end in _EVENT_END.finditer(pending, searched):
                yield _usable_event(bytes(pending[begin : end.end()]))
                begin = end.end()
            del pending[:begin]
            if len(pending) > MAX_BODY_BYTES:
                return

    async def aclose(self) -> None:
        """Close the connection."""
        await self._body.aclose()


def _usable_event(event: bytes) -> bytes:
    """Return an event whose message can be used; nothing where none takes the place of its message."""
    lines = event.splitlines()
    data = b"\n".join(one[5:].removeprefix(b" ") for one in lines if one.startswith(b"data:"))
    found = read_message(data) if data else None
    if not isinstance(found, Unusable):
        return event
    message = in_place_of(found)
    if message is None:
        return b""
    kept = (one for one in lines if one and not one.startswith(b"data:"))
    return b"\n".join([*kept, b"data: " + _text_of(message), b"", b""])


def _text_of(message: JSONRPCMessage) -> bytes:
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode()


def _has_answer(request: httpx2.Request) -> bool:
    """Return whether the sender waits for the answer of a request: a stream of events, or a request of JSON-RPC."""
    if request.method != "POST":
        return request.method == "GET"
    message = json.loads(request.content)
    return isinstance(message, dict) and "method" in message and "id" in message
