"""Waiting: ``timer.wait`` ends a given time after its request, or at a point in time.

The time counts from the first request of the effect, so a wait that a crash interrupted is not started anew; a
repetition is harmless. It touches no resource.
"""

from __future__ import annotations

import time
from typing import Annotated, Any, Final

from pydantic import Field, model_validator

from host.builtin.effect_support import EFFECT_CANCELLED, EffectError, Params, with_error_values
from host.effect_call import EffectCallInfo
from host.effects import EFFECT_INVALID_INPUT, MAX_TIME_LIMIT_MS, EffectHandler, handler

__all__ = ["MAX_WAIT_MS", "TIMERS"]

MAX_WAIT_MS: Final = 7 * 24 * 3_600_000
"""Longest wait, in milliseconds."""

_GRACE_MS: Final = 5_000
_POLL_S: Final = 0.1

_Wait = Annotated[int, Field(ge=0, le=MAX_WAIT_MS)]
_Time = Annotated[int, Field(ge=0)]


class TimerWait(Params):
    """Parameters of ``timer.wait``: ``ms`` counts from the request; ``until`` is ms since 1970. One of the two."""

    ms: _Wait | None = None
    until: _Time | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> TimerWait:
        if (self.ms is None) == (self.until is None):
            raise ValueError("name either ms or until")
        return self


def _limit(params: TimerWait) -> int:
    return MAX_TIME_LIMIT_MS if params.ms is None else params.ms + _GRACE_MS


@handler("timer.wait", input=TimerWait, idempotent=True, time_limit_ms=_limit)
@with_error_values
def _wait(params: TimerWait, call: EffectCallInfo) -> Any:
    now = call.clock.now_ms()
    until = params.until if params.until is not None else (call.requested_at or now) + (params.ms or 0)
    wait_ms = until - now
    if wait_ms > MAX_WAIT_MS:
        raise EffectError(
            EFFECT_INVALID_INPUT,
            f"timer.wait would take {wait_ms} ms; the longest wait is {MAX_WAIT_MS} ms.",
            {"waitMs": wait_ms, "maximumMs": MAX_WAIT_MS},
        )
    end = time.monotonic() + wait_ms / 1000
    while (remaining_s := end - time.monotonic()) > 0:
        if call.is_cancelled():
            raise EffectError(EFFECT_CANCELLED, "timer.wait was cancelled.")
        time.sleep(min(remaining_s, _POLL_S))
    return {"until": until}


TIMERS: Final[tuple[EffectHandler, ...]] = (_wait,)
"""The handlers of this module."""
