"""Events of policies: adoption, retirement, and evaluation of a shadow policy.

They are read and written by ``world.events.codec`` like all others. Source: design section 6; CARD-policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from world.events.base import Event, ObjectEvent
from world.events.verification import Verification
from world.model.decision import Ruling
from world.model.member_types import JsonObject

__all__ = ["PolicyAdopted", "PolicyRetired", "ProposalShadowed", "ShadowConfigured"]


class PolicyAdopted(ObjectEvent, frozen=True, kw_only=True):
    """A policy was adopted under its name; ``policy`` holds its rules with their sources and hashes.

    ``previous`` is the hash of the policy that it replaced; earlier logs do not record it.
    """

    TOPIC: ClassVar[str] = "policy.adopted"
    TEXTS: ClassVar[Mapping[str, tuple[str, ...]]] = {"policy": ("name", "hash")}
    name: str
    policy_hash: str
    policy: JsonObject
    by: str
    previous: str | None = None
    verified: Verification | None = None


class PolicyRetired(Event, frozen=True, kw_only=True):
    """A policy to which no actor is bound was retired; it is not applied any more."""

    TOPIC: ClassVar[str] = "policy.retired"
    name: str
    policy_hash: str
    by: str
    reason: str
    verified: Verification | None = None


class ShadowConfigured(ObjectEvent, frozen=True, kw_only=True):
    """A shadow policy was configured, whose rulings are recorded without effect; without a name it was removed.

    ``policy`` and ``policy_hash`` are those loaded at that time. ``actors`` limits the shadow policy to the proposals
    of these actors; empty means all actors.
    """

    TOPIC: ClassVar[str] = "shadow.configured"
    TEXTS: ClassVar[Mapping[str, tuple[str, ...]]] = {"policy": ("name", "hash")}
    actors: list[str]
    by: str
    name: str | None = None
    policy_hash: str | None = None
    policy: JsonObject | None = None
    verified: Verification | None = None


class ProposalShadowed(Event, frozen=True, kw_only=True):
    """The shadow policy gave a ruling on a new proposal, without effect on the proposal.

    ``policy_hash`` is the hash of the evaluated policy, None where it could not be evaluated; the ruling gives the
    reason.
    """

    TOPIC: ClassVar[str] = "proposal.shadowed"
    proposal_id: str
    name: str
    ruling: Ruling
    policy_hash: str | None = None
