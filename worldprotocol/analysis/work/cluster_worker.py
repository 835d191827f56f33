"""The part of a work list on a Dask worker: one process for each run, which performs the tasks.

The worker itself loads no code of a realm: what it had loaded for one run would stay for the next, and a task in one of
its threads could not be ended. A process that gets no task for a while ends; the next task starts another one.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Final

__all__ = ["end_run", "perform_in_process"]

START: Final = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from worldprotocol.analysis.work.cluster_process import main; main(int(sys.argv[1]), sys.argv[2])"
)
"""Program of a process; it imports from the same path as the worker only."""


@dataclass(slots=True)
class _RunProcess:
    """Process of a run, and this end of its pipe; one task at a time."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    process: subprocess.Popen[bytes] | None = None
    connection: Connection[Any, Any] | None = None
    is_ended: bool = False

    def perform(self, folder: str, parcel: bytes) -> tuple[bytes | None, int]:
        with self.lock:
            for is_new in (False, True):
                if self.connection is None:
                    if self.is_ended:
                        return None, 0
                    is_new = True
                    self._start(folder)
                assert self.connection is not None
                try:
                    self.connection.send_bytes(parcel)
                    return self.connection.recv_bytes(), 0
                except (EOFError, OSError):
                    code = self._stop()
                if is_new or code:  # with exit code 0 it had waited for too long
                    return None, code
            return None, 0

    def _start(self, folder: str) -> None:
        mine, its = Pipe()
        command = [sys.executable, "-P", "-c", START, str(its.fileno()), folder, *sys.path]
        self.process = subprocess.Popen(command, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL)
        its.close()
        self.connection = mine
        if self.is_ended:  # while the process was started
            self.process.kill()

    def _stop(self) -> int:
        """End the process and return its exit code."""
        process, connection = self.process, self.connection
        self.process = self.connection = None
        if connection is not None:
            connection.close()
        if process is None:
            return 0
        with suppress(subprocess.TimeoutExpired):
            process.wait(ENDS_WITHIN_S)
        process.kill()
        return process.wait()

    def end(self) -> None:
        """End the process, also in the middle of a task."""
        self.is_ended = True
        process = self.process
        if process is not None:
            process.kill()
            process.wait()


ENDS_WITHIN_S: Final = 5
"""Seconds that a process has to end after it closed its pipe."""

MAX_RUNS: Final = 8
"""Ended runs that are remembered, so that a late task does not start a process."""

_runs: Final[dict[str, _RunProcess]] = {}
_lock: Final = threading.Lock()


def perform_in_process(run: str, folder: str, parcel: bytes) -> tuple[bytes | None, int]:
    """Perform a task in the process of a run.

    Args:
        run: id of the run.
        folder: the current folder of the process that started the run, from which relative paths start.
        parcel: the pickled ``Parcel``.

    Returns:
        The pickled outcome, and 0; or None and the exit code of a process that ended without one.
    """
    with _lock:
        known = _runs.setdefault(run, _RunProcess())
    return known.perform(folder, parcel)


def end_run(run: str) -> None:
    """End the process of a run, also in the middle of a task."""
    with _lock:
        known = _runs.setdefault(run, _RunProcess())
        for old in [name for name, one in _runs.items() if one.is_ended][:-MAX_RUNS]:
            del _runs[old]
    known.end()
