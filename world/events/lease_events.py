"""Events of leases: settings, agents, keys, verdicts and the ends of leases."""

from __future__ import annotations

from typing import ClassVar

from world.events.base import Event, Wire

__all__ = [
    "AgentRegistered",
    "KeyRegistered",
    "KeyRevoked",
    "KlisConfigured",
    "LeaseRenewed",
    "LeasesExpired",
    "LeasesReleased",
    "LeasesRevoked",
    "RequestWithdrawn",
    "VerdictGiven",
]


class KlisConfigured(Event, frozen=True, kw_only=True):
    """The settings of KLIS came into force; from here on, nothing is decided without arbitration.

    ``types`` are the resource types beyond the standard ones, by name, so that a replay needs no plug-in.
    """

    TOPIC: ClassVar[str] = "klis.configured"
    settings: Wire
    types: Wire = {}
    by: str


class AgentRegistered(Event, frozen=True, kw_only=True):
    """An agent got its priority, for good: ``priority`` is a timestamp in ms, the smaller is the older (KP-3c)."""

    TOPIC: ClassVar[str] = "agent.registered"
    agent_id: str
    priority: int
    by: str


class KeyRegistered(Event, frozen=True, kw_only=True):
    """A public key of an agent, base64 of its 32 bytes (KM-7.1)."""

    TOPIC: ClassVar[str] = "key.registered"
    key_id: str
    agent_id: str
    public_key: str
    by: str


class KeyRevoked(Event, frozen=True, kw_only=True):
    """A public key that authenticates nothing any more."""

    TOPIC: ClassVar[str] = "key.revoked"
    key_id: str
    by: str
    reason: str


class VerdictGiven(Event, frozen=True, kw_only=True):
    """The kernel's answer to a manifest, with the leases it granted (KP-5a, KP-5b).

    ``manifest`` is there with the first verdict about a request, ``wanted`` with one that leaves it in the queue.
    ``cause`` says what was asked: ``request`` or ``queue`` (judged again because something changed).
    ``backup`` says that what may change was backed up before, under the verdict's id (KO-7).
    ``ttl_ms`` is None for leases that end with their proposal. ``more_conflicts`` says that not all are spelt out.
    ``existence`` of a grant says which resources exist that it depends on, as far as that can be checked
    (``world.pipeline.existence``).
    """

    TOPIC: ClassVar[str] = "verdict.given"
    SPARSE: ClassVar[bool] = True
    verdict_id: str
    request_id: str
    agent_id: str
    session_id: str
    status: str
    cause: str
    manifest: Wire | None = None
    channel: Wire | None = None
    ttl_ms: int | None = None
    leases: list[Wire] = []
    backup: bool = False
    conflicts: list[Wire] = []
    more_conflicts: bool = False
    retry_after_ms: int | None = None
    queued: bool = False
    wanted: list[Wire] = []
    deadline: int | None = None
    existence: list[Wire] = []


class LeaseRenewed(Event, frozen=True, kw_only=True):
    """A holder's heartbeat: the lease lives until ``expires_at`` (KP-4b)."""

    TOPIC: ClassVar[str] = "lease.renewed"
    lease_id: str
    ttl_ms: int
    expires_at: int


class LeasesReleased(Event, frozen=True, kw_only=True):
    """Their holder gave leases back."""

    TOPIC: ClassVar[str] = "lease.released"
    STATE: ClassVar[str] = "Released"
    lease_ids: list[str]
    agent_id: str
    session_id: str


class LeasesExpired(Event, frozen=True, kw_only=True):
    """The time of leases was over (KP-4c)."""

    TOPIC: ClassVar[str] = "lease.expired"
    STATE: ClassVar[str] = "Expired"
    lease_ids: list[str]


class LeasesRevoked(Event, frozen=True, kw_only=True):
    """An administrator took leases away."""

    TOPIC: ClassVar[str] = "lease.revoked"
    STATE: ClassVar[str] = "Revoked"
    lease_ids: list[str]
    by: str
    reason: str


class RequestWithdrawn(Event, frozen=True, kw_only=True):
    """A request left the queue without a verdict: ``timeout``, ``cancelled``, or ``terminal`` (it deletes that).

    ``existence`` is there with the reason ``RESOURCE_ABSENT`` (``world.pipeline.existence``).
    """

    TOPIC: ClassVar[str] = "request.withdrawn"
    request_id: str
    reason: str
    existence: list[Wire] | None = None
