"""The lease ledger: state of agents, leases and queued requests.

It decides nothing. ``world.klis.lease_manager`` decides and emits events; folding them, live or in a replay, gives this
state (``world.klis.ledger_steps``). Ended leases are kept for a limited time to answer a repeated release; the log
keeps them permanently. Source: CARD-replay, KLIS-4.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from world.events.base import Event
from world.events.lease_events import ClockConfirmed
from world.klis.conflict_index import ConflictIndex
from world.klis.ledger_steps import STEPS, add_lease, queue_request, refuse_request
from world.klis.refused_requests import RefusedRequests
from world.klis.resources.resource_types import STANDARD, ResourceTypes
from world.klis.session import AgentKey, Died, Lease, Rank, RefusedRequest, Request, Session, SessionName
from world.klis.settings import KlisSettings
from world.klis.wait_die import asks_again_at

if TYPE_CHECKING:
    from world.klis.ledger_view import LedgerView

__all__ = ["KLIS_EVENTS", "Ledger", "ledger_copy"]

KLIS_EVENTS: Final = frozenset(STEPS)
"""The types of events that change a ledger."""


@dataclass(slots=True, eq=False)
class Ledger:
    """State of agents, keys, leases and the queue; changed only by ``fold``.

    ``signers`` are the agents of ``keys``, revoked ones included. ``died`` holds the Die verdicts of sessions,
    the oldest first; ``refused`` the requests of proposals that died, by id, which ``refusals`` finds by what blocks
    them. ``clock`` is lease time, ms since 1970. A manifest signed before ``signed_from`` is too old: lease
    time was ahead until then, and nonces were dropped accordingly.
    """

    settings: KlisSettings | None = None
    types: ResourceTypes = STANDARD
    clock: int = 0
    agents: dict[str, Rank] = field(default_factory=dict)
    keys: dict[str, AgentKey] = field(default_factory=dict)
    signers: dict[str, None] = field(default_factory=dict)
    nonces: dict[tuple[str, str], int] = field(default_factory=OrderedDict)
    sessions: dict[tuple[str, str], Session] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    last_token: int = 0
    signed_from: int = 0
    requests: dict[str, Request] = field(default_factory=dict)
    sequence: int = 0
    refused: dict[str, RefusedRequest] = field(default_factory=dict)
    held: ConflictIndex = field(default_factory=ConflictIndex)
    queued: ConflictIndex = field(default_factory=ConflictIndex)
    refusals: RefusedRequests = field(default_factory=RefusedRequests)
    verdicts: dict[str, int] = field(default_factory=lambda: {"Granted": 0, "Wait": 0, "Die": 0})
    _expiries: list[tuple[int, int, str]] = field(default_factory=list)
    _deadlines: list[tuple[int, str]] = field(default_factory=list)
    died: dict[tuple[str, str], Died] = field(default_factory=OrderedDict)

    @property
    def in_force(self) -> KlisSettings:
        """The recorded settings, or the defaults."""
        return self.settings or KlisSettings()

    def __eq__(self, other: object) -> bool:
        """Return whether two ledgers have equal content."""
        from world.klis.ledger_codec import ledger_to_wire  # the stored form is the content

        return isinstance(other, Ledger) and (self is other or ledger_to_wire(self) == ledger_to_wire(other))

    __hash__ = None  # type: ignore[assignment]  # it changes

    def named(self, name: SessionName) -> Session:
        """Return the session of a lease or of a queued request."""
        return self.sessions[name.agent_id, name.session_id]

    def session(self, agent_id: str, session_id: str) -> Session:
        """Return a session of a registered agent, which may be a new one."""
        known = self.sessions.get((agent_id, session_id))
        return known if known is not None else Session(agent_id, session_id, self.agents[agent_id])

    def expired(self, now: int) -> list[Lease]:
        """Return the leases with ``expires_at`` before ``now`` (ms), in that order."""
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
        in_order = sorted((lease.expires_at or 0, lease.token, lease.lease_id) for lease in due.values())
        for entry in in_order:  # they remain until an event ends them
            heappush(heap, entry)
        return [due[lease_id] for _, _, lease_id in in_order]  # the entry of a renewed lease may have been an old one

    def overdue(self, now: int) -> list[Request]:
        """Return the queued requests whose deadline is before ``now`` (ms)."""
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
        """Return whether a session holds any lease."""
        session = self.sessions.get((agent_id, session_id))
        return session is not None and bool(session.places)

    def added(self, name: SessionName) -> Session:
        """Return the session with a name, which is added where it is missing."""
        key = name.agent_id, name.session_id
        known = self.sessions.get(key)
        if known is None:
            known = self.sessions[key] = Session(name.agent_id, name.session_id, name.rank)
        return known

    def leases_of(self, agent_id: str, session_id: str) -> list[Lease]:
        """Return the leases of a session in the order of their tokens."""
        session = self.sessions.get((agent_id, session_id))
        return [] if session is None else session.leases()

    def dies(self, agent_id: str, session_id: str) -> int:
        """Return the number of consecutive Die verdicts of a session."""
        died = self.died.get((agent_id, session_id))
        return 0 if died is None else died.dies

    def asks_again_at(self, agent_id: str, session_id: str) -> int:
        """Return when a session retries by timer after a Die, ms since 1970; 0 without one."""
        return asks_again_at(self.died.get((agent_id, session_id)), self.in_force, session_id)

    def next_due(self) -> int | None:
        """Return the earliest time of an expiry or deadline, ms since 1970, or None."""
        times = [heap[0][0] + 1 for heap in (self._expiries, self._deadlines) if heap]
        return min(times, default=None)

    def fold(self, event: Event) -> None:
        """Apply an event.

        Raises:
            DamagedLogError: when the event contradicts the ledger.
        """
        if event.at > self.clock and type(event) is not ClockConfirmed:
            self.clock = event.at
        STEPS[type(event)](self, event)

    def copy(self) -> Ledger:
        """Return an independent copy."""
        return ledger_copy(self)

    def _keep(self, session: Session) -> None:
        self.sessions[session.agent_id, session.session_id] = session

    def _forget_if_idle(self, session: Session) -> None:
        if session.is_idle:
            del self.sessions[session.agent_id, session.session_id]


def ledger_copy(source: Ledger | LedgerView) -> Ledger:
    """Return an independent ledger with the state of a ledger or of a view; O(leases)."""
    twin = Ledger(
        settings=source.settings,
        types=source.types,
        clock=source.clock,
        agents=dict(source.agents),
        keys=dict(source.keys),
        signers=dict(source.signers),
        nonces=OrderedDict(source.nonces),
        ended=dict(source.ended),
        last_token=source.last_token,
        signed_from=source.signed_from,
        sequence=source.sequence,
        verdicts=dict(source.verdicts),
        died=OrderedDict(source.died),
    )
    for (agent_id, session_id), died in source.died.items():
        twin.added(SessionName(agent_id, session_id, source.agents[agent_id])).dies = died.dies
    for lease in source.leases.values():
        add_lease(twin, lease, twin.added(lease.session))
    for request in source.requests.values():
        queue_request(twin, request, twin.added(request.session))
    for refused in source.refused.values():
        refuse_request(twin, refused)
    twin.refusals.free_all()
    return twin
