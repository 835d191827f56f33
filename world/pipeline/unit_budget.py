"""What one unit of work may cost under the log's lock: a time for each command, and numbers for what is due by itself.

The time is measured by a monotonic clock and never recorded. A command that passes it is refused as a whole: nothing of
its unit is appended, and the unit is done again without it. So no recorded answer depends on how fast a machine is.

What is due by itself (time-outs, retries, recovery, approved executions) must not be refused, because it would be due
again. It is divided by numbers, and executions, which may call foreign code, by the same time as commands: the rest is
done by units that follow at once, and each of them takes the lock anew. Commands wait until nothing is left that was
due before them.

On a server, a waiting writer ends a unit that has held the lock for 12 s, whatever the cause: its process may be
stopped. The unit is repeated with one command at a time; a command whose own unit is ended is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from world.error_codes import ErrorCode
from world.errors import RefusedError, UnitEndedError, WorldProtocolError

__all__ = ["DUE_AT_ONCE", "UNITS_AT_ONCE", "WOKEN_AT_ONCE", "UnitBudget", "UnitOverrunError", "ended_again"]

DUE_AT_ONCE: Final = 1_000
"""Time-outs, retries, adopted executions and executions begun: how many of each one unit does by itself."""

WOKEN_AT_ONCE: Final = 100
"""Proposals that died and that one unit wakes: each may run its action under the lock, in the time of one command.

``world.pipeline.leasing.missed_wakes`` expects as many of the units of recorded logs, so it cannot grow.
"""

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


def ended_again(ended: UnitEndedError, held_s: float) -> WorldProtocolError:
    """Return what the caller of a command gets whose unit was ended twice, the second time without other commands.

    Args:
        ended: the second end.
        held_s: how long the unit had held the lock, in seconds; where that is short, others did not end it.
    """
    limit_ms = int(ended.details.get("limit_ms", 0))
    if held_s * 1000 < limit_ms / 2:  # this process learned later than the server that it had the lock
        return ended
    return RefusedError(
        ErrorCode.UNIT_TOO_LARGE,
        f"Another writer ended the command twice, the second time alone: it held the log's lock for more than "
        f"{limit_ms} ms. Nothing of it was recorded; ask for less at once, or find out what stops this process.",
        limit_ms=limit_ms,
    )


def _unmeasured() -> float:
    return -math.inf


class UnitBudget:
    """The time that is left to a command.

    Args:
        stopwatch: seconds of a monotonic clock; None measures nothing.
        limit_ms: milliseconds for one command.
        since: reading of the stopwatch when the unit got the lock.
        confirm: called before a command is broken off; raises where the unit has lost the lock, so that a process that
            was stopped repeats it.
    """

    __slots__ = ("_confirm", "_limit_ms", "end", "stopwatch", "unit_end")

    def __init__(
        self,
        stopwatch: Callable[[], float] | None = None,
        limit_ms: int = 0,
        since: float = math.inf,
        confirm: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin without a limit; ``start`` sets it.

        ``end`` is the reading of the stopwatch at which the time is over, None without a limit; from ``unit_end`` on
        the unit takes on no more than it has.
        """
        self.stopwatch = stopwatch or _unmeasured
        self._limit_ms = limit_ms
        self.end: float | None = None
        self.unit_end = since + limit_ms / 1000
        self._confirm = confirm

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
            Exception: what ``confirm`` raises.
        """
        if self.end is not None and self.stopwatch() > self.end:
            self._confirm()
            raise UnitOverrunError(what, self._limit_ms)
