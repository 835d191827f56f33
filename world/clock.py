"""Time and fresh names: the only module of the floor that reads a wall clock or randomness.

Everything else is given a ``Clock`` and an ``IdSource``, so that a test, a replay or a simulation decides
what time it is and which ids come next.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from typing import Protocol


class Clock(Protocol):
    """Tells the time that events record."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        ...


class IdSource(Protocol):
    """Makes identifiers that were never used before."""

    def new_id(self) -> str:
        """Return a new id for a proposal, decision, record or lease: a UUIDv7, sortable by time."""
        ...

    def intent_id(self) -> str:
        """Return a new intentId: high-entropy (INT-6.1.4)."""
        ...


class SystemClock:
    """The operating system's wall clock."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000


class SystemIds:
    """UUIDv7 from the wall clock and the operating system's randomness (RFC 9562 section 5.7)."""

    def new_id(self) -> str:
        """Return a UUIDv7 in text form."""
        return uuid7(time.time_ns() // 1_000_000, os.urandom(10))

    def intent_id(self) -> str:
        """Return a UUIDv7 in text form: 74 random bits."""
        return self.new_id()


def uuid7(unix_ms: int, entropy: bytes) -> str:
    """Return the UUIDv7 of a time and ten bytes of randomness.

    Args:
        unix_ms: milliseconds since 1970, 48 bits.
        entropy: ten random bytes, of which 74 bits are used.
    """
    bits = int.from_bytes(entropy, "big")
    value = (unix_ms & (2**48 - 1)) << 80 | 7 << 76 | (bits >> 68) << 64 | 2 << 62 | bits & (2**62 - 1)
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class ManualClock:
    """A clock that moves only when told to, plus ``step_ms`` after every reading."""

    def __init__(self, start_ms: int = 0, step_ms: int = 0) -> None:
        self._now_ms = start_ms
        self._step_ms = step_ms
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        """Return the current reading, in milliseconds."""
        with self._lock:
            now = self._now_ms
            self._now_ms += self._step_ms
            return now

    def advance(self, by_ms: int) -> None:
        """Move the clock; a negative number sets it back, as real clocks sometimes do."""
        with self._lock:
            self._now_ms += by_ms


class SequentialIds:
    """Ids that count up from a seed: the same program makes the same log, byte by byte."""

    def __init__(self, seed: str = "ids", start: int = 0) -> None:
        self._space = uuid.uuid5(uuid.NAMESPACE_OID, seed)
        self._next = start
        self._lock = threading.Lock()

    def new_id(self) -> str:
        """Return the next id in the form of a UUIDv7."""
        with self._lock:
            self._next += 1
            number = self._next
        return uuid7(number, uuid.uuid5(self._space, str(number)).bytes[:10])

    def intent_id(self) -> str:
        """Return the next id in the form of a UUIDv7."""
        return self.new_id()
