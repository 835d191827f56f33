"""Parsing of times: ISO 8601, ms since 1970, or a duration before now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment_of(text: str, now: int) -> int:
    """Return a time in ms since 1970.

    Args:
        text: ``2026-01-31T12:00:00Z`` (UTC if it names no zone); digits, ms since 1970; or ``15m``, ``2h``, ``3d``
            before now.
        now: current time, ms since 1970.

    Raises:
        ValueError: any other text, with the accepted forms.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        if text[:-1].isascii() and text[:-1].isdigit() and text[-1:] in _UNITS:
            return now - int(timedelta(**{_UNITS[text[-1]]: int(text[:-1])}).total_seconds() * 1_000)
        return milliseconds(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r:.60} is not a time: write 2024-05-01T12:00:00Z, milliseconds since 1970, or 15m, 2h, 3d for ago"
        ) from None


def milliseconds(time: datetime) -> int:
    """Return a time in ms since 1970; without a zone it is UTC."""
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)
