"""Refusals of an append that are also the exceptions of the ``eventsourcing`` library for the same fault.

So callers of the engine and users of the library's recorder interface handle one exception each in their own terms.
"""

from __future__ import annotations

from eventsourcing.persistence import DataError, IntegrityError

from world.errors import RefusedError


class StreamConflictError(RefusedError, IntegrityError):
    """The expected version of a stream is taken, or is not its next one (``STREAM_CONFLICT``)."""


class InvalidEventError(RefusedError, DataError):
    """The log cannot store an event (``INVALID_EVENT``, ``EVENT_TOO_LARGE``)."""
