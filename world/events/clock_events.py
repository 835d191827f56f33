"""Events of the clock's confirmation."""

from __future__ import annotations

from typing import ClassVar

from world.events.base import Event


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
