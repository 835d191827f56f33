"""Timer that runs scheduled work when no caller is active.

The work is time-outs, expiries of leases and retries after Die. Each open realm has one daemon thread, started when a
time is first scheduled.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from world.errors import WorldProtocolError

__all__ = ["Ticker"]

_LOGGER = logging.getLogger("worldprotocol")
_LONGEST_SLEEP_S = 3600.0
_AFTER_ERROR_S = 5.0
STOP_S = 10.0


class Ticker:
    """Calls ``act`` at the time that was scheduled last."""

    def __init__(self, act: Callable[[], object], now_ms: Callable[[], int]) -> None:
        """Create the timer; no thread runs until ``schedule`` names a time.

        Args:
            act: runs the work that is due, in the timer's own thread; it may schedule a new time.
            now_ms: returns the current time, ms since 1970.
        """
        self._act = act
        self._now_ms = now_ms
        self._changed = threading.Condition()
        self._due: int | None = None
        self._thread: threading.Thread | None = None
        self._stopped = False

    def schedule(self, due: int | None) -> None:
        """Schedule the next call, ms since 1970; None cancels it."""
        with self._changed:
            if due == self._due or self._stopped:
                return
            self._due = due
            if self._thread is None:
                if due is None:
                    return
                self._thread = threading.Thread(target=self._run, name="worldprotocol-ticker", daemon=True)
                self._thread.start()
            self._changed.notify()

    def stop(self) -> None:
        """Stop the thread, and wait at most ``STOP_S`` for its running call."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(STOP_S)

    def _run(self) -> None:
        while self._wait():
            try:
                self._act()
            except WorldProtocolError as error:
                _LOGGER.warning("Scheduled work failed and is repeated: %s", error)
                self._pause()
            except Exception:  # a database that is temporarily unreachable must not end the thread
                _LOGGER.exception("Scheduled work failed and is repeated")
                self._pause()

    def _wait(self) -> bool:
        """Wait until work is due; return False if the timer was stopped."""
        with self._changed:
            while not self._stopped:
                if self._due is not None:
                    left = (self._due - self._now_ms()) / 1000
                    if left <= 0:
                        self._due = None
                        return True
                    self._changed.wait(min(left, _LONGEST_SLEEP_S))
                else:
                    self._changed.wait()
        return False

    def _pause(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped, _AFTER_ERROR_S)
            if self._due is None:
                self._due = self._now_ms()
