"""Effects in doubt that a process can find out about itself, before a person decides: their handlers look them up.

A look-up is made after the commit that asks for it, outside of the log's lock, and once by each process that recovers:
a later one asks again. Its result is recorded as ``effect.fulfilled`` with ``lookedUp``; without one nothing is
recorded. A worker on another machine lists the doubts that it can look up, those of effects that workers perform, and
reports what it finds. Source: design section 8; HC-journal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import Event
from world.events.execution_events import EffectDropped, EffectInDoubt, EffectRequested
from world.pipeline.adopted_code.holding import is_held_back
from world.pipeline.effect_requests import attempt_of, called_effect
from world.pipeline.effects.effect_results import record_observed, secrets_of
from world.pipeline.execution_state import lacks_workspace, order_of
from world.pipeline.steps import EffectAnswered
from world.pipeline.unit_of_work import Task, UnitOfWork
from world.state.effect_claim import EffectDoubt, UnreadableDoubt
from world.state.ports import Performed
from world.state.proposal import Proposal

__all__ = ["doubts_of_workers", "look_up_doubts", "record_looked_up", "record_reported"]

MAX_REASON: Final = 500
"""Characters of the reason why a doubt cannot be read."""


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


def doubts_of_workers(work: UnitOfWork, types: Collection[str]) -> Iterator[EffectDoubt | UnreadableDoubt]:
    """Yield the effects in doubt that workers without a workspace can look up; of one that cannot be read, why.

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
                yield _doubt_of(work, proposal, asked)


def _doubt_of(work: UnitOfWork, proposal: Proposal, asked: EffectRequested) -> EffectDoubt | UnreadableDoubt:
    try:
        return EffectDoubt(**called_effect(work, proposal, asked.requirement), asked_at=asked.at)
    except Exception as error:  # noqa: BLE001  # whatever it is, the other doubts are looked up
        return UnreadableDoubt(
            proposal_id=proposal.proposal_id,
            requirement_id=asked.requirement.id,
            reason=(str(error) or type(error).__name__)[:MAX_REASON],
        )


def record_reported(
    work: UnitOfWork, doubt: EffectDoubt, performed: Performed, past: Iterable[Event]
) -> Iterator[EffectAnswered]:
    """Journal what a worker found out about an effect in doubt.

    A report on one that is not in doubt any more is recorded as dropped, as often as it was in doubt at most.

    Args:
        work: the unit of work.
        doubt: the effect, as the worker names it.
        performed: its result, which is no error.
        past: the events of its proposal so far, at least ``effect.in_doubt`` and ``effect.dropped``; they are read
            where it is not in doubt any more.

    Raises:
        RefusedError: ``NOT_IN_DOUBT`` for an effect that was never in doubt, and one that its actor looks up.
    """
    name, proposal = doubt.requirement.id, work.realm.proposals.get(doubt.proposal_id)
    asked = None if proposal is None else proposal.in_doubt.get(name)
    if proposal is None or asked is None or asked.at != doubt.asked_at:
        if proposal is None or proposal.journal.get(name) != performed.result:  # else it is a repetition
            _drop_report(work, doubt, past)
        return
    if asked.offer is None or asked.offer.by_actor:
        raise _not_in_doubt(doubt, "is not one that a worker looks up")
    record_observed(work, doubt.proposal_id, performed)
    secrets = secrets_of(performed)
    yield EffectAnswered(proposal, name, performed.result, asked.attempt, secrets, looked_up=True, is_reported=True)


def _drop_report(work: UnitOfWork, doubt: EffectDoubt, past: Iterable[Event]) -> None:
    """Record a dropped report, once for each doubt about its effect."""
    name, doubts, drops = doubt.requirement.id, 0, 0
    for event in past:
        if isinstance(event, EffectInDoubt | EffectDropped) and event.requirement_id == name:
            doubts += isinstance(event, EffectInDoubt)
            drops += isinstance(event, EffectDropped) and event.claim is None
    if not doubts:
        raise _not_in_doubt(doubt, "was never in doubt")
    if drops < doubts:
        reason = "it was looked up, and is not in doubt any more"
        dropped = EffectDropped(at=work.at, proposal_id=doubt.proposal_id, requirement_id=name, reason=reason)
        work.emit(doubt.proposal_id, work.of_caller(dropped))


def _not_in_doubt(doubt: EffectDoubt, why: str) -> RefusedError:
    return RefusedError(
        ErrorCode.NOT_IN_DOUBT,
        f"The effect {doubt.requirement.id} of the proposal {doubt.proposal_id} {why}. Report on the effects that "
        "`GET /effects/doubts` lists.",
        proposal_id=doubt.proposal_id,
        requirement_id=doubt.requirement.id,
    )
