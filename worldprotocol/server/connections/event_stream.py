"""Streams of server-sent events to many readers: an answer that costs two tasks, and frames that readers share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Iterator
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from world.error_codes import ErrorCode
from worldprotocol.server.problems import problem

__all__ = ["PING", "EventStream", "Frames", "in_chunks"]

PING: Final = b": ping\r\n\r\n"
"""Comment that keeps an idle connection open."""

CHUNK_BYTES: Final = 65_536
"""Size from which frames are sent without waiting for more; what a reader takes no part of is not made."""


class Frames:
    """Frames of events, each made once for all readers; the ones made first are forgotten first.

    Args:
        most: frames that are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[Hashable, bytes] = {}
        self.made = 0

    def get(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        """Return the frame with a key; ``make`` returns it where it is not kept."""
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = make()
            self.made += 1
            if len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]
        return found


def in_chunks(frames: Iterable[bytes]) -> Iterator[bytes]:
    """Join frames to chunks of about ``CHUNK_BYTES``, in order."""
    chunk: list[bytes] = []
    size = 0
    for frame in frames:
        chunk.append(frame)
        size += len(frame)
        if size >= CHUNK_BYTES:
            yield b"".join(chunk)
            chunk, size = [], 0
    if chunk:
        yield b"".join(chunk)


class EventStream(Response):
    """An answer of server-sent events, which ends with its source or with the connection.

    A reader that takes nothing holds one chunk and the buffer of its connection; the connection aborts it in time
    (``worldprotocol.server.connections.protocol``). It resumes with ``Last-Event-ID``.

    Args:
        chunks: yields encoded events; closed at the end in any case.
    """

    media_type = "text/event-stream"

    def __init__(self, chunks: AsyncGenerator[bytes, None]) -> None:
        """Make an answer; the chunks are not begun before it is sent."""
        self.status_code = 200
        self.background = None
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the chunks until they or the connection end."""
        if scope["http_version"] == "1.0":  # it has no way to end an answer of unknown length but the connection
            await self._chunks.aclose()
            await problem(ErrorCode.INVALID_VALUE, "HTTP/1.0 has no streams; send HTTP/1.1.")(scope, receive, send)
            return
        streaming = asyncio.current_task()
        assert streaming is not None
        ended = asyncio.ensure_future(_ended(receive))
        ended.add_done_callback(lambda done: None if done.cancelled() else streaming.cancel())
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for chunk in self._chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            ended.cancel()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            if not ended.done() or ended.cancelled() or streaming.uncancel():
                raise
        finally:
            ended.cancel()
            await self._chunks.aclose()


async def _ended(receive: Receive) -> None:
    """Return when the connection has ended."""
    while (await receive())["type"] != "http.disconnect":
        pass
