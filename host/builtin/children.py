"""One child process with all it starts: fed, listened to, and killed to the last when it must end.

The child leads a session and process group of its own. It is not reaped before the group has been killed, so the
group's number cannot have become somebody else's. Descendants that left the group are found by a mark in their
environment.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Final, Literal

__all__ = ["Child", "Ended", "Output"]

_LOOK_S: Final = 0.05
_ASK_S: Final = 0.1
_PIECE: Final = 64 * 1024
_ROUNDS: Final = 20
_MARK: Final = "world_effect_process"


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
class Ended:
    """How a child ended.

    Args:
        code: its exit code; the signal's number, negative, where it was killed.
        why: by itself, or killed because it was cancelled or took too long.
        stdout: what it said.
        stderr: what it complained of.
    """

    code: int
    why: Literal["by itself", "cancelled", "timed out"]
    stdout: Output
    stderr: Output


class Child:
    """A started command.

    Args:
        command: the arguments; the first is looked for in the environment's PATH.
        folder: an open directory in which it starts.
        environment: all of it.

    Raises:
        OSError: when it cannot be started.
    """

    def __init__(self, command: Sequence[str], folder: int, environment: Mapping[str, str]) -> None:
        """Start it."""
        self._mark = f"{_MARK}={os.urandom(16).hex()}"
        name, _, value = self._mark.partition("=")
        self._process = subprocess.Popen(
            list(command),
            cwd=f"/proc/self/fd/{folder}",  # what was opened, whatever its name leads to by now
            env={**environment, name: value},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def run(self, stdin: bytes, *, timeout_ms: int, kept: int, is_cancelled: Callable[[], bool]) -> Ended:
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
        try:
            with _Pipes(self._process, stdin, stdout, stderr) as pipes:
                while not self._has_ended():
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
                self._kill()
                pipes.drain()
        finally:
            self._kill()
            code = self._process.wait()
        return Ended(code, why, stdout, stderr)

    def _has_ended(self) -> bool:
        if self._process.returncode is not None:
            return True
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, options) is not None

    def _kill(self) -> None:
        """Kill the group, and whoever left it; nobody is left when this returns, short of a fork that outruns us."""
        if self._process.returncode is not None:
            return
        for _ in range(_ROUNDS):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            strays = list(_marked(self._mark.encode(), besides=self._process.pid))
            for stray in strays:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(stray, signal.SIGKILL)
            if not strays:
                return
            time.sleep(_LOOK_S / 10)


def _marked(mark: bytes, *, besides: int) -> list[int]:
    """Return the processes whose environment holds a mark; the dead have none."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == besides:
            continue
        with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
            if mark in file.read():
                found.append(int(name))
    return found


class _Pipes:
    """The three pipes of a child, served without ever waiting for one of them alone."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes, stdout: Output, stderr: Output) -> None:
        self._process = process
        self._rest = memoryview(stdin)
        self._selector = selectors.DefaultSelector()
        for pipe, output in ((process.stdout, stdout), (process.stderr, stderr)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self._selector.register(pipe, selectors.EVENT_READ, output)
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
            self._selector.register(process.stdin, selectors.EVENT_WRITE)

    def __enter__(self) -> _Pipes:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
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
        if self._process.stdin in [key.fileobj for key in self._selector.get_map().values()]:
            self._selector.unregister(self._process.stdin)
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
