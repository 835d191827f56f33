"""Figures by key, for a bounded number of keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from world.model.record import WireForm, to_wire

__all__ = ["MAX_KEYS", "EventPosition", "Part", "Spell", "Tally"]

MAX_KEYS: Final = 5_000
"""Maximum number of separate keys; further ones are counted together."""

MAX_SHOWN: Final = 100
"""Maximum number of rows of a table, highest counts first."""

MAX_KEY_CHARS: Final = 1_000
"""Maximum length of a key, in characters."""


@dataclass(frozen=True, slots=True)
class EventPosition:
    """Position of an event in the log.

    Args:
        position: its position in the log.
        counts: whether it is in the range of the report; earlier events only update open items.
    """

    position: int
    counts: bool


class Part(Protocol):
    """Section of the report."""

    def steps(self) -> dict[type[Any], Callable[[Any, EventPosition], None]]:
        """Return the handler of each type of event."""
        ...


@dataclass(slots=True)
class Spell(WireForm):
    """Number and durations of waits, in ms."""

    count: int = 0
    total_ms: int = 0
    longest_ms: int = 0
    WIRE: ClassVar = "count total_ms mean_ms longest_ms"

    @property
    def mean_ms(self) -> int:
        """Mean duration, rounded down; 0 without a wait."""
        return self.total_ms // self.count if self.count else 0

    def add(self, ms: int) -> None:
        """Add one wait; a negative duration counts as 0."""
        self.count += 1
        self.total_ms += max(ms, 0)
        self.longest_ms = max(self.longest_ms, ms)


class _Weighed(Protocol):
    @property
    def weight(self) -> int: ...


T = TypeVar("T", bound=_Weighed)


class Tally(Generic[T]):
    """Figures by key.

    Args:
        names: names of the key's parts in JSON.
        make: creates the figures of a new key.
        most: maximum number of separate keys.
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
        """Return the mutable figures of a key, or the shared figures of further keys."""
        short = tuple(part if len(part) <= MAX_KEY_CHARS else f"{part[:MAX_KEY_CHARS]}…" for part in key)
        figures = self._kept.get(short)
        if figures is not None:
            return figures
        if len(self._kept) < self._most:
            figures = self._kept[short] = self._make()
            return figures
        if self._rest is None:
            self._rest = self._make()
        return self._rest

    def to_wire(self, shown: int = MAX_SHOWN) -> dict[str, Any]:
        """Return the rows with the highest weights, and the number of the others.

        ``beyond`` is the number of events with keys beyond the maximum.
        """
        ordered = sorted(self._kept.items(), key=lambda item: (-item[1].weight, item[0]))
        rows = [{**dict(zip(self._names, key, strict=True)), **to_wire(figures)} for key, figures in ordered[:shown]]
        wire: dict[str, Any] = {"rows": rows, "more": max(len(ordered) - shown, 0)}
        if self._rest is not None:
            wire["beyond"] = self._rest.weight
        return wire
