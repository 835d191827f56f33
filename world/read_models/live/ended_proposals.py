"""Numbers of ended proposals by status, brought up to date from the events since they were last asked for."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Final

from world.events.proposal_events import DecisionMade, ProposalCompleted, ProposalFailed, ProposalSuperseded
from world.read_models.archive import Archive
from world.read_models.decoding import decoded

__all__ = ["EndedProposals"]

_ENDED: Final = {
    ProposalCompleted.TOPIC: "completed",
    ProposalFailed.TOPIC: "failed",
    ProposalSuperseded.TOPIC: "superseded",
}


class EndedProposals:
    """The numbers of one log. The first call counts the rows of the index, later ones read new events only.

    Args:
        archive: of the log.
    """

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._mutex = threading.Lock()
        self._counts: Counter[str] | None = None
        self._position = 0

    def counts(self) -> dict[str, int]:
        """Return how many proposals have ended, by status, as of the last commit.

        Raises:
            RefusedError: as ``Archive.rows``.
            DamagedLogError: as ``Archive.rows``; an event was changed after it was logged.
        """
        with self._mutex:
            size = self._archive.log.head().size
            if self._counts is None:
                rows = self._archive.rows("ended_counts", {"upto": size})
                self._counts = Counter({str(status): int(count) for status, count in rows})
            else:
                self._counts.update(self._since(size))
            self._position = size
            return dict(self._counts)

    def _since(self, size: int) -> list[str]:
        """Return the statuses with which proposals ended after the last call."""
        found = []
        for logged in self._archive.log.read(self._position, size, topics=[DecisionMade.TOPIC, *_ENDED]):
            event = decoded(logged)
            if not isinstance(event, DecisionMade):
                found.append(_ENDED[logged.topic])
            elif event.decision.decision == "rejected":
                found.append("rejected")
        return found
