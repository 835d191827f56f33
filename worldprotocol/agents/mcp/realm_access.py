"""What the MCP server needs of a realm, as one actor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from projections.catalog import ActionCatalog
from world.model.intent import IntentBody

__all__ = ["PAGE", "SUBMITTED_S", "McpActor", "RealmPort"]

PAGE: Final = 100
"""Worlds and entries of the inbox in one answer."""

SUBMITTED_S: Final = 1.0
"""Time after which a submission is answered though its effects still run, in seconds."""


@dataclass(frozen=True, slots=True)
class McpActor:
    """The actor for whom the server answers.

    Args:
        realm: name of the realm.
        actor_id: the actor.
        rights: its rights in the realm; on a log of this machine all of them.
    """

    realm: str
    actor_id: str
    rights: frozenset[str]

    def has(self, *rights: str) -> bool:
        """Return whether the actor has one of these rights."""
        return not self.rights.isdisjoint(rights)


class RealmPort(Protocol):
    """A realm, read and used as one actor. Every method raises ``RefusedError`` where the realm refuses."""

    @property
    def inbox_url(self) -> str | None:
        """The page where people answer; None where there is none."""

    async def identity(self) -> McpActor:
        """Return the actor and its present rights."""

    async def position(self) -> int:
        """Return the position of the last event."""

    async def catalog(self) -> ActionCatalog:
        """Return all actions of the domain with their availability to the actor."""

    async def submit(self, body: IntentBody, key: str | None, trace: Mapping[str, Any]) -> dict[str, Any]:
        """Submit an intent, or return the open, undecided proposal of the same meaning.

        It returns after ``SUBMITTED_S`` though the effects of the proposal still run.

        Args:
            body: action and input.
            key: key of the call, the same for a repeated one; None where the caller states none.
            trace: JSON that is recorded with the proposal.

        Returns:
            The proposal, JSON as ``Proposal.to_wire``.
        """

    async def proposal(self, proposal_id: str, wait_s: float = 0.0) -> dict[str, Any]:
        """Return a proposal once it has ended, or after a time.

        Args:
            proposal_id: the proposal.
            wait_s: longest wait, in seconds.

        Returns:
            JSON as ``Proposal.to_wire``; an open one has ``waits`` besides: ``for``, in words, and ``people``, whether
            it waits for the answer of a person.
        """

    async def withdraw(self, proposal_id: str, reason: str) -> dict[str, Any]:
        """Withdraw an undecided proposal of the actor."""

    async def patches(self, world_id: str) -> Sequence[Any]:
        """Return the patches from the parent of a world, JSON."""

    async def inbox(self) -> Any:
        """Return what waits for the actor, JSON."""

    async def worlds(self) -> Any:
        """Return the newest worlds, JSON."""

    async def world(self, world_id: str) -> Any:
        """Return a world, JSON; ``HEAD`` is the head of the active branch."""

    async def state(self, world_id: str) -> Any:
        """Return the data of a world, JSON; ``HEAD`` is the head of the active branch."""

    async def branches(self) -> Any:
        """Return the branches, JSON."""

    async def leases(self, *, own: bool) -> Any:
        """Return the leases in force, JSON; ``own`` are those of the actor alone."""

    async def acquire(self, wanted: Mapping[str, Any], key: str | None) -> dict[str, Any]:
        """Request leases for the actor, all or none.

        Args:
            wanted: ``resources``, ``predicate``, and optionally ``sessionId`` and ``ttlMs``.
            key: key of the call.

        Returns:
            The verdict: ``status``, ``sessionId``, ``leases``, ``conflicts``, ``ttlMs``, ``retryAfterMs``.
        """

    async def release(self, lease_ids: Sequence[str], session_id: str, key: str | None) -> dict[str, str]:
        """Release leases of the actor, all or none, and return the state of each."""
