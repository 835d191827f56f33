"""Detection of jumps of recorded time, which show that a clock was ahead.

A gap between two commits can be legitimate, however long it is. A gap is a jump if a later event was recorded at a time
before its end, or if its end is in the future; both by more than a limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from world.error_codes import ErrorCode
from world.errors import DamagedLogError
from world.events.lease_events import ClockConfirmed
from world.log import EventLog
from world.pipeline.recorded_time import as_moment

__all__ = ["Jump", "clock_jumps"]


class _At(msgspec.Struct):
    at: int


_DECODER: Final = msgspec.json.Decoder(_At)


@dataclass(slots=True)
class Jump:
    """Gap in recorded time that a wrong clock caused.

    Args:
        position: the first event after the gap.
        to_ms: its time, ms since 1970-01-01 UTC.
        from_position: the preceding event with the latest time, or None.
        from_ms: that time, ms since 1970-01-01 UTC.
        back_position: the first later event with an earlier time, or None.
        back_ms: the time of that event, ms since 1970-01-01 UTC.
        is_confirmed: whether an operator confirmed the time of ``position``.
    """

    position: int
    to_ms: int
    from_position: int | None = None
    from_ms: int | None = None
    back_position: int | None = None
    back_ms: int | None = None
    is_confirmed: bool = False

    def sentence(self) -> str:
        """Return a sentence with the position, the times and the length of the jump."""
        if self.from_position is None or self.from_ms is None:
            words = f"event {self.position} is at {as_moment(self.to_ms)}"
        else:
            words = (
                f"recorded time jumps at event {self.position} from {as_moment(self.from_ms)} (event "
                f"{self.from_position}) to {as_moment(self.to_ms)}, by {self.to_ms - self.from_ms} ms"
            )
        if self.back_position is not None and self.back_ms is not None:
            return f"{words}; event {self.back_position} is at {as_moment(self.back_ms)}"
        return f"{words}, which is still to come"


def clock_jumps(log: EventLog, *, limit_ms: int, now_ms: int, after: int = 0) -> list[Jump]:
    """Return the jumps of recorded time in a log, in the order of their positions.

    Args:
        log: the log.
        limit_ms: the largest difference that is ignored, in ms.
        now_ms: the current time, ms since 1970-01-01 UTC.
        after: position before the first event that is read.

    Raises:
        DamagedLogError: ``BAD_EVENT`` for an event without a time.
    """
    gaps: list[Jump] = []
    latest: Jump | None = None  # the event with the latest time so far, in the form of the end of a gap
    for logged in log.read(after, skip_archived=True):
        at = _time(logged.state, logged.position)
        if latest is None or at >= latest.to_ms:
            before = None if latest is None else latest.to_ms
            if before is None or at - before > limit_ms:
                gaps.append(Jump(logged.position, at, None if latest is None else latest.position, before))
                gaps[-1].is_confirmed = logged.topic == ClockConfirmed.TOPIC
            latest = Jump(logged.position, at)
        elif at < latest.to_ms - limit_ms:
            _mark(gaps, logged.position, at, limit_ms)
            if logged.topic == ClockConfirmed.TOPIC:
                latest = Jump(logged.position, at)
    return [gap for gap in gaps if gap.back_position is not None or gap.to_ms > now_ms + limit_ms]


def _mark(gaps: list[Jump], position: int, at: int, limit_ms: int) -> None:
    """Record a later event with an earlier time in the first gap that ends after that time."""
    for gap in gaps:
        if gap.to_ms > at + limit_ms:
            if gap.back_position is None:
                gap.back_position, gap.back_ms = position, at
            return


def _time(state: bytes, position: int) -> int:
    try:
        return _DECODER.decode(state).at
    except msgspec.DecodeError as error:
        raise DamagedLogError(
            ErrorCode.BAD_EVENT, f"Event {position} has no time: {error}.", position=position
        ) from None
