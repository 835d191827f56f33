"""Every limit of the pipeline, named; the composition root may set others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from world.code.time_limit import TimeLimit, TimeLimitError
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.klis.settings import KlisSettings

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what one caller may ask for.

    Args:
        max_intent_bytes: canonical bytes of one intent in wire form.
        max_source_bytes: canonical bytes of one source event.
        max_event_bytes: canonical bytes of one logged event.
        max_open_proposals: proposals that wait or execute at the same time.
        checkpoint_every: worlds between two checkpoints on a line of descent; recorded when the index of a log is
            built, and in force until it is rebuilt (`worldctl doctor --rebuild`).
        max_call_ms: milliseconds that one call of foreign Python code may take (an action's step, a rule, a
            projection, the computed values of a world), before the log's lock is taken or under it.
        max_unit_ms: milliseconds that one command may hold the log's lock all in all; one that takes longer is refused
            (``UNIT_TOO_LARGE``), and nothing of it is recorded. On a server, waiting writers end what holds the lock
            for 12 s (``world.log.store.MAX_HOLD_MS``), so more has no effect there while others wait.
        max_preparations: how often the foreign code of a command is called before the log's lock is taken, until what
            it read is still in force under the lock; 0 calls it under the lock only.
        judge_invalid_input: accept an intent whose input does not fit its action's schema; it is judged, and fails when
            it is executed. Without it, the intent is refused (``INVALID_INPUT``).
        klis: settings of leases, for a realm that is founded now; see ``world.klis.settings``.
    """

    max_intent_bytes: int = 1 << 20
    max_source_bytes: int = 1 << 20
    max_event_bytes: int = 8 << 20
    max_open_proposals: int = 100_000
    checkpoint_every: int = 128
    max_call_ms: int = 10_000
    max_unit_ms: int = 8_000
    max_preparations: int = 3
    judge_invalid_input: bool = False
    klis: KlisSettings = field(default_factory=KlisSettings)

    def in_time(self, call: Callable[[], R]) -> R:
        """Return what a call returns that computes values with a domain's functions.

        Raises:
            RefusedError: ``COMPUTED_TIMED_OUT`` when it takes longer than ``max_call_ms``: a value
                without a result is not null, or what is built on it would be another world elsewhere.
        """
        try:
            return TimeLimit(self.max_call_ms).run(call)
        except TimeLimitError as late:
            raise RefusedError(
                ErrorCode.COMPUTED_TIMED_OUT,
                f"The computed values of the domain took longer than {late.limit_ms} ms, so nothing was done; correct "
                "the function that does not end, or raise the limit max_call_ms.",
                limit_ms=late.limit_ms,
            ) from None
