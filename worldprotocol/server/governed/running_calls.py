"""Runs of calls that are in progress: each asks at intervals whether it continues; one that is silent has ended."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

__all__ = ["SILENT_S", "RunningCalls"]

SILENT_S: Final = 15.0
"""Time without a request of a run after which its process is taken as ended, in seconds."""

MAX_WIDENED: Final = 10_000
"""Texts whose declarations are widened that are kept in memory; the oldest are dropped."""

RunName = tuple[str, str]
"""Actor and key of the call of a run."""


@dataclass(slots=True)
class RunningCalls:
    """The runs of one realm by the actor and the key of their calls; safe to use from several threads.

    It is kept in memory: after a restart of the server, a run is known again with its next request.

    Args:
        clock: a monotonic clock, in seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _heard: dict[RunName, float] = field(default_factory=dict)
    _dismissed: set[RunName] = field(default_factory=set)
    _widened: OrderedDict[tuple[str, str], None] = field(default_factory=OrderedDict)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def hear(self, actor_id: str, key: str) -> bool:
        """Record a request of a run, and return whether its agent is still there."""
        with self._mutex:
            self._heard[actor_id, key] = self.clock()
            return (actor_id, key) not in self._dismissed

    def expect(self, actor_id: str, key: str) -> None:
        """Record that a run has ended for its agent: without a request of it soon, it is silent."""
        with self._mutex:
            self._heard.setdefault((actor_id, key), self.clock())

    def dismiss(self, actor_id: str, key: str) -> None:
        """Record that the agent of a run has ended, so that the run is to end, too."""
        with self._mutex:
            self._heard.setdefault((actor_id, key), self.clock())
            self._dismissed.add((actor_id, key))

    def end(self, actor_id: str, key: str) -> None:
        """Record that a run has ended."""
        with self._mutex:
            self._heard.pop((actor_id, key), None)
            self._dismissed.discard((actor_id, key))

    def is_heard(self, actor_id: str, key: str, silent_s: float = SILENT_S) -> bool:
        """Return whether a run was heard of within a time, in seconds."""
        with self._mutex:
            return self._heard.get((actor_id, key), -silent_s) >= self.clock() - silent_s

    def silent(self) -> list[RunName]:
        """Return the runs that were silent for too long."""
        with self._mutex:
            end = self.clock() - SILENT_S
            return [name for name, heard in self._heard.items() if heard < end]

    def shift(self, seconds: float) -> None:
        """Leave a time out of account in which this process did not run: no request could arrive."""
        with self._mutex:
            now = self.clock()
            self._heard = {name: min(now, heard + seconds) for name, heard in self._heard.items()}

    def widen(self, actor_id: str, text: str) -> None:
        """Record that a text wrote outside of its declaration."""
        with self._mutex:
            self._widened[actor_id, text] = None
            while len(self._widened) > MAX_WIDENED:
                self._widened.popitem(last=False)

    def is_widened(self, actor_id: str, text: str) -> bool:
        """Return whether a text wrote outside of its declaration before."""
        with self._mutex:
            return (actor_id, text) in self._widened
