"""Steps of the lease ledger: one function per event type that applies the event.

``Ledger.fold`` calls them. An event that contradicts the ledger raises ``DamagedLogError``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from heapq import heapify, heappush
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from world.error_codes import ErrorCode
from world.errors import DamagedLogError
from world.events.base import Event
from world.events.lease_events import (
    AgentRegistered,
    ClockConfirmed,
    KeyRegistered,
    KeyRevoked,
    KlisConfigured,
    LeaseRenewed,
    LeasesExpired,
    LeasesReleased,
    LeasesRevoked,
    RequestWithdrawn,
    VerdictGiven,
)
from world.klis.conflict_index import ConflictIndex
from world.klis.predicate import Predicate
from world.klis.resources.resource_types import ResourceTypes
from world.klis.session import AgentKey, Died, Lease, LeaseTerms, RefusedRequest, Request, Session
from world.klis.settings import KlisSettings
from world.klis.triple import read_claim

if TYPE_CHECKING:
    from world.klis.ledger import Ledger

__all__ = ["STEPS", "add_lease", "queue_request", "refuse_request"]

ENDED_KEPT: Final = 10_000
"""Minimum number of ended leases that are kept by state; the maximum is twice as many."""
_NOBODY: Final = (1 << 53, "")
FORGET_DIES_MS: Final = 86_400_000
"""Time in ms after a Die after which the backoff of a session is reset."""


def _damaged(what: str, **details: Any) -> DamagedLogError:
    return DamagedLogError(ErrorCode.ILLEGAL_LEASE_TRANSITION, what, **details)


def _configured(ledger: Ledger, event: KlisConfigured) -> None:
    ledger.settings = KlisSettings.recorded(event.settings)
    if event.types != ledger.types.to_wire():
        ledger.types = ResourceTypes.recorded(event.types)
    _make_room(ledger)


def _registered(ledger: Ledger, event: AgentRegistered) -> None:
    if event.agent_id in ledger.agents:
        raise _damaged(f"Agent {event.agent_id!r} was registered twice.", agent_id=event.agent_id)
    ledger.agents[event.agent_id] = (event.priority, event.agent_id)


def _key(ledger: Ledger, event: KeyRegistered) -> None:
    if event.key_id in ledger.keys:
        raise _damaged(f"Key {event.key_id} was registered twice.", key_id=event.key_id)
    ledger.keys[event.key_id] = AgentKey(event.key_id, event.agent_id, event.public_key)
    ledger.signers[event.agent_id] = None


def _key_revoked(ledger: Ledger, event: KeyRevoked) -> None:
    key = ledger.keys.get(event.key_id)
    if key is None or key.revoked:
        raise _damaged(f"Key {event.key_id} is not in force, so it cannot be revoked.", key_id=event.key_id)
    ledger.keys[event.key_id] = AgentKey(key.key_id, key.agent_id, key.public, revoked=True)


def _verdict(ledger: Ledger, event: VerdictGiven) -> None:
    request, refused = ledger.requests.get(event.request_id), ledger.refused.get(event.request_id)
    if event.cause == "wake" and (refused is None or event.status == "Die"):
        raise _damaged(f"Verdict {event.verdict_id} wakes request {event.request_id}, which did not die.")
    if event.agent_id not in ledger.agents:
        raise _damaged(f"Verdict {event.verdict_id} is about an agent that is not registered.")
    session = ledger.session(event.agent_id, event.session_id) if request is None else ledger.named(request.session)
    if event.manifest is not None and "nonce" in event.manifest and (event.channel or {}).get("kind") == "signed":
        _note_nonce(ledger, event)
    ledger.verdicts[event.status] += 1
    if event.status == "Granted":
        if request is not None:
            _leave(ledger, request)
        _grant(ledger, session, event)
    elif event.status == "Die":
        if request is not None:
            _leave(ledger, request)
        _die(ledger, session, event.at)
        if event.wanted or (request is not None and request.ttl_ms is None and ledger.in_force.wake_rules >= 2):
            _refuse(ledger, session, event, request)
            return
    elif event.queued:
        _queue(ledger, session, event)
    elif event.wanted and ledger.in_force.wake_rules >= 2:  # the queue is full
        _refuse(ledger, session, event, request)
        return
    if refused is not None:
        _forget_refused(ledger, event.request_id)


def _queue(ledger: Ledger, session: Session, event: VerdictGiven) -> None:
    """Add a request that waits to the queue; one that had died keeps its place in the order of age."""
    name = event.request_id
    if name in ledger.requests:
        raise _damaged(f"Request {name} was queued twice.", request_id=name)
    triples = tuple(read_claim(claim, ledger.types) for claim in event.wanted)
    refused = ledger.refused.get(name)
    sequence = _next(ledger) if refused is None else refused.sequence
    queued = Request(name, session.name, triples, event.at, sequence, event.ttl_ms, event.deadline)
    queue_request(ledger, queued, session)
    ledger._keep(session)


def _next(ledger: Ledger) -> int:
    ledger.sequence += 1
    return ledger.sequence


def _refuse(ledger: Ledger, session: Session, event: VerdictGiven, queued: Request | None) -> None:
    """Keep the request of a proposal that died, or found the queue full; it keeps its place in the order of age."""
    name = event.request_id
    before = queued or ledger.refused.get(name)
    if session.dies > ledger.in_force.max_proposal_retries:
        if name in ledger.refused:
            _forget_refused(ledger, name)
        return
    triples = tuple(read_claim(claim, ledger.types) for claim in event.wanted) if queued is None else queued.triples
    sequence = _next(ledger) if before is None else before.sequence
    waits, holders = event.status == "Wait", event.conflicts
    blocking = [one.intent for one in holders if waits or ledger.agents.get(one.holder, _NOBODY) <= session.rank]
    blocked = blocking[0] if blocking else 0
    if blocked >= len(triples):
        raise _damaged(f"Verdict {event.verdict_id} names a conflict of a triple that was not requested.")
    refuse_request(ledger, RefusedRequest(name, session.name, triples, sequence, blocked))
    if not blocking:  # more conflicts than a verdict names
        ledger.refusals.free_behind(name)
    elif waits:
        ledger.refusals.await_room(name)


def refuse_request(ledger: Ledger, request: RefusedRequest) -> None:
    """Add a request that died, or replace it."""
    ledger.refused[request.request_id] = request
    ledger.refusals.put(request, request.blocked)


def _forget_refused(ledger: Ledger, request_id: str) -> None:
    del ledger.refused[request_id]
    ledger.refusals.remove(request_id)


def _grant(ledger: Ledger, session: Session, event: VerdictGiven) -> None:
    terms = LeaseTerms(event.at, event.ttl_ms, ledger.in_force.max_hold_ms)
    for granted in event.leases:
        token, lease_id = granted.token, granted.lease_id
        if token <= ledger.last_token or lease_id in ledger.leases:
            raise _damaged(f"Lease {lease_id} was granted twice, or out of order.", lease_id=lease_id)
        ledger.last_token = token
        triple = read_claim(granted, ledger.types)
        add_lease(ledger, Lease.granted(lease_id, token, session.name, triple, event.verdict_id, terms), session)
    ledger._keep(session)
    if session.dies:
        session.dies = 0
        ledger.died.pop((session.agent_id, session.session_id), None)


def add_lease(ledger: Ledger, lease: Lease, session: Session) -> None:
    """Add a lease of one of the ledger's sessions to all indexes."""
    ledger.leases[lease.lease_id] = lease
    session.places.setdefault(lease.triple.resource.key, []).append(lease)
    ledger.held.add(session, lease.triple)
    if lease.triple.predicate is Predicate.DELETES:
        session.deletions = session.deletions or ConflictIndex()
        session.deletions.add(session, lease.triple)
    if lease.expires_at is not None:
        _expect_end(ledger, lease.expires_at, lease)


def _expect_end(ledger: Ledger, expires_at: int, lease: Lease) -> None:
    heappush(ledger._expiries, (expires_at, lease.token, lease.lease_id))
    if len(ledger._expiries) > 2 * len(ledger.leases) + 64:
        ledger._expiries = [
            (held.expires_at, held.token, held.lease_id)
            for held in ledger.leases.values()
            if held.expires_at is not None
        ]
        heapify(ledger._expiries)


def queue_request(ledger: Ledger, request: Request, session: Session) -> None:
    """Add a request of one of the ledger's sessions to the queue."""
    ledger.requests[request.request_id] = request
    session.waiting.add(request.request_id)
    for triple in request.triples:
        ledger.queued.add(session, triple)
    if request.deadline is not None:
        heappush(ledger._deadlines, (request.deadline, request.request_id))
        if len(ledger._deadlines) > 2 * len(ledger.requests) + 64:
            waiting = ledger.requests.values()
            ledger._deadlines = [(one.deadline, one.request_id) for one in waiting if one.deadline is not None]
            heapify(ledger._deadlines)


def _leave(ledger: Ledger, request: Request) -> Session:
    """Remove a request from the queue, and return its session."""
    session = ledger.named(request.session)
    del ledger.requests[request.request_id]
    session.waiting.discard(request.request_id)
    for triple in request.triples:
        ledger.queued.remove(session, triple)
    if ledger.refused:
        ledger.refusals.free(request.triples)
        _make_room(ledger)
    return session


def _make_room(ledger: Ledger) -> None:
    """Free the places of the requests that stay because the queue was full, where it is not full."""
    if ledger.refusals.crowded and len(ledger.requests) < ledger.in_force.max_waiting:
        ledger.refusals.free_crowded()


def _die(ledger: Ledger, session: Session, at: int) -> None:
    session.dies += 1
    ledger._keep(session)
    died, name = ledger.died, (session.agent_id, session.session_id)
    died.pop(name, None)
    died[name] = Died(session.dies, at)
    while True:  # the first entry is the oldest
        oldest = next(iter(died))
        if died[oldest].at >= at - FORGET_DIES_MS:
            return
        del died[oldest]
        forgotten = ledger.sessions[oldest]
        forgotten.dies = 0
        ledger._forget_if_idle(forgotten)


def _note_nonce(ledger: Ledger, event: VerdictGiven) -> None:
    assert event.manifest is not None
    nonces = ledger.nonces
    nonces[event.agent_id, event.manifest["nonce"]] = event.at
    oldest_needed = event.at - 2 * ledger.in_force.max_signature_age_ms
    while nonces:
        first = next(iter(nonces))
        if nonces[first] >= oldest_needed:
            return
        del nonces[first]


def _renewed(ledger: Ledger, event: LeaseRenewed) -> None:
    lease = ledger.leases.get(event.lease_id)
    if lease is None or lease.expires_at is None or event.at > lease.expires_at:
        raise _damaged(f"Lease {event.lease_id} cannot be renewed: it is not in force.", lease_id=event.lease_id)
    renewed = structs.replace(lease, expires_at=event.expires_at, ttl_ms=event.ttl_ms)
    _replace(ledger, lease, renewed)
    if event.expires_at < lease.expires_at:
        _expect_end(ledger, event.expires_at, renewed)


def _replace(ledger: Ledger, lease: Lease, by: Lease) -> None:
    """Replace a lease by a value with other times."""
    ledger.leases[lease.lease_id] = by
    leases = ledger.named(lease.session).places[lease.triple.resource.key]
    leases[leases.index(lease)] = by


def _ended(ledger: Ledger, event: LeasesReleased | LeasesExpired | LeasesRevoked) -> None:
    ended = ledger.ended
    for lease_id in event.lease_ids:
        lease = ledger.leases.pop(lease_id, None)
        if lease is None:
            raise _damaged(f"Lease {lease_id} ended, but it was not in force.", lease_id=lease_id)
        if type(event) is LeasesReleased and not _is_holder(lease, event):
            raise _damaged(
                f"Lease {lease_id} was released by {event.agent_id!r}, who does not hold it.", lease_id=lease_id
            )
        is_over = lease.expires_at is not None and event.at > lease.expires_at
        if is_over is not (type(event) is LeasesExpired):
            raise _damaged(f"Lease {lease_id} is {event.STATE} at a time that contradicts it.", lease_id=lease_id)
        session, key = ledger.named(lease.session), lease.triple.resource.key
        ledger.held.remove(session, lease.triple)
        if ledger.refused:
            ledger.refusals.free((lease.triple,))
        if session.deletions is not None and lease.triple.predicate is Predicate.DELETES:
            session.deletions.remove(session, lease.triple)
        leases = session.places[key]
        if len(leases) == 1:
            del session.places[key]
        else:
            leases.remove(lease)
        ended[lease_id] = event.STATE
        if len(ended) > 2 * ENDED_KEPT:  # in bulk: finding the first key of a dict is slow after deletions
            for name in list(islice(ended, ENDED_KEPT)):
                del ended[name]
        if session.is_idle:
            ledger._forget_if_idle(session)


def _is_holder(lease: Lease, event: LeasesReleased) -> bool:
    return lease.session.agent_id == event.agent_id and lease.session.session_id == event.session_id


def _withdrawn(ledger: Ledger, event: RequestWithdrawn) -> None:
    request = ledger.requests.get(event.request_id)
    if request is not None:
        ledger._forget_if_idle(_leave(ledger, request))
    elif event.request_id in ledger.refused:
        _forget_refused(ledger, event.request_id)
    else:
        raise _damaged(f"Request {event.request_id} was withdrawn, but it did not wait.", request_id=event.request_id)


def _clock_confirmed(ledger: Ledger, event: ClockConfirmed) -> None:
    if event.lease_time != ledger.clock:
        raise _damaged(
            f"The clock was confirmed when lease time was {event.lease_time}, but it was {ledger.clock}.",
            lease_time=event.lease_time,
        )
    was_ahead, ledger.clock = ledger.clock > event.at, event.at
    if was_ahead:
        _bring_back(ledger, event.at)


def _bring_back(ledger: Ledger, now: int) -> None:
    """Restart times that were recorded ahead at ``now`` (ms); nothing ends later."""
    for lease in list(ledger.leases.values()):
        if lease.expires_at is None or lease.ttl_ms is None or lease.hold_until is None:
            continue
        hold_until = lease.hold_until - max(0, lease.granted_at - now)
        expires_at = min(lease.expires_at, now + lease.ttl_ms, hold_until)
        granted_at = min(lease.granted_at, now)
        if (granted_at, expires_at, hold_until) == (lease.granted_at, lease.expires_at, lease.hold_until):
            continue
        back = structs.replace(lease, granted_at=granted_at, expires_at=expires_at, hold_until=hold_until)
        _replace(ledger, lease, back)
        if expires_at < lease.expires_at:
            _expect_end(ledger, expires_at, back)
    for request in [one for one in ledger.requests.values() if one.since > now]:
        deadline = None if request.deadline is None else request.deadline - (request.since - now)
        ledger.requests[request.request_id] = replace(request, since=now, deadline=deadline)
        if deadline is not None:
            heappush(ledger._deadlines, (deadline, request.request_id))
    for name, died in ledger.died.items():
        if died.at > now:
            ledger.died[name] = Died(died.dies, now)
    for nonce, at in ledger.nonces.items():
        if at > now:
            ledger.nonces[nonce] = now
    for known in ledger.sessions.values():
        known.cached_conflicts = None
    ledger.signed_from = now


STEPS: Final[Mapping[type[Event], Callable[[Ledger, Any], None]]] = {
    ClockConfirmed: _clock_confirmed,
    KlisConfigured: _configured,
    AgentRegistered: _registered,
    KeyRegistered: _key,
    KeyRevoked: _key_revoked,
    VerdictGiven: _verdict,
    LeaseRenewed: _renewed,
    LeasesReleased: _ended,
    LeasesExpired: _ended,
    LeasesRevoked: _ended,
    RequestWithdrawn: _withdrawn,
}
"""The step of every event type that changes a ledger."""
