"""How long tests wait for what has to happen: a limit against waiting for ever, and never a measure.

A machine with far more to do than cores delays everything many times over. No test passes or fails by the time that
something took; one that waits in vain ends after this time and fails.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE_S = 240.0
"""Longest wait of a test, in seconds."""

PAUSE_S = 0.05
"""Time between two looks, in seconds: a look may be a request, and a server refuses a caller that sends too many."""


def until(
    look: Callable[[], T], *, running: subprocess.Popen[Any] | None = None, what: object = "", pause_s: float = PAUSE_S
) -> T:
    """Look until what is found is true, and return it.

    Args:
        look: called again and again.
        running: a process that has to go on meanwhile.
        what: what is waited for; the failure shows it.
        pause_s: time between two looks, in seconds.

    Raises:
        AssertionError: it did not come, or the process ended.
    """
    end = time.monotonic() + PATIENCE_S
    while not (found := look()):
        assert running is None or running.poll() is None, running.communicate()
        assert time.monotonic() < end, what
        time.sleep(pause_s)
    return found
