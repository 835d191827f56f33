"""Outages: a log or a server that a worker needs is away for a while, and the worker goes on trying."""

from __future__ import annotations

import logging
import threading
from typing import Final

from world.error_codes import ErrorCode
from world.errors import LogBusyError, RefusedError, StorageFullError, WorldProtocolError
from worldprotocol.api.waiting.backoff import Backoff

__all__ = ["Outage", "ends_by_itself"]

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 10.0
"""Shortest and longest time between two attempts, in seconds."""

AWAY: Final = frozenset({ErrorCode.LOG_UNAVAILABLE, ErrorCode.COMMIT_UNKNOWN})
"""Errors of a database server that is away, unless it refuses the caller (``RefusedError``)."""

_LOGGER = logging.getLogger("worldprotocol.worker")


def ends_by_itself(error: WorldProtocolError) -> bool:
    """Return whether a command that failed may succeed later, without a change of the command or the program."""
    if isinstance(error, LogBusyError | StorageFullError):
        return True
    return error.code in AWAY and not isinstance(error, RefusedError)


class Outage:
    """The pauses of one thread during an outage; its begin and its end are logged, with the cause.

    Args:
        ends: set when the thread is to wait no longer.
        what: the thread, for people.
    """

    def __init__(self, ends: threading.Event, what: str) -> None:
        self._ends = ends
        self._what = what
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self._is_told = False

    def wait(self, error: WorldProtocolError) -> bool:
        """Wait before the next attempt; return whether the thread is to wait no longer.

        Args:
            error: why the attempt failed.
        """
        if not self._is_told:
            self._is_told = True
            _LOGGER.warning("%s goes on trying: %s [%s]", self._what, error.message, error.code)
        return self._ends.wait(self._backoff.pause_s())

    def over(self) -> None:
        """Note that an attempt succeeded."""
        if self._is_told:
            self._is_told = False
            self._backoff.reset()
            _LOGGER.warning("%s has reached what it needs again.", self._what)
