"""Times as people write them: ISO 8601, ms since 1970, or how long ago."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment_of(text: str, now: int) -> int:
    """Return a time in ms since 1970.

    Args:
        text: ``2026-01-31T12:00:00Z``, in UTC where it says nothing else; digits, ms since 1970; or ``15m``, ``2h``,
            ``3d`` for ago.
        now: what ago is meant from, ms since 1970.

    Raises:
        ValueError: for anything else, with what could stand there.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        if text[:-1].isascii() and text[:-1].isdigit() and text[-1:] in _UNITS:
            return now - int(timedelta(**{_UNITS[text[-1]]: int(text[:-1])}).total_seconds() * 1_000)
        return milliseconds(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r:.60} is no time: write 2024-05-01T12:00:00Z, milliseconds since 1970, or 15m, 2h, 3d for ago"
        ) from None


def milliseconds(told: datetime) -> int:
    """Return a time in ms since 1970; one that names no zone is in UTC."""
    return ((told if told.tzinfo else told.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)
