"""Time and ids of the import: both come from the event that is being imported.

So a history imported twice, or in two halves with a kill in between, has the same times and the same intentIds, and an
intent that is in the log already is known by its id.
"""

from __future__ import annotations

import uuid
from typing import Final

from world.clock import Boot, SystemIds, uuid7

_SPACE: Final = uuid.uuid5(uuid.NAMESPACE_URL, "urn:example:repository")


class HistoryClock:
    """Clock that returns the time of the event that is being imported; never goes back."""

    def __init__(self, now_ms: int) -> None:
        """Start at a time, ms since 1970."""
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Return the time of the event, ms since 1970."""
        return self._now_ms

    def boot(self) -> Boot:
        """Return the same time: between two events of the history, time passed as it says."""
        return Boot("history", self._now_ms)

    def move_to(self, now_ms: int) -> None:
        """Move on to another event's time, ms since 1970; an earlier one changes nothing."""
        self._now_ms = max(self._now_ms, now_ms)


class HistoryIds:
    """Makes ids from their subject: the n-th id about a subject is always the same.

    Without a subject they are fresh ones: what is done between two events (finishing what a crash cut off) belongs to
    one run only.
    """

    def __init__(self, clock: HistoryClock) -> None:
        """Take the times in ids from a clock."""
        self._clock = clock
        self._fresh = SystemIds()
        self._subject: str | None = None
        self._made = 0

    def about(self, subject: str | None) -> None:
        """Make the next ids about this subject, the first of them first; None goes back to fresh ones."""
        self._subject, self._made = subject, 0

    def new_id(self) -> str:
        """Return the subject's next id, in the form of a UUIDv7."""
        if self._subject is None:
            return self._fresh.new_id()
        self._made += 1
        name = f"{self._subject}#{self._made}"
        return uuid7(self._clock.now_ms(), uuid.uuid5(_SPACE, name).bytes[:10])

    def intent_id(self) -> str:
        """Return the subject's intentId: the same in every run, which is how a repeated import is noticed."""
        return self._fresh.intent_id() if self._subject is None else intent_id_of(self._subject)


def intent_id_of(subject: str) -> str:
    """Return the intentId of a branch (its session) or of a clean-up (``sweep-`` and its number)."""
    return str(uuid.uuid5(_SPACE, subject))
