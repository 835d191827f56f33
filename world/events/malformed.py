"""Error for an event whose embedded values are invalid for its topic."""

from __future__ import annotations

from typing import Final

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError

__all__ = ["MALFORMED", "malformed"]

MALFORMED: Final = (KeyError, TypeError, AttributeError, ValueError, RefusedError)
"""Exceptions that reading an embedded value raises where it is invalid for the event's topic."""


def malformed(position: int, error: Exception) -> DamagedLogError:
    """Return the error for an event with invalid embedded values.

    Args:
        position: the event's position in the log.
        error: the exception that reading a value raised.
    """
    message = f"Event {position} is not valid for its topic: a member is missing or wrong ({type(error).__name__}: "
    return DamagedLogError(ErrorCode.BAD_EVENT, f"{message}{error}).", position=position)
