"""Figures by key, for no more keys than are kept: whoever makes up names fills no memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

__all__ = ["MAX_KEYS", "EventPosition", "Part", "Spell", "Tally"]

MAX_KEYS: Final = 5_000
"""Keys that one tally keeps apart; further ones are counted together."""

MAX_SHOWN: Final = 100
"""Rows of a table of figures, those with the highest count first."""

MAX_KEY_CHARS: Final = 1_000
"""Characters of a key that is kept."""


@dataclass(frozen=True, slots=True)
class EventPosition:
    """Where in the log an event stands, for the parts that count it.

    Args:
        position: its place in the log.
        counts: whether it lies in the time that the report is about; earlier events are only remembered.
    """

    position: int
    counts: bool


class Part(Protocol):
    """A part of the report: which events it takes, and what it tells in the end."""

    def steps(self) -> dict[type[Any], Callable[[Any, EventPosition], None]]:
        """Return what to call with the events of each type."""
        ...

    def to_wire(self) -> dict[str, Any]:
        """Return what it found, as JSON."""
        ...


@dataclass(slots=True)
class Spell:
    """How often something was waited for, and how long: in ms."""

    count: int = 0
    total_ms: int = 0
    longest_ms: int = 0

    def add(self, ms: int) -> None:
        """Count one wait; a clock that was set back makes none shorter than nothing."""
        self.count += 1
        self.total_ms += max(ms, 0)
        self.longest_ms = max(self.longest_ms, ms)

    def to_wire(self) -> dict[str, int]:
        """Return it as JSON."""
        mean = self.total_ms // self.count if self.count else 0
        return {"count": self.count, "totalMs": self.total_ms, "meanMs": mean, "longestMs": self.longest_ms}


class _Weighed(Protocol):
    @property
    def weight(self) -> int: ...

    def to_wire(self) -> dict[str, Any]: ...


T = TypeVar("T", bound=_Weighed)


class Tally(Generic[T]):
    """Figures by key.

    Args:
        names: what the parts of a key are called, as in JSON.
        make: makes the figures of a new key.
        most: keys that are kept apart.
    """

    def __init__(self, names: tuple[str, ...], make: Callable[[], T], most: int = MAX_KEYS) -> None:
        self._names = names
        self._make = make
        self._most = most
        self._kept: dict[tuple[str, ...], T] = {}
        self._rest: T | None = None

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, *key: str) -> T:
        """Return the figures of a key, to be counted up; of one too many, those of all these together."""
        short = tuple(part if len(part) <= MAX_KEY_CHARS else f"{part[:MAX_KEY_CHARS]}…" for part in key)
        found = self._kept.get(short)
        if found is not None:
            return found
        if len(self._kept) < self._most:
            found = self._kept[short] = self._make()
            return found
        if self._rest is None:
            self._rest = self._make()
        return self._rest

    def to_wire(self, shown: int = MAX_SHOWN) -> dict[str, Any]:
        """Return the rows with the highest weight, in their order, and how many more there are.

        ``beyond`` is how many events fell on keys that are not kept apart.
        """
        ordered = sorted(self._kept.items(), key=lambda item: (-item[1].weight, item[0]))
        rows = [{**dict(zip(self._names, key, strict=True)), **figures.to_wire()} for key, figures in ordered[:shown]]
        told: dict[str, Any] = {"rows": rows, "more": max(len(ordered) - shown, 0)}
        if self._rest is not None:
            told["beyond"] = self._rest.weight
        return told
