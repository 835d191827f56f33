"""How a clock compares with what a log has recorded: the evidence of a unit of work, and the answer for people."""

from __future__ import annotations

import logging
from typing import Final, Literal

from msgspec import Struct

from world.clock import SIMULATED, Boot, Clock, boot_of
from world.log import Clocks, EventLog
from world.pipeline.recorded_time import Evidence, as_moment, passed_ms
from world.read_models.decoding import known

__all__ = ["ClockState", "clock_state", "evidence_of", "warn_behind"]

_LOGGER: Final = logging.getLogger("worldprotocol")


class ClockState(Struct, frozen=True):
    """What a clock reads, beside what it is expected to read.

    Args:
        kind: ``right`` within the limit; ``ahead``: commits are refused (``CLOCK_AHEAD``); ``behind``: commits record
            times before others that are recorded, and lease time does not go on until the clock is there.
        now_ms: reading of the clock, ms since 1970.
        expected_ms: what it should read at the latest, or at the earliest where it is behind.
        cause: what it was compared with, as a sentence; empty where it is right.
    """

    kind: Literal["right", "ahead", "behind"]
    now_ms: int
    expected_ms: int
    cause: str = ""

    @property
    def is_refused(self) -> bool:
        """Whether commits with this clock are refused."""
        return self.kind == "ahead"


def clock_state(log: EventLog, clock: Clock, limit_ms: int) -> ClockState:
    """Compare a clock with what a log has recorded; nothing is locked or written.

    Args:
        log: the log.
        clock: the clock of this process.
        limit_ms: how far it may be off, ``KlisSettings.max_clock_ahead_ms``.

    Raises:
        DamagedLogError: the newest event cannot be read.
        WorldProtocolError: ``LOG_UNAVAILABLE`` and others.
    """
    clocks, recorded, size = log.clocks(), None, log.head().size
    if clocks.recorded_ms is None and size:
        recorded = known(log.event_at(size)).at
    evidence, now = evidence_of(clocks, boot_of(clock), recorded, limit_ms), clock.now_ms()
    if evidence.is_ahead(now):
        return ClockState("ahead", now, evidence.expected(now), evidence.refusal(now).message)
    if evidence.is_behind(now):
        return ClockState("behind", now, evidence.earliest_ms + limit_ms, _behind(evidence, now))
    return ClockState("right", now, evidence.expected(now))


def evidence_of(clocks: Clocks, boot: Boot | None, recorded_ms: int | None, limit_ms: int) -> Evidence:
    """Return what a clock is compared with.

    Args:
        clocks: what the store says.
        boot: reading of the boot clock now.
        recorded_ms: time of the last commit where the store has not noted it, ms since 1970; None in an empty log.
        limit_ms: how far the clock may be off.
    """
    last = recorded_ms if clocks.recorded_ms is None else clocks.recorded_ms
    passed = passed_ms(clocks.boot, boot)
    was_witnessed = clocks.boot is not None and not clocks.boot.id.startswith(SIMULATED)
    greatest = clocks.greatest_ms
    since = None if greatest is None else passed_ms(clocks.greatest_boot, boot)
    return Evidence(last, passed, clocks.database_ms, limit_ms, was_witnessed, greatest, since)


def warn_behind(evidence: Evidence, now_ms: int) -> bool:
    """Log that a commit is recorded with a clock that is behind; return whether it is."""
    if is_behind := evidence.is_behind(now_ms):
        _LOGGER.warning("%s", _behind(evidence, now_ms))
    return is_behind


def _behind(evidence: Evidence, now_ms: int) -> str:
    expected = evidence.earliest_ms + evidence.limit_ms
    return (
        f"The clock reads {as_moment(now_ms)}; {evidence.reference()}: the clock is {expected - now_ms} ms behind, "
        f"and the limit is {evidence.limit_ms} ms. Commits are recorded with its time, and leases end later. Set the "
        "clock right; if it is right, run `worldctl clock confirm --reason WHY`."
    )
