"""How often intents were tried, as far as a process saw it lately.

While no other process commits, a preparation takes the number from here, without a query. A submission compares it
under the log's lock with the number that the index has (``world.pipeline.preparation.prepared.unchanged_submission``).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from world.events.proposal_events import ProposalSubmitted

__all__ = ["KEPT_INTENTS", "RecentAttempts"]

KEPT_INTENTS: Final = 4_096
"""Number of intentKeys that are remembered."""


class RecentAttempts:
    """The number of the last attempt at each intentKey, of those that were submitted lately."""

    def __init__(self) -> None:
        """Begin empty."""
        self._attempts: OrderedDict[str, int] = OrderedDict()
        self._is_alone = False

    def note_others(self) -> None:
        """Note that another process committed after what was added."""
        self._is_alone = False

    def add(self, event: ProposalSubmitted) -> None:
        """Add a submission that this process committed."""
        self._is_alone = True
        self.learn(event.intent.intent_key, event.attempt)

    def learn(self, intent_key: str, attempts: int) -> None:
        """Note how many attempts at an intentKey are committed."""
        self._attempts.pop(intent_key, None)
        self._attempts[intent_key] = attempts
        if len(self._attempts) > KEPT_INTENTS:
            self._attempts.popitem(last=False)

    def of(self, intent_key: str) -> int | None:
        """Return how many attempts at an intentKey are known; None where other processes may have made some."""
        return self._attempts.get(intent_key, 0) if self._is_alone else None
