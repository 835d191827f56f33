"""What one unit of work may cost under the log's lock: a time for each command, and numbers for what is due by itself.

The time is measured by a monotonic clock and never recorded. A command that passes it is refused as a whole: nothing of
its unit is appended, and the unit is done again without it. So no recorded answer depends on how fast a machine is.

What is due by itself (time-outs, retries, recovery, approved executions) must not be refused, because it would be due
again. It is divided by numbers, which are the same on every machine: the rest is done by units that follow at once, and
each of them takes the lock anew. Commands wait until nothing is left that was due before them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["DUE_AT_ONCE", "UNITS_AT_ONCE", "WOKEN_AT_ONCE", "UnitBudget", "UnitOverrunError"]

DUE_AT_ONCE: Final = 1_000
"""Time-outs, retries, adopted executions and executions begun: how many of each one unit does by itself."""

WOKEN_AT_ONCE: Final = 100
"""Proposals that died and that one unit wakes: each may run its action under the lock, in the time of one command."""

UNITS_AT_ONCE: Final = 1_000
"""Units that follow each other at once for what is due; the rest comes with the next command, or the timer."""


class UnitOverrunError(Exception):
    """A command took longer than a unit may; it is no ``RefusedError``, so that no step takes it for an answer.

    Args:
        what: what was being done.
        limit_ms: the limit, in milliseconds.
    """

    def __init__(self, what: str, limit_ms: int) -> None:
        super().__init__(what)
        self.what = what
        self.limit_ms = limit_ms

    def refusal(self, events: int) -> RefusedError:
        """Return what the caller of the command gets, after so many events that are given up."""
        return RefusedError(
            ErrorCode.UNIT_TOO_LARGE,
            f"The command held the log's lock for more than {self.limit_ms} ms (max_unit_ms), after {events} events, "
            f"at {self.what}. Nothing of it was recorded; ask for less at once, or raise the limit max_unit_ms.",
            limit_ms=self.limit_ms,
            events=events,
            at=self.what,
        )


def _unmeasured() -> float:
    return -math.inf


class UnitBudget:
    """The time that is left to a command.

    Args:
        stopwatch: seconds of a monotonic clock; None measures nothing.
        limit_ms: milliseconds for one command.
    """

    __slots__ = ("_limit_ms", "end", "stopwatch")

    def __init__(self, stopwatch: Callable[[], float] | None = None, limit_ms: int = 0) -> None:
        """Begin without a limit; ``start`` sets it.

        ``end`` is the reading of the stopwatch at which the time is over, None without a limit.
        """
        self.stopwatch = stopwatch or _unmeasured
        self._limit_ms = limit_ms
        self.end: float | None = None

    def start(self) -> None:
        """Give a command its time, from now on."""
        self.end = self.stopwatch() + self._limit_ms / 1000

    def stop(self) -> None:
        """Do what follows without a limit."""
        self.end = None

    def check(self, what: str) -> None:
        """Break a command off that had its time; called before each step that can be left.

        Args:
            what: the step, for the refusal.

        Raises:
            UnitOverrunError: the time is over.
        """
        if self.end is not None and self.stopwatch() > self.end:
            raise UnitOverrunError(what, self._limit_ms)
