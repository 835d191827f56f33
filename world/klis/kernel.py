"""The kernel: a ledger, a request and a time give a verdict, and nothing else does (KLIS-5).

It changes nothing and reads no clock. The conflict engine finds what is in the way, the scheduler decides by age; the
worst answer over all intents is the answer to the manifest, all or nothing (KP-5a).
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
    """What the kernel says to a manifest.

    Args:
        status: Granted, Wait or Die.
        conflicts: what is in the way, spelt out as far as the settings say.
        more_conflicts: whether there is more in the way.
        retry_after_ms: for Die: when to ask again.
    """

    status: Status
    conflicts: tuple[Conflict, ...] = ()
    more_conflicts: bool = False
    retry_after_ms: int | None = None


_GRANTED: Final = Verdict("Granted")


def without_expired(ledger: Ledger, now: int) -> Ledger:
    """Return the ledger as it is at ``now`` (ms): a lease whose time is over counts in nothing (KP-4c)."""
    due = ledger.expired(now)
    if not due:
        return ledger
    twin = ledger.copy()
    twin.fold(LeasesExpired(at=now, lease_ids=[lease.lease_id for lease in due]))
    return twin


def judge(ledger: Ledger, session: Session, triples: Sequence[Triple], *, queued: bool = False) -> Status:
    """Return the status alone, for a ledger in which nothing is expired. O(depth) for each triple.

    Args:
        ledger: what stands.
        session: who asks.
        triples: what it asks for.
        queued: whether it waits already. A newcomer dies where an older or equal request waits for something that
            conflicts; one in the queue waits behind it (design section 7) as long as its session holds nothing. One
            that holds leases dies: others may wait for those, and a wait of old for young for a lease and one of young
            for old for a turn would close a circle (KP-3b).
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
        ledger: what stands; not changed.
        session: who asks; its agent is registered.
        triples: what it asks for, escalated and without repetitions.
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
