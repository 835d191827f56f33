"""Index of the requests that died, by the resource that blocks them: who was refused because of which lease.

Each request is behind one place: a triple that it wants, and that its last Die verdict named a conflict of. While a
session that is not younger holds or queues for a conflicting triple, every request behind that place dies, because all
of them are younger than that session. So what is freed has the oldest request behind its place judged again, then the
next one, up to the first that is still blocked there: the cost follows those that can go, not those that wait.

A proposal whose request should wait while the queue is full is here too: behind a triple that a younger session holds.
Then every request behind that place stays where it is, until the place is freed or the queue has room.

Places are freed when events are folded, in every process, and a pass of ``world.klis.lease_manager`` works them off.
They are derived from the log, and are not a part of the stored ledger.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

from world.klis.predicate import GROUP_OF, OPPOSED
from world.klis.session import Rank, RefusedRequest
from world.klis.triple import Triple

__all__ = ["Place", "RefusedRequests"]

Place: TypeAlias = tuple[str, bool, int]
"""Key of a resource, whether everything below is meant, and a group of predicates: triples that conflict alike."""

_FEW: Final = 16
"""Number of stale entries of a heap that are left in it."""


class _Crowd:
    """The requests behind one place, oldest first."""

    __slots__ = ("ancestors", "heap", "members")

    def __init__(self, ancestors: Iterable[str]) -> None:
        self.ancestors = ancestors
        self.members: dict[str, RefusedRequest] = {}
        self.heap: list[tuple[tuple[Rank, int], str]] = []

    def add(self, request: RefusedRequest) -> None:
        self.members[request.request_id] = request
        heappush(self.heap, (request.order, request.request_id))

    def remove(self, request_id: str) -> None:
        del self.members[request_id]
        if len(self.heap) > 2 * len(self.members) + _FEW:
            self.heap = [(request.order, name) for name, request in self.members.items()]
            heapify(self.heap)

    def oldest(self) -> RefusedRequest:
        while True:
            order, name = self.heap[0]
            member = self.members.get(name)
            if member is not None and member.order == order:
                return member
            heappop(self.heap)


class RefusedRequests:
    """Requests that died, by place; ``freed`` are the places whose requests were not judged again since.

    ``crowded`` are the places behind which requests stay because the queue is full.
    """

    __slots__ = ("_behind", "_below", "_crowds", "crowded", "freed")

    def __init__(self) -> None:
        self.freed: dict[Place, None] = {}
        self.crowded: dict[Place, None] = {}
        self._behind: dict[str, tuple[Place, int]] = {}
        self._crowds: dict[Place, _Crowd] = {}
        self._below: dict[str, dict[Place, None]] = {}

    def put(self, request: RefusedRequest, blocked: int) -> None:
        """Put a request behind one of its triples, in place of the one before.

        Args:
            request: the request.
            blocked: the index of the triple.
        """
        triple = request.triples[blocked]
        place = triple.resource.key, triple.covers, GROUP_OF[triple.predicate]
        self.remove(request.request_id)
        crowd = self._crowds.get(place)
        if crowd is None:
            crowd = self._crowds[place] = _Crowd(triple.resource.ancestors)
            for key in crowd.ancestors:
                self._below.setdefault(key, {})[place] = None
        crowd.add(request)
        self._behind[request.request_id] = place, blocked

    def remove(self, request_id: str) -> None:
        """Remove a request; one that is not there is left out."""
        behind = self._behind.pop(request_id, None)
        if behind is None:
            return
        place = behind[0]
        crowd = self._crowds[place]
        crowd.remove(request_id)
        if crowd.members:
            return
        del self._crowds[place]
        self.freed.pop(place, None)
        self.crowded.pop(place, None)
        for key in crowd.ancestors:
            below = self._below[key]
            del below[place]
            if not below:
                del self._below[key]

    def free(self, triples: Iterable[Triple]) -> None:
        """Free the places that triples may have blocked, which ended or left the queue; O(depth + places below)."""
        crowds, freed = self._crowds, self.freed
        for triple in triples:
            groups, resource = OPPOSED[triple.predicate], triple.resource
            near = [(key, True, group) for key in (*resource.ancestors, resource.key) for group in groups]
            near += [(resource.key, False, group) for group in groups]
            freed.update((place, None) for place in near if place in crowds)
            if triple.covers:
                below = self._below.get(resource.key, {})
                freed.update((place, None) for place in below if place[2] in groups)

    def free_behind(self, request_id: str) -> None:
        """Free the place that a request is behind."""
        self.freed[self._behind[request_id][0]] = None

    def await_room(self, request_id: str) -> None:
        """Note that a request stays where it is because the queue is full."""
        self.crowded[self._behind[request_id][0]] = None

    def free_crowded(self) -> None:
        """Free the places of the requests that stay because the queue was full: it has room."""
        self.freed.update(self.crowded)
        self.crowded.clear()

    def free_all(self) -> None:
        """Free all places, where it is not known behind which of them all requests were judged."""
        self.freed.update(dict.fromkeys(self._crowds))

    def blocked(self, request_id: str) -> int:
        """Return the index of the triple that a request is behind."""
        return self._behind[request_id][1]

    def oldest(self, place: Place) -> RefusedRequest | None:
        """Return the oldest request behind a place, None where there is none; amortised O(log n)."""
        crowd = self._crowds.get(place)
        return None if crowd is None else crowd.oldest()
