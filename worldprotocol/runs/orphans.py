"""What a run's command, or a proposal's effect, had left behind when the process that watched over it was killed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Final

import psutil

from host.confinement.descendants import RUN

__all__ = ["RUN", "end_orphans"]

PATIENCE_S: Final = 5.0
PAUSE_S: Final = 0.005


def end_orphans(run_id: str) -> int | None:
    """Kill what is left of a run, again until nobody is; returns how many there were, None where some cannot be ended.

    Args:
        run_id: whose: a run's id, or a proposal's.
    """
    until = time.monotonic() + PATIENCE_S
    ended: set[int] = set()
    while left := _members(f"{RUN}={run_id}".encode()):
        ended |= left
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > until:
            return None
        time.sleep(PAUSE_S)
    return len(ended)


def _members(marked: bytes) -> set[int]:
    found = set()
    for pid in psutil.pids():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            if pid != os.getpid() and marked in file.read().split(b"\0"):
                found.add(pid)
    return found
