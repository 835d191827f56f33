"""Values about resources that events of leases, runs and executions embed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from world.model.record import Record

__all__ = [
    "ChangedResource",
    "GrantedLease",
    "NamedConflict",
    "ObservedEffect",
    "ResourceClaim",
    "ResourceExistence",
    "SecretDigest",
    "UndeclaredEffect",
    "read_existence",
]


class ResourceClaim(Record, frozen=True, kw_only=True, forbid_unknown_fields=False, omit_defaults=True):
    """A predicate on a resource, both as text."""

    predicate: str
    resource: str


class GrantedLease(ResourceClaim, frozen=True, kw_only=True, forbid_unknown_fields=False, omit_defaults=True):
    """A lease of a verdict: its id, its fencing token, and what it grants."""

    lease_id: str
    token: int


class NamedConflict(ResourceClaim, frozen=True, kw_only=True, forbid_unknown_fields=False, omit_defaults=True):
    """A conflict of a verdict.

    Args:
        intent: index of the requested claim.
        holder: agent of the lease or of the earlier request.
        session: its session.
        lease_id: the lease, or None.
        request_id: the earlier request, or None.
    """

    intent: int
    holder: str
    session: str
    lease_id: str | None = None
    request_id: str | None = None


class ResourceExistence(Record, frozen=True, omit_defaults=True):
    """Whether a resource existed that a claim depends on (``world.pipeline.leasing.existence``)."""

    resource: str
    exists: bool


class ObservedEffect(ResourceClaim, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A permitted side effect, with the source of the observation and the number of observations so far."""

    depth: str
    count: int


class UndeclaredEffect(ResourceClaim, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A side effect outside of the declaration.

    Args:
        depth: source of the observation.
        blocked: whether it was prevented.
        message: the error that the agent received.
        declared: claims of the declaration about the same resource.
        call: the call that caused it, if known.
    """

    depth: str
    blocked: bool
    message: str
    declared: tuple[ResourceClaim, ...]
    call: str | None = None


class ChangedResource(Record, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A difference of contents at a resource."""

    kind: str
    resource: str


class SecretDigest(Record, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A secret that an effect used: its name, and the keyed digest of its value if there is a key."""

    name: str
    digest: str | None = None


def read_existence(details: Mapping[str, Any]) -> list[ResourceExistence] | None:
    """Return the observation in the details of a refusal ``RESOURCE_ABSENT``; None where there is none."""
    observed = details.get("existence")
    return None if observed is None else [ResourceExistence.from_wire(one) for one in observed]
