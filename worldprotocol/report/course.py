"""Time series of a number, such as held leases, in a bounded number of equal spans.

The length of the spans grows with the duration, each time to a multiple, so that one pass needs bounded memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["MAX_SPANS", "Span", "TimeSeries"]

MAX_SPANS: Final = 72
"""Maximum number of spans."""

_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_WIDTHS: Final[tuple[int, ...]] = (
    *(1, 2, 10, 20, 100, 200),
    *(base * _SECOND for base in (1, 2, 10, 30)),
    *(base * _MINUTE for base in (1, 2, 10, 30)),
    *(base * _HOUR for base in (1, 2, 6, 12)),
    *(base * _DAY * 10**power for power in range(9) for base in (1, 2)),
)
"""Lengths of spans, ms; each is a multiple of the previous one."""


@dataclass(slots=True)
class Span:
    """One span: the number at its begin and end, its maximum, and the changes by kind."""

    begin: int
    most: int
    end: int
    changes: Counter[str] = field(default_factory=Counter)


class TimeSeries:
    """Time series of a number."""

    def __init__(self) -> None:
        self._now = 0
        self._level = 0
        self._first: int | None = None
        self._spans: list[Span] = []

    @property
    def width_ms(self) -> int:
        """Length of each span, ms."""
        return _WIDTHS[self._level]

    def take(self, at: int, number: int, kind: str | None = None, count: int = 1) -> None:
        """Add the number at a time.

        Args:
            at: ms since 1970; after a clock was set back, the newest span is used.
            number: the number from this time on.
            kind: kind of the change; None without a change.
            count: number of simultaneous changes.
        """
        if self._first is None:
            self._now = number  # the value before the first one is unknown
        span = self._span(at)
        span.most, span.end, self._now = max(span.most, number), number, number
        if kind is not None:
            span.changes[kind] += count

    def __iter__(self) -> Iterator[tuple[int, Span]]:
        """Yield the start of each span, ms, with the span."""
        for place, span in enumerate(self._spans):
            yield ((self._first or 0) + place) * self.width_ms, span

    def to_wire(self) -> dict[str, Any]:
        """Return the series as JSON, without unchanged spans."""
        rows = [
            {"from": at, "begin": span.begin, "most": span.most, "end": span.end, "changes": dict(span.changes)}
            for at, span in self
            if span.changes
        ]
        began = [at for at, _ in self]
        wire: dict[str, Any] = {"spanMs": self.width_ms, "spans": len(began), "rows": rows}
        return wire if not began else {**wire, "from": began[0], "to": began[-1] + self.width_ms}

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
