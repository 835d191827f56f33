"""A process that speaks MCP over its stdin and stdout: a line of JSON for each message, of a limited length.

The transport of the SDK reads a line of n bytes in time n² and without a limit, so that one huge answer would stop the
proxy, and with it the heartbeats of its other calls.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio
from mcp.shared.message import SessionMessage

from worldprotocol.agents.unusable_messages import Unusable, in_place_of, read_message

__all__ = ["MAX_LINE_BYTES", "ProcessStreams", "started"]

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""Longest message; a process that sends a longer one is ended."""

EXIT_S: Final = 2.0
"""Time in which a process has to end after each of: the end of its stdin, SIGTERM, SIGKILL."""


MAX_SHOWN: Final = 65_536
"""Longest text from the stderr of a process that is shown to a person, in bytes."""


class ProcessStreams:
    """Messages from a process, and to it.

    Args:
        process: the process, with pipes.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._turn = anyio.Lock()

    async def __aiter__(self) -> AsyncIterator[SessionMessage]:
        """Yield the messages until the process ends its stdout or sends one that is too long.

        What takes the place of those that cannot be used is yielded, too; see ``unusable_messages.in_place_of``.
        """
        assert self._process.stdout is not None
        while True:
            try:
                line = await self._process.stdout.readuntil()
            except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
                return
            found = read_message(line)
            message = in_place_of(found) if isinstance(found, Unusable) else found
            if message is not None:
                yield SessionMessage(message)

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message; one that is cancelled while the process does not read earlier ones is not written.

        Raises:
            anyio.BrokenResourceError: the process does not read any more.
        """
        assert self._process.stdin is not None
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        try:
            async with self._turn:
                await self._process.stdin.drain()  # what is written is kept until it is read
                self._process.stdin.write(line)
                await self._process.stdin.drain()
                if self._process.stdin.is_closing():  # what is written to a closed pipe is dropped without an error
                    raise ConnectionResetError
        except (ConnectionError, RuntimeError):  # RuntimeError: its transport is closed
            raise anyio.BrokenResourceError from None


@asynccontextmanager
async def started(
    words: Sequence[str], environment: Mapping[str, str], *, is_watched: bool = False
) -> AsyncIterator[ProcessStreams]:
    """Start a process; at the end of the context it is stopped, with its children.

    Args:
        words: a command with its arguments.
        environment: its variables.
        is_watched: whether a person reads stderr: the beginning of what the process writes there is shown, without
            control characters. Else the process has the stderr of this one.

    Raises:
        OSError: it could not be started.
        ValueError: a word contains a zero character.
    """
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE if is_watched else None,
        env=environment,
        limit=MAX_LINE_BYTES,
        start_new_session=True,
    )
    showing = None if process.stderr is None else asyncio.ensure_future(_shown(process.stderr))
    try:
        yield ProcessStreams(process)
    finally:
        with anyio.CancelScope(shield=True):
            await _stopped(process)
            if showing is not None:
                await asyncio.wait([showing], timeout=EXIT_S)
                showing.cancel()  # a process that left the group still has the pipe


async def _shown(errors: asyncio.StreamReader) -> None:
    """Show the beginning of what a process writes to stderr, and drop the rest."""
    left = MAX_SHOWN
    with suppress(ConnectionError):
        while part := await errors.read(65_536):
            text = part[:left].decode("utf-8", "backslashreplace")
            left -= len(part[:left])
            sys.stderr.write("".join(one if one.isprintable() or one in "\n\t" else ascii(one)[1:-1] for one in text))
            sys.stderr.flush()


async def _stopped(process: Process) -> None:
    assert process.stdin is not None
    process.stdin.close()
    for number in (signal.SIGTERM, signal.SIGKILL, None):
        with anyio.move_on_after(EXIT_S):
            await _ended(process)
        if number is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)


async def _ended(process: Process) -> None:
    """Wait for the end of a process, reading what it still writes: a full pipe would keep it from ending."""
    assert process.stdout is not None
    with suppress(ConnectionError):
        while await process.stdout.read(65_536):
            pass
    await process.wait()
