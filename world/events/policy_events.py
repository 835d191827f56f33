"""Events of policies: adopted and retired ones, and a second one that judges for the record only.

They are read and written by ``world.events.codec`` like all others. Source: design section 6; CARD-policy.
"""

from __future__ import annotations

from typing import ClassVar

from world.events.base import Event, Wire

__all__ = ["PolicyAdopted", "PolicyRetired", "ProposalShadowed", "ShadowConfigured"]


class PolicyAdopted(Event, frozen=True, kw_only=True):
    """A policy came into force under its name; ``policy`` holds its rules with their sources and hashes.

    ``previous`` is the hash of the one that it replaced; logs of before that was recorded do not say it.
    """

    TOPIC: ClassVar[str] = "policy.adopted"
    name: str
    policy_hash: str
    policy: Wire
    by: str
    previous: str | None = None


class PolicyRetired(Event, frozen=True, kw_only=True):
    """A policy that was in force is so no more; nobody was bound by it, and it judges nothing from here on."""

    TOPIC: ClassVar[str] = "policy.retired"
    name: str
    policy_hash: str
    by: str
    reason: str


class ShadowConfigured(Event, frozen=True, kw_only=True):
    """From here on a second policy judges too, for the record only; without a name none does any more.

    ``policy`` and ``policy_hash`` are of the one at hand then; ``actors`` are those whose proposals it judges, none for
    all.
    """

    TOPIC: ClassVar[str] = "shadow.configured"
    actors: list[str]
    by: str
    name: str | None = None
    policy_hash: str | None = None
    policy: Wire | None = None


class ProposalShadowed(Event, frozen=True, kw_only=True):
    """What the second policy said about a new proposal; nothing follows from it.

    ``policy_hash`` is that of the policy that was asked, None where it could not be; the ruling says why.
    """

    TOPIC: ClassVar[str] = "proposal.shadowed"
    proposal_id: str
    name: str
    ruling: Wire
    policy_hash: str | None = None
