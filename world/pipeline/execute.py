"""Executing approved proposals: in the order of their decisions where keys are equal, with effects between commits.

The computation is pure and starts again from its base each time, with the journal answering the effects made so far.
Effects are requested here and made after the commit (design sections 4, 5, 8; WP-exec, HC-journal).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from world.errors import RefusedError
from world.events.execution_events import EffectDropped, EffectFulfilled, ExecutionStarted
from world.events.resource_values import ResourceExistence
from world.events.run_events import RunRolledBack
from world.model.secrets.literal import LITERAL_SECRET, literal_message
from world.model.snapshot import EffectAnswer, ErrorValue, Requirement
from world.pipeline.adopted_code.holding import is_held_back
from world.pipeline.effect_requests import await_handler, may_request, request_effect
from world.pipeline.effects.effect_results import FailedAttempt, record_observed, retried, secrets_of
from world.pipeline.execution_state import failed, lacks_workspace, leased_by, order_of, why_over
from world.pipeline.leasing.existence import RESOURCE_ABSENT, Base, absent_in, absent_message
from world.pipeline.preparation.prepared import prepared_step
from world.pipeline.steps import Approved, Computed, EffectAnswered, Executing, Resumable, Step
from world.pipeline.unit_of_work import Task, UnitOfWork
from world.state.ports import Performed, StepOutcome
from world.state.proposal import ROLLBACK, Proposal

__all__ = ["compute", "fulfil", "record_answer", "start_next"]


def start_next(work: UnitOfWork, approved: Approved) -> Iterator[Step]:
    """Start the approved proposals of an execution key in the order of their decisions (WP-exkey).

    Those that need no effect are sealed at once; the first that needs one occupies the key until it has ended.
    """
    realm, key = work.realm, approved.execution_key
    while key not in realm.running and realm.queues.get(key):
        proposal = realm.proposals[realm.queues[key][0]]
        if lacks_workspace(work, proposal):
            return
        if work.same_code is not realm.domain and is_held_back(work, proposal):
            return
        branch = realm.branches[proposal.branch]
        if work.attempt(partial(work.snapshot, branch.head)) is not None:
            return  # its head cannot be computed on at the moment; `recover` tries again
        if not work.begins():
            return  # `recover` starts it, in the next unit
        intent_id = proposal.submitted.intent.intent_id
        work.emit(
            proposal.proposal_id,
            ExecutionStarted(
                at=work.at,
                proposal_id=proposal.proposal_id,
                on_world=branch.head,
                now=work.at,
                seed=intent_id,
                enforcement=work.executor.enforcement,
                attempt=1,
                worker=work.workers.me,
                existence=_existence(work, proposal, branch.head),
            ),
        )
        yield Executing(proposal)


def _existence(work: UnitOfWork, proposal: Proposal, on_world: str) -> list[ResourceExistence] | None:
    """Observe again what an execution depends on; None where it depends on nothing that can be checked."""
    leased = leased_by(work.realm, proposal)
    base = Base(proposal.branch, on_world)
    return work.existence(leased, proposal.proposal_id, base, before="execution") or None


def compute(work: UnitOfWork, executing: Executing) -> Iterable[Step]:
    """Compute as far as the journal answers: request the next effects, or return the outcome to be sealed."""
    proposal = executing.proposal
    assert proposal.started is not None
    if proposal.requested or proposal.in_doubt:
        return ()  # the result of the effect continues it, or the resolution of the doubt
    if work.same_code is not work.realm.domain and is_held_back(work, proposal):
        return ()  # `recover` continues it in a program with the code in force
    over = why_over(work.realm, proposal) or _why_absent(proposal)
    if over is not None:
        return (_ended_early(work, proposal, *over),)
    outcome = _step(work, proposal, proposal.started.on_world)
    if outcome.status == "pending":
        return _request_all(work, proposal, outcome.requirements)
    head = work.realm.branches[proposal.branch].head
    if head != proposal.started.on_world:
        outcome = _on_new_head(work, proposal, head)
    return (Computed(proposal, head, outcome),)


def _request_all(work: UnitOfWork, proposal: Proposal, requirements: Iterable[Requirement]) -> tuple[Step, ...]:
    """Request the next effects; those that this process does not know are left to a process that does."""
    for requirement in requirements:
        if requirement.id in proposal.requested:
            continue
        if not may_request(work, requirement.type, requirement.params):
            if not proposal.requested:
                await_handler(work, proposal, requirement)
            return ()
        error = _request(work, proposal, requirement)
        if error is not None:
            return (_failed_on_head(work, proposal, error),)
    return ()


def _why_absent(proposal: Proposal) -> tuple[str, str] | None:
    """Return the error's code and message of an execution that depends on an absent resource; None where none is."""
    existence = None if proposal.started is None else proposal.started.existence
    return (RESOURCE_ABSENT, absent_message(existence)) if existence and absent_in(existence) else None


def _ended_early(work: UnitOfWork, proposal: Proposal, code: str, message: str) -> Computed:
    """Return the failure of an execution that is not computed."""
    action = proposal.submitted.intent.body.type
    return _failed_on_head(work, proposal, ErrorValue.at(code, message, action, "", work.at))


def _failed_on_head(work: UnitOfWork, proposal: Proposal, error: ErrorValue) -> Computed:
    """Return a failure to be sealed on the head of the branch."""
    head = work.realm.branches[proposal.branch].head
    return Computed(proposal, head, failed(work.snapshot(head), error))


def _request(work: UnitOfWork, proposal: Proposal, requirement: Requirement) -> ErrorValue | None:
    """Request an effect; return the error that ends the execution where the log must not or cannot hold the request."""
    code, literals = LITERAL_SECRET, work.executor.literal_secrets(requirement.type, requirement.params)
    if literals:
        message = literal_message(f"The effect {requirement.type}", literals)
    else:
        try:
            request_effect(work, proposal, requirement)
        except RefusedError as refused:
            code, message = "EFFECT_TOO_LARGE", refused.message
        else:
            return None
    return ErrorValue.at(code, message, requirement.action_id, requirement.node_path, work.at)


def _step(work: UnitOfWork, proposal: Proposal, world: str) -> StepOutcome:
    """Return the outcome of a step on a world: the prepared one, or that of a call of the executor."""
    order = order_of(proposal, work.snapshot(world))
    return prepared_step(work, order, world) or work.executor.step(order)


def _on_new_head(work: UnitOfWork, proposal: Proposal, head: str) -> StepOutcome:
    """Compute an execution again on a head that moved meanwhile; other effects than before are a conflict."""
    outcome = _step(work, proposal, head)
    if outcome.status != "pending":
        return outcome
    return failed(
        work.snapshot(head),
        ErrorValue.at(
            "STATE_CONFLICT",
            "The branch moved while the effects were made, and on its new head the action would ask for other "
            "effects. Issue the intent again.",
            proposal.submitted.intent.body.type,
            "",
            work.at,
        ),
    )


def fulfil(work: UnitOfWork, task: Task, performed: Performed) -> Iterable[Step]:
    """Journal the result of an effect; a late or repeated result is dropped and logged (HC-compute)."""
    proposal = work.realm.proposals.get(task.proposal_id)
    name = task.requirement.id
    under_way = None if proposal is None else proposal.requested.get(name)
    if proposal is None or under_way is None or under_way.attempt != task.attempt:
        if proposal is not None:
            record_observed(work, task.proposal_id, performed)  # it happened although its result is late
        reason = "nobody waits for this result any more"
        work.emit(
            task.proposal_id,
            EffectDropped(at=work.at, proposal_id=task.proposal_id, requirement_id=name, reason=reason),
        )
        return ()
    failure = proposal.failures.get(name)
    if failure is not None and failure.failures >= task.call.attempt:
        # It was recorded: the acknowledgement of that commit was lost, and with it the task of the retry.
        request_effect(work, proposal, task.requirement, not_before=failure.due)
        return ()
    record_observed(work, task.proposal_id, performed)
    terms = work.executor.terms(task.requirement.type, task.requirement.params)
    failed_attempt = FailedAttempt(task.requirement, terms, task.call.attempt)
    if performed.retryable and retried(work, proposal, failed_attempt, performed):
        return ()
    return (EffectAnswered(proposal, name, performed.result, task.attempt, secrets_of(performed)),)


def record_answer(work: UnitOfWork, answered: EffectAnswered) -> Iterable[Step]:
    """Journal the result of an effect under way or in doubt, with the secrets that it used; the execution resumes."""
    proposal, requirement_id, attempt = answered.proposal, answered.requirement_id, answered.attempt
    asked = (proposal.in_doubt if answered.looked_up else proposal.requested)[requirement_id]
    event = EffectFulfilled(
        at=work.at,
        proposal_id=proposal.proposal_id,
        requirement_id=requirement_id,
        result=answered.answer,
        attempt=attempt,
        secrets=answered.secrets,
        claim=answered.claim,
        looked_up=answered.looked_up or None,
    )
    if answered.claim is not None or answered.is_reported:
        event = work.of_caller(event)
    requirement = asked.requirement
    try:
        work.emit(proposal.proposal_id, event)
    except RefusedError as refused:  # a result that the log cannot hold is an error value like any other
        error = ErrorValue.at("EFFECT_INVALID_RESULT", refused.message, "", "", work.at)
        work.emit(proposal.proposal_id, replace(event, result=EffectAnswer(error=error)))
    if requirement.type == ROLLBACK:
        return _rolled_back(work, proposal, requirement.params["error"], answered.answer)
    if work.realm.schema_hash != work.domain.schema.hash or lacks_workspace(work, proposal):
        return ()  # a process with the adopted domain, and with the workspace, continues from the journal
    return (Resumable(proposal),)


def _rolled_back(
    work: UnitOfWork, proposal: Proposal, error: Mapping[str, Any], answer: EffectAnswer
) -> Iterable[Step]:
    """Record that the workspace was restored for an execution that failed; it is sealed with its error."""
    name, backup = proposal.proposal_id, proposal.verdict_id or ""
    done = answer.value if isinstance(answer.value, Mapping) else {}
    not_restored = list(done.get("failed", ())) or ([answer.error.message] if answer.error is not None else [])
    work.emit(
        f"run:{name}",
        RunRolledBack(
            at=work.at,
            run_id=name,
            verdict_id=backup,
            restored=list(done.get("restored", ())),
            removed=list(done.get("removed", ())),
            failed=not_restored,
        ),
    )
    yield _failed_on_head(work, proposal, ErrorValue.from_wire(error))
    yield Approved(proposal.submitted.execution_key)
