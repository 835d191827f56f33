"""The bound on recorded time: how far a commit's time may be beyond what was recorded before.

A realm may rest for months, so the time between two commits is bounded by the time that really passed, plus a limit
(``KlisSettings.max_clock_ahead_ms``). What really passed is taken from a clock that is never set:

- on a server, the database's clock is the reference;
- on SQLite, the boot clock: the latest expected time is the greatest recorded time plus what the boot clock counted
  since it was recorded. So one commit under a clock that stepped back does not make the right clock one that is ahead;
- without a boot clock that covers the pause (the machine was started anew, or the log was moved), nothing
  distinguishes a machine that was off from a clock that is wrong. Then a pause of up to ``MAX_REST_MS`` is accepted,
  and any pause where no machine's boot clock was stored with the commit before (an imported log, an earlier release).
  Where the last commit was further behind the greatest time than the limit, it does not show what time it is either:
  a machine often starts with a clock that is behind, until it is set by the network.

A time before the last commit's is never ahead: leases go by the largest time recorded (``UnitOfWork.klis_now``). One
that is behind by more than the limit is recorded, with a warning, until an operator confirms it or the clock is set.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from world.clock import Boot, Clock, boot_of
from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["MAX_REST_MS", "Evidence", "GuardedClock", "as_moment"]

MAX_REST_MS: Final = 366 * 86_400_000
"""The longest pause that is accepted where no clock shows how long it was, in milliseconds."""


class Evidence(Struct, frozen=True):
    """What a unit of work can compare its clock with.

    Args:
        last_ms: time of the commit before, ms since 1970; None in an empty log.
        passed_ms: what the boot clock counted since then; None where it does not cover that.
        database_ms: the database server's clock, ms since 1970; None without a server.
        limit_ms: how far beyond the expected time a commit may be.
        was_witnessed: whether a machine's boot clock was stored with the commit before.
        greatest_ms: the greatest time recorded, ms since 1970, where the commit before recorded an earlier one.
        since_greatest_ms: what the boot clock counted since that was recorded; None where it does not cover that.
    """

    last_ms: int | None
    passed_ms: int | None
    database_ms: int | None
    limit_ms: int
    was_witnessed: bool = True
    greatest_ms: int | None = None
    since_greatest_ms: int | None = None

    @property
    def latest_ms(self) -> int:
        """The latest time that what is recorded and the other clocks explain, ms since 1970; 0 in an empty log."""
        last = self.last_ms or 0
        if self.database_ms is not None:
            return max(last, self.database_ms)
        return max(last + (self.passed_ms or 0), (self.greatest_ms or 0) + (self.since_greatest_ms or 0))

    @property
    def earliest_ms(self) -> int:
        """The earliest time that is not behind, ms since 1970."""
        return (self.latest_ms if self.database_ms is None else self.database_ms) - self.limit_ms

    def expected(self, wall_ms: int) -> int:
        """Return what time it should be, ms since 1970, where the wall clock reads ``wall_ms``."""
        if self.last_ms is None or self._is_rest(wall_ms):
            return wall_ms
        if self.database_ms is not None:
            return self.latest_ms
        return sorted((max(self.last_ms, self.greatest_ms or 0), wall_ms, self.latest_ms))[1]

    def is_ahead(self, wall_ms: int) -> bool:
        """Return whether a reading of the wall clock is further ahead than the limit."""
        if self.last_ms is not None and wall_ms <= self.last_ms + self.limit_ms:
            return False  # as nearly always: whatever the other clocks say, it is not expected to be earlier
        return wall_ms > self.expected(wall_ms) + self.limit_ms

    def is_behind(self, wall_ms: int) -> bool:
        """Return whether a reading of the wall clock is further behind than the limit."""
        return wall_ms < self.earliest_ms

    def _is_rest(self, wall_ms: int) -> bool:
        """Return whether nothing shows how long the pause was, and it may have been that long."""
        greatest, covered = self.last_ms or 0, self.passed_ms
        if self.greatest_ms is not None:
            is_back = greatest < self.greatest_ms - self.limit_ms
            greatest, covered = self.greatest_ms, self.since_greatest_ms if is_back else self.passed_ms
        if self.database_ms is not None or covered is not None or wall_ms < greatest:
            return False
        return not self.was_witnessed or wall_ms - greatest <= MAX_REST_MS

    def reference(self) -> str:
        """Return what a clock is compared with, as the end of a sentence."""
        if self.database_ms is not None:
            return f"the database's clock reads {as_moment(self.database_ms)}"
        at, since = "the commit before was at", self.passed_ms
        if self.greatest_ms is not None:
            at, since = "the greatest recorded time is", self.since_greatest_ms
        counted = "no boot clock covers the time since then"
        if since is not None:
            counted = f"the boot clock counted {since} ms since then"
        return f"{at} {as_moment(self.greatest_ms or self.last_ms or 0)}, and {counted}"

    def refusal(self, wall_ms: int) -> RefusedError:
        """Return the refusal of a reading that is ahead."""
        expected = self.expected(wall_ms)
        return RefusedError(
            ErrorCode.CLOCK_AHEAD,
            f"The clock reads {as_moment(wall_ms)}; {self.reference()}: the clock is {wall_ms - expected} ms ahead, "
            f"and the limit is {self.limit_ms} ms. Nothing was recorded. Set the clock right; if it is right, run "
            "`worldctl clock confirm --reason WHY`.",
            now=wall_ms,
            expected=expected,
            recorded=self.greatest_ms or self.last_ms,
            ahead_ms=wall_ms - expected,
            limit_ms=self.limit_ms,
        )


class GuardedClock:
    """A clock whose readings are compared with the evidence of one unit of work."""

    def __init__(self, clock: Clock, evidence: Evidence, *, is_confirmed: bool) -> None:
        """Guard a clock.

        Args:
            clock: is read.
            evidence: what its readings are compared with.
            is_confirmed: an operator confirms in this unit of work that the clock is right, so it may be ahead.
        """
        self._clock = clock
        self._evidence = evidence
        self._began = boot_of(clock)
        self._is_confirmed = is_confirmed
        self.was_confirmed = False

    def confirm(self) -> None:
        """Note that the clock is right, so that greater times recorded before are no evidence any more."""
        self.was_confirmed = True

    def is_behind(self, wall_ms: int) -> bool:
        """Return whether a reading is further behind than the limit."""
        return self._evidence.is_behind(wall_ms)

    def is_ahead(self, wall_ms: int) -> bool:
        """Return whether a reading is further ahead than the limit."""
        return self._evidence.is_ahead(wall_ms)

    def now_ms(self) -> int:
        """Return the time, ms since 1970.

        Raises:
            RefusedError: ``CLOCK_AHEAD``, unless the clock is confirmed.
        """
        now = self._clock.now_ms()
        if not self._is_confirmed and self._evidence.is_ahead(now):
            begun = now - (passed_ms(self._began, boot_of(self._clock)) or 0)
            if self._evidence.is_ahead(begun):
                raise self._evidence.refusal(begun)
        return now


def passed_ms(then: Boot | None, now: Boot | None) -> int | None:
    """Return the milliseconds between two boot readings; None where they cannot be compared."""
    if then is None or now is None or then.id != now.id or now.ms < then.ms:
        return None
    return now.ms - then.ms


def as_moment(at_ms: int) -> str:
    """Return a time as ISO 8601 in UTC, with milliseconds; the number itself where a calendar has no such time."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"
