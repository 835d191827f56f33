"""Streams of server-sent events to many readers: an answer that costs two tasks, and frames that readers share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, cast
from weakref import WeakValueDictionary

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from world.error_codes import ErrorCode
from worldprotocol.server.problems import problem

__all__ = ["PING", "EventStream", "Frame", "Frames", "in_chunks"]

PING: Final = b": ping\r\n\r\n"
"""Comment that keeps an idle connection open."""

CHUNK_BYTES: Final = 65_536
"""Size from which frames are sent without waiting for more; what a reader takes no part of is not made."""


class Frame(NamedTuple):
    """An event as it is sent.

    Args:
        data: the bytes.
        is_hidden: whether its content is hidden in this view.
    """

    data: bytes
    is_hidden: bool = False


class Frames:
    """Frames of events, each made once for all readers with one view; the ones made first are forgotten first.

    Args:
        most: frames that are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[Hashable, Frame] = {}
        self._making: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()
        self.made = 0

    def get(self, view: Hashable, positions: Sequence[int]) -> list[Frame] | None:
        """Return the frames of events in a view, or None where not all of them are kept."""
        found = [self._kept.get((view, position)) for position in positions]
        return None if None in found else cast("list[Frame]", found)

    def keep(self, view: Hashable, positions: Sequence[int], frames: Sequence[Frame]) -> Sequence[Frame]:
        """Keep the frames that were made of events in a view, and return them."""
        self._kept |= {(view, position): frame for position, frame in zip(positions, frames, strict=True)}
        self.made += len(frames)
        while len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]
        return frames

    async def shared(
        self, view: Hashable, positions: Sequence[int], make: Callable[[], Awaitable[Sequence[Frame]]]
    ) -> Sequence[Frame]:
        """Return the frames of events in a view; of the readers that lack one at a time, one makes them for all.

        Args:
            view: what the frames depend on besides the event.
            positions: of the events.
            make: makes the frames of all of them.
        """
        found: Sequence[Frame] | None = self.get(view, positions)
        if found is None:
            lock = self._making.setdefault(view, asyncio.Lock())
            async with lock:
                found = self.get(view, positions)
                if found is None:
                    found = self.keep(view, positions, await make())
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
