"""Jumps of recorded time: where a clock was ahead, as far as the log itself shows it.

Time may pass between two commits for months, so a gap alone proves nothing. A gap is a jump where an event after it was
recorded at an earlier time again, or where its end is still to come; both by more than a limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from world.errors import DamagedLogError
from world.events.clock_events import ClockConfirmed
from world.log import EventLog
from world.pipeline.recorded_time import as_moment

__all__ = ["Jump", "clock_jumps"]


class _At(msgspec.Struct):
    at: int


_DECODER: Final = msgspec.json.Decoder(_At)


@dataclass(slots=True)
class Jump:
    """A gap in recorded time that no passing of time explains.

    Args:
        position: the first event after the gap.
        to_ms: its time, ms since 1970.
        from_position: the event with the latest time before it; None where there is none.
        from_ms: that time, ms since 1970.
        back_position: the first event after it that was recorded before it again; None where there is none.
        back_ms: the time of that event, ms since 1970.
        is_confirmed: whether it was an operator who confirmed the time of ``position``.
    """

    position: int
    to_ms: int
    from_position: int | None = None
    from_ms: int | None = None
    back_position: int | None = None
    back_ms: int | None = None
    is_confirmed: bool = False

    def sentence(self) -> str:
        """Return where it is, from when to when, and how far."""
        if self.from_position is None or self.from_ms is None:
            words = f"the log begins at {as_moment(self.to_ms)}"
        else:
            words = (
                f"recorded time jumps at event {self.position} from {as_moment(self.from_ms)} (event "
                f"{self.from_position}) to {as_moment(self.to_ms)}, by {self.to_ms - self.from_ms} ms"
            )
        if self.back_position is not None and self.back_ms is not None:
            return f"{words}; event {self.back_position} is at {as_moment(self.back_ms)}"
        return f"{words}, which is still to come"

    def to_wire(self) -> dict[str, Any]:
        """Return the jump as JSON."""
        return {
            "position": self.position,
            "toMs": self.to_ms,
            "fromPosition": self.from_position,
            "fromMs": self.from_ms,
            "backPosition": self.back_position,
            "backMs": self.back_ms,
        }


def clock_jumps(log: EventLog, *, limit_ms: int, now_ms: int) -> list[Jump]:
    """Return the jumps of recorded time in a log, in the order of their positions.

    Args:
        log: is read from the first event to the last.
        limit_ms: a difference that counts for nothing, in ms.
        now_ms: what time it is, ms since 1970.

    Raises:
        DamagedLogError: ``BAD_EVENT`` for an event without a time.
    """
    gaps: list[Jump] = []
    latest: Jump | None = None  # the event with the latest time so far, as a gap's end would be
    for logged in log.read(0):
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
    """Note at the first gap whose end is after a time that an event was recorded at that time."""
    for gap in gaps:
        if gap.to_ms > at + limit_ms:
            if gap.back_position is None:
                gap.back_position, gap.back_ms = position, at
            return


def _time(state: bytes, position: int) -> int:
    try:
        return _DECODER.decode(state).at
    except msgspec.DecodeError as error:
        raise DamagedLogError("BAD_EVENT", f"Event {position} has no time: {error}.", position=position) from None
