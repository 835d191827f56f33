"""Calls of foreign code for a command, in its caller's thread and without a lock, on the committed state.

What is likely to be refused is not prepared: the command refuses it under the lock. A preparation follows the stages up
to the first step of an execution: project, issue, judge, compute. It appends nothing. Source: decision record 8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import structs

from world.errors import RefusedError
from world.events.execution_events import EffectRequested
from world.events.proposal_events import ProposalSubmitted
from world.model.decision import HumanAnswer, Ruling
from world.model.intent import IntentInstance
from world.model.snapshot import EffectAnswer, Snapshot
from world.pipeline.adopted_code.adoption_plan import plan_adoption
from world.pipeline.adopted_code.holding import in_force, needs_other_code, needs_other_policy
from world.pipeline.branches import find_branch, misfit
from world.pipeline.effects.external_effects import why_lost
from world.pipeline.execution_state import lacks_workspace, order_of
from world.pipeline.judge import case_of
from world.pipeline.preparation.prepared import (
    Prepared,
    PreparedProjection,
    PreparedRuling,
    PreparedStep,
    ReadHistory,
    adopted_hash,
)
from world.pipeline.project import Projector, Selected, select
from world.pipeline.shadowing import shadow_ruling, shadowed_by
from world.pipeline.submit import Submission, base_of, check_fits, submission_event
from world.pipeline.unit_of_work import Task, UnitOfWork
from world.state.effect_claim import EffectClaim
from world.state.ports import Case, ExecutionOrder, Performed
from world.state.proposal import ROLLBACK, Proposal

__all__ = [
    "Reading",
    "prepare_adoption",
    "prepare_answer",
    "prepare_completion",
    "prepare_effect_result",
    "prepare_projection",
    "prepare_submission",
    "prepare_world",
]


class Reading(Protocol):
    """Access to the committed state, without the log's lock."""

    def unit(self, *, looks: bool = True) -> UnitOfWork:
        """Return a unit of work that reads the published state, at the present time, and is never committed.

        Args:
            looks: look for commits of other processes first; otherwise the state is the one that this process saw last.
        """
        ...


def _begin(reading: Reading, *, looks: bool = True) -> tuple[UnitOfWork, Prepared] | None:
    """Return a reading unit and an empty preparation; None where another domain is in force."""
    work = reading.unit(looks=looks)
    if work.realm.schema_hash != work.domain.schema.hash:
        return None
    return work, Prepared(work.realm.position, work.at, work.domain)


def prepare_projection(
    reading: Reading,
    projector: Projector,
    submission: Callable[[IntentInstance], Submission],
    branch: str | None,
    proposal_id: str,
) -> Prepared | None:
    """Call the projections, and prepare the submission of the intent that they select.

    Arguments as for ``world.pipeline.driver.project``. Nothing is prepared for a branch that does not exist. The caller
    has looked for commits of other processes, as for ``prepare_submission``.

    Raises:
        RefusedError: what the projector refuses; nothing is recorded of it.
    """
    begun = _begin(reading, looks=False)
    if begun is None:
        return None
    work, prepared = begun
    if (work.realm.active if branch is None else branch) not in work.realm.branches:
        return None
    head, schema_hash = find_branch(work, branch).head, work.realm.schema_hash
    record, intent = projector(work.snapshot(head), schema_hash, head, work.at)
    prepared.projection = PreparedProjection(head, schema_hash, record, intent)
    selected = select(record, intent, proposal_id)
    if isinstance(selected, Selected):
        asked = structs.replace(submission(selected.intent), record=selected.record)
        later = reading.unit(looks=False)
        if find_branch(later, branch).head == head:
            _add_submission(later, prepared, asked, proposal_id)
    return prepared


def prepare_submission(reading: Reading, asked: Submission, proposal_id: str) -> Prepared | None:
    """Call the Authority for an intent, and the executor where the ruling approves.

    The caller has looked for commits of other processes when it issued or received the intent. What others commit since
    is found under the lock, and so is what they committed before, where the caller has not looked.

    Args:
        reading: the committed state.
        asked: the submission.
        proposal_id: id that the proposal is going to have.

    Raises:
        RefusedError: ``COMPUTED_TIMED_OUT`` where the computed values of the base take too long.
    """
    begun = _begin(reading, looks=False)
    if begun is None:
        return None
    work, prepared = begun
    _add_submission(work, prepared, asked, proposal_id)
    return prepared if prepared.submitted is not None else None


def _add_submission(work: UnitOfWork, prepared: Prepared, asked: Submission, proposal_id: str) -> None:
    """Prepare the ruling and the first step, at the prepared time."""
    actor = asked.intent.meta.origin.actor
    schema = work.domain.schema
    is_known = actor.actor_id in work.realm.bindings and work.realm.actors[actor.actor_id].kind == actor.kind
    if prepared.at is None or not is_known or asked.intent.body.type not in schema.actions:
        return
    prepared.position, work.at = work.realm.position, prepared.at
    try:
        check_fits(work, asked.intent, schema)
        base = base_of(work, asked)
    except RefusedError:  # it is refused again under the lock
        return
    work.snapshot(base.world)
    submitted = submission_event(work, asked, base, proposal_id)
    proposal = Proposal(submitted)
    proposal.carries(asked.intent)
    binding = work.realm.bindings[actor.actor_id]
    policy_hash = adopted_hash(work, binding)
    if needs_other_code(work, proposal) or (policy_hash is not None and needs_other_policy(work, proposal)):
        return  # it is held
    prepared.same_code = work.same_code
    prepared.submitted = submitted
    history = ReadHistory(work.history(proposal_id))
    case = case_of(work, proposal, binding, history)
    ruling = work.authority.judge(case)
    name = shadowed_by(work.realm.shadow, actor.actor_id)
    prepared.ruling = PreparedRuling(
        case=case,
        ruling=ruling,
        history=history,
        policy_hash=policy_hash,
        shadow=work.realm.shadow,
        shadow_ruling=None if name is None else shadow_ruling(work.authority.judge, case, name),
    )
    _add_first_step(work, prepared, submitted, case, in_force(work, ruling, binding))


def _add_first_step(
    work: UnitOfWork, prepared: Prepared, submitted: ProposalSubmitted, case: Case, ruling: Ruling
) -> None:
    """Compute the first step of an execution on the head of its branch, where a ruling approves it."""
    if ruling.verdict != "approve" or prepared.at is None:
        return
    branch = work.realm.branches.get(submitted.branch)
    world = submitted.base_world if branch is None else branch.head  # a fork begins at its base
    order = ExecutionOrder(
        proposal_id=submitted.proposal_id,
        intent=case.intent,
        snapshot=work.snapshot(world),
        approved_scope=ruling.approved_scope,
        now=prepared.at,
        seed=case.intent.intent_id,
        actor=submitted.actor,
        scope_rules=case.scope_rules,
    )
    _add_step(work, prepared, order, world)


def _add_step(work: UnitOfWork, prepared: Prepared, order: ExecutionOrder, world: str) -> str:
    """Call the executor, and return the status of the outcome."""
    outcome = work.executor.step(order)
    prepared.steps.append(PreparedStep(order, world, work.executor.enforcement, outcome))
    return outcome.status


def _own_copy(work: UnitOfWork, proposal_id: str) -> Proposal | None:
    """Return a copy of an open proposal; None where it is not open."""
    proposal = work.realm.proposals.get(proposal_id)
    return None if proposal is None else proposal.copy()


def prepare_answer(reading: Reading, proposal_id: str, given: HumanAnswer) -> Prepared | None:
    """Apply a person's answer, and compute the first step where the proposal is approved by it.

    Args:
        reading: the committed state.
        proposal_id: the waiting proposal.
        given: the answer.
    """
    begun = _begin(reading)
    proposal = None if begun is None else _own_copy(begun[0], proposal_id)
    asked = None if proposal is None else proposal.asked
    if begun is None or proposal is None or asked is None:
        return None
    work, prepared = begun
    binding = proposal.binding or {}
    history = ReadHistory(work.history(proposal_id))
    case = case_of(work, proposal, binding, history)
    try:
        ruling = work.authority.answer(case, asked, given)
    except RefusedError:  # it is refused again under the lock
        return None
    prepared.ruling = PreparedRuling(case, ruling, history, adopted_hash(work, binding), asked=asked)
    if not needs_other_code(work, proposal):
        _add_first_step(work, prepared, proposal.submitted, case, ruling)
    return prepared


def prepare_effect_result(reading: Reading, task: Task, performed: Performed, call_ms: int) -> Prepared | None:
    """Compute the step of an execution that follows the result of an effect.

    The result is not recorded before that. So nothing is prepared where another process could continue the effect in
    between.

    Args:
        reading: the committed state.
        task: the effect.
        performed: its result.
        call_ms: time limit of the step, in milliseconds.
    """
    begun = _begin(reading)
    proposal = None if begun is None else _own_copy(begun[0], task.proposal_id)
    if begun is None or proposal is None or not _continues(begun[0], proposal, task, performed, call_ms):
        return None
    journal = task.order.journal
    if len(journal) != len(proposal.journal):  # effects of other tasks have results, too
        journal = proposal.effect_journal()
    return _continued(*begun, proposal, {**journal, task.requirement.id: performed.result})


def prepare_completion(reading: Reading, claim: EffectClaim, performed: Performed) -> Prepared | None:
    """Compute the step of an execution that follows the result of a claimed effect.

    Args:
        reading: the committed state.
        claim: the claim.
        performed: the result.
    """
    begun = _begin(reading)
    proposal = None if begun is None else _own_copy(begun[0], claim.proposal_id)
    if begun is None or proposal is None or why_lost(begun[0].realm, claim, claim.subject):
        return None
    asked = proposal.requested[claim.requirement.id]
    retries = asked.offer.retries if asked.offer is not None and asked.idempotent else 0
    if performed.retryable and performed.result.error is not None and claim.attempt <= retries:
        return None  # it is offered again
    if not _is_last(begun[0], proposal, asked) or lacks_workspace(begun[0], proposal):
        return None
    return _continued(*begun, proposal, {**proposal.effect_journal(), claim.requirement.id: performed.result})


def _continued(
    work: UnitOfWork, prepared: Prepared, proposal: Proposal, journal: Mapping[str, EffectAnswer]
) -> Prepared:
    """Compute the step that the journal leads to, on the world of the execution and on the head of its branch."""
    assert proposal.started is not None
    prepared.at = None
    world = proposal.started.on_world
    order = structs.replace(_order(proposal, work.snapshot(world)), journal=journal)
    head = work.realm.branches[proposal.branch].head
    if _add_step(work, prepared, order, world) != "pending" and head != world:
        _add_step(work, prepared, structs.replace(order, snapshot=work.snapshot(head)), head)
    return prepared


def _order(proposal: Proposal, base: Snapshot) -> ExecutionOrder:
    """Return the order of a step without its journal, which is expensive to read."""
    recorded, proposal.journal = proposal.journal, {}
    try:
        return order_of(proposal, base)
    finally:
        proposal.journal = recorded


def _continues(work: UnitOfWork, proposal: Proposal, task: Task, performed: Performed, call_ms: int) -> bool:
    """Return whether an execution is computed when the result is recorded, and there is time to compute it before."""
    asked = proposal.requested.get(task.requirement.id)
    if asked is None or proposal.started is None or asked.attempt != task.attempt:
        return False
    if not _is_last(work, proposal, asked):
        return False
    if performed.retryable and performed.result.error is not None:
        terms = work.executor.terms(task.requirement.type, task.requirement.params)
        if terms.idempotent and task.call.attempt <= terms.retries:
            return False  # it is made again
    return asked.deadline - work.at >= call_ms


def _is_last(work: UnitOfWork, proposal: Proposal, asked: EffectRequested) -> bool:
    """Return whether an execution is computed here when the result of an effect is recorded."""
    if asked.requirement.type == ROLLBACK or proposal.started is None or needs_other_code(work, proposal):
        return False  # it ends without a computation, or is held
    return len(proposal.requested) == 1 and not proposal.in_doubt and proposal.cancelled is None


def prepare_world(reading: Reading, world: str) -> Prepared | None:
    """Check whether a world at which a branch is created obeys the schema of the domain, and compute its values.

    Args:
        reading: the committed state.
        world: id of the world.

    Raises:
        RefusedError: ``COMPUTED_TIMED_OUT``.
    """
    work = reading.unit()
    adopted = work.realm.domain
    if adopted is None or adopted.previous is None:
        return None  # nothing is compared
    prepared = Prepared(work.realm.position, None, work.domain)
    if work.lookup.world_outcome(world) is not None:
        prepared.misfits[world] = misfit(work, world)
    return prepared


def prepare_adoption(reading: Reading) -> Prepared | None:
    """Plan the adoption of the domain: check the heads of all branches, and call the migration.

    Args:
        reading: the committed state.

    Raises:
        RefusedError: ``COMPUTED_TIMED_OUT``.
    """
    work = reading.unit()
    adopted = work.realm.domain
    if adopted is None or adopted.schema_hash == work.domain.schema.hash:
        return None  # no data changes
    plan = plan_adoption(work.realm, work.domain, work.data, work.limits.in_time)
    prepared = Prepared(work.realm.position, None, work.domain)
    prepared.plans = {(adopted.schema_hash, one.branch, one.head): one for one in plan.branches}
    return prepared
