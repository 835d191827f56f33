"""Report of effects by type: performed, failed, retried and in doubt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from world.events.execution_events import (
    EffectDropped,
    EffectFulfilled,
    EffectInDoubt,
    EffectRequested,
    EffectResolved,
    EffectRetried,
    ExecutionCancelled,
)
from world.events.proposal_events import ProposalCompleted, ProposalFailed
from world.model.record import WireForm
from worldprotocol.report.proposals import HIDDEN, Proposals
from worldprotocol.report.tally import EventPosition, Tally

__all__ = ["Effects"]

MAX_DOUBTS: Final = 100
"""Maximum number of listed effects in doubt, oldest first."""


@dataclass(slots=True)
class _Effect(WireForm):
    """Number of requests and results of effects of one type."""

    requested: int = 0
    made: int = 0
    failed: int = 0
    retried: int = 0
    in_doubt: int = 0
    resolved: int = 0
    dropped: int = 0
    WIRE: ClassVar = "requested made failed retried in_doubt resolved dropped"

    @property
    def weight(self) -> int:
        return max(self.requested, self.made + self.failed)


class Effects(WireForm):
    """Section of the report about effects.

    Args:
        proposals: the open proposals.
    """

    WIRE: ClassVar = "total=_all byType=_types cancelled=_cancelled in_doubt_now"

    def __init__(self, proposals: Proposals) -> None:
        self._proposals = proposals
        self._types = Tally(("type",), _Effect)
        self._all = _Effect()
        self._cancelled = 0
        self._doubts: dict[tuple[str, str], dict[str, Any]] = {}

    @property
    def in_doubt_now(self) -> dict[str, Any]:
        """The effects in doubt, oldest first, and how many more there are."""
        doubts = list(self._doubts.values())
        return {"rows": doubts[:MAX_DOUBTS], "more": max(len(doubts) - MAX_DOUBTS, 0)}

    def steps(self) -> dict[type[Any], Callable[[Any, EventPosition], None]]:
        """Return the handler of each type of event."""
        return {
            EffectRequested: self._on_requested,
            EffectFulfilled: self._on_fulfilled,
            EffectRetried: self._counting("retried"),
            EffectInDoubt: self._on_doubt,
            EffectResolved: self._on_resolved,
            EffectDropped: self._counting("dropped"),
            ExecutionCancelled: self._on_cancelled,
        }

    def ended(self, event: Any) -> None:
        """Remove the effects in doubt of an ended proposal."""
        if self._doubts and isinstance(event, ProposalCompleted | ProposalFailed):
            for key in [key for key in self._doubts if key[0] == event.proposal_id]:
                del self._doubts[key]

    def _type(self, proposal_id: str, requirement_id: str) -> str:
        row = self._proposals.row(proposal_id)
        return HIDDEN if row is None else row.effects.get(requirement_id, HIDDEN)

    def _count(self, event: Any, what: str, moment: EventPosition) -> None:
        if moment.counts:
            for figures in (self._all, self._types.of(self._type(event.proposal_id, event.requirement_id))):
                setattr(figures, what, getattr(figures, what) + 1)

    def _counting(self, what: str) -> Callable[[Any, EventPosition], None]:
        return lambda event, moment: self._count(event, what, moment)

    def _on_requested(self, event: EffectRequested, moment: EventPosition) -> None:
        row, wanted = self._proposals.row(event.proposal_id), event.requirement
        if row is not None:
            if wanted.id in row.effects:
                return  # a retry, which has an event of its own
            row.effects[wanted.id] = wanted.type
        if moment.counts:
            for figures in (self._all, self._types.of(wanted.type)):
                figures.requested += 1

    def _on_fulfilled(self, event: EffectFulfilled, moment: EventPosition) -> None:
        self._count(event, "failed" if event.result.error else "made", moment)
        self._doubts.pop((event.proposal_id, event.requirement_id), None)

    def _on_doubt(self, event: EffectInDoubt, moment: EventPosition) -> None:
        self._count(event, "in_doubt", moment)
        self._doubts[event.proposal_id, event.requirement_id] = {
            "at": event.at,
            "position": moment.position,
            "type": self._type(event.proposal_id, event.requirement_id),
            "proposalId": event.proposal_id,
            "reason": event.reason,
        }

    def _on_resolved(self, event: EffectResolved, moment: EventPosition) -> None:
        self._count(event, "resolved", moment)
        self._doubts.pop((event.proposal_id, event.requirement_id), None)

    def _on_cancelled(self, _event: ExecutionCancelled, moment: EventPosition) -> None:
        self._cancelled += moment.counts
