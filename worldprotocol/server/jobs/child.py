"""The process of a job; ``worldprotocol.server.jobs.job`` starts it.

It reads one line of JSON from stdin: program, kind, options, and a folder for temporary files. It writes lines of JSON:
``progress``, ``line``, and last ``result`` or ``error``. Output of the loaded code goes to stderr. When stdin ends, the
server is gone, and the process ends with all that it started.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from world.errors import WorldProtocolError
from worldprotocol.server.jobs.job import kill_all
from worldprotocol.server.jobs.program import RealmProgram
from worldprotocol.server.jobs.tasks import TASKS

__all__ = ["main"]

NICENESS: Final = 10
"""Lower priority than the server's, so that requests are answered first."""

LEAST_INTERVAL_S: Final = 0.1
"""Shortest time between two reports of progress, in seconds."""


class _Output:
    """Lines for the server; progress at intervals, and the last one always."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._reported = 0.0
        self._pending: list[int] | None = None

    def progress(self, done: int, total: int) -> None:
        now = time.monotonic()
        self._pending = [done, total]
        if now - self._reported >= LEAST_INTERVAL_S:
            self._reported = now
            self.flush()

    def flush(self) -> None:
        if self._pending is not None:
            self.write("progress", self._pending)
            self._pending = None

    def write(self, name: str, value: Any) -> None:
        print(json.dumps({name: value}, default=str), file=self._out, flush=True)


def _end_with_server(folder: Path) -> None:
    """Wait for the end of stdin, then end this process and all that it started."""
    os.read(0, 1)  # the server writes nothing after the first line
    shutil.rmtree(folder, ignore_errors=True)
    kill_all(os.getpid())


def _run(wanted: dict[str, Any], output: _Output) -> None:
    folder = Path(wanted["folder"])
    task = TASKS[wanted["kind"]](RealmProgram.read(wanted["program"]), wanted["options"], folder, output.progress)
    while True:
        try:
            line = next(task)
        except StopIteration as ended:
            output.flush()
            output.write("result", ended.value)
            return
        output.write("line", line)


def main() -> None:
    """Run the job that stdin describes."""
    with suppress(OSError):  # a unit of systemd may deny it; the job then runs with the priority of the server
        os.nice(NICENESS)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        wanted = json.loads(_first_line())
        threading.Thread(target=_end_with_server, args=(Path(wanted["folder"]),), daemon=True).start()
        output = _Output(out)
        try:
            _run(wanted, output)
        except WorldProtocolError as error:
            output.flush()
            output.write("error", error.to_dict())


def _first_line() -> bytes:
    """Return the first line of stdin, unbuffered, so that its end can be waited for."""
    line = bytearray()
    while not line.endswith(b"\n"):
        part = os.read(0, 1 << 16)
        if not part:
            sys.exit(1)
        line += part
    return bytes(line)
