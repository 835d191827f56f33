"""The error for an event whose embedded values are not what its topic requires."""

from __future__ import annotations

from typing import Final

from world.errors import DamagedLogError, RefusedError

__all__ = ["MALFORMED", "malformed"]

MALFORMED: Final = (KeyError, TypeError, AttributeError, ValueError, RefusedError)
"""What looking into an event raises whose embedded values are not what its topic says."""


def malformed(position: int, error: Exception) -> DamagedLogError:
    """Return the error for such an event."""
    told = f"Event {position} is not what its topic says: a part is missing or wrong ({type(error).__name__}: {error})."
    return DamagedLogError("BAD_EVENT", told, position=position)
