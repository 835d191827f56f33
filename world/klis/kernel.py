"""The kernel: pure function from ledger, request and time to verdict (KLIS-5).

It changes nothing and reads no clock. ``conflict`` finds the conflicts, ``wait_die`` decides by age; the worst result
over all intents is the verdict on the manifest, all or nothing (KP-5a).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from world.events.lease_events import LeasesExpired
from world.klis.conflict import Conflict, find_conflicts
from world.klis.ledger import Ledger
from world.klis.manifest import Triple
from world.klis.session import Session
from world.klis.wait_die import Status, decide, retry_after

__all__ = ["Verdict", "arbitrate", "judge", "without_expired"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on a manifest.

    Args:
        status: Granted, Wait or Die.
        conflicts: the conflicts, up to the limit of the settings.
        more_conflicts: whether there are more.
        retry_after_ms: for Die: time until the next request, in ms.
    """

    status: Status
    conflicts: tuple[Conflict, ...] = ()
    more_conflicts: bool = False
    retry_after_ms: int | None = None


_GRANTED: Final = Verdict("Granted")


def without_expired(ledger: Ledger, now: int) -> Ledger:
    """Return the ledger at ``now`` (ms) without expired leases (KP-4c)."""
    due = ledger.expired(now)
    if not due:
        return ledger
    twin = ledger.copy()
    twin.fold(LeasesExpired(at=now, lease_ids=[lease.lease_id for lease in due]))
    return twin


def judge(ledger: Ledger, session: Session, triples: Sequence[Triple], *, queued: bool = False) -> Status:
    """Return the status for a ledger without expired leases; O(depth) per triple.

    Args:
        ledger: the leases and the queue.
        session: the requesting session.
        triples: the requested triples.
        queued: whether the request is in the queue. A new request dies if an older or equal queued request
            conflicts; a queued one waits behind it (design section 7) if its session holds no lease. One that holds
            leases dies: others may wait for those leases, and a wait of an older for a younger session and one of a
            younger for an older would form a cycle (KP-3b).
    """
    rank = session.rank
    waits = False
    has_queue = bool(ledger.requests)
    for triple in triples:
        for holders in ledger.held.opposing(triple):
            oldest = holders.oldest_but(session)
            if oldest is not None:
                if decide(rank, oldest.rank) == "Die":
                    return "Die"
                waits = True
        if has_queue:
            for holders in ledger.queued.opposing(triple):
                oldest = holders.oldest_but(session)
                if oldest is not None and oldest.rank <= rank:
                    if not queued or session.places:
                        return "Die"
                    waits = True
    return "Wait" if waits else "Granted"


def arbitrate(
    ledger: Ledger, session: Session, triples: Sequence[Triple], now: int, *, queued: bool = False
) -> Verdict:
    """Return the verdict on a request.

    Args:
        ledger: the leases and the queue; not changed.
        session: the requesting session of a registered agent.
        triples: the requested triples, effective and distinct.
        now: ms since 1970.
        queued: whether the request is in the queue already.
    """
    standing = without_expired(ledger, now)
    if standing is not ledger:
        ledger, session = standing, standing.session(session.agent_id, session.session_id)
    status = judge(ledger, session, triples, queued=queued)
    if status == "Granted":
        return _GRANTED
    settings = ledger.in_force
    conflicts, more = find_conflicts(ledger, session, triples, limit=settings.max_named_conflicts)
    after = None
    if status == "Die":
        after = retry_after(session.dies, backoff_ms=settings.backoff_ms, max_backoff_ms=settings.max_backoff_ms)
    return Verdict(status, conflicts, more, after)
