"""Conflicts of a request by the compatibility matrix (KLIS-2, KLIS-5, KLIS-7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from world.events.resource_values import NamedConflict
from world.klis.manifest import Triple
from world.klis.predicate import Predicate, compatible
from world.klis.session import Lease, Session

if TYPE_CHECKING:
    from world.klis.conflict_index import Holders
    from world.klis.ledger import Ledger
    from world.klis.session import Request

__all__ = ["Conflict", "clash", "deletion_lease", "find_conflicts", "terminal_triple"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Conflict:
    """One conflict of one intent (KP-5b).

    Args:
        intent: index of the intent among the requested triples.
        holder: id of the conflicting agent.
        session: id of its session.
        predicate: the predicate that it holds or, in the queue, requests.
        resource: the resource.
        lease_id: the conflicting lease; None for a request in the queue.
        request_id: the conflicting older request in the queue; None for a lease.
    """

    intent: int
    holder: str
    session: str
    predicate: Predicate
    resource: str
    lease_id: str | None = None
    request_id: str | None = None

    def named(self) -> NamedConflict:
        """Return the conflict for an event."""
        return NamedConflict(
            intent=self.intent,
            holder=self.holder,
            session=self.session,
            predicate=self.predicate.value,
            resource=self.resource,
            lease_id=self.lease_id,
            request_id=None if self.lease_id is not None else self.request_id,
        )


def clash(held: Triple, requested: Triple) -> bool:
    """Return whether two triples of different sessions conflict."""
    if compatible(held.predicate, requested.predicate):
        return False
    one, other = held.resource, requested.resource
    return (
        one.key == other.key
        or (held.covers and one.key in other.ancestors)
        or (requested.covers and other.key in one.ancestors)
    )


def find_conflicts(
    ledger: Ledger, session: Session, triples: Sequence[Triple], *, limit: int
) -> tuple[tuple[Conflict, ...], bool]:
    """Return the conflicts of a request by intent, age of the holder, and resource.

    Args:
        ledger: the leases and the queue.
        session: the requesting session; its own leases never conflict.
        triples: the requested triples.
        limit: maximum number of conflicts.

    Returns:
        The conflicts, and whether there are more. Equal ledgers give equal results.
    """
    at = (ledger.held, ledger.held.changes, ledger.queued.changes, limit)
    cached = session.cached_conflicts
    if cached is None or cached[0] is not triples or cached[1] != at:
        cached = session.cached_conflicts = triples, at, _find(ledger, session, triples, limit)
    conflicts: tuple[tuple[Conflict, ...], bool] = cached[2]
    return conflicts


def _find(ledger: Ledger, session: Session, triples: Sequence[Triple], limit: int) -> tuple[tuple[Conflict, ...], bool]:
    found: list[Conflict] = []
    held, queued = ledger.held, ledger.queued if ledger.requests else None
    for index, triple in enumerate(triples):
        holders = held.opposing(triple)
        if holders:
            room = limit + 1 - len(found)
            found += islice(_by_leases(holders, session, index, triple, room), room)
        waiters = queued.opposing(triple) if queued is not None else ()
        if waiters:
            room = limit + 1 - len(found)
            found += islice(_by_requests(ledger, waiters, session, index, triple, room), room)
        if len(found) > limit:
            return tuple(found[:limit]), True
    return tuple(found), False


def _by_leases(
    opposing: Iterable[Holders], session: Session, index: int, triple: Triple, room: int
) -> Iterator[Conflict]:
    for holder in _oldest(opposing, session, room):
        leases = [lease for lease in _near(holder.places, triple) if clash(lease.triple, triple)]
        for lease in nsmallest(room, leases, key=_lease_order) if len(leases) > 1 else leases:
            held = lease.triple
            yield Conflict(
                index,
                holder.agent_id,
                holder.session_id,
                held.predicate,
                held.resource.text,
                lease_id=lease.lease_id,
            )


def _by_requests(
    ledger: Ledger, opposing: Iterable[Holders], session: Session, index: int, triple: Triple, room: int
) -> Iterator[Conflict]:
    for waiter in _oldest(opposing, session, room):
        if waiter.rank > session.rank:
            break
        for request in _requests(ledger, waiter):
            clashing = (wanted for wanted in _near(request.places, triple) if clash(wanted, triple))
            for wanted in sorted(clashing, key=_triple_order):
                yield Conflict(
                    index,
                    waiter.agent_id,
                    waiter.session_id,
                    wanted.predicate,
                    wanted.resource.text,
                    request_id=request.request_id,
                )


def _oldest(opposing: Iterable[Holders], session: Session, room: int) -> list[Session]:
    others = {other for holders in opposing for other in holders.oldest(room, session)}
    if len(others) < 2:
        return list(others)
    return nsmallest(room, others, key=lambda other: other.order)


def _near(places: Mapping[str, list[_T]], triple: Triple) -> Iterator[_T]:
    """Yield the entries of places where a triple can conflict."""
    resource = triple.resource
    if triple.covers:
        for entries in places.values():
            yield from entries
        return
    for key in (*resource.ancestors, resource.key):
        yield from places.get(key, ())


def _lease_order(lease: Lease) -> tuple[str, str, int]:
    return lease.triple.resource.text, lease.triple.predicate, lease.token


def _triple_order(triple: Triple) -> tuple[str, str]:
    return triple.resource.text, triple.predicate


def _requests(ledger: Ledger, waiter: Session) -> list[Request]:
    return sorted((ledger.requests[name] for name in waiter.waiting), key=lambda request: request.sequence)


def terminal_triple(session: Session, triples: Iterable[Triple]) -> Triple | None:
    """Return the first triple that overlaps with a session's lease for DELETES."""
    deletions = session.deletions
    if deletions is None:
        return None
    for triple in triples:
        if triple.predicate is not Predicate.DELETES and deletions.opposing(triple):
            return triple
    return None


def deletion_lease(session: Session, triple: Triple) -> Lease:
    """Return the session's lease for DELETES that overlaps with a triple."""
    resource, places = triple.resource, session.places
    keys = places if triple.covers else (*resource.ancestors, resource.key)
    leases = (lease for key in keys for lease in places.get(key, ()))
    return next(held for held in leases if held.triple.predicate is Predicate.DELETES and clash(held.triple, triple))
