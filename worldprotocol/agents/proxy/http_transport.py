"""HTTP transport to an upstream: limits the size of answers, refuses compressed ones, and isolates failed requests.

The transport of the SDK has no limit for bodies, ends the connection of all requests when one body is cut off, and
sends nothing else until a notification is answered.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Final

import httpx2
from mcp_types import INTERNAL_ERROR

from worldprotocol.agents.proxy.upstream_process import MAX_LINE_BYTES

__all__ = ["MAX_BODY_BYTES", "LimitedTransport"]

MAX_BODY_BYTES: Final = MAX_LINE_BYTES
"""Longest body, and longest event of a stream; what is longer is cut off, so that it is no answer."""

RECEIPT_S: Final = 30.0
"""Time in which messages that have no answer must be received, in seconds."""

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
        response.stream = _LimitedBody(response.stream, None if is_endless else MAX_BODY_BYTES)
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


def _has_answer(request: httpx2.Request) -> bool:
    """Return whether the sender waits for the answer of a request: a stream of events, or a request of JSON-RPC."""
    if request.method != "POST":
        return request.method == "GET"
    message = json.loads(request.content)
    return isinstance(message, dict) and "method" in message and "id" in message
