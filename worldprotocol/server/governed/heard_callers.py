"""When each of some callers was heard of: the sessions of agents, and the runs of shell commands."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

__all__ = ["SILENT_S", "CallerName", "HeardCallers"]

SILENT_S: Final = 15.0
"""Time without a sign after which a caller has ended that was heard of before, in seconds."""

CallerName = tuple[str, str]
"""Actor, and the id of a session or the key of the call of a run."""


@dataclass(slots=True)
class HeardCallers:
    """Callers by their names, in memory; safe to use from several threads.

    Args:
        clock: a monotonic clock, in seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _heard: dict[CallerName, float] = field(default_factory=dict)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def hear(self, name: CallerName) -> None:
        """Note a sign of a caller."""
        with self._mutex:
            self._heard[name] = self.clock()

    def expect(self, name: CallerName) -> None:
        """Note that a caller is to be heard of; without a sign of it soon, it is silent."""
        with self._mutex:
            self._heard.setdefault(name, self.clock())

    def drop(self, name: CallerName) -> None:
        """Note that nothing is expected of a caller any more."""
        with self._mutex:
            self._heard.pop(name, None)

    def is_heard(self, name: CallerName, within_s: float = SILENT_S) -> bool:
        """Return whether a caller was heard of within a time, in seconds."""
        with self._mutex:
            heard = self._heard.get(name)
            return heard is not None and heard >= self.clock() - within_s

    def is_silent(self, name: CallerName, silent_s: float = SILENT_S) -> bool:
        """Return whether a caller that was heard of before was not for a time, in seconds."""
        with self._mutex:
            heard = self._heard.get(name)
            return heard is not None and heard < self.clock() - silent_s

    def silent(self) -> list[CallerName]:
        """Return the callers that were silent for too long."""
        with self._mutex:
            end = self.clock() - SILENT_S
            return [name for name, heard in self._heard.items() if heard < end]

    def shift(self, seconds: float) -> None:
        """Leave a time out of account in which no sign of a caller could arrive."""
        with self._mutex:
            now = self.clock()
            self._heard = {name: min(now, heard + seconds) for name, heard in self._heard.items()}
