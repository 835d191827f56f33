"""The events of a confirmed clock."""

from __future__ import annotations

from typing import ClassVar

from world.events.base import Event


class ClockConfirmed(Event, frozen=True, kw_only=True):
    """An operator confirmed that ``at`` is the time; lease time was ``leaseTime`` and is ``at`` from here on."""

    TOPIC: ClassVar[str] = "clock.confirmed"
    lease_time: int
    by: str
    reason: str


class ProposalRescheduled(Event, frozen=True, kw_only=True):
    """After ``clock.confirmed``: what a proposal waits for ends sooner; ``deadline`` of its vote, ``effects`` by id."""

    TOPIC: ClassVar[str] = "proposal.rescheduled"
    SPARSE: ClassVar[bool] = True
    proposal_id: str
    deadline: int | None = None
    effects: dict[str, int] = {}
