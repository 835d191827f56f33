"""Index of triples by place for conflict checks in O(depth) (KP-wild).

A triple is counted at its own resource and at every ancestor (Gray's intention locks, "Granularity of Locks and
Degrees of Consistency in a Shared Data Base", 1976). A check reads the subtrees of the ancestors, the resource itself
and, for a subtree, the counts below; triples elsewhere do not affect its cost. The same structure serves the leases in
force and the queued requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, nsmallest
from typing import Final

from world.klis.predicate import GROUP_OF, GROUPS, OPPOSED
from world.klis.session import Session
from world.klis.triple import Triple

__all__ = ["ConflictIndex", "Holders"]

_FEW: Final = 16
"""Number of holders up to which a scan is faster than a heap."""


class Holders:
    """Sessions with triples of one predicate group at one place, with counts."""

    __slots__ = ("counts", "heap")

    def __init__(self) -> None:
        self.counts: dict[Session, int] = {}
        self.heap: list[tuple[tuple[int, str, str], int, Session]] | None = None

    def add(self, session: Session) -> None:
        """Count one more triple of a session."""
        counts = self.counts
        if session in counts:
            counts[session] += 1
        else:
            counts[session] = 1
            if self.heap is not None:
                heappush(self.heap, _entry(session))

    def remove(self, session: Session) -> None:
        """Uncount one triple of a session."""
        counts = self.counts
        if counts[session] > 1:
            counts[session] -= 1
            return
        del counts[session]
        if self.heap is not None and len(self.heap) > 2 * len(counts) + _FEW:
            self.heap = None  # too many stale entries; rebuilt on the next query

    def oldest_but(self, own: Session | None) -> Session | None:
        """Return the oldest other session, or None.

        Amortised O(log n) in the number of sessions.
        """
        counts = self.counts
        if len(counts) <= _FEW:
            return min((session for session in counts if session is not own), key=_by_order, default=None)
        heap = self._heaped()
        aside = None
        while heap:
            top = heap[0]
            if top[2] not in counts:
                heappop(heap)
            elif top[2] is own:
                aside = heappop(heap)
            else:
                break
        oldest = heap[0][2] if heap else None
        if aside is not None:
            heappush(heap, aside)
        return oldest

    def oldest(self, room: int, own: Session | None) -> list[Session]:
        """Return up to ``room`` oldest other sessions; amortised O(room log n)."""
        counts = self.counts
        if len(counts) <= _FEW or room >= len(counts):
            return nsmallest(room, (session for session in counts if session is not own), key=_by_order)
        heap = self._heaped()
        while heap[0][2] not in counts:
            heappop(heap)
        oldest: list[Session] = []
        frontier = [(heap[0], 0)]
        while frontier and len(oldest) < room:  # the children of a heap node are younger
            (_, _, session), at = heappop(frontier)
            if session in counts and session is not own and not (oldest and oldest[-1] is session):
                oldest.append(session)
            for child in range(2 * at + 1, min(2 * at + 3, len(heap))):
                heappush(frontier, (heap[child], child))
        return oldest

    def _heaped(self) -> list[tuple[tuple[int, str, str], int, Session]]:
        if self.heap is None:
            self.heap = [_entry(session) for session in self.counts]
            heapify(self.heap)
        return self.heap


def _by_order(session: Session) -> tuple[int, str, str]:
    return session.order


def _entry(session: Session) -> tuple[tuple[int, str, str], int, Session]:
    # An ended session and a new one of the same name have equal order; their identity distinguishes them.
    return session.order, id(session), session


class _Place:
    """Holders at one resource, of its subtree, and below it, by predicate group."""

    __slots__ = ("below", "here", "subtree", "triples")

    def __init__(self) -> None:
        self.here: list[Holders | None] = [None] * len(GROUPS)
        self.subtree: list[Holders | None] = [None] * len(GROUPS)
        self.below: list[Holders | None] = [None] * len(GROUPS)
        self.triples = 0


class ConflictIndex:
    """Multiset of (session, triple) with queries for conflicts."""

    __slots__ = ("_places", "_roots", "changes")

    def __init__(self) -> None:
        self.changes = 0  # number of changes, for caches
        self._places: dict[str, _Place] = {}
        self._roots: dict[str, int] = {}  # number of triples that cover a place's subtree; most places have none

    def add(self, session: Session, triple: Triple) -> None:
        """Add a triple of a session."""
        self.changes += 1
        group = GROUP_OF[triple.predicate]
        resource = triple.resource
        places = self._places
        for key in resource.ancestors:
            place = places.get(key)
            if place is None:
                place = places[key] = _Place()
            place.triples += 1
            holders = place.below[group]
            if holders is None:
                holders = place.below[group] = Holders()
            holders.add(session)
        place = places.get(resource.key)
        if place is None:
            place = places[resource.key] = _Place()
        place.triples += 1
        if triple.covers:
            self._roots[resource.key] = self._roots.get(resource.key, 0) + 1
            side = place.subtree
        else:
            side = place.here
        holders = side[group]
        if holders is None:
            holders = side[group] = Holders()
        holders.add(session)

    def remove(self, session: Session, triple: Triple) -> None:
        """Remove a triple of a session."""
        self.changes += 1
        group = GROUP_OF[triple.predicate]
        resource = triple.resource
        places = self._places
        for key in resource.ancestors:
            place = places[key]
            place.triples -= 1
            if not place.triples:
                del places[key]
                continue
            holders = place.below[group]
            assert holders is not None
            holders.remove(session)
        covers = triple.covers
        if covers:
            self._roots[resource.key] -= 1
            if not self._roots[resource.key]:
                del self._roots[resource.key]
        place = places[resource.key]
        place.triples -= 1
        if not place.triples:
            del places[resource.key]
            return
        holders = (place.subtree if covers else place.here)[group]
        assert holders is not None
        holders.remove(session)

    def opposing(self, triple: Triple) -> Sequence[Holders]:
        """Return the holders of conflicting triples, own session included; O(depth)."""
        groups = OPPOSED[triple.predicate]
        resource = triple.resource
        place, roots = self._places.get(resource.key), self._roots
        is_covered = bool(roots) and not roots.keys().isdisjoint(resource.ancestors)
        if place is None and not is_covered:
            return ()
        found: list[Holders] = []
        if is_covered:
            for key in resource.ancestors:
                if key in roots:
                    _collect(self._places[key].subtree, groups, found)
        if place is None:
            return found
        _collect(place.here, groups, found)
        if resource.key in roots:
            _collect(place.subtree, groups, found)
        if triple.covers:
            _collect(place.below, groups, found)
        return found


def _collect(side: list[Holders | None], groups: tuple[int, ...], found: list[Holders]) -> None:
    for group in groups:
        holders = side[group]
        if holders is not None and holders.counts:
            found.append(holders)
