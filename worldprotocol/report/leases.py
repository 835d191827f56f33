"""Report of leases: verdicts and waits by agent, and held leases over time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from world.events.lease_events import (
    LeaseRenewed,
    LeasesExpired,
    LeasesReleased,
    LeasesRevoked,
    RequestWithdrawn,
    VerdictGiven,
)
from world.model.record import WireForm
from worldprotocol.report.course import TimeSeries
from worldprotocol.report.tally import EventPosition, Spell, Tally

__all__ = ["LeasesPart"]


@dataclass(slots=True)
class _Agent(WireForm):
    """Verdicts on one agent's requests, its waits in the queue, and its leases."""

    granted: int = 0
    waits: int = 0
    died: int = 0
    leases: int = 0
    withdrawn: int = 0
    queued: Spell = field(default_factory=Spell)
    WIRE: ClassVar = "verdicts=weight granted wait=waits die=died leases withdrawn queued"

    @property
    def weight(self) -> int:
        return self.granted + self.waits + self.died


class LeasesPart(WireForm):
    """Section of the report about leases."""

    WIRE: ClassVar = "held mostHeld=_most queued total=_all byAgent=_agents overTime=course"

    def __init__(self) -> None:
        self._held: set[str] = set()
        self._waiting: dict[str, tuple[str, int]] = {}
        self._agents = Tally(("agent",), _Agent)
        self._all = _Agent()
        self._most = 0
        self.course = TimeSeries()

    @property
    def held(self) -> int:
        """Number of leases in force."""
        return len(self._held)

    @property
    def queued(self) -> int:
        """Number of requests in the queue."""
        return len(self._waiting)

    def steps(self) -> dict[type[Any], Callable[[Any, EventPosition], None]]:
        """Return the handler of each type of event."""
        return {
            VerdictGiven: self._on_verdict,
            LeaseRenewed: self._on_renewed,
            LeasesReleased: self._on_ended,
            LeasesExpired: self._on_ended,
            LeasesRevoked: self._on_ended,
            RequestWithdrawn: self._on_withdrawn,
        }

    def at(self, at: int) -> None:
        """Add a time without a change to the time series."""
        self.course.take(at, len(self._held))
        self._most = max(self._most, len(self._held))

    def _on_verdict(self, event: VerdictGiven, moment: EventPosition) -> None:
        self._held.update(one.lease_id for one in event.leases)
        if moment.counts:
            for figures in (self._all, self._agents.of(event.agent_id)):
                figures.granted += event.status == "Granted"
                figures.waits += event.status == "Wait"
                figures.died += event.status == "Die"
                figures.leases += len(event.leases)
            if event.leases:
                self._changed(event.at, "granted", len(event.leases))
        if event.queued and event.status == "Wait":
            self._waiting[event.request_id] = (event.agent_id, event.at)
        elif event.status != "Wait":
            self._left(event.request_id, event.at, moment)

    def _left(self, request_id: str, at: int, moment: EventPosition) -> str | None:
        agent, since = self._waiting.pop(request_id, (None, 0))
        if agent is not None and moment.counts:
            self._all.queued.add(at - since)
            self._agents.of(agent).queued.add(at - since)
        return agent

    def _on_renewed(self, event: LeaseRenewed, moment: EventPosition) -> None:
        if moment.counts:
            self._changed(event.at, "renewed", 1)

    def _on_ended(self, event: LeasesReleased | LeasesExpired | LeasesRevoked, moment: EventPosition) -> None:
        self._held.difference_update(event.lease_ids)
        if moment.counts:
            self._changed(event.at, event.STATE.lower(), len(event.lease_ids))

    def _on_withdrawn(self, event: RequestWithdrawn, moment: EventPosition) -> None:
        agent = self._left(event.request_id, event.at, moment)
        if moment.counts:
            self._all.withdrawn += 1
            if agent is not None:
                self._agents.of(agent).withdrawn += 1

    def _changed(self, at: int, kind: str, count: int) -> None:
        self.course.take(at, len(self._held), kind, count)
        self._most = max(self._most, len(self._held))
