"""Effects of the counterfactual, answered with recorded results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from world.engine.effect_runner import EffectRecorder
from world.events.claim_events import EffectLapsed
from world.events.execution_events import EffectFulfilled, EffectResolved
from world.model.snapshot import EffectAnswer, ErrorValue, Requirement
from world.pipeline.driver import advance
from world.pipeline.execution_state import order_of
from world.pipeline.recover import cancel
from world.pipeline.steps import EffectAnswered
from world.pipeline.unit_of_work import Task, UnitOfWork
from world.state.ports import Performed
from world.state.proposal import ROLLBACK, Proposal
from worldprotocol.analysis.counterfactual.asked import WHATIF
from worldprotocol.analysis.counterfactual.effects import (
    Needed,
    Recorded,
    recorded_effects,
    result_for,
)
from worldprotocol.analysis.counterfactual.stand_ins import NOTHING_RESTORED, Putting
from worldprotocol.api.bootstrap import EventLog

__all__ = ["EffectReplayer"]

EFFECT_NEEDED: Final = "effect needed"


@dataclass(slots=True)
class EffectReplayer:
    """Effect runner that uses recorded results.

    Args:
        protocol: writer of the scratch log.
        source: the real log.
        position: position of the last replayed event.
        inserted: ids of inserted proposals, which have no recorded results.
        needed: effects without recorded results.
    """

    protocol: Putting
    source: EventLog
    position: int = 0
    inserted: list[str] = field(default_factory=list)
    needed: list[Needed] = field(default_factory=list)
    _waiting: dict[str, dict[str, Task]] = field(default_factory=dict)
    _used: dict[str, dict[str, str]] = field(default_factory=dict)

    def take_over(self, proposal: Proposal) -> None:
        """Find results of the effects that are in progress or in doubt at the start."""
        for effect in [*proposal.requested.values(), *proposal.in_doubt.values()]:
            asked, attempt = effect.requirement, effect.attempt
            task: Task = self.protocol.run(lambda work: _task(work, proposal, asked, attempt))  # noqa: B023
            self._look_for(task)
        self.look_for_all()

    def look_for_all(self) -> None:
        """Find results of all effects that were requested since the last call."""
        while self.protocol.asked:
            self._look_for(self.protocol.asked.pop(0))

    def bring(self, event: EffectFulfilled) -> bool:
        """Apply a recorded result; return whether an effect waits for it."""
        task = self._waiting.get(event.proposal_id, {}).pop(event.requirement_id, None)
        if task is not None:
            self._fulfil(task, event.result)
        return task is not None

    def forget(self, proposal_id: str) -> None:
        """Remove the data of a proposal that has ended."""
        self._waiting.pop(proposal_id, None)
        self._used.pop(proposal_id, None)

    def _look_for(self, task: Task) -> None:
        """Apply the recorded result of an effect, now or at its position, or cancel the execution."""
        name, asked = task.proposal_id, task.requirement
        used = self._used.setdefault(name, {})
        recorded = [] if name in self.inserted else recorded_effects(self.source, name)
        match = result_for(recorded, asked, used)
        if asked.type == ROLLBACK and (match is None or match.result is None):
            match = Recorded(asked.id, "", 0, EffectAnswer(NOTHING_RESTORED))
        if match is None:
            self._needs(name, asked)
            return
        used[match.name] = asked.id
        if match.position is None or match.result is None:
            return  # it was in progress when the record ended
        if match.position <= self.position:
            self._fulfil(task, match.result)
        else:
            self._waiting.setdefault(name, {})[match.name] = task

    def _needs(self, name: str, asked: Requirement) -> None:
        """Cancel an execution that needs an effect without a recorded result."""
        self.needed.append(Needed(name, asked.type, asked.params, asked.node_path))

        def command(work: UnitOfWork) -> None:
            advance(work, cancel(work, name, by=WHATIF, reason=f"{EFFECT_NEEDED}: {asked.type}"))
            while (proposal := work.realm.proposals.get(name)) is not None and proposal.requested:
                effect = next(iter(proposal.requested.values()))
                under_way = effect.requirement
                error = ErrorValue.at("CANCELLED", EFFECT_NEEDED, under_way.action_id, under_way.node_path, work.at)
                answer = EffectAnswer(error=error)
                advance(work, (EffectAnswered(proposal, under_way.id, answer, effect.attempt),))

        self.protocol.run(command)
        self.look_for_all()

    def _fulfil(self, task: Task, result: EffectAnswer) -> None:
        """Record a result as the effect runner does."""
        name, asked = task.proposal_id, task.requirement.id
        given = result
        if self.protocol.ask(lambda realm: name in realm.proposals and asked in realm.proposals[name].in_doubt):
            self.protocol.run(lambda work: _happened(work, name, asked, given))
        elif self.protocol.ask(lambda realm: name in realm.proposals):
            for following in self.protocol.record(EffectRecorder(task, Performed(given))):
                self.protocol.perform(following)
        self.look_for_all()


def _happened(work: UnitOfWork, name: str, asked: str, given: EffectAnswer) -> None:
    """Resolve an effect in doubt with its recorded result."""
    resolved = EffectResolved(
        at=work.at, proposal_id=name, requirement_id=asked, choice="happened", by=WHATIF, reason="as recorded"
    )
    work.emit(name, resolved)
    proposal = work.realm.proposals[name]
    advance(work, (EffectAnswered(proposal, asked, given, proposal.requested[asked].attempt),))


def _task(work: UnitOfWork, proposal: Proposal, asked: Requirement, attempt: int) -> Task:
    """Return the task of an effect that is in progress; the claim of a worker on it ends, as no worker reports here."""
    assert proposal.started is not None
    claim = proposal.claims.get(asked.id)
    if claim is not None:
        lapsed = EffectLapsed(
            at=work.at,
            proposal_id=proposal.proposal_id,
            requirement_id=asked.id,
            claim_id=claim.claim_id,
            token=claim.token,
        )
        work.emit(proposal.proposal_id, lapsed)
    order = order_of(proposal, work.snapshot(proposal.started.on_world))
    return Task(proposal.proposal_id, asked, attempt, order)
