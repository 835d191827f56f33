"""Queue of requests to judge again after a change, those that wait and those that died, oldest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from world.klis.ledger import Ledger
from world.klis.predicate import GROUP_OF
from world.klis.refused_requests import Place
from world.klis.session import Rank, RefusedRequest, Request
from world.klis.triple import Triple

__all__ = ["ReevaluationQueue"]


class ReevaluationQueue:
    """Priority queue of requests to judge again; may grow while it is iterated.

    Of those that died it yields the oldest behind each place that was freed, and the next one until ``block`` says that
    the place is blocked. It takes the freed places from the ledger while it is iterated.
    """

    def __init__(self, ledger: Ledger, but: str | None = None) -> None:
        """Create an empty queue.

        Args:
            ledger: the ledger of the requests.
            but: a queued request that is never added.
        """
        self._ledger = ledger
        self._heap: list[tuple[tuple[Rank, int], str | Place]] = []
        self._listed: set[str | Place | None] = {but}
        self._looked: set[tuple[str, bool, int]] = set()
        self._last: tuple[Rank, int] | None = None
        self._aside: list[tuple[RefusedRequest, int]] = []
        self._left: dict[Place, None] = {}
        self._is_blocked = False
        self._leaves = False

    def add(self, names: Iterable[str]) -> None:
        """Add queued requests by id."""
        for name in names:
            if name not in self._listed:
                self._listed.add(name)
                heappush(self._heap, (self._ledger.requests[name].order, name))

    def add_behind(self, triples: Iterable[Triple], *, only_holders: bool = False) -> None:
        """Add the queued requests that conflict with one of these triples.

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

    def wake(self, request: RefusedRequest, *, is_queued: bool) -> None:
        """Add the queued requests behind a request that had died and got another verdict.

        Args:
            request: the request.
            is_queued: whether it waits now, and has no leases.
        """
        self._follow(request.order)
        self.add_behind(request.triples, only_holders=is_queued)

    def block(self) -> None:
        """Leave out the others behind the place of the request that died and was yielded last: they die as well."""
        self._is_blocked = True

    def pass_over(self, request: RefusedRequest) -> None:
        """Leave a request that died as it is, and go on with the next one behind its place."""
        refusals = self._ledger.refusals
        self._aside.append((request, refusals.blocked(request.request_id)))
        refusals.remove(request.request_id)

    def leave(self) -> None:
        """Leave all requests that died to the next pass: their places stay freed."""
        self._leaves = True

    def __iter__(self) -> Iterator[Request | RefusedRequest]:
        """Yield the requests, oldest first, until the queue is empty."""
        while True:
            self._take_freed()
            if not self._heap:
                break
            order, name = heappop(self._heap)
            self._listed.discard(name)
            if isinstance(name, str):
                self._follow(order)
                yield self._ledger.requests[name]
            else:
                yield from self._behind(name)

    def end(self) -> None:
        """Put back what was passed over, and leave to the next pass what was not judged."""
        refusals = self._ledger.refusals
        for request, blocked in self._aside:
            refusals.put(request, blocked)
        refusals.freed.update(self._left)
        refusals.freed.update((place, None) for _, place in self._heap if not isinstance(place, str))

    def _follow(self, order: tuple[Rank, int]) -> None:
        """Note the place in the order of age of a request whose verdict may change."""
        if self._last is not None and order < self._last:
            # While requests come by age, younger ones that were added are still queued, and older ones are not
            # affected; so no place had to be examined twice until now.
            self._looked.clear()
        self._last = order

    def _take_freed(self) -> None:
        freed = self._ledger.refusals.freed
        while freed:
            place, _ = freed.popitem()
            if self._leaves:
                self._left[place] = None
            else:
                self._list(place)

    def _list(self, place: Place) -> None:
        oldest = self._ledger.refusals.oldest(place)
        if oldest is not None and place not in self._listed:
            self._listed.add(place)
            heappush(self._heap, (oldest.order, place))

    def _behind(self, place: Place) -> Iterator[RefusedRequest]:
        """Yield the oldest request behind a place, and list the place again where it is not blocked."""
        oldest = self._ledger.refusals.oldest(place)
        if oldest is None:
            return
        self._left[place] = None
        if self._leaves:
            return
        self._is_blocked = False
        yield oldest
        if not self._leaves:
            del self._left[place]
            if not self._is_blocked:
                self._list(place)
