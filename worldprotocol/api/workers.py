"""Worker ids of processes (``world.state.ports.WorkerRegistry``)."""

from __future__ import annotations

import itertools
import os
import threading
import uuid
from dataclasses import dataclass
from pathlib import Path

import psutil

_numbers = itertools.count(1)
_closed: set[str] = set()
_closing = threading.Lock()


class ProcessWorkers:
    """Names a worker by machine, process id, start time and a number in its process.

    A reused process id and a second realm in one process therefore have ids of their own. Another pid namespace
    (containers on one host) counts as another machine.
    """

    def __init__(self) -> None:
        """Create a new worker id in the current process; a forked child must create its own."""
        self._machine = f"{uuid.getnode():012x}-{int(psutil.boot_time())}-{_process_space()}"
        self._process = self._process_of(psutil.Process(os.getpid()))
        self._name = f"{self._process}:{next(_numbers)}"

    @property
    def me(self) -> str:
        """The id of this worker."""
        return self._name

    def close(self) -> None:
        """Mark this worker as ended."""
        with _closing:
            _closed.add(self._name)

    def is_gone(self, worker: str) -> bool:
        """Return whether a worker of this machine has ended; False for other machines."""
        process, _, _ = worker.rpartition(":")
        if process == self._process:
            return worker in _closed
        machine, _, rest = process.partition(":")
        number, _, _ = rest.partition(":")
        if machine != self._machine or not number.isdigit():
            return False
        try:
            current = psutil.Process(int(number))
            return self._process_of(current) != process or current.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True
        except psutil.AccessDenied:
            return False

    def _process_of(self, process: psutil.Process) -> str:
        return f"{self._machine}:{process.pid}:{process.create_time():.2f}"


@dataclass(frozen=True, slots=True)
class Idle:
    """A worker that takes over no work of others: what they did is in the record.

    Args:
        me: its id.
    """

    me: str

    def is_gone(self, worker: str) -> bool:
        """Return False."""
        return False

    def close(self) -> None:
        """Do nothing."""


def _process_space() -> int:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0
