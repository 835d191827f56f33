"""Killing a process after a counted number of events that it has reported; time decides nothing.

The process is given a clock that writes a byte to a pipe at every reading. The engine reads its clock in every unit of
work, when it opens a realm as when it executes, so the bytes count steps of the engine. A handler or a loop of a test
may report more with ``report``.
"""

from __future__ import annotations

import os
import select

from tests.support.patience import PATIENCE_S
from world.clock import SystemClock


def report(pipe: int) -> None:
    """Report one event: write one byte to the pipe."""
    os.write(pipe, b".")


class ReportingClock(SystemClock):
    """The system's clock; every reading is reported.

    Args:
        pipe: descriptor of the pipe's end for writing.
    """

    def __init__(self, pipe: int) -> None:
        """Report to a pipe."""
        self._pipe = pipe

    def now_ms(self) -> int:
        """Report the reading, and return milliseconds since 1970-01-01 UTC."""
        report(self._pipe)
        return super().now_ms()


def await_reports(pipe: int, count: int) -> int:
    """Wait for so many reports; returns how many came, fewer where the process ended before.

    Args:
        pipe: descriptor of the pipe's end for reading; nothing else holds the end for writing but the process.
        count: how many reports to wait for.

    Raises:
        TimeoutError: none came for a very long time.
    """
    come = 0
    while come < count:
        if not select.select([pipe], [], [], PATIENCE_S)[0]:
            raise TimeoutError(f"no report for {PATIENCE_S:g} s, after {come} of {count}")
        read = os.read(pipe, count - come)
        if not read:
            break
        come += len(read)
    return come
