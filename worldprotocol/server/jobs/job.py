"""One job: its state, and the process that does its work.

The work is done in a process of its own, because analyses compute in Python: in a thread of the server they would hold
the interpreter's lock, and requests would wait. The process is ended by a cancellation, and with the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import msgspec
import orjson
import psutil

from world.error_codes import ErrorCode
from worldprotocol.operations.jobs import JobFault, JobForm, JobRequest, JobStatus, ListedJob
from worldprotocol.server.jobs.program import RealmProgram

__all__ = ["Job", "kill_all"]

LEAST_INTERVAL_S: Final = 0.1
"""Shortest time between two reports of progress, in seconds."""

ENDS_WITHIN_S: Final = 5.0
"""Time in which a process without further output ends before it is killed, in seconds."""

MAX_LINES: Final = 10_000
MAX_RESULT_BYTES: Final = 8 * 1024 * 1024
"""Lines and bytes of a result that are kept; further lines are counted."""

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""Longest line that is read from a process."""

WITH_LINES: Final = frozenset({"whatif", "backtest"})
"""Kinds whose result is a list of lines and a summary."""

START: Final = "import sys; sys.path[:] = sys.argv[1:]; from worldprotocol.server.jobs.child import main; main()"
"""Program of a process; it imports from the same path as this one."""


class Job:
    """A job that was started.

    Args:
        job_id: its id.
        request: what was requested.
        now_ms: time of the start, ms since 1970.
    """

    def __init__(self, job_id: str, request: JobRequest, now_ms: int) -> None:
        self.job_id = job_id
        self.request = request
        self.started_at = now_ms
        self.ended_at: int | None = None
        self.status: JobStatus = "running"
        self.result_bytes = 0
        self._progress = (0, 0)
        self._lines: list[bytes] = []
        self._more_lines = 0
        self._result: bytes | None = None
        self._error: JobFault | None = None
        self._ended = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.status == "running"

    def end(self, status: JobStatus, now_ms: int, error: Mapping[str, Any] | None = None) -> None:
        """End the job and its process; a job that has ended stays as it is.

        Args:
            status: how it ended.
            now_ms: ms since 1970.
            error: code and message, for a failed job.
        """
        if not self.is_running:
            return
        self.status, self.ended_at = status, now_ms
        if status != "done":
            self._lines.clear()
            self._result, self.result_bytes = None, 0
            self._error = None if error is None else JobFault(code=error["code"], message=error["message"])
        self._ended.set()
        self.kill()

    def kill(self) -> None:
        """End the process with all that it started."""
        if self._process is not None and self._process.returncode is None:
            kill_all(self._process.pid)  # it only reads, and a rule may run in an endless loop

    async def run(self, program: RealmProgram, now: Any) -> None:
        """Do the work in a process, until that has ended.

        Args:
            program: log and code of the realm.
            now: returns ms since 1970.
        """
        folder = tempfile.mkdtemp(prefix="worldprotocol-job-")
        wanted = {
            "program": program.to_wire(),
            "kind": self.request.kind,
            "options": self.request.options,
            "folder": folder,
        }
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-c", START, *sys.path),  # -P: the current folder is not searched
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, "TMPDIR": folder},
                start_new_session=True,
                limit=MAX_LINE_BYTES,
            )
            self._process = process
            try:
                if self.is_running:
                    await self._talk(process, orjson.dumps(wanted) + b"\n", now)
            finally:
                self.kill()
                code = await _ended(process)
            self.end("failed", now(), _lost(code))
        except OSError as error:
            self.end("failed", now(), {"code": ErrorCode.PROCESS_LOST, "message": f"No process: {error}."})
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _talk(self, process: asyncio.subprocess.Process, wanted: bytes, now: Any) -> None:
        """Hand the request to the process, and take in its lines until the result."""
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(wanted)
        with contextlib.suppress(ConnectionError):
            await process.stdin.drain()
        while self.is_running:
            try:
                line = await process.stdout.readline()
            except ValueError:
                words = f"The result has a line of more than {MAX_LINE_BYTES} bytes; choose a shorter stretch."
                self.end("failed", now(), {"code": ErrorCode.REQUEST_TOO_LARGE, "message": words})
                return
            if not line:  # the process ends by itself; its exit code says why
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ENDS_WITHIN_S):
                        await process.wait()
                return
            self._take(line, now)

    def _take(self, line: bytes, now: Any) -> None:
        [(name, value)] = orjson.loads(line).items()
        if name == "progress":
            self._progress = value[0], value[1]
        elif name == "line":
            rendered = orjson.dumps(value)
            if len(self._lines) >= MAX_LINES or self.result_bytes + len(rendered) > MAX_RESULT_BYTES:
                self._more_lines += 1
            else:
                self._lines.append(rendered)
                self.result_bytes += len(rendered)
        elif name == "result":
            self._result = orjson.dumps(value)
            self.result_bytes += len(self._result)
            self.end("done", now())
        else:
            self.end("failed", now(), value)

    def listed(self) -> ListedJob:
        """Return the state."""
        return ListedJob(**self._members())

    def shown(self) -> JobForm:
        """Return the state with the result, which is JSON that was written before."""
        return JobForm(**self._members(), result=self._rendered())

    def _members(self) -> dict[str, Any]:
        done, total = self._progress
        return {
            "job_id": self.job_id,
            "kind": self.request.kind,
            "status": self.status,
            "options": self.request.options,
            "by": self.request.by,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "done": done,
            "total": total,
            "error": self._error,
        }

    def _rendered(self) -> Any:
        if self._result is None or self.request.kind not in WITH_LINES:
            return None if self._result is None else msgspec.Raw(self._result)
        lines = msgspec.Raw(b"[" + b",".join(self._lines) + b"]")
        return {"lines": lines, "moreLines": self._more_lines, "summary": msgspec.Raw(self._result)}

    async def states(self) -> AsyncIterator[ListedJob]:
        """Yield the state without its result whenever it changed, and at last the ended one with it."""
        shown: ListedJob | None = None
        while self.is_running:
            if shown != (shown := self.listed()):
                yield shown
            try:
                async with asyncio.timeout(LEAST_INTERVAL_S):
                    await self._ended.wait()
            except TimeoutError:
                continue
        yield self.shown()


def kill_all(pid: int) -> None:
    """Kill a process, its group and its descendants, also those in sessions of their own.

    Args:
        pid: the process; it leads a group.
    """
    descendants: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        descendants = psutil.Process(pid).children(recursive=True)
    for one in descendants:
        with contextlib.suppress(psutil.Error):
            one.kill()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


async def _ended(process: asyncio.subprocess.Process) -> int:
    """Wait for the end of a process and of its pipes; return its exit code."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    while await process.stdout.read(1 << 16):
        continue
    with contextlib.suppress(ConnectionError):
        await process.stdin.wait_closed()
    return await process.wait()


def _lost(code: int) -> dict[str, Any]:
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    words = f"The process of the job ended unexpectedly ({how}). It may have run out of memory; try again."
    return {"code": ErrorCode.PROCESS_LOST, "message": words}
