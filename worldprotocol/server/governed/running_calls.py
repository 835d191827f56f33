"""Runs of calls that are in progress: each asks at intervals whether it continues; one that is silent has ended."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from world.events.verification import Verification

__all__ = ["SILENT_S", "RunningCalls"]

SILENT_S: Final = 15.0
"""Time without a request of a run after which its process is taken as ended, in seconds."""

MAX_WIDENED: Final = 10_000
"""Texts whose declarations are widened that are kept in memory; the oldest are dropped."""


@dataclass(slots=True)
class RunningCalls:
    """The runs of one realm by the actor and the key of their calls; safe to use from several threads.

    It is kept in memory: after a restart of the server, a run is known again with its next request.
    """

    _heard: dict[tuple[str, str], tuple[float, Verification]] = field(default_factory=dict)
    _widened: OrderedDict[tuple[str, str], None] = field(default_factory=OrderedDict)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def hear(self, verified: Verification, key: str) -> None:
        """Record a request of a run by its verified agent."""
        with self._mutex:
            self._heard[verified.actor_id or "", key] = time.monotonic(), verified

    def expect(self, verified: Verification, key: str) -> None:
        """Record that a run has ended for its agent: without a request of it soon, it is silent."""
        with self._mutex:
            self._heard.setdefault((verified.actor_id or "", key), (time.monotonic(), verified))

    def end(self, actor_id: str, key: str) -> None:
        """Record that a run has ended."""
        with self._mutex:
            self._heard.pop((actor_id, key), None)

    def take_silent(self, silent_s: float = SILENT_S) -> list[tuple[Verification, str]]:
        """Return the agents and keys of runs that were silent for too long, each once."""
        end = time.monotonic() - silent_s
        with self._mutex:
            silent = [name for name, (heard, _) in self._heard.items() if heard < end]
            return [(self._heard.pop(name)[1], name[1]) for name in silent]

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
