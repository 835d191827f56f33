"""Outages: a log or a server is away for a while, and what needs it is repeated."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from world.error_codes import ErrorCode
from world.errors import LogBusyError, RefusedError, StorageFullError, WorldProtocolError
from worldprotocol.api.waiting.backoff import Backoff

__all__ = ["Outage", "ends_by_itself", "patiently"]

R = TypeVar("R")

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 10.0
"""Shortest and longest time between two attempts, in seconds."""

LONGEST_OPENING_S: Final = 1.0
"""Longest time between two attempts at opening, in seconds; a caller waits for it."""

AWAY: Final = frozenset({ErrorCode.LOG_UNAVAILABLE, ErrorCode.COMMIT_UNKNOWN})
"""Errors of a database server that is away, unless it refuses the caller (``RefusedError``)."""

_LOGGER = logging.getLogger("worldprotocol")


def ends_by_itself(error: WorldProtocolError) -> bool:
    """Return whether a command that failed may succeed later, without a change of the command or the program."""
    if isinstance(error, LogBusyError | StorageFullError):
        return True
    return error.code in AWAY and not isinstance(error, RefusedError)


class Outage:
    """The pauses of one thread during an outage; its begin and its end are logged, with the cause.

    Args:
        ends: set when the thread is to wait no longer.
        what: the subject of the lines, for people.
        longest_s: longest time between two attempts, in seconds; None is ``LONGEST_PAUSE_S``.
    """

    def __init__(self, ends: threading.Event, what: str, longest_s: float | None = None) -> None:
        self._ends = ends
        self._what = what
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S if longest_s is None else longest_s)
        self._is_told = False

    def wait(self, error: WorldProtocolError, most_s: float = threading.TIMEOUT_MAX) -> bool:
        """Wait before the next attempt; return whether the thread is to wait no longer.

        Args:
            error: why the attempt failed.
            most_s: longest wait, in seconds.
        """
        if not self._is_told:
            self._is_told = True
            _LOGGER.warning("%s is repeated until it succeeds: %s [%s]", self._what, error.message, error.code)
        return self._ends.wait(min(self._backoff.pause_s(), most_s))

    def over(self) -> None:
        """Note that an attempt succeeded."""
        if self._is_told:
            self._is_told = False
            self._backoff.reset()
            _LOGGER.warning("%s has succeeded.", self._what)


def patiently(attempt: Callable[[], R], patience_s: float | None, what: str) -> R:
    """Return what an attempt returns, which is repeated for a time while a log is away, busy or without room.

    Args:
        attempt: opens something; it may be called several times.
        patience_s: time after which the last attempt begins, in seconds; 0 is one attempt, None never ends.
        what: what is opened, for people.

    Raises:
        WorldProtocolError: of the last attempt.
    """
    outage = Outage(threading.Event(), what, LONGEST_OPENING_S)
    end = time.monotonic() + (threading.TIMEOUT_MAX if patience_s is None else patience_s)
    while True:
        try:
            result = attempt()
        except WorldProtocolError as error:
            left_s = end - time.monotonic()
            if left_s <= 0 or not ends_by_itself(error):
                raise
            outage.wait(error, left_s)
        else:
            outage.over()
            return result
