"""Events of leases: settings, agents, keys, verdicts, release, expiry, revocation, and confirmation of the clock."""

from __future__ import annotations

from typing import ClassVar

from world.events.base import Event
from world.events.resource_values import GrantedLease, NamedConflict, ResourceClaim, ResourceExistence
from world.events.verification import Verification
from world.model.member_types import JsonObject

__all__ = [
    "AgentRegistered",
    "ClockConfirmed",
    "KeyRegistered",
    "KeyRevoked",
    "KlisConfigured",
    "LeaseRenewed",
    "LeasesExpired",
    "LeasesReleased",
    "LeasesRevoked",
    "ProposalRescheduled",
    "RequestWithdrawn",
    "VerdictGiven",
]


class KlisConfigured(Event, frozen=True, kw_only=True):
    """The settings of KLIS were changed; from this event on, every decision requires arbitration.

    ``types`` are the resource types beyond the standard ones, by name, so that a replay needs no plug-in.
    """

    TOPIC: ClassVar[str] = "klis.configured"
    settings: JsonObject
    types: JsonObject = {}
    by: str


class AgentRegistered(Event, frozen=True, kw_only=True):
    """An agent received its permanent priority, a timestamp in ms; smaller means older (KP-3c)."""

    TOPIC: ClassVar[str] = "agent.registered"
    agent_id: str
    priority: int
    by: str


class KeyRegistered(Event, frozen=True, kw_only=True):
    """A public key of an agent was registered, as base64 of its 32 bytes (KM-7.1)."""

    TOPIC: ClassVar[str] = "key.registered"
    key_id: str
    agent_id: str
    public_key: str
    by: str
    verified: Verification | None = None


class KeyRevoked(Event, frozen=True, kw_only=True):
    """A public key was revoked and no longer authenticates manifests."""

    TOPIC: ClassVar[str] = "key.revoked"
    key_id: str
    by: str
    reason: str
    verified: Verification | None = None


class VerdictGiven(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The kernel gave a verdict on a manifest, with the granted leases (KP-5a, KP-5b).

    ``manifest`` is present in the first verdict about a request, ``wanted`` in one that leaves it in the queue, and in
    a Die of a proposal or a Wait for which the queue has no room. ``cause`` is ``request``, or for a reevaluation
    ``queue`` where the request waited and ``wake`` where it had died (``wake_rules`` 2).
    ``backup`` is True if resources that may change were backed up before, under the verdict's id (KO-7);
    ``workspace`` is the id of the workspace that holds the backup, absent where it has none and in earlier logs.
    ``ttl_ms`` is None for leases that end with their proposal. ``more_conflicts`` is True if some are not listed.
    ``existence`` of a grant records which resources existed of those that it depends on and that can be checked
    (``world.pipeline.leasing.existence``).
    """

    TOPIC: ClassVar[str] = "verdict.given"
    SPARSE: ClassVar[bool] = True
    verdict_id: str
    request_id: str
    agent_id: str
    session_id: str
    status: str
    cause: str
    manifest: JsonObject | None = None
    channel: JsonObject | None = None
    ttl_ms: int | None = None
    leases: list[GrantedLease] = []
    backup: bool = False
    conflicts: list[NamedConflict] = []
    more_conflicts: bool = False
    retry_after_ms: int | None = None
    queued: bool = False
    wanted: list[ResourceClaim] = []
    deadline: int | None = None
    existence: list[ResourceExistence] = []
    workspace: str | None = None
    verified: Verification | None = None


class LeaseRenewed(Event, frozen=True, kw_only=True):
    """A holder renewed its lease until ``expires_at`` (KP-4b)."""

    TOPIC: ClassVar[str] = "lease.renewed"
    lease_id: str
    ttl_ms: int
    expires_at: int
    verified: Verification | None = None


class LeasesReleased(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A holder released leases."""

    TOPIC: ClassVar[str] = "lease.released"
    STATE: ClassVar[str] = "Released"
    lease_ids: list[str]
    agent_id: str
    session_id: str
    verified: Verification | None = None


class LeasesExpired(Event, frozen=True, kw_only=True):
    """Leases expired (KP-4c)."""

    TOPIC: ClassVar[str] = "lease.expired"
    STATE: ClassVar[str] = "Expired"
    lease_ids: list[str]


class LeasesRevoked(Event, frozen=True, kw_only=True):
    """An administrator revoked leases."""

    TOPIC: ClassVar[str] = "lease.revoked"
    STATE: ClassVar[str] = "Revoked"
    lease_ids: list[str]
    by: str
    reason: str
    verified: Verification | None = None


class RequestWithdrawn(Event, frozen=True, kw_only=True):
    """A request that waited or had died left without a verdict.

    ``reason`` is ``timeout``, ``cancelled``, ``terminal``, ``superseded``, ``decided``, or the code of a refusal.
    ``existence`` is present with the reason ``RESOURCE_ABSENT`` (``world.pipeline.leasing.existence``). ``verified`` is
    the caller that withdrew it (``cancelled``).
    """

    TOPIC: ClassVar[str] = "request.withdrawn"
    request_id: str
    reason: str
    existence: list[ResourceExistence] | None = None
    verified: Verification | None = None


class ClockConfirmed(Event, frozen=True, kw_only=True):
    """An operator confirmed the time ``at``; lease time changes from ``leaseTime`` to ``at``."""

    TOPIC: ClassVar[str] = "clock.confirmed"
    lease_time: int
    by: str
    reason: str


class ProposalRescheduled(Event, frozen=True, kw_only=True):
    """Deadlines of a proposal were shortened after ``clock.confirmed``: of its vote, and of ``effects`` by id."""

    TOPIC: ClassVar[str] = "proposal.rescheduled"
    SPARSE: ClassVar[bool] = True
    proposal_id: str
    deadline: int | None = None
    effects: dict[str, int] = {}
