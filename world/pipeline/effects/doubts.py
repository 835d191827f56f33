"""Effects in doubt that a process can find out about itself, before a person decides: their handlers look them up.

A look-up is made after the commit that asks for it, outside of the log's lock, and once by each process that recovers:
a later one asks again. Its result is recorded as ``effect.fulfilled`` with ``lookedUp``; without one nothing is
recorded. A worker on another machine lists the doubts that it can look up, those of effects that workers perform, and
reports what it finds. Source: design section 8; HC-journal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from world.events.execution_events import EffectDropped, EffectRequested
from world.pipeline.adopted_code.holding import is_held_back
from world.pipeline.effect_requests import attempt_of, called_effect
from world.pipeline.effects.effect_results import record_observed, secrets_of
from world.pipeline.execution_state import lacks_workspace, order_of
from world.pipeline.steps import EffectAnswered
from world.pipeline.unit_of_work import Task, UnitOfWork
from world.state.effect_claim import EffectDoubt
from world.state.ports import Performed
from world.state.proposal import Proposal

__all__ = ["doubts_of_workers", "look_up_doubts", "record_looked_up", "record_reported"]


def look_up_doubts(work: UnitOfWork) -> None:
    """Add a task for each effect in doubt that this process can look up, and has not looked up before."""
    doubts = {
        (proposal.proposal_id, name, asked.at): (proposal, asked)  # one that is made again may be in doubt again
        for proposal in work.realm.proposals.values()
        for name, asked in proposal.in_doubt.items()
    }
    work.looked_up &= doubts.keys()
    for doubt, (proposal, asked) in doubts.items():
        if doubt not in work.looked_up | work.looking_up and _can_look_up(work, proposal, asked):
            _look_up(work, proposal, asked)
            work.looking_up.add(doubt)


def _can_look_up(work: UnitOfWork, proposal: Proposal, asked: EffectRequested) -> bool:
    terms = work.executor.terms(asked.requirement.type, asked.requirement.params)
    return terms.looks_up and not lacks_workspace(work, proposal) and not is_held_back(work, proposal)


def _look_up(work: UnitOfWork, proposal: Proposal, asked: EffectRequested) -> None:
    assert proposal.started is not None
    requirement = asked.requirement
    order = order_of(proposal, work.snapshot(proposal.started.on_world))
    call = attempt_of(work, proposal, requirement)
    work.tasks.append(Task(proposal.proposal_id, requirement, asked.attempt, order, call, looks_up=True))


def record_looked_up(work: UnitOfWork, task: Task, performed: Performed) -> Iterator[EffectAnswered]:
    """Journal the result of an effect in doubt that was looked up; one that is not in doubt any more is dropped.

    Args:
        work: the unit of work.
        task: the look-up.
        performed: what it returned; with an error, what was observed is recorded, and the effect stays in doubt.
    """
    proposal, name = work.realm.proposals.get(task.proposal_id), task.requirement.id
    asked = None if proposal is None else proposal.in_doubt.get(name)
    if proposal is not None:
        record_observed(work, task.proposal_id, performed)
    if performed.result.error is not None:
        return
    if proposal is None or asked is None:
        reason = "it was looked up, and is not in doubt any more"
        dropped = EffectDropped(at=work.at, proposal_id=task.proposal_id, requirement_id=name, reason=reason)
        work.emit(task.proposal_id, dropped)
        return
    secrets = secrets_of(performed)
    yield EffectAnswered(proposal, name, performed.result, asked.attempt, secrets, looked_up=True)


def doubts_of_workers(work: UnitOfWork, types: Collection[str]) -> Iterator[EffectDoubt]:
    """Yield the effects in doubt that workers without a workspace can look up.

    Those that the acting actor performs are its own, and those of this process are looked up here.

    Args:
        work: the unit of work, which only reads.
        types: types of effects whose handlers the worker has.
    """
    for proposal in work.realm.proposals.values():
        for asked in proposal.in_doubt.values():
            offer = asked.offer
            if offer is None or offer.by_actor or offer.workspace is not None or asked.requirement.type not in types:
                continue
            if not is_held_back(work, proposal):
                yield EffectDoubt(**called_effect(work, proposal, asked.requirement), asked_at=asked.at)


def record_reported(work: UnitOfWork, doubt: EffectDoubt, performed: Performed) -> Iterator[EffectAnswered]:
    """Journal what a worker found out about an effect in doubt; a report on one that is not is recorded as dropped.

    Args:
        work: the unit of work.
        doubt: the effect, as the worker names it.
        performed: its result, which is no error.
    """
    name, proposal = doubt.requirement.id, work.realm.proposals.get(doubt.proposal_id)
    asked = None if proposal is None else proposal.in_doubt.get(name)
    offer = None if asked is None else asked.offer
    if proposal is None or asked is None or offer is None or offer.by_actor or asked.at != doubt.asked_at:
        if proposal is None or proposal.journal.get(name) != performed.result:  # else it is a repetition
            reason = "it was looked up, and is not in doubt any more"
            dropped = EffectDropped(at=work.at, proposal_id=doubt.proposal_id, requirement_id=name, reason=reason)
            work.emit(doubt.proposal_id, work.of_caller(dropped))
        return
    record_observed(work, doubt.proposal_id, performed)
    secrets = secrets_of(performed)
    yield EffectAnswered(proposal, name, performed.result, asked.attempt, secrets, looked_up=True, is_reported=True)
