"""One command with all it starts: fed, listened to, and killed to the last when it must end.

How it is started, confined and killed is the business of ``host.confinement``.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Final, Literal

from host.confinement import RunningCommand

__all__ = ["Child", "ChildExit", "Output"]

_LOOK_S: Final = 0.05
_ASK_S: Final = 0.1
_PIECE: Final = 64 * 1024
Streams = tuple[IO[bytes] | None, IO[bytes] | None, IO[bytes] | None]


class Output:
    """What came out of one pipe, of which only the end is kept.

    Args:
        kept: bytes.
    """

    def __init__(self, kept: int) -> None:
        """Start empty."""
        self._kept = kept
        self._pieces = bytearray()
        self.size = 0

    def add(self, piece: bytes) -> None:
        """Take what came."""
        self.size += len(piece)
        self._pieces += piece
        if len(self._pieces) > 2 * self._kept:
            del self._pieces[: -self._kept]

    @property
    def tail(self) -> bytes:
        """The end of all that came."""
        return bytes(self._pieces[-self._kept :])


@dataclass(frozen=True, slots=True)
class ChildExit:
    """How a child ended.

    Args:
        code: its exit code; the signal's number, negative, where it was killed.
        why: by itself, or killed because it was cancelled or took too long.
        stdout: what it said.
        stderr: what it complained of.
        is_confined: whether the system held it to what was declared.
    """

    code: int
    why: Literal["by itself", "cancelled", "timed out"]
    stdout: Output
    stderr: Output
    is_confined: bool = False


class Child:
    """A started command, with pipes for what it is told and what it says.

    Args:
        command: the command; it is ended and closed by ``run``.
    """

    def __init__(self, command: RunningCommand) -> None:
        """Take charge of it."""
        self._command = command

    def run(self, stdin: bytes, *, timeout_ms: int, kept: int, is_cancelled: Callable[[], bool]) -> ChildExit:
        """Feed the child and listen to it until it has ended; then kill what is left of it.

        Args:
            stdin: what it is told.
            timeout_ms: after which it is killed, in milliseconds.
            kept: bytes of each output.
            is_cancelled: whether to kill it now.
        """
        deadline, next_look = time.monotonic() + timeout_ms / 1000, 0.0
        stdout, stderr = Output(kept), Output(kept)
        why: Literal["by itself", "cancelled", "timed out"] = "by itself"
        command = self._command
        try:
            with _Pipes(command.streams, stdin, stdout, stderr) as pipes:
                while command.returncode is None:
                    now = time.monotonic()
                    if now > deadline:
                        why = "timed out"
                        break
                    if now >= next_look:
                        next_look = now + _ASK_S
                        if is_cancelled():
                            why = "cancelled"
                            break
                    pipes.serve(_LOOK_S)
                command.kill_group()
                pipes.drain()
        finally:
            command.close()
        return ChildExit(command.wait(), why, stdout, stderr, command.is_confined)


class _Pipes:
    """The three pipes of a child, served without ever waiting for one of them alone."""

    def __init__(self, streams: Streams, stdin: bytes, stdout: Output, stderr: Output) -> None:
        self._told, out, err = self._streams = streams
        self._rest = memoryview(stdin)
        self._selector = selectors.DefaultSelector()
        for pipe, output in ((out, stdout), (err, stderr)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self._selector.register(pipe, selectors.EVENT_READ, output)
        if self._told is not None:
            os.set_blocking(self._told.fileno(), False)
            self._selector.register(self._told, selectors.EVENT_WRITE)

    def __enter__(self) -> _Pipes:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        for pipe in self._streams:
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def serve(self, seconds: float) -> bool:
        """Move what can be moved; wait no longer than that for something. Tells whether anything moved."""
        if not self._selector.get_map():
            time.sleep(seconds / 10)  # it closed its pipes and lives on
            return False
        ready = self._selector.select(seconds)
        for key, _ in ready:
            pipe = key.fileobj
            assert not isinstance(pipe, int)
            if key.data is None:
                self._feed(pipe)  # type: ignore[arg-type]  # what was registered
            else:
                self._listen(pipe, key.data)  # type: ignore[arg-type]  # what was registered
        return bool(ready)

    def drain(self) -> None:
        """Take what is left in the pipes of a child that has ended."""
        if self._told is not None and self._told in [key.fileobj for key in self._selector.get_map().values()]:
            self._selector.unregister(self._told)
        while self.serve(0):
            pass

    def _feed(self, pipe: IO[bytes]) -> None:
        try:
            self._rest = self._rest[os.write(pipe.fileno(), self._rest[:_PIECE]) :]
        except BlockingIOError:
            return
        except OSError:  # it does not listen any more
            self._rest = self._rest[:0]
        if not self._rest:
            self._close(pipe)

    def _listen(self, pipe: IO[bytes], output: Output) -> None:
        try:
            piece = os.read(pipe.fileno(), _PIECE)
        except BlockingIOError:
            return
        if piece:
            output.add(piece)
        else:
            self._close(pipe)

    def _close(self, pipe: IO[bytes]) -> None:
        self._selector.unregister(pipe)
        with contextlib.suppress(OSError):
            pipe.close()
