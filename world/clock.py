"""Time and fresh names: the only module of the floor that reads a wall clock or randomness.

Everything else is given a ``Clock`` and an ``IdSource``, so that a test, a replay or a simulation decides
what time it is and which ids come next.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
import uuid
from functools import cache
from typing import Final, NamedTuple, Protocol

SIMULATED: Final = "manual-"
"""How the ids of boot readings begin that no machine gave."""


class Boot(NamedTuple):
    """A reading of a clock that only runs forward, and that no one sets.

    Args:
        id: what the reading belongs to; readings with different ids cannot be compared.
        ms: milliseconds since a fixed moment, time in suspension included.
    """

    id: str
    ms: int


class Clock(Protocol):
    """Returns the time that events record.

    A clock may also have a method ``boot() -> Boot``. The engine takes such a reading with every commit on SQLite, and
    compares the time that passed by it with the time that passed by ``now_ms`` (``world.pipeline.recorded_time``).
    """

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
    """The operating system's wall clock, and its boot clock."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def boot(self) -> Boot:
        """Return the reading of the boot clock.

        On Linux: ``CLOCK_BOOTTIME`` under the id of this boot of the machine, the same for all of its processes.
        Elsewhere: ``time.monotonic`` under an id of this process, so that only its own commits can be compared.
        """
        if sys.platform == "linux" and (boot_id := _linux_boot_id()) is not None:
            return Boot(boot_id, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000)
        return Boot(_process_id(os.getpid()), time.monotonic_ns() // 1_000_000)


@cache
def _linux_boot_id() -> str | None:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


@cache
def _process_id(number: int) -> str:
    return f"process-{number}-{uuid.uuid4()}"


def chance() -> float:
    """Return a random number from 0 to 1, for pauses; nothing that is recorded depends on it."""
    return random.random()


def wall_clock_ns() -> int:
    """Return nanoseconds since 1970-01-01 UTC, for what is measured and not recorded."""
    return time.time_ns()


def boot_of(clock: Clock) -> Boot | None:
    """Return a clock's boot reading; None for a clock that has none."""
    boot = getattr(clock, "boot", None)
    reading: Boot | None = None if boot is None else boot()
    return reading


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
    """A clock that moves only when it is advanced, plus ``step_ms`` after every reading.

    Moving it forward is time that passes, so its boot clock moves along; ``set_off`` makes it wrong instead.
    """

    def __init__(self, start_ms: int = 0, step_ms: int = 0, boot_id: str | None = None) -> None:
        """Begin at a time.

        Args:
            start_ms: first reading, in milliseconds.
            step_ms: how far every reading moves the clock, in milliseconds.
            boot_id: id of its boot readings; None makes one that no other clock has.
        """
        self._now_ms = start_ms
        self._step_ms = step_ms
        self._boot = Boot(boot_id or f"{SIMULATED}{uuid.uuid4()}", 0)
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        """Return the current reading, in milliseconds."""
        with self._lock:
            now = self._now_ms
            self._pass(self._step_ms)
            return now

    def boot(self) -> Boot:
        """Return how far the clock was moved forward so far."""
        with self._lock:
            return self._boot

    def advance(self, by_ms: int) -> None:
        """Move the clock; a negative number sets it back, as real clocks sometimes do."""
        with self._lock:
            self._pass(by_ms)

    def set_off(self, by_ms: int) -> None:
        """Put the clock wrong by some milliseconds, without time passing."""
        with self._lock:
            self._now_ms += by_ms

    def reboot(self, after_ms: int = 0) -> None:
        """Advance by milliseconds that the boot clock does not count: it begins again, under another id."""
        with self._lock:
            self._now_ms += after_ms
            self._boot = Boot(str(uuid.uuid4()), 0)

    def _pass(self, by_ms: int) -> None:
        self._now_ms += by_ms
        self._boot = Boot(self._boot.id, self._boot.ms + max(0, by_ms))


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
