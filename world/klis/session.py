"""Sessions of agents with their leases, queued requests and keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import Struct

from world.klis.triple import Triple
from world.model.record import Record

if TYPE_CHECKING:
    from world.klis.conflict_index import ConflictIndex

__all__ = ["AgentKey", "Died", "Lease", "LeaseTerms", "Rank", "RefusedRequest", "Request", "Session", "SessionName"]

Rank = tuple[int, str]
"""Priority of an agent: (timestamp in ms, agent id), smaller is older; a strict total order (KP-3a)."""

_token: Final = attrgetter("token")


class SessionName(Struct, frozen=True):
    """Identity of a session: its agent, its id, and the agent's priority. It never changes."""

    agent_id: str
    session_id: str
    rank: Rank


class Session:
    """Unit of work of an agent; its leases never conflict with each other (KP-7).

    ``places`` holds its leases by the key of their resource, ``deletions`` the index of those for DELETES (None before
    the first), ``waiting`` the ids of its queued requests, ``dies`` the number of consecutive Die verdicts.
    ``cached_conflicts`` holds the conflicts of the last request, because a retry often finds them unchanged. Leases and
    requests refer to the session by its ``name``.
    """

    __slots__ = (
        "agent_id",
        "cached_conflicts",
        "deletions",
        "dies",
        "name",
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
        self.name = SessionName(agent_id, session_id, rank)
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
        leases = [lease for there in self.places.values() for lease in there]
        return leases if len(leases) < 2 else sorted(leases, key=_token)


class Died(Struct, frozen=True):
    """Die verdicts of a session: how many in a row, and when the last was given, ms since 1970."""

    dies: int
    at: int


class LeaseTerms(Struct, frozen=True):
    """Times of a lease in ms.

    Args:
        granted_at: when it was granted, ms since 1970.
        ttl_ms: its time to live; None for a lease that does not expire.
        max_hold_ms: the maximum time that heartbeats can keep it.
    """

    granted_at: int
    ttl_ms: int | None
    max_hold_ms: int


class Lease(Record, frozen=True, omit_defaults=True):
    """A lease in force on one triple until release, expiry or revocation (KLIS-4); an immutable value.

    ``token`` is its fencing token, which only increases; ``expires_at`` is None for a lease of a proposal, which ends
    with the proposal; ``hold_until`` is the limit of heartbeats. A renewal replaces the lease by another value.
    """

    lease_id: str
    token: int
    session: SessionName
    triple: Triple
    verdict_id: str
    granted_at: int
    ttl_ms: int | None
    expires_at: int | None
    hold_until: int | None
    WIRE: ClassVar = (
        "lease_id token state agentId=session.agent_id sessionId=session.session_id "
        "predicate=triple.predicate.value resource=triple.resource.text granted_at ttl_ms expires_at hold_until "
        "verdict_id"
    )
    state: ClassVar = "Active"

    @classmethod
    def granted(
        cls, lease_id: str, token: int, session: SessionName, triple: Triple, verdict_id: str, terms: LeaseTerms
    ) -> Lease:
        """Return a new lease with the times that follow from its terms."""
        at, ttl_ms, max_hold_ms = terms.granted_at, terms.ttl_ms, terms.max_hold_ms
        if ttl_ms is None:
            return cls(lease_id, token, session, triple, verdict_id, at, None, None, None)
        return cls(
            lease_id, token, session, triple, verdict_id, at, ttl_ms, at + min(ttl_ms, max_hold_ms), at + max_hold_ms
        )


@dataclass(frozen=True, slots=True)
class Request:
    """A queued request with its triples, an immutable value; ``places`` holds the triples by resource key."""

    request_id: str
    session: SessionName
    triples: tuple[Triple, ...]
    since: int
    sequence: int
    ttl_ms: int | None
    deadline: int | None
    places: Mapping[str, list[Triple]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        places: dict[str, list[Triple]] = {}
        for triple in self.triples:
            places.setdefault(triple.resource.key, []).append(triple)
        object.__setattr__(self, "places", places)

    @property
    def order(self) -> tuple[Rank, int]:
        """Sort key: oldest agent first, then order of arrival."""
        return self.session.rank, self.sequence


class RefusedRequest(Struct, frozen=True):
    """A request of a proposal that died, or found the queue full, and that what is freed wakes; an immutable value.

    It keeps its place in the order of age from its first verdict on. ``blocked`` is the index of a triple that the last
    verdict named a conflict of, with a session that is not younger where it is Die.
    """

    request_id: str
    session: SessionName
    triples: tuple[Triple, ...]
    sequence: int
    blocked: int

    @property
    def order(self) -> tuple[Rank, int]:
        """Sort key: oldest agent first, then order of arrival; as of ``Request``."""
        return self.session.rank, self.sequence


@dataclass(frozen=True, slots=True)
class AgentKey:
    """A public key of an agent."""

    key_id: str
    agent_id: str
    public: str
    revoked: bool = False
