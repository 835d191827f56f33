"""Sessions of agents with their leases, queued requests and keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from world.klis.conflict_index import ConflictIndex
    from world.klis.triple import Triple

__all__ = ["AgentKey", "Lease", "LeaseTerms", "Rank", "Request", "Session"]

Rank = tuple[int, str]
"""Priority of an agent: (timestamp in ms, agent id), smaller is older; a strict total order (KP-3a)."""


class Session:
    """Unit of work of an agent; its leases never conflict with each other (KP-7).

    ``places`` holds its leases by the key of their resource, ``deletions`` the index of those for DELETES (None before
    the first), ``waiting`` the ids of its queued requests, ``dies`` the number of consecutive Die verdicts.
    ``cached_conflicts`` holds the conflicts of the last request, because a retry often finds them unchanged.
    """

    __slots__ = (
        "agent_id",
        "cached_conflicts",
        "deletions",
        "dies",
        "order",
        "places",
        "rank",
        "session_id",
        "waiting",
    )

    def __init__(self, agent_id: str, session_id: str, rank: Rank) -> None:
        """Create a session.

        Args:
            agent_id: its agent.
            session_id: its id.
            rank: the agent's priority.
        """
        self.agent_id = agent_id
        self.session_id = session_id
        self.rank = rank
        self.order = (rank[0], agent_id, session_id)
        self.places: dict[str, list[Lease]] = {}
        self.deletions: ConflictIndex | None = None
        self.waiting: set[str] = set()
        self.dies = 0
        self.cached_conflicts: Any = None

    @property
    def is_idle(self) -> bool:
        """Whether it has no leases, no queued requests and no Die verdicts."""
        return not (self.places or self.waiting or self.dies)

    def leases(self) -> list[Lease]:
        """Return its leases in the order of their tokens."""
        return sorted((lease for there in self.places.values() for lease in there), key=lambda lease: lease.token)


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """Times of a lease in ms.

    Args:
        granted_at: when it was granted, ms since 1970.
        ttl_ms: its time to live; None for a lease that does not expire.
        max_hold_ms: the maximum time that heartbeats can keep it.
    """

    granted_at: int
    ttl_ms: int | None
    max_hold_ms: int


class Lease:
    """A lease in force on one triple until release, expiry or revocation (KLIS-4).

    ``token`` is its fencing token, which only increases; ``expires_at`` is None for a lease of a proposal, which ends
    with the proposal; ``hold_until`` is the limit of heartbeats.
    """

    __slots__ = (
        "expires_at",
        "granted_at",
        "hold_until",
        "lease_id",
        "session",
        "token",
        "triple",
        "ttl_ms",
        "verdict_id",
    )

    def __init__(
        self,
        lease_id: str,
        token: int,
        session: Session,
        triple: Triple,
        verdict_id: str,
        terms: LeaseTerms,
    ) -> None:
        """Create a lease with its times."""
        self.lease_id = lease_id
        self.token = token
        self.session = session
        self.triple = triple
        self.verdict_id = verdict_id
        granted_at, ttl_ms, max_hold_ms = terms.granted_at, terms.ttl_ms, terms.max_hold_ms
        self.granted_at = granted_at
        self.ttl_ms = ttl_ms
        self.hold_until = None if ttl_ms is None else granted_at + max_hold_ms
        self.expires_at = None if ttl_ms is None else granted_at + min(ttl_ms, max_hold_ms)

    def to_wire(self) -> dict[str, Any]:
        """Return the lease as JSON."""
        return {
            "leaseId": self.lease_id,
            "token": self.token,
            "state": "Active",
            "agentId": self.session.agent_id,
            "sessionId": self.session.session_id,
            "predicate": self.triple.predicate.value,
            "resource": self.triple.resource.text,
            "grantedAt": self.granted_at,
            "ttlMs": self.ttl_ms,
            "expiresAt": self.expires_at,
            "holdUntil": self.hold_until,
            "verdictId": self.verdict_id,
        }


@dataclass(slots=True)
class Request:
    """A queued request with its triples; ``places`` holds them by resource key."""

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
        """Sort key: oldest agent first, then order of arrival."""
        return self.session.rank, self.sequence


@dataclass(frozen=True, slots=True)
class AgentKey:
    """A public key of an agent."""

    key_id: str
    agent_id: str
    public: str
    revoked: bool = False
