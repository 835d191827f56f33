"""Whose turn it is to be judged again after something changed: only those who can feel it, oldest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from world.klis.ledger import Ledger, Request
from world.klis.predicate import GROUP_OF
from world.klis.session import Rank
from world.klis.triple import Triple

__all__ = ["Turns"]


class Turns:
    """An agenda of requests in the queue; what is added while it is gone through takes its place by age."""

    def __init__(self, ledger: Ledger, but: str | None = None) -> None:
        """Begin empty.

        Args:
            ledger: whose queue.
            but: a request that is not to be judged.
        """
        self._ledger = ledger
        self._heap: list[tuple[tuple[Rank, int], str]] = []
        self._listed = {but}
        self._looked: set[tuple[str, bool, int]] = set()

    def add(self, names: Iterable[str]) -> None:
        """Put requests on the agenda."""
        for name in names:
            if name not in self._listed:
                self._listed.add(name)
                heappush(self._heap, (self._ledger.requests[name].order, name))

    def add_behind(self, triples: Iterable[Triple], *, only_holders: bool = False) -> None:
        """Put the requests on the agenda that want something that conflicts with one of these triples.

        Args:
            triples: what came or went.
            only_holders: leave out those of sessions that hold nothing.
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
        """Yield the requests, oldest first, until nobody is left."""
        last: tuple[Rank, int] | None = None
        while self._heap:
            order, name = heappop(self._heap)
            if last is not None and order < last:
                # As long as they come by age, whoever is younger and was put on the agenda is still on it, and older
                # ones do not feel what becomes of this one; so no place needs a second look until now.
                self._looked.clear()
            last = order
            self._listed.discard(name)
            yield self._ledger.requests[name]
