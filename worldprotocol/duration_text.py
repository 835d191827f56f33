"""Spans of time as text for people."""

from __future__ import annotations

from typing import Final

__all__ = ["duration"]

_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))


def duration(ms: int) -> str:
    """Return a time span in its two largest units, such as ``1 d 23 h``."""
    parts = []
    for size, unit in _UNITS:
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count} {unit}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts) or "0"
