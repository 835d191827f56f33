"""A number over time, in few spans of equal length: how many leases were held, and what changed that.

The spans grow as time goes on, each into a multiple of itself, so that one pass is enough and memory is bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["MAX_SPANS", "Span", "TimeSeries"]

MAX_SPANS: Final = 72
"""Spans that are kept."""

_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_WIDTHS: Final[tuple[int, ...]] = (
    *(1, 2, 10, 20, 100, 200),
    *(base * _SECOND for base in (1, 2, 10, 30)),
    *(base * _MINUTE for base in (1, 2, 10, 30)),
    *(base * _HOUR for base in (1, 2, 6, 12)),
    *(base * _DAY * 10**power for power in range(9) for base in (1, 2)),
)
"""How long a span may be, ms; each is a multiple of the one before."""


@dataclass(slots=True)
class Span:
    """What happened in a span: the number where it began and ended, its highest value, and the changes by kind."""

    begin: int
    most: int
    end: int
    changes: Counter[str] = field(default_factory=Counter)


class TimeSeries:
    """A number over time."""

    def __init__(self) -> None:
        """Begin with nothing, at no time yet."""
        self._now = 0
        self._level = 0
        self._first: int | None = None
        self._spans: list[Span] = []

    @property
    def width_ms(self) -> int:
        """How long each span is, ms."""
        return _WIDTHS[self._level]

    def take(self, at: int, number: int, kind: str | None = None, count: int = 1) -> None:
        """Note the number at a time.

        Args:
            at: ms since 1970; where a clock was set back, it counts with the newest span.
            number: what it is from here on.
            kind: what changed it; None where nothing did.
            count: how often that happened at once.
        """
        if self._first is None:
            self._now = number  # it was that before, as far as anybody knows
        span = self._span(at)
        span.most, span.end, self._now = max(span.most, number), number, number
        if kind is not None:
            span.changes[kind] += count

    def __iter__(self) -> Iterator[tuple[int, Span]]:
        """Yield each span with when it began, ms."""
        for place, span in enumerate(self._spans):
            yield ((self._first or 0) + place) * self.width_ms, span

    def to_wire(self) -> dict[str, Any]:
        """Return it as JSON; spans in which nothing changed are left out."""
        rows = [
            {"from": at, "begin": span.begin, "most": span.most, "end": span.end, "changes": dict(span.changes)}
            for at, span in self
            if span.changes
        ]
        began = [at for at, _ in self]
        told: dict[str, Any] = {"spanMs": self.width_ms, "spans": len(began), "rows": rows}
        return told if not began else {**told, "from": began[0], "to": began[-1] + self.width_ms}

    def _span(self, at: int) -> Span:
        if self._first is None:
            self._first = at // self.width_ms
        while (place := at // self.width_ms - self._first) >= MAX_SPANS and self._level + 1 < len(_WIDTHS):
            self._widen()
        place = max(min(place, MAX_SPANS - 1), len(self._spans) - 1, 0)
        while len(self._spans) <= place:
            self._spans.append(Span(self._now, self._now, self._now))
        return self._spans[place]

    def _widen(self) -> None:
        assert self._first is not None
        times = _WIDTHS[self._level + 1] // _WIDTHS[self._level]
        wide: list[Span] = []
        first = self._first // times
        for place, span in enumerate(self._spans):
            if (self._first + place) // times - first == len(wide):
                wide.append(span)
                continue
            last = wide[-1]
            last.most, last.end = max(last.most, span.most), span.end
            last.changes.update(span.changes)
        self._first, self._spans, self._level = first, wide, self._level + 1
