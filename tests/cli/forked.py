"""Runs ``worldctl`` or ``conformance`` quickly: a process of its own, forked from one that has imported everything.

Most of a half second of a command goes into imports. Arguments, folder, environment, streams and exit code are those of
any process, and all folders of PYTHONPATH are searched; what depends on how the interpreter starts (``--help`` in time,
locales, signals at once) is tested with a new one. ``run`` serves the tests of the command line; the module itself is
what they fork from.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
AT_START = ("PYTHON", "LC_", "LANG", "LD_")
"""Variables that begin so are read when an interpreter starts."""

LEFT_OUT = ("agents.frameworks", "agents.mcp", "agents.proxy", "stdio_transport", "mcp_endpoint", "work.cluster")
"""Parts of the names of modules that few commands need, and whose libraries take longer to import than all others."""


def run(
    words: list[str],
    folder: Path,
    environment: dict[str, str],
    given: bytes = b"",
    time_limit: float = 120,
    program: str = "worldprotocol",
    before: tuple[str, ...] = (),
) -> tuple[int, bytes, bytes]:
    """Run ``python -m PROGRAM`` and return its exit code, what it wrote to stdout, and to stderr.

    Args:
        words: the arguments.
        folder: where it runs.
        environment: its variables.
        given: what it reads from stdin.
        time_limit: in seconds.
        program: the package.
        before: words of a program that starts the process which is forked, in surroundings that are inherited.
    """
    with tempfile.TemporaryFile() as typed, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        typed.write(given)
        typed.seek(0)
        streams = (typed.fileno(), out.fileno(), err.fileno())
        with start(words, folder, environment, streams, program, before) as process:
            code = process.wait(time_limit)
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


def start(
    words: list[str],
    folder: Path,
    environment: dict[str, str],
    streams: tuple[int, int, int],
    program: str = "worldprotocol",
    before: tuple[str, ...] = (),
) -> Forked:
    """Start ``python -m PROGRAM`` with these files as stdin, stdout and stderr; see ``run``."""
    at_start = {name: value for name, value in environment.items() if name.startswith(AT_START)}
    at_start.pop("PYTHONPATH", None)
    server = _server(tuple(sorted(at_start.items())), before)
    return server.start([[program, *words], str(folder), environment], streams)


class Forked:
    """A process that was forked, with the methods of ``subprocess.Popen``; it is killed at the end of the context."""

    def __init__(self, answers: socket.socket) -> None:
        """Take over the socket over which the server says the process id and, at the end, the exit code."""
        self._answers = answers
        self._reads = threading.Lock()
        self._code: int | None = None
        self.pid = self._read(None)

    def poll(self) -> int | None:
        """Return the exit code; None while the process runs."""
        if self._reads.acquire(blocking=False):  # otherwise another thread waits for the end
            try:
                with contextlib.suppress(BlockingIOError):
                    self._read_code(0)
            finally:
                self._reads.release()
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code; raises TimeoutError where that takes longer, in seconds."""
        with self._reads:
            return self._read_code(timeout)

    def _read_code(self, timeout: float | None) -> int:
        if self._code is None:
            self._code = self._read(timeout)
            self._answers.close()
        return self._code

    def send_signal(self, number: int) -> None:
        """Send a signal to the process if it still runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process if it still runs."""
        self.send_signal(signal.SIGKILL)

    def _read(self, timeout: float | None) -> int:
        self._answers.settimeout(timeout)
        line = b""
        while not line.endswith(b"\n"):
            received = self._answers.recv(1)
            if not received:
                raise EOFError("The process that is forked has ended.")
            line += received
        return int(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
        self.wait()


class Server:
    """The process that is forked."""

    def __init__(self, environment: dict[str, str], before: tuple[str, ...]) -> None:
        """Start it by the words of a program before its command."""
        self._ours, theirs = socket.socketpair()
        command = [*before, sys.executable, "-m", "tests.cli.forked", str(theirs.fileno())]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
        )
        theirs.close()

    def start(self, request: Any, files: tuple[int, int, int]) -> Forked:
        """Fork a process for a command."""
        mine, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._ours, [b"."], [theirs.fileno(), *files])
        mine.sendall(json.dumps(request).encode() + b"\n")
        return Forked(mine)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ours.close()
        self._process.wait()


@functools.cache
def _server(environment: tuple[tuple[str, str], ...], before: tuple[str, ...]) -> Server:
    server = Server({"PATH": os.environ["PATH"], **dict(environment), "PYTHONPATH": str(ROOT)}, before)
    atexit.register(server.__exit__, None, None, None)
    return server


def _serve(requests: socket.socket) -> list[str]:
    """Fork for every request; returns its words in the process that is to run them, and never in this one."""
    running: dict[int, socket.socket] = {}
    ended, woken = socket.socketpair()
    for one in (ended, woken):
        one.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    while True:
        readable, _, _ = select.select([requests, ended], [], [])
        if ended in readable:
            ended.recv(4096)
            _report_ended(running)
        if requests not in readable:
            continue
        _, files, _, _ = socket.recv_fds(requests, 1, 4)
        if not files:
            os._exit(0)
        asked = socket.socket(fileno=files[0])
        with asked.makefile("rb") as lines:
            words, folder, environment = json.loads(lines.readline())
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for one in (requests, ended, woken, asked, *running.values()):
                one.close()
            _become(files[1:], folder, environment)
            assert isinstance(words, list)
            return words
        for file in files[1:]:
            os.close(file)
        asked.sendall(b"%d\n" % pid)
        running[pid] = asked


def _report_ended(running: dict[int, socket.socket]) -> None:
    """Report the exit codes of the processes that have ended."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with running.pop(pid) as asked, contextlib.suppress(BrokenPipeError):
            asked.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def _become(files: list[int], folder: str, environment: dict[str, str]) -> None:
    """Take over the streams, folder and environment of a request."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.path[0] = folder
    sys.path[2:2] = os.environ.get("PYTHONPATH", "").split(os.pathsep)[1:]


def _end(codes: list[int]) -> None:
    """End the process; registered before any other function, so that it is called after all of them.

    Freeing hundreds of modules takes longer than most commands. ``make test-all`` has the modules freed, which reports
    objects that were left open. Without a code, and where a stream cannot be written, the interpreter ends as usual.
    """
    if codes and os.environ.get("HYPOTHESIS_PROFILE", "quick") == "quick":
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                return
        os._exit(codes[0])


def _import_all() -> None:
    import conformance
    import worldprotocol.cli

    packages = [(package.__path__, f"{package.__name__}.") for package in (worldprotocol, conformance)]
    for module in (module for paths, prefix in packages for module in pkgutil.walk_packages(paths, prefix)):
        if not any(part in module.name for part in ("pytest", "testing", "__main__", *LEFT_OUT)):
            importlib.import_module(module.name)
    _read_installed()


def _read_installed() -> None:
    """Read what is installed, which takes as long as a command; a process looks again where its path differs."""
    from world.code.distributions import owners_of
    from world.code.entry_points import entry_points
    from worldprotocol.cli.support.isolation import isolate

    before = list(sys.path)
    with contextlib.chdir("/"):  # not in a folder on the path, as the commands that come
        isolate()
        owners_of(tuple(sys.path))
        entry_points("worldprotocol.commands")
    sys.path[:] = before


if __name__ == "__main__":
    codes: list[int] = []
    atexit.register(_end, codes)
    gc.disable()
    _import_all()
    gc.enable()
    gc.freeze()  # so that no child copies what it never changes, only to collect it when it ends
    program, *typed = _serve(socket.socket(fileno=int(sys.argv[1])))
    sys.argv[:] = [program, *typed]
    try:
        importlib.import_module(f"{program}.__main__").main()
    except SystemExit as ended:
        if isinstance(ended.code, int):
            codes.append(ended.code)
        raise
