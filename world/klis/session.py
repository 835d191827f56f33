"""A session of an agent and the leases it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from world.klis.conflict_index import ConflictIndex
    from world.klis.manifest import Triple

__all__ = ["Lease", "Rank", "Session"]

Rank = tuple[int, str]
"""An agent's priority: (timestamp in ms, agent id); the smaller is the older. A strict total order (KP-3a)."""


class Session:
    """One agent's unit of work; leases of one session never conflict with each other (KP-7).

    ``places`` holds its leases by the key of their resource, ``deletions`` where those for DELETES are (None before the
    first), ``waiting`` the ids of its requests in the queue, ``dies`` how often in a row it was told Die. ``told``
    remembers what was in its way when it asked last, because one that dies asks for the same again and often nothing
    has changed.
    """

    __slots__ = ("agent_id", "deletions", "dies", "order", "places", "rank", "session_id", "told", "waiting")

    def __init__(self, agent_id: str, session_id: str, rank: Rank) -> None:
        """Begin a session.

        Args:
            agent_id: whose it is.
            session_id: which of the agent's.
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
        self.told: Any = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is known of it that its name does not say."""
        return not (self.places or self.waiting or self.dies)

    def leases(self) -> list[Lease]:
        """Return its leases in the order of their tokens."""
        return sorted((lease for there in self.places.values() for lease in there), key=lambda lease: lease.token)


class Lease:
    """A lease in force: the right to one triple until it is released, expires or is revoked (KLIS-4).

    ``token`` is its fencing token, a number that only grows; ``expires_at`` is None for a lease that the engine holds
    for a proposal, which ends with the proposal; ``hold_until`` is where heartbeats end.
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
        *,
        granted_at: int,
        ttl_ms: int | None,
        max_hold_ms: int,
    ) -> None:
        """Put a lease in force; times in ms, ``ttl_ms`` None for a lease that does not expire."""
        self.lease_id = lease_id
        self.token = token
        self.session = session
        self.triple = triple
        self.verdict_id = verdict_id
        self.granted_at = granted_at
        self.ttl_ms = ttl_ms
        self.hold_until = None if ttl_ms is None else granted_at + max_hold_ms
        self.expires_at = None if ttl_ms is None else granted_at + min(ttl_ms, max_hold_ms)

    def to_wire(self) -> dict[str, Any]:
        """Return the lease as people and programs see it."""
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
