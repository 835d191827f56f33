"""What the log says about one execution's effects: asked for, answered, and in doubt.

The first result of an effect counts, for good. A second one, and one that comes when the execution is over,
are
dropped: what was computed with the first must be computed with it again (HC-compute, HC-journal).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from world.core import EffectAnswer
from world.errors import DamagedLogError, RefusedError
from world.events.base import Event
from world.events.execution_events import EffectFulfilled, EffectRequested
from world.events.proposal_events import ProposalCompleted, ProposalFailed
from world.model.snapshot import Requirement

__all__ = ["DroppedResult", "ExecutionJournal", "rebuild_journal"]


@dataclass(frozen=True, slots=True)
class DroppedResult:
    """A recorded result that does not count.

    Args:
        requirement_id: the effect.
        reason: ``duplicate`` of an earlier result, or ``late`` behind the execution's end.
    """

    requirement_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ExecutionJournal:
    """The effects of one execution, as its log tells them.

    Args:
        results: by requirement id; what ``world.state.ports.Order`` takes as journal.
        requested: each effect asked for, once, in order.
        dropped: results that do not count.
    """

    results: Mapping[str, EffectAnswer] = field(default_factory=dict)
    requested: tuple[Requirement, ...] = ()
    dropped: tuple[DroppedResult, ...] = ()

    @property
    def in_doubt(self) -> tuple[Requirement, ...]:
        """Effects asked for without a result: being made now, or cut off by a crash with unknown outcome."""
        return tuple(asked for asked in self.requested if asked.id not in self.results)


def rebuild_journal(events: Iterable[Event], proposal_id: str) -> ExecutionJournal:
    """Return the journal of an execution from its events.

    Args:
        events: decoded events in log order, those of other proposals included.
        proposal_id: whose execution.

    Raises:
        DamagedLogError: ``BAD_EVENT`` where a recorded request or result is none.
    """
    results: dict[str, EffectAnswer] = {}
    requested: dict[str, Requirement] = {}
    dropped: list[DroppedResult] = []
    is_over = False
    for event in events:
        if getattr(event, "proposal_id", None) != proposal_id:
            continue
        if isinstance(event, EffectRequested):
            asked = _requirement(event.requirement, proposal_id)
            requested.setdefault(asked.id, asked)
        elif isinstance(event, EffectFulfilled):
            if is_over or event.requirement_id in results:
                reason = "duplicate" if event.requirement_id in results else "late"
                dropped.append(DroppedResult(event.requirement_id, reason))
            else:
                results[event.requirement_id] = _result(event)
        elif isinstance(event, (ProposalCompleted, ProposalFailed)):
            is_over = True
    return ExecutionJournal(results, tuple(requested.values()), tuple(dropped))


def _requirement(wire: Mapping[str, Any], proposal_id: str) -> Requirement:
    try:
        return Requirement.from_wire(wire)
    except RefusedError as refused:
        raise _damaged(f"A request of proposal {proposal_id} is none", refused, proposal_id) from None


def _result(event: EffectFulfilled) -> EffectAnswer:
    try:
        return EffectAnswer.from_wire(event.result)
    except (RefusedError, TypeError, AttributeError) as error:
        told = f"The result of effect {event.requirement_id} is none"
        raise _damaged(told, error, event.proposal_id) from None


def _damaged(told: str, error: Exception, proposal_id: str) -> DamagedLogError:
    return DamagedLogError("BAD_EVENT", f"{told}: {error}", proposal=proposal_id)
