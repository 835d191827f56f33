"""Runs ``worldctl`` or ``conformance`` quickly: a process of its own, forked from one that has imported everything.

Most of a half second of a command goes into imports. Arguments, folder, environment, streams and exit code are those of
any process; what depends on how the interpreter starts (``--help`` in time, locales, signals at once) is tested with a
new one. ``run`` serves the tests of the command line; the module itself is what they fork from.
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
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
AT_START = ("PYTHON", "LC_", "LANG", "LD_")
"""Variables that begin so are read when an interpreter starts."""


def run(
    words: list[str],
    folder: Path,
    environment: dict[str, str],
    given: bytes = b"",
    time_limit: float = 120,
    program: str = "worldprotocol",
) -> tuple[int, bytes, bytes]:
    """Run ``python -m PROGRAM`` and return its exit code, what it wrote to stdout, and to stderr."""
    server = _server(tuple(sorted((name, value) for name, value in environment.items() if name.startswith(AT_START))))
    with tempfile.TemporaryFile() as typed, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        typed.write(given)
        typed.seek(0)
        request = [[program, *words], str(folder), environment]
        code = server.ask(request, [typed.fileno(), out.fileno(), err.fileno()], time_limit)
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


class Server:
    """The process that is forked."""

    def __init__(self, environment: dict[str, str]) -> None:
        """Start it."""
        self._ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "tests.cli.forked", str(theirs.fileno())]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
        )
        theirs.close()

    def ask(self, request: Any, files: list[int], time_limit: float) -> int:
        """Have a command run, and return its exit code."""
        mine, theirs = socket.socketpair()
        with mine, theirs:
            socket.send_fds(self._ours, [b"."], [theirs.fileno(), *files])
            theirs.close()
            mine.settimeout(time_limit)
            mine.sendall(json.dumps(request).encode() + b"\n")
            with mine.makefile("rb") as answers:
                pid = int(answers.readline())
                try:
                    return int(answers.readline())
                except TimeoutError:
                    os.kill(pid, 9)
                    raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ours.close()
        self._process.wait()


@functools.cache
def _server(environment: tuple[tuple[str, str], ...]) -> Server:
    server = Server({"PATH": os.environ["PATH"], **dict(environment), "PYTHONPATH": str(ROOT)})
    atexit.register(server.__exit__, None, None, None)
    return server


def _serve(requests: socket.socket) -> list[str]:
    """Fork for every request; returns its words in the process that is to run them, and ends in every other one."""
    while True:
        _, files, _, _ = socket.recv_fds(requests, 1, 4)
        if not files:
            os._exit(0)
        if os.fork() == 0:
            requests.close()
            with socket.socket(fileno=files[0]) as asked:
                return _watched(asked, files[1:])
        for file in files:
            os.close(file)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _watched(asked: socket.socket, files: list[int]) -> list[str]:
    """Return the words in a child; here, tell of it and how it ended, and end."""
    with asked.makefile("rb") as lines:
        words, folder, environment = json.loads(lines.readline())
    pid = os.fork()
    if pid != 0:
        for file in files:
            os.close(file)
        asked.sendall(b"%d\n" % pid)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with contextlib.suppress(BrokenPipeError):
            asked.sendall(b"%d\n" % code)
        os._exit(0)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.path[0] = folder
    assert isinstance(words, list)
    return words


def _import_all() -> None:
    import conformance
    import worldprotocol.cli

    packages = [(package.__path__, f"{package.__name__}.") for package in (worldprotocol, conformance)]
    for module in (module for paths, prefix in packages for module in pkgutil.walk_packages(paths, prefix)):
        if "pytest" not in module.name and "testing" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)


if __name__ == "__main__":
    _import_all()
    gc.freeze()  # so that no child copies what it never changes, only to collect it when it ends
    program, *typed = _serve(socket.socket(fileno=int(sys.argv[1])))
    sys.argv[:] = [program, *typed]
    importlib.import_module(f"{program}.__main__").main()
