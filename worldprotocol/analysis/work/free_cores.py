"""Cores of this machine that this process may use, and those that are free."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

import psutil

__all__ = ["cores", "watch_cores"]

MIN_WATCH_S: Final = 0.1
"""Seconds after which the system's idle time, counted in hundredths, is meaningful."""


def cores() -> int:
    """Return the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def watch_cores() -> Callable[[], int]:
    """Measure from now on the load of the cores that this process may use.

    Returns:
        A function that returns the number of free cores since: the one that this process used and the idle ones. If
        too little time has passed, it returns all of them.
    """
    begun, before = time.monotonic(), _idle_s()

    def free() -> int:
        passed = time.monotonic() - begun
        if passed < MIN_WATCH_S:
            return cores()
        return max(1, min(cores(), 1 + round((_idle_s() - before) / passed)))

    return free


def _idle_s() -> float:
    """Return the total idle seconds of the cores that this process may use."""
    every = psutil.cpu_times(percpu=True)
    affinity = getattr(os, "sched_getaffinity", None)
    mine = range(len(every)) if affinity is None else affinity(0)
    return sum(every[at].idle for at in mine if at < len(every))
