"""Queue of waiting requests to re-evaluate after a change, oldest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from world.klis.ledger import Ledger
from world.klis.predicate import GROUP_OF
from world.klis.session import Rank, Request
from world.klis.triple import Triple

__all__ = ["ReevaluationQueue"]


class ReevaluationQueue:
    """Priority queue of requests to re-evaluate; may grow while it is iterated."""

    def __init__(self, ledger: Ledger, but: str | None = None) -> None:
        """Create an empty queue.

        Args:
            ledger: the ledger of the requests.
            but: a request that is never added.
        """
        self._ledger = ledger
        self._heap: list[tuple[tuple[Rank, int], str]] = []
        self._listed = {but}
        self._looked: set[tuple[str, bool, int]] = set()

    def add(self, names: Iterable[str]) -> None:
        """Add requests by id."""
        for name in names:
            if name not in self._listed:
                self._listed.add(name)
                heappush(self._heap, (self._ledger.requests[name].order, name))

    def add_behind(self, triples: Iterable[Triple], *, only_holders: bool = False) -> None:
        """Add the requests that conflict with one of these triples.

        Args:
            triples: triples that were added or removed.
            only_holders: whether to skip sessions without leases.
        """
        for triple in triples:
            place = triple.resource.key, triple.covers, GROUP_OF[triple.predicate]
            if place in self._looked:
                continue
            if not only_holders:
                self._looked.add(place)
            for holders in self._ledger.queued.opposing(triple):
                for waiter in holders.counts:
                    if waiter.places or not only_holders:
                        self.add(waiter.waiting)

    def __iter__(self) -> Iterator[Request]:
        """Yield the requests, oldest first, until the queue is empty."""
        last: tuple[Rank, int] | None = None
        while self._heap:
            order, name = heappop(self._heap)
            if last is not None and order < last:
                # While requests come by age, younger ones that were added are still queued, and older ones are not
                # affected; so no place had to be examined twice until now.
                self._looked.clear()
            last = order
            self._listed.discard(name)
            yield self._ledger.requests[name]
