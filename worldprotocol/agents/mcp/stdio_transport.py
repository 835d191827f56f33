"""The stdin and stdout of this process as a transport of MCP, which SIGINT and SIGTERM end like the end of stdin.

The SDK reads stdin in a thread that cannot be cancelled, so that a process which is ended by a signal waits for its
client to write or to close stdin. Here a daemon thread reads it. Each message that cannot be used is answered here, and
an answer that cannot be used becomes an error, so that neither side waits for what was dropped.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Self, cast

import anyio
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_PARAMS, PARSE_ERROR, JSONRPCError

from worldprotocol.agents.unusable_messages import UNUSABLE_ANSWER, Unusable, read_message

__all__ = ["StdioTransport", "stdio_transport"]

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
CHUNK: Final = 65_536
"""Bytes that are read at once."""


@dataclass(slots=True)
class StdioTransport:
    """The connection to the client that started this process.

    Args:
        receive: messages of the client, as the SDK has them.
        send: messages to the client.
        ended_by: the signal that ended the stream of the client; None where it ended it itself.
    """

    receive: Any
    send: Any
    ended_by: signal.Signals | None = None

    @property
    def exit_code(self) -> int:
        """0, or 128 and the number of the signal."""
        return 0 if self.ended_by is None else 128 + self.ended_by


@asynccontextmanager
async def stdio_transport() -> AsyncIterator[StdioTransport]:
    """Serve one client on stdin and stdout; at the end, messages that were sent are written."""
    loop = asyncio.get_running_loop()
    with _diverted_stdin() as descriptor:
        lines = _StdinLines(descriptor)
        usable = _UsableLines(lines)
        async with stdio_server(stdin=cast("anyio.AsyncFile[str]", usable)) as (receive, send):
            usable.refuse = lambda error: send.send(SessionMessage(error))
            transport = StdioTransport(receive, send)

            def end(number: signal.Signals) -> None:
                transport.ended_by = number
                lines.end()

            for number in SIGNALS:
                loop.add_signal_handler(number, end, number)
            try:
                yield transport
            finally:
                for number in SIGNALS:
                    loop.remove_signal_handler(number)
                lines.end()
                with suppress(anyio.ClosedResourceError):
                    async for _ in receive:  # the reader ends once nothing it has read is left
                        pass
                await receive.aclose()
                await send.aclose()


@contextmanager
def _diverted_stdin() -> Iterator[int]:
    """Yield a descriptor of stdin, which is empty meanwhile for handlers and child processes."""
    if sys.stdin.isatty():
        sys.stderr.write("Waiting for the messages of an MCP client on stdin; Ctrl-C ends this.\n")
    descriptor, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        yield descriptor
    finally:
        os.dup2(descriptor, 0)  # the descriptor itself stays open: the thread may still read it


class _UsableLines:
    """The lines of another iterator that can be used; requests among the others are refused.

    Args:
        lines: the other iterator.
    """

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines
        self.refuse: Callable[[JSONRPCError], Awaitable[None]]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        async for line in self._lines:
            found = read_message(line)
            if not isinstance(found, Unusable):
                return line
            if found.request_id is None:
                await self.refuse(found.error(PARSE_ERROR))
            elif found.is_answer:
                return found.error(UNUSABLE_ANSWER).model_dump_json(by_alias=True, exclude_unset=True)
            else:
                await self.refuse(found.error(INVALID_PARAMS))
        raise StopAsyncIteration


class _StdinLines:
    """Lines of a descriptor, read by a daemon thread, one line ahead."""

    def __init__(self, descriptor: int) -> None:
        """Begin to read."""
        self._loop = asyncio.get_running_loop()
        self._read: asyncio.Queue[str | None] = asyncio.Queue()
        self._room = threading.Semaphore(1)
        threading.Thread(target=self._run, args=(descriptor,), name="worldprotocol-stdin", daemon=True).start()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        line = await self._read.get()
        self._room.release()
        if line is None:
            raise StopAsyncIteration
        return line

    def end(self) -> None:
        """End after the lines that were read."""
        self._read.put_nowait(None)

    def _run(self, descriptor: int) -> None:
        with suppress(RuntimeError):  # the loop is closed
            with suppress(OSError):  # the terminal is gone
                for line in _lines_of(descriptor):
                    self._room.acquire()
                    self._loop.call_soon_threadsafe(self._read.put_nowait, line.decode("utf-8", "replace"))
            self._loop.call_soon_threadsafe(self.end)


def _lines_of(descriptor: int) -> Iterator[bytes]:
    """Yield the lines of a descriptor without their ends; the last one may have none."""
    pending = bytearray()
    while chunk := os.read(descriptor, CHUNK):
        *whole, rest = chunk.split(b"\n")
        for one in whole:
            yield bytes(pending + one)
            pending.clear()
        pending += rest
    if pending:
        yield bytes(pending)
