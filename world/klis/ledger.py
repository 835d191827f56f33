"""The lease ledger: the fold of every verdict and of every lease's end (CARD-replay, KLIS-4).

It decides nothing. What may happen is decided by ``world.klis.lease_manager``, which emits events; folding them, now or
in a replay, gives this state. Ended leases are kept for a while so that a repeated release can be answered; the log
knows them for ever.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any, Final

from world.errors import DamagedLogError
from world.events.base import Event
from world.events.clock_events import ClockConfirmed
from world.events.lease_events import (
    AgentRegistered,
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
from world.klis.manifest import Triple, read_triple
from world.klis.predicate import Predicate
from world.klis.resources.resource import STANDARD, ResourceTypes
from world.klis.session import Lease, Rank, Session
from world.klis.settings import KlisSettings
from world.klis.wait_die import retry_after

__all__ = ["KLIS_EVENTS", "AgentKey", "Ledger", "Request", "queue_request", "stand"]

ENDED_KEPT: Final = 10_000
"""How many ended leases are remembered by state, at least; twice as many at most."""
FORGET_DIES_MS: Final = 86_400_000
"""A session that was not heard of for so long after a Die begins again with the shortest backoff."""


@dataclass(slots=True)
class Request:
    """A request in the queue: ``triples`` are what it wants leases for, ``places`` the same by key of resource."""

    request_id: str
    session: Session
    triples: tuple[Triple, ...]
    since: int
    sequence: int
    ttl_ms: int | None
    deadline: int | None
    places: dict[str, list[Triple]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.places = {}
        for triple in self.triples:
            self.places.setdefault(triple.resource.key, []).append(triple)

    @property
    def order(self) -> tuple[Rank, int]:
        """Oldest agent first, then in order of arrival."""
        return self.session.rank, self.sequence


@dataclass(frozen=True, slots=True)
class AgentKey:
    """A public key of an agent."""

    key_id: str
    agent_id: str
    public: str
    revoked: bool = False


@dataclass(slots=True, eq=False)
class Ledger:
    """Who is registered, who holds what, who waits; changed by ``fold`` alone.

    ``signers`` are the agents of ``keys``, of revoked ones too. ``clock`` is lease time, ms since 1970. A manifest that
    was signed before ``signed_from`` is too old: lease time was ahead until then, and nonces were forgotten by it.
    """

    settings: KlisSettings | None = None
    types: ResourceTypes = STANDARD
    clock: int = 0
    agents: dict[str, Rank] = field(default_factory=dict)
    keys: dict[str, AgentKey] = field(default_factory=dict)
    signers: set[str] = field(default_factory=set)
    nonces: dict[tuple[str, str], int] = field(default_factory=OrderedDict)
    sessions: dict[tuple[str, str], Session] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    last_token: int = 0
    signed_from: int = 0
    requests: dict[str, Request] = field(default_factory=dict)
    sequence: int = 0
    held: ConflictIndex = field(default_factory=ConflictIndex)
    queued: ConflictIndex = field(default_factory=ConflictIndex)
    verdicts: dict[str, int] = field(default_factory=lambda: {"Granted": 0, "Wait": 0, "Die": 0})
    _expiries: list[tuple[int, int, str]] = field(default_factory=list)
    _deadlines: list[tuple[int, str]] = field(default_factory=list)
    _died: dict[Session, int] = field(default_factory=OrderedDict)

    @property
    def in_force(self) -> KlisSettings:
        """The settings to decide by: the recorded ones, or the defaults where none are recorded."""
        return self.settings or KlisSettings()

    def __eq__(self, other: object) -> bool:
        """Tell whether two ledgers say the same, however they came about."""
        from world.klis.ledger_codec import ledger_to_wire  # what they say is what would be stored

        return isinstance(other, Ledger) and (self is other or ledger_to_wire(self) == ledger_to_wire(other))

    __hash__ = None  # type: ignore[assignment]  # it changes

    def session(self, agent_id: str, session_id: str) -> Session:
        """Return a session of a registered agent; a new one is not kept until it stands with something."""
        known = self.sessions.get((agent_id, session_id))
        return known if known is not None else Session(agent_id, session_id, self.agents[agent_id])

    def expired(self, now: int) -> list[Lease]:
        """Return the leases whose time is over at ``now`` (ms): now > expires_at; in order of their expiry."""
        heap = self._expiries
        if not heap or heap[0][0] >= now:
            return []
        due: dict[str, Lease] = {}
        while heap and heap[0][0] < now:
            _, _, lease_id = heappop(heap)
            lease = self.leases.get(lease_id)
            if lease is None or lease_id in due:
                continue
            assert lease.expires_at is not None
            if lease.expires_at < now:
                due[lease_id] = lease
            else:
                heappush(heap, (lease.expires_at, lease.token, lease_id))
        for lease in due.values():  # they stay until their end is an event
            heappush(heap, (lease.expires_at or 0, lease.token, lease.lease_id))
        return list(due.values())

    def overdue(self, now: int) -> list[Request]:
        """Return the requests in the queue whose time to wait is over at ``now`` (ms)."""
        heap = self._deadlines
        if not heap or heap[0][0] >= now:
            return []
        due = []
        while heap and heap[0][0] < now:
            deadline, request_id = heappop(heap)
            request = self.requests.get(request_id)
            if request is not None and request.deadline == deadline:
                due.append(request)
        for request in due:
            heappush(heap, (request.deadline or 0, request.request_id))
        return due

    def holds(self, agent_id: str, session_id: str) -> bool:
        """Tell whether a session holds any lease."""
        session = self.sessions.get((agent_id, session_id))
        return session is not None and bool(session.places)

    def asks_again_at(self, agent_id: str, session_id: str) -> int:
        """Return when a session that was told Die last may ask again, ms; 0 where it was not."""
        session = self.sessions.get((agent_id, session_id))
        if session is None or session not in self._died:
            return 0
        settings = self.in_force
        after = retry_after(session.dies - 1, backoff_ms=settings.backoff_ms, max_backoff_ms=settings.max_backoff_ms)
        return self._died[session] + after

    def next_due(self) -> int | None:
        """Return the earliest time at which something may be due, ms; None when nothing is."""
        times = [heap[0][0] + 1 for heap in (self._expiries, self._deadlines) if heap]
        return min(times, default=None)

    def fold(self, event: Event) -> None:
        """Bring the ledger from before an event to after it.

        Raises:
            DamagedLogError: when the event cannot follow what came before.
        """
        if type(event) is not ClockConfirmed:
            self.clock = max(self.clock, event.at)
        _STEPS[type(event)](self, event)

    def copy(self) -> Ledger:
        """Return a ledger of one's own."""
        twin = Ledger(
            settings=self.settings,
            types=self.types,
            clock=self.clock,
            agents=self.agents.copy(),
            keys=self.keys.copy(),
            signers=self.signers.copy(),
            nonces=self.nonces.copy(),
            ended=self.ended.copy(),
            last_token=self.last_token,
            signed_from=self.signed_from,
            sequence=self.sequence,
            verdicts=self.verdicts.copy(),
        )
        sessions = {}
        for name, session in self.sessions.items():
            sessions[session] = twin.sessions[name] = Session(session.agent_id, session.session_id, session.rank)
            twin.sessions[name].dies = session.dies
        twin._died = OrderedDict((sessions[session], at) for session, at in self._died.items())
        for lease in self.leases.values():
            same = Lease.__new__(Lease)
            for slot in Lease.__slots__:
                setattr(same, slot, getattr(lease, slot))
            same.session = sessions[lease.session]
            stand(twin, same)
        for request in self.requests.values():
            queue_request(
                twin,
                Request(
                    request.request_id,
                    sessions[request.session],
                    request.triples,
                    request.since,
                    request.sequence,
                    request.ttl_ms,
                    request.deadline,
                ),
            )
        return twin

    def _keep(self, session: Session) -> None:
        self.sessions[session.agent_id, session.session_id] = session

    def _forget_if_idle(self, session: Session) -> None:
        if session.is_idle:
            self.sessions.pop((session.agent_id, session.session_id), None)


def _damaged(what: str, **details: Any) -> DamagedLogError:
    return DamagedLogError("ILLEGAL_LEASE_TRANSITION", what, **details)


def _configured(ledger: Ledger, event: KlisConfigured) -> None:
    ledger.settings = KlisSettings.recorded(event.settings)
    if event.types != ledger.types.to_wire():
        ledger.types = ResourceTypes.recorded(event.types)


def _registered(ledger: Ledger, event: AgentRegistered) -> None:
    if event.agent_id in ledger.agents:
        raise _damaged(f"Agent {event.agent_id!r} was registered twice.", agent_id=event.agent_id)
    ledger.agents[event.agent_id] = (event.priority, event.agent_id)


def _key(ledger: Ledger, event: KeyRegistered) -> None:
    if event.key_id in ledger.keys:
        raise _damaged(f"Key {event.key_id} was registered twice.", key_id=event.key_id)
    ledger.keys[event.key_id] = AgentKey(event.key_id, event.agent_id, event.public_key)
    ledger.signers.add(event.agent_id)


def _key_revoked(ledger: Ledger, event: KeyRevoked) -> None:
    key = ledger.keys.get(event.key_id)
    if key is None or key.revoked:
        raise _damaged(f"Key {event.key_id} is not in force, so it cannot be revoked.", key_id=event.key_id)
    ledger.keys[event.key_id] = AgentKey(key.key_id, key.agent_id, key.public, revoked=True)


def _verdict(ledger: Ledger, event: VerdictGiven) -> None:
    request = ledger.requests.get(event.request_id)
    if event.agent_id not in ledger.agents:
        raise _damaged(f"Verdict {event.verdict_id} is about an agent that is not registered.")
    session = request.session if request is not None else ledger.session(event.agent_id, event.session_id)
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
    elif event.queued:
        if request is not None:
            raise _damaged(f"Request {event.request_id} was queued twice.", request_id=event.request_id)
        ledger.sequence += 1
        triples = tuple(read_triple(told, ledger.types) for told in event.wanted)
        queue_request(
            ledger,
            Request(event.request_id, session, triples, event.at, ledger.sequence, event.ttl_ms, event.deadline),
        )
        ledger._keep(session)


def _grant(ledger: Ledger, session: Session, event: VerdictGiven) -> None:
    settings = ledger.in_force
    for told in event.leases:
        token, lease_id = told["token"], told["leaseId"]
        if token <= ledger.last_token or lease_id in ledger.leases:
            raise _damaged(f"Lease {lease_id} was granted twice, or out of order.", lease_id=lease_id)
        ledger.last_token = token
        lease = Lease(
            lease_id,
            token,
            session,
            read_triple(told, ledger.types),
            event.verdict_id,
            granted_at=event.at,
            ttl_ms=event.ttl_ms,
            max_hold_ms=settings.max_hold_ms,
        )
        stand(ledger, lease)
    ledger._keep(session)
    if session.dies:
        session.dies = 0
        ledger._died.pop(session, None)


def stand(ledger: Ledger, lease: Lease) -> None:
    """Put a lease where it stands and ends; its session is one of the ledger's."""
    ledger.leases[lease.lease_id] = lease
    lease.session.places.setdefault(lease.triple.resource.key, []).append(lease)
    ledger.held.add(lease.session, lease.triple)
    if lease.triple.predicate is Predicate.DELETES:
        lease.session.deletions = lease.session.deletions or ConflictIndex()
        lease.session.deletions.add(lease.session, lease.triple)
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


def queue_request(ledger: Ledger, request: Request) -> None:
    """Put a request into the queue; its session is one of the ledger's."""
    ledger.requests[request.request_id] = request
    request.session.waiting.add(request.request_id)
    for triple in request.triples:
        ledger.queued.add(request.session, triple)
    if request.deadline is not None:
        heappush(ledger._deadlines, (request.deadline, request.request_id))
        if len(ledger._deadlines) > 2 * len(ledger.requests) + 64:
            waiting = ledger.requests.values()
            ledger._deadlines = [(one.deadline, one.request_id) for one in waiting if one.deadline is not None]
            heapify(ledger._deadlines)


def _leave(ledger: Ledger, request: Request) -> None:
    del ledger.requests[request.request_id]
    request.session.waiting.discard(request.request_id)
    for triple in request.triples:
        ledger.queued.remove(request.session, triple)


def _die(ledger: Ledger, session: Session, at: int) -> None:
    session.dies += 1
    ledger._keep(session)
    died = ledger._died
    died.pop(session, None)
    died[session] = at
    while True:  # the one asked first about is the one heard of longest ago
        oldest = next(iter(died))
        if died[oldest] >= at - FORGET_DIES_MS:
            return
        del died[oldest]
        oldest.dies = 0
        ledger._forget_if_idle(oldest)


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
    sooner = event.expires_at < lease.expires_at
    lease.expires_at, lease.ttl_ms = event.expires_at, event.ttl_ms
    if sooner:
        _expect_end(ledger, event.expires_at, lease)


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
        session, key = lease.session, lease.triple.resource.key
        ledger.held.remove(session, lease.triple)
        if session.deletions is not None and lease.triple.predicate is Predicate.DELETES:
            session.deletions.remove(session, lease.triple)
        there = session.places[key]
        if len(there) == 1:
            del session.places[key]
        else:
            there.remove(lease)
        ended[lease_id] = event.STATE
        if len(ended) > 2 * ENDED_KEPT:  # many at once: the first of a dict is slow to find behind deleted ones
            for name in list(islice(ended, ENDED_KEPT)):
                del ended[name]
        if session.is_idle:
            ledger._forget_if_idle(session)


def _is_holder(lease: Lease, event: LeasesReleased) -> bool:
    return lease.session.agent_id == event.agent_id and lease.session.session_id == event.session_id


def _withdrawn(ledger: Ledger, event: RequestWithdrawn) -> None:
    request = ledger.requests.get(event.request_id)
    if request is None:
        raise _damaged(f"Request {event.request_id} was withdrawn, but it did not wait.", request_id=event.request_id)
    _leave(ledger, request)
    ledger._forget_if_idle(request.session)


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
    """Count what was to end by a lease time that was ahead from ``now`` (ms) on; nothing ends later by that."""
    for lease in ledger.leases.values():
        if lease.expires_at is None or lease.ttl_ms is None or lease.hold_until is None:
            continue
        lease.hold_until -= max(0, lease.granted_at - now)
        lease.granted_at = min(lease.granted_at, now)
        sooner = min(now + lease.ttl_ms, lease.hold_until)
        if sooner < lease.expires_at:
            lease.expires_at = sooner
            _expect_end(ledger, sooner, lease)
    for request in ledger.requests.values():
        if request.deadline is not None and request.since > now:
            request.deadline -= request.since - now
            heappush(ledger._deadlines, (request.deadline, request.request_id))
        request.since = min(request.since, now)
    for session, at in ledger._died.items():
        ledger._died[session] = min(at, now)
    for name, at in ledger.nonces.items():
        ledger.nonces[name] = min(at, now)
    for known in ledger.sessions.values():
        known.told = None
    ledger.signed_from = now


_STEPS: Final[Mapping[type[Event], Callable[[Ledger, Any], None]]] = {
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
KLIS_EVENTS: Final = frozenset(_STEPS)
