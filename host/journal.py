"""Effects of one execution as recorded in the log: requested, answered, and in doubt.

The first result of an effect is final. A second result, or one recorded after the end of the execution, is dropped: a
computation that used the first one must be repeatable with it (HC-compute, HC-journal).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from world.events.base import Event
from world.events.execution_events import EffectFulfilled, EffectRequested
from world.events.proposal_events import ProposalCompleted, ProposalFailed
from world.model.snapshot import EffectAnswer, Requirement

__all__ = ["DroppedResult", "ExecutionJournal", "rebuild_journal"]


@dataclass(frozen=True, slots=True)
class DroppedResult:
    """A recorded result that is ignored.

    Args:
        requirement_id: the effect.
        reason: ``duplicate`` of an earlier result, or ``late`` after the end of the execution.
    """

    requirement_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ExecutionJournal:
    """The effects of one execution, read from its log.

    Args:
        results: by requirement id; the ``journal`` of ``world.state.ports.ExecutionOrder``.
        requested: each requested effect, once, in order.
        dropped: results that are ignored.
    """

    results: Mapping[str, EffectAnswer] = field(default_factory=dict)
    requested: tuple[Requirement, ...] = ()
    dropped: tuple[DroppedResult, ...] = ()

    @property
    def in_doubt(self) -> tuple[Requirement, ...]:
        """Effects requested without a result: running now, or interrupted by a crash with unknown outcome."""
        return tuple(requirement for requirement in self.requested if requirement.id not in self.results)


def rebuild_journal(events: Iterable[Event], proposal_id: str) -> ExecutionJournal:
    """Build the journal of an execution from its events.

    Args:
        events: decoded events in log order, those of other proposals included.
        proposal_id: the proposal whose execution it is.

    """
    results: dict[str, EffectAnswer] = {}
    requested: dict[str, Requirement] = {}
    dropped: list[DroppedResult] = []
    is_over = False
    for event in events:
        if getattr(event, "proposal_id", None) != proposal_id:
            continue
        if isinstance(event, EffectRequested):
            requirement = event.requirement
            requested.setdefault(requirement.id, requirement)
        elif isinstance(event, EffectFulfilled):
            if is_over or event.requirement_id in results:
                reason = "duplicate" if event.requirement_id in results else "late"
                dropped.append(DroppedResult(event.requirement_id, reason))
            else:
                results[event.requirement_id] = event.result
        elif isinstance(event, (ProposalCompleted, ProposalFailed)):
            is_over = True
    return ExecutionJournal(results, tuple(requested.values()), tuple(dropped))
