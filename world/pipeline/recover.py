"""Executions that cannot simply continue: their worker vanished, an effect is in doubt, or they are called off.

Source: design sections 5 and 8; HC-journal, WP-exec.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, get_args

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.execution_events import EffectInDoubt, EffectRequested, EffectResolved, ExecutionCancelled
from world.model.canonical_json import canonical_bytes
from world.model.immutable_json import freeze
from world.model.snapshot import EffectAnswer, ErrorValue
from world.pipeline.adopted_code.holding import is_held_back
from world.pipeline.effect_requests import is_mine, make_mine, may_request, offer_again, request_effect
from world.pipeline.effects.doubts import look_up_doubts
from world.pipeline.execution_state import lacks_workspace, why_over
from world.pipeline.steps import Approved, EffectAnswered, Executing, LeftBehind, Step
from world.pipeline.unit_of_work import UnitOfWork
from world.state.proposal import INGRESS, Proposal

__all__ = ["Choice", "cancel", "resolve", "take_over"]

EFFECT_IN_DOUBT: Final = "EFFECT_IN_DOUBT"
"""The error's code where a person could not say whether an effect had happened."""

ROOM: Final = 1_024
"""Bytes of a recorded result around its value."""

Choice = Literal["happened", "retry", "fail"]
"""What a person may say of an effect in doubt."""


def take_over(work: UnitOfWork) -> Iterator[Step]:
    """Take over what a vanished worker left: every approved proposal continues to completed or failed (WP-exec).

    An effect whose result was not recorded may have happened: it is made again only if it is idempotent, and otherwise
    it is in doubt: its handler looks it up, where it can, and otherwise it waits for a person (``resolve``). One that
    this process requested in a commit with an unknown outcome was never begun, and is requested again
    (``UnitOfWork.unbegun``). More than ``DUE_AT_ONCE`` are divided among several units.
    """
    for proposal in list(work.realm.proposals.values()):
        if proposal.status == "executing" and _is_abandoned(work, proposal):
            if not work.begins():
                return
            yield from _take_over(work, proposal)
    for key in list(work.realm.queues):
        yield Approved(key)
    look_up_doubts(work)


def _is_abandoned(work: UnitOfWork, proposal: Proposal) -> bool:
    assert proposal.started is not None
    if lacks_workspace(work, proposal) or is_held_back(work, proposal):
        return False
    own = {name: effect for name, effect in proposal.requested.items() if effect.offer is None}
    if not own and (proposal.in_doubt or proposal.requested):
        return False  # it waits for a person, or for workers, in every process
    if _needs_handler(work, proposal, own.values()):
        return False
    if proposal.started.worker == work.workers.me:
        claims = {(proposal.proposal_id, effect) for effect in own}
        return claims.isdisjoint(work.performing) and claims.isdisjoint(work.claimed)
    if proposal.started.worker in work.realm.writer.left or work.workers.is_gone(proposal.started.worker):
        return True
    return all(effect.deadline < work.at for effect in own.values())


def _needs_handler(work: UnitOfWork, proposal: Proposal, own: Iterable[EffectRequested]) -> bool:
    """Return whether only a process can continue an execution that has what this one lacks: a handler, a workspace."""
    held = proposal.held
    if not proposal.requested and held is not None and held.cause == "effect":
        return not all(may_request(work, name) for name in held.names)
    asked = [one.requirement for one in own if one.idempotent]
    return not all(may_request(work, one.type, one.params) for one in asked)


def _take_over(work: UnitOfWork, proposal: Proposal) -> Iterator[Step]:
    never_begun = work.unbegun if is_mine(work, proposal) else []
    make_mine(work, proposal)
    for effect in list(proposal.requested.values()):
        if effect.offer is not None:
            continue  # a worker performs it
        requirement = effect.requirement
        over = why_over(work.realm, proposal)
        if effect.idempotent or effect in never_begun:
            failure = proposal.failures.get(requirement.id)
            request_effect(work, proposal, requirement, not_before=0 if failure is None else failure.due)
            continue
        if over is not None:  # it ends failed whatever a person would say
            message = f"{over[1]} Its worker vanished; whether {requirement.type} did anything is unknown."
            error = ErrorValue.at(over[0], message, requirement.action_id, requirement.node_path, work.at)
            yield EffectAnswered(proposal, requirement.id, EffectAnswer(error=error), effect.attempt)
            return
        reason = (
            f"The effect {requirement.type} was under way when its worker vanished; it may have happened, and it is "
            "not declared idempotent, so it was not made again."
        )
        work.emit(
            proposal.proposal_id,
            EffectInDoubt(at=work.at, proposal_id=proposal.proposal_id, requirement_id=requirement.id, reason=reason),
        )
    if not proposal.requested and not proposal.in_doubt:
        yield Executing(proposal)


def resolve(
    work: UnitOfWork,
    proposal_id: str,
    name: str | None,
    choice: Choice,
    *,
    by: str,
    reason: str,
    value: Any = None,
) -> Iterable[Step]:
    """Record what a person states about an effect in doubt (HC-journal).

    Args:
        work: the unit of work.
        proposal_id: whose effect.
        name: the requirement's id; None where only one is in doubt.
        choice: ``happened`` with its result, ``retry`` where it did not happen, ``fail`` where it is unknown.
        by: the person, a registered actor.
        reason: how it is known, for the record.
        value: for ``happened``: what the action receives.

    Raises:
        RefusedError: ``NOT_IN_DOUBT``, ``UNKNOWN_ACTOR``, ``REASON_MISSING``, ``INVALID_VALUE``, ``NOT_CANONICAL``,
            ``EVENT_TOO_LARGE``, ``NO_WORKSPACE`` where its leases were backed up and there is none.
    """
    _check_choice(work, choice, reason, value)
    work.require_actor(by)
    proposal = work.realm.proposals.get(proposal_id)
    doubts = [] if proposal is None else [one for one in proposal.in_doubt if name in (None, one)]
    if proposal is None or len(doubts) != 1:
        fault = f"has {len(doubts)} effects in doubt; say which (--effect)" if doubts else "has no such effect in doubt"
        raise RefusedError(ErrorCode.NOT_IN_DOUBT, f"Proposal {proposal_id} {fault}. `worldctl stuck` lists them.")
    _require_workspace(work, proposal)
    if choice == "retry":
        _require_handler(work, proposal.in_doubt[doubts[0]])
    result = EffectAnswer(freeze(value))
    if choice == "fail":
        result = _doubtful(work, proposal, doubts[0], f"Whether it happened is not known ({by}: {reason}).")
    return _resolve(work, proposal, doubts[0], choice, by=by, reason=reason, result=result)


def _require_handler(work: UnitOfWork, asked: EffectRequested) -> None:
    """Refuse to make an effect again that this process can neither perform nor offer."""
    if asked.offer is None and not may_request(work, asked.requirement.type, asked.requirement.params):
        raise RefusedError(
            ErrorCode.NO_HANDLER,
            f"This process has no handler for {asked.requirement.type}; resolve it in one that has.",
            effect=asked.requirement.type,
        )


def _require_workspace(work: UnitOfWork, proposal: Proposal) -> None:
    if lacks_workspace(work, proposal):
        raise RefusedError(
            ErrorCode.NO_WORKSPACE,
            f"Proposal {proposal.proposal_id} continues only where its workspace is available, to restore it should it "
            "fail: add [workspace] with root to world.toml, or open the realm with workspace=...",
            proposal_id=proposal.proposal_id,
        )


def _check_choice(work: UnitOfWork, choice: str, reason: str, value: Any) -> None:
    if choice not in get_args(Choice):
        message = f"An effect in doubt is resolved by one of {', '.join(get_args(Choice))}, not {choice!r:.60}."
        raise RefusedError(ErrorCode.INVALID_VALUE, message)
    if value is not None and choice != "happened":
        raise RefusedError(ErrorCode.INVALID_VALUE, f"Only an effect that happened has a value; {choice} takes none.")
    if not isinstance(reason, str) or not reason.strip():
        raise RefusedError(
            ErrorCode.REASON_MISSING, "To say what became of an effect takes a reason; the log keeps it."
        )
    size, limit = len(canonical_bytes(value)) + ROOM, work.limits.max_event_bytes
    if size > limit:
        raise RefusedError(
            ErrorCode.EVENT_TOO_LARGE,
            f"The value would make an event of {size} bytes; the limit is {limit} (max_event_bytes).",
            size_bytes=size,
            limit_bytes=limit,
        )


def _doubtful(work: UnitOfWork, proposal: Proposal, name: str, message: str) -> EffectAnswer:
    asked = proposal.in_doubt[name].requirement
    return EffectAnswer(error=ErrorValue.at(EFFECT_IN_DOUBT, message, asked.action_id, asked.node_path, work.at))


def _resolve(
    work: UnitOfWork, proposal: Proposal, name: str, choice: Choice, *, by: str, reason: str, result: EffectAnswer
) -> Iterable[Step]:
    if proposal.in_doubt[name].offer is None and not is_mine(work, proposal):
        make_mine(work, proposal)
    resolved = EffectResolved(
        at=work.at, proposal_id=proposal.proposal_id, requirement_id=name, choice=choice, by=by, reason=reason
    )
    work.emit(proposal.proposal_id, work.of_caller(resolved))
    asked = proposal.requested[name]
    if choice == "retry":
        if asked.offer is not None:
            offer_again(work, proposal, asked)
        else:
            request_effect(work, proposal, asked.requirement)
        return ()
    return (EffectAnswered(proposal, name, result, asked.attempt),)


def cancel(work: UnitOfWork, proposal_id: str, *, by: str, reason: str) -> Iterator[Step]:
    """Cancel a proposal: one that is not decided is withdrawn, and ends as superseded.

    Of an approved execution no further effect is made, what is under way is given up, and it ends failed.

    Args:
        work: the unit of work.
        proposal_id: which.
        by: the actor that cancels it.
        reason: why, for the record.

    Raises:
        RefusedError: ``NOT_RUNNING`` where it is not approved, or has ended; ``REASON_MISSING``; ``NO_WORKSPACE`` where
            it would end now, its leases were backed up, and there is no workspace.
    """
    proposal = work.realm.proposals.get(proposal_id)
    if proposal is None:
        raise RefusedError(
            ErrorCode.NOT_RUNNING,
            f"Proposal {proposal_id} has ended, or does not exist; only an open proposal can be cancelled.",
        )
    if not isinstance(reason, str) or not reason.strip():
        raise RefusedError(ErrorCode.REASON_MISSING, "A cancellation needs a reason; the log records it.")
    if proposal.status in INGRESS:
        yield LeftBehind(proposal, reason, by=by)
        return
    if proposal.status == "executing" and (proposal.in_doubt or not proposal.requested):
        _require_workspace(work, proposal)
    if proposal.cancelled is None:
        cancelled = ExecutionCancelled(at=work.at, proposal_id=proposal_id, by=by, reason=reason)
        work.emit(proposal_id, work.of_caller(cancelled))
    for name in list(proposal.in_doubt):
        message = f"Whether it happened is not known; {by} called the execution off: {reason}"
        result = _doubtful(work, proposal, name, message)
        yield from _resolve(work, proposal, name, "fail", by=by, reason=reason, result=result)
    if proposal.status == "executing" and not proposal.requested:
        yield Executing(proposal)
        yield Approved(proposal.submitted.execution_key)
