"""Runs of calls that are in progress: each asks at intervals whether it continues; one that is silent has ended."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from worldprotocol.server.governed.heard_callers import HeardCallers

__all__ = ["RunningCalls"]

MAX_WIDENED: Final = 10_000
"""Texts whose declarations are widened that are kept in memory; the oldest are dropped."""


@dataclass(slots=True)
class RunningCalls(HeardCallers):
    """The runs of one realm by the actor and the key of their calls; thread-safe.

    It is kept in memory; the log has which server holds a run, and after the end of that one the next one that it
    reaches does.
    """

    _widened: OrderedDict[tuple[str, str], None] = field(default_factory=OrderedDict)

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
