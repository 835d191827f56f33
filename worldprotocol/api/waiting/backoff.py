"""Pauses between the attempts at something that others make available again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from world.clock import chance

__all__ = ["Backoff"]


@dataclass(slots=True)
class Backoff:
    """Pauses that double up to a longest one; each is shortened by chance, so that many callers do not come at once.

    Args:
        first_s: the first pause, in seconds.
        longest_s: the longest pause, in seconds.
        chance: returns a number from 0 to 1.
    """

    first_s: float
    longest_s: float
    chance: Callable[[], float] = chance
    _next_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._next_s = self.first_s

    def pause_s(self) -> float:
        """Return the next pause, in seconds: from the half to the whole of it."""
        pause, self._next_s = self._next_s, min(2 * self._next_s, self.longest_s)
        return pause * (0.5 + 0.5 * self.chance())

    def reset(self) -> None:
        """Begin with the first pause again."""
        self._next_s = self.first_s
