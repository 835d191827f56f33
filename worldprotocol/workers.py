"""This process as a worker, and whether another one is gone (``world.work.Workers``)."""

from __future__ import annotations

import os
import uuid

import psutil


class ProcessWorkers:
    """Names a process by machine, process id and start time, so that a reused process id is another worker."""

    def __init__(self) -> None:
        """Take the current process's name; a forked child must make its own."""
        self._machine = f"{uuid.getnode():012x}-{int(psutil.boot_time())}"
        self._name = self._name_of(psutil.Process(os.getpid()))

    @property
    def me(self) -> str:
        """The id of this worker."""
        return self._name

    def is_gone(self, worker: str) -> bool:
        """Tell whether a worker of this machine does not run any more; of other machines nothing is known."""
        machine, _, process = worker.partition(":")
        number, _, _ = process.partition(":")
        if machine != self._machine or not number.isdigit():
            return False
        try:
            found = psutil.Process(int(number))
            return self._name_of(found) != worker or found.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True
        except psutil.AccessDenied:
            return False

    def _name_of(self, process: psutil.Process) -> str:
        return f"{self._machine}:{process.pid}:{process.create_time():.2f}"
