"""End of a process and of all that it started, also in sessions of their own."""

from __future__ import annotations

import contextlib
import os
import signal

import psutil

__all__ = ["kill_all"]


def kill_all(pid: int) -> None:
    """Kill a process, its group and its descendants.

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
