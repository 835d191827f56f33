"""Communication with one child command: writes its stdin, reads its output, and kills it with its descendants.

``host.confinement`` starts, confines and kills it.
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

_POLL_S: Final = 0.05
_CANCEL_CHECK_S: Final = 0.1
_PIECE: Final = 64 * 1024
Streams = tuple[IO[bytes] | None, IO[bytes] | None, IO[bytes] | None]


class Output:
    """Output of one pipe, of which only the end is kept.

    Args:
        kept: number of bytes to keep.
    """

    def __init__(self, kept: int) -> None:
        """Start empty."""
        self._kept = kept
        self._pieces = bytearray()
        self.size = 0

    def add(self, piece: bytes) -> None:
        """Add received bytes."""
        self.size += len(piece)
        self._pieces += piece
        if len(self._pieces) > 2 * self._kept:
            del self._pieces[: -self._kept]

    @property
    def tail(self) -> bytes:
        """The last bytes of the output."""
        return bytes(self._pieces[-self._kept :])


@dataclass(frozen=True, slots=True)
class ChildExit:
    """End of a child.

    Args:
        code: its exit code; the signal's negative number where a signal ended it.
        why: whether it ended by itself, or was killed because it was cancelled or exceeded its time limit.
        stdout: its output.
        stderr: its error output.
        is_confined: whether the kernel confined it to its declaration.
    """

    code: int
    why: Literal["by itself", "cancelled", "timed out"]
    stdout: Output
    stderr: Output
    is_confined: bool = False


class Child:
    """A started command with pipes for its stdin and output.

    Args:
        command: the command; it is ended and closed by ``run``.
    """

    def __init__(self, command: RunningCommand) -> None:
        """Manage the command."""
        self._command = command

    def run(self, stdin: bytes, *, timeout_ms: int, kept: int, is_cancelled: Callable[[], bool]) -> ChildExit:
        """Write the child's stdin and read its output until it has ended; then kill its descendants.

        Args:
            stdin: its input.
            timeout_ms: time after which it is killed, in milliseconds.
            kept: bytes to keep of each output.
            is_cancelled: whether to kill it now.
        """
        deadline, next_check = time.monotonic() + timeout_ms / 1000, 0.0
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
                    if now >= next_check:
                        next_check = now + _CANCEL_CHECK_S
                        if is_cancelled():
                            why = "cancelled"
                            break
                    pipes.serve(_POLL_S)
                command.kill_group()
                pipes.drain()
        finally:
            command.close()
        return ChildExit(command.wait(), why, stdout, stderr, command.is_confined)


class _Pipes:
    """The three pipes of a child, served without blocking on one of them."""

    def __init__(self, streams: Streams, stdin: bytes, stdout: Output, stderr: Output) -> None:
        self._stdin, out, err = self._streams = streams
        self._rest = memoryview(stdin)
        self._selector = selectors.DefaultSelector()
        for pipe, output in ((out, stdout), (err, stderr)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self._selector.register(pipe, selectors.EVENT_READ, output)
        if self._stdin is not None:
            os.set_blocking(self._stdin.fileno(), False)
            self._selector.register(self._stdin, selectors.EVENT_WRITE)

    def __enter__(self) -> _Pipes:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        for pipe in self._streams:
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def serve(self, seconds: float) -> bool:
        """Transfer available data; wait at most this long for some, and return whether any was transferred."""
        if not self._selector.get_map():
            time.sleep(seconds / 10)  # it closed its pipes and still runs
            return False
        ready = self._selector.select(seconds)
        for key, _ in ready:
            pipe = key.fileobj
            assert not isinstance(pipe, int)
            if key.data is None:
                self._write_stdin(pipe)  # type: ignore[arg-type]  # what was registered
            else:
                self._read_output(pipe, key.data)  # type: ignore[arg-type]  # what was registered
        return bool(ready)

    def drain(self) -> None:
        """Read the remaining output of a child that has ended."""
        if self._stdin is not None and self._stdin in [key.fileobj for key in self._selector.get_map().values()]:
            self._selector.unregister(self._stdin)
        while self.serve(0):
            pass

    def _write_stdin(self, pipe: IO[bytes]) -> None:
        try:
            self._rest = self._rest[os.write(pipe.fileno(), self._rest[:_PIECE]) :]
        except BlockingIOError:
            return
        except OSError:  # it closed its stdin
            self._rest = self._rest[:0]
        if not self._rest:
            self._close(pipe)

    def _read_output(self, pipe: IO[bytes], output: Output) -> None:
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
