"""A command of a verified caller, and its output in a thread, as pieces that the event loop sends to the caller.

The thread waits while the caller takes less than it prints, and is stopped at its next piece once the caller is gone.
"""

from __future__ import annotations

import asyncio
import base64
import io
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from world.state.proposal import Proposal
    from worldprotocol.api.bootstrap import LoggedEvent
    from worldprotocol.api.realm import Realm

__all__ = ["CommandOutput", "CommandRequest", "CommandStoppedError", "Following", "RequestStream", "RunCommand"]

MAX_PENDING_CHARS: Final = 1 << 20
"""Characters that wait for the caller; a command that printed so many waits."""

STALLED_S: Final = 60.0
"""Time after which a caller that takes nothing counts as gone, in seconds."""

PING_S: Final = 15.0
"""Time after which an idle answer has an empty piece, so that a connection that is cut is noticed, in seconds."""

PROGRESS_S: Final = 0.2
"""Shortest time between two pieces of progress, in seconds."""

Piece = list[Any]
"""``["out", text]``, ``["err", text]``, ``["data", base64]`` of stdout that is no text, ``["progress", what, done,
total]``, ``["exit", code]``, ``["ping"]``."""


class CommandStoppedError(BaseException):
    """The caller of a command is gone; not an ``Exception``, so that no command takes it for its own error."""


class CommandOutput:
    """Pieces of one command, written by its thread and read by the event loop in which it was created."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pending: list[Piece] = []
        self._chars = 0
        self._changed = threading.Condition()
        self._written = asyncio.Event()
        self._is_stopped = False
        self._is_ended = False
        self._told = 0.0
        self._on_stop: Callable[[], object] = lambda: None

    def say(self, words: str) -> None:
        """Add a line to ``err`` without waiting, for the event loop."""
        with self._changed:
            self._pending.append(["err", f"{words}\n"])
            self._wake()

    def write(self, kind: str, text: str) -> None:
        """Add text to ``out`` or ``err``, or ``data``; waits for a slow caller, so it is for a thread of its own.

        Raises:
            CommandStoppedError: the caller is gone.
        """
        with self._changed:
            end = time.monotonic() + STALLED_S
            while self._chars > MAX_PENDING_CHARS and not self._is_stopped:
                if not self._changed.wait(end - time.monotonic()):
                    self._is_stopped = True
            if self._is_stopped:
                raise CommandStoppedError
            if kind != "data" and self._pending and self._pending[-1][0] == kind:
                self._pending[-1].append(text)
            else:
                self._pending.append([kind, text])
            self._chars += len(text)
            self._wake()

    def progress(self, what: str, done: int, total: int) -> None:
        """Add how far a command is, unless it was said just before.

        Raises:
            CommandStoppedError: the caller is gone.
        """
        self.check()
        now = time.monotonic()
        if now - self._told >= PROGRESS_S:
            self._told = now
            with self._changed:
                self._pending.append(["progress", what, done, total])
                self._wake()

    def check(self) -> None:
        """Stop a command whose caller is gone.

        Raises:
            CommandStoppedError: the caller is gone.
        """
        if self._is_stopped:
            raise CommandStoppedError

    def end(self, code: int) -> None:
        """Add the exit code, after which there is no further piece."""
        with self._changed:
            self._pending.append(["exit", code])
            self._is_ended = True
            self._wake()

    def stop(self) -> None:
        """Stop the command at its next piece; the caller is gone."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        self._on_stop()

    def when_stopped(self, call: Callable[[], object]) -> None:
        """Call a function once the caller is gone, in the event loop; at once where it is."""
        self._on_stop = call
        if self._is_stopped:
            call()

    def _wake(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._written.set)

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yield the pieces in order until the command has ended; a piece ``ping`` while there is none."""
        while True:
            self._written.clear()
            with self._changed:
                taken, self._pending = self._pending, []
                self._chars, is_last = 0, self._is_ended
                self._changed.notify_all()
            for kind, *rest in taken:
                yield [kind, "".join(rest)] if kind in ("out", "err") else [kind, *rest]
            if is_last:
                return
            if taken:
                continue
            try:
                async with asyncio.timeout(PING_S):
                    await self._written.wait()
            except TimeoutError:
                yield ["ping"]


class _Bytes(io.RawIOBase):
    """The bytes of stdout: text where they are UTF-8."""

    def __init__(self, output: CommandOutput) -> None:
        self._output = output

    def write(self, data: Any) -> int:
        try:
            self._output.write("out", bytes(data).decode())
        except UnicodeDecodeError:
            self._output.write("data", base64.b64encode(data).decode())
        return len(data)


class RequestStream(io.TextIOBase):
    """``out`` or ``err`` of a command, as a text file.

    Args:
        output: takes the text.
        kind: ``out`` or ``err``.
        is_terminal: whether the caller's stream is a terminal.
    """

    def __init__(self, output: CommandOutput, kind: str, *, is_terminal: bool) -> None:
        self._output = output
        self._kind = kind
        self._is_terminal = is_terminal
        self.buffer = _Bytes(output)

    encoding = "utf-8"

    def write(self, text: str) -> int:
        """Add text."""
        if text:
            self._output.write(self._kind, text)
        return len(text)

    def isatty(self) -> bool:
        """Return whether the caller's stream is a terminal."""
        return self._is_terminal


@dataclass(frozen=True, slots=True)
class Following:
    """How a command continues with events that are committed later, without a thread meanwhile.

    Args:
        after: position of the last event that it was given.
        topics: only events of these topics; None is all.
        take: takes an event and returns whether it was the last one.
    """

    after: int
    topics: Collection[str] | None
    take: Callable[[LoggedEvent], bool]


@dataclass(slots=True)
class CommandRequest:
    """A command to execute: its words were checked, and name no file of the server.

    Args:
        words: the words after ``worldctl``.
        reader: the realm for reading.
        acting: the realm for acting as the caller.
        output: takes what it prints.
        files: contents by the names in the words.
        stdin: content of the caller's stdin.
        terminal: environment variables that describe the caller's terminal; None where its stdout is none.
        may_see: whether the caller may read a proposal.
        may_list: whether an ambiguous name may be answered with what it could mean.
        following: set by the command where it continues with later events.
    """

    words: Sequence[str]
    reader: Realm
    acting: Realm
    output: CommandOutput
    files: Mapping[str, bytes]
    stdin: bytes
    terminal: Mapping[str, str] | None
    may_see: Callable[[Proposal], bool]
    may_list: bool
    following: Following | None = None


RunCommand = Callable[[CommandRequest], int]
"""Executes a command in the calling thread and returns its exit code; raises ``CommandStoppedError``."""
