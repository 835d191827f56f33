"""Process of a Dask worker that performs the tasks of one run; see ``cluster_worker``.

It ends with the worker, also in the middle of a task, and after a while without a task.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
from multiprocessing.connection import Connection
from typing import Any, Final

from worldprotocol.analysis.work.performing import Outcome, perform

__all__ = ["main"]

IDLE_S: Final = 60
"""Seconds without a task after which the process ends: the program that started the run may be gone."""


def main(descriptor: int, folder: str) -> None:
    """Perform tasks until the worker closes the pipe.

    Args:
        descriptor: the pipe to the worker.
        folder: the folder from which relative paths start; where it does not exist, there are none.
    """
    try:
        os.chdir(folder)
    except OSError:
        os.chdir("/")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection: Connection[Any, Any] = Connection(descriptor)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    try:
        while connection.poll(IDLE_S):
            parcel = pickle.loads(connection.recv_bytes())  # noqa: S301 - the worker runs code of its scheduler anyway
            connection.send_bytes(_pickled(perform(parcel)))
    except (EOFError, OSError):  # the worker has ended
        return


def _pickled(outcome: Outcome) -> bytes:
    try:
        return pickle.dumps(outcome)
    except Exception as error:  # noqa: BLE001 - an exception of foreign code may hold anything
        return pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {error}")))


def _end_with(parent: int) -> None:
    """End this process when the one that started it has ended, whatever a task does."""
    waiting = threading.Event()
    while os.getppid() == parent:
        waiting.wait(1)
    os._exit(1)
