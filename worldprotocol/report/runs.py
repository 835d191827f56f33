"""Report of governed runs: outcomes, violations and rollbacks."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from world.events.run_events import RunAmended, RunClosed, RunOpened, RunRolledBack, RunViolated
from world.model.record import WireForm
from worldprotocol.report.proposals import HIDDEN, Proposals
from worldprotocol.report.tally import EventPosition, Tally

__all__ = ["Runs"]

MAX_VIOLATIONS: Final = 100
"""Maximum number of listed violations, newest first."""


@dataclass(slots=True)
class _Violations(WireForm):
    """Number of an agent's scope violations, and of the blocked ones."""

    count: int = 0
    blocked: int = 0
    WIRE: ClassVar = "count blocked happened"

    @property
    def happened(self) -> int:
        return self.count - self.blocked

    @property
    def weight(self) -> int:
        return self.count


class Runs(WireForm):
    """Section of the report about governed runs.

    Args:
        proposals: the open proposals; violations of their effects are counted too.
    """

    WIRE: ClassVar = "opened=_opened under_way outcomes amended=_amended rolledBack=_rolled_back violations"

    def __init__(self, proposals: Proposals) -> None:
        self._proposals = proposals
        self._agents: dict[str, str] = {}
        self._opened = 0
        self._amended = 0
        self._rolled_back = 0
        self._outcomes: Counter[str] = Counter()
        self._by_agent = Tally(("agent", "predicate"), _Violations)
        self._all = _Violations()
        self._newest: deque[dict[str, Any]] = deque(maxlen=MAX_VIOLATIONS)

    @property
    def under_way(self) -> int:
        """Number of open runs."""
        return len(self._agents)

    @property
    def outcomes(self) -> dict[str, int]:
        """Number of ended runs by outcome."""
        return dict(sorted(self._outcomes.items()))

    @property
    def violations(self) -> dict[str, Any]:
        """The violations: their number, by agent, and the newest."""
        newest = {"rows": list(self._newest)[::-1], "more": self._all.count - len(self._newest)}
        return {**self._all.to_wire(), "byAgent": self._by_agent.to_wire(), "newest": newest}

    def steps(self) -> dict[type[Any], Callable[[Any, EventPosition], None]]:
        """Return the handler of each type of event."""
        return {
            RunOpened: self._on_opened,
            RunViolated: self._on_violated,
            RunAmended: self._on_amended,
            RunRolledBack: self._on_rolled_back,
            RunClosed: self._on_closed,
        }

    def _on_opened(self, event: RunOpened, moment: EventPosition) -> None:
        self._agents[event.run_id] = event.agent_id
        self._opened += moment.counts

    def _on_violated(self, event: RunViolated, moment: EventPosition) -> None:
        if not moment.counts:
            return
        violation, row = event.violation, self._proposals.row(event.run_id)
        agent = self._agents.get(event.run_id) or (HIDDEN if row is None else row.actor)
        for figures in (self._all, self._by_agent.of(agent, violation.predicate)):
            figures.count += 1
            figures.blocked += violation.blocked
        self._newest.append(
            {
                "at": event.at,
                "position": moment.position,
                "agent": agent,
                "runId": event.run_id,
                "predicate": violation.predicate,
                "resource": violation.resource,
                "blocked": violation.blocked,
                "message": violation.message,
            }
        )

    def _on_amended(self, _event: RunAmended, moment: EventPosition) -> None:
        self._amended += moment.counts

    def _on_rolled_back(self, _event: RunRolledBack, moment: EventPosition) -> None:
        self._rolled_back += moment.counts

    def _on_closed(self, event: RunClosed, moment: EventPosition) -> None:
        self._agents.pop(event.run_id, None)
        if moment.counts:
            self._outcomes[event.outcome] += 1
