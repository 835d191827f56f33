"""Executing approved proposals: one after the other where keys are equal, effects between commits, then sealing.

The computation is pure and starts again from its base each time, with the journal answering the effects made so far.
Effects are requested here and made elsewhere, after the commit (design sections 4, 5, 8; WP-exec, HC-journal).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from world.core import EffectResult
from world.errors import Refused
from world.events import (
    EffectDropped,
    EffectFulfilled,
    EffectRequested,
    ExecutionStarted,
    ProposalCompleted,
    ProposalFailed,
    WorldSealed,
)
from world.identity import content_id, state_hash, world_id
from world.ports import Order, Outcome
from world.proposal import Proposal
from world.realm import Realm
from world.snapshot import ErrorValue, Requirement, Snapshot
from world.work import LINEAGE_STREAM, Task, Work

GRACE_MS = 5_000
"""How long after an effect's time limit its worker may still be recording the result, in milliseconds."""


LEASES_REVOKED = "LEASES_REVOKED"
"""The error's code where an execution lost its leases."""

ENGINE_ERRORS = frozenset({LEASES_REVOKED, "EFFECT_TOO_LARGE", "WORLD_TOO_LARGE"})
"""Codes of errors that do not follow from the action, so that performing it again gives something else."""


def start_next(work: Work, key: str) -> None:
    """Start the approved proposals of an execution key in the order of their decisions (WP-exkey).

    Those that need no effect are sealed at once; the first that does keeps the key until it has ended.
    """
    realm = work.realm
    while key not in realm.running and realm.queues.get(key):
        proposal = realm.proposals[realm.queues[key][0]]
        branch = realm.branches[proposal.branch]
        if work.attempt(partial(work.snapshot, branch.head)) is not None:
            return  # nothing can be computed there at the moment; `recover` tries again
        intent_id = proposal.submitted.intent["intentId"]
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
            ),
        )
        go_on(work, proposal)


def go_on(work: Work, proposal: Proposal) -> None:
    """Compute as far as the journal goes: request the next effects, or seal."""
    assert proposal.started is not None
    if lost_leases(work.realm, proposal):
        _end_without_leases(work, proposal)
        return
    base = work.snapshot(proposal.started.on_world)
    outcome = work.executor.step(order_of(proposal, base))
    if outcome.status == "pending":
        for requirement in outcome.requirements:
            if requirement.id not in proposal.requested and not _requested(work, proposal, requirement):
                return
        return
    head = work.realm.branches[proposal.branch].head
    if head != proposal.started.on_world:
        outcome = _on_new_head(work, proposal, work.snapshot(head))
    seal(work, proposal, head, outcome)


def lost_leases(realm: Realm, proposal: Proposal) -> bool:
    """Tell whether the leases that a proposal was granted were revoked (KM-2.2)."""
    agent = proposal.submitted.actor["actorId"]
    return proposal.verdict_id is not None and not realm.klis.holds(agent, proposal.proposal_id)


def _end_without_leases(work: Work, proposal: Proposal) -> None:
    head = work.realm.branches[proposal.branch].head
    message = "The leases that it was granted were revoked before it was done. Issue the intent again."
    action = proposal.submitted.intent["body"]["type"]
    seal(work, proposal, head, failed(work.snapshot(head), ErrorValue(LEASES_REVOKED, message, action, "", work.at)))


def _requested(work: Work, proposal: Proposal, requirement: Requirement) -> bool:
    """Request an effect; one that the log cannot hold ends the execution, because an approved proposal always ends."""
    try:
        request(work, proposal, requirement)
    except Refused as refused:
        head = work.realm.branches[proposal.branch].head
        error = ErrorValue("EFFECT_TOO_LARGE", refused.message, requirement.action_id, requirement.node_path, work.at)
        seal(work, proposal, head, failed(work.snapshot(head), error))
        return False
    return True


def _on_new_head(work: Work, proposal: Proposal, head: Snapshot) -> Outcome:
    """Compute an execution again on a head that moved meanwhile; other effects than before are a conflict."""
    outcome = work.executor.step(order_of(proposal, head))
    if outcome.status != "pending":
        return outcome
    return failed(
        head,
        ErrorValue(
            "STATE_CONFLICT",
            "The branch moved while the effects were made, and on its new head the action would ask for other "
            "effects. Issue the intent again.",
            proposal.submitted.intent["body"]["type"],
            "",
            work.at,
        ),
    )


def failed(base: Snapshot, error: ErrorValue) -> Outcome:
    """Return the outcome of an execution that failed without the core: the base's data, with the error."""
    return Outcome("failed", (), base, error)


def order_of(proposal: Proposal, base: Snapshot) -> Order:
    """Return the order that tells an executor all it needs."""
    assert proposal.started is not None
    return Order(
        proposal_id=proposal.proposal_id,
        intent=proposal.intent,
        snapshot=base,
        approved_scope=proposal.approved_scope,
        now=proposal.started.now,
        seed=proposal.started.seed,
        journal=proposal.effect_journal(),
    )


def request(work: Work, proposal: Proposal, requirement: Requirement) -> None:
    """Journal that an effect is about to be made, and leave it to be made after the commit."""
    assert proposal.started is not None
    terms = work.executor.terms(requirement.type)
    attempt = proposal.started.attempt
    work.emit(
        proposal.proposal_id,
        EffectRequested(
            at=work.at,
            proposal_id=proposal.proposal_id,
            requirement=requirement.to_wire(),
            idempotent=terms.idempotent,
            attempt=attempt,
            deadline=work.at + terms.time_limit_ms + GRACE_MS,
        ),
    )
    order = order_of(proposal, work.snapshot(proposal.started.on_world))
    work.tasks.append(Task(proposal.proposal_id, requirement, attempt, order))
    work.claimed.add((proposal.proposal_id, requirement.id))


def fulfil(work: Work, task: Task, result: EffectResult) -> None:
    """Journal an effect's result and go on; a late or repeated one is dropped and logged (HC-compute)."""
    proposal = work.realm.proposals.get(task.proposal_id)
    under_way = None if proposal is None else proposal.requested.get(task.requirement.id)
    if proposal is None or under_way is None or under_way.attempt != task.attempt:
        reason = "nobody waits for this result any more"
        work.emit(
            task.proposal_id,
            EffectDropped(at=work.at, proposal_id=task.proposal_id, requirement_id=task.requirement.id, reason=reason),
        )
        return
    _fulfil(work, proposal, task.requirement.id, result, task.attempt)


def _fulfil(work: Work, proposal: Proposal, requirement_id: str, result: EffectResult, attempt: int) -> None:
    event = EffectFulfilled(
        at=work.at,
        proposal_id=proposal.proposal_id,
        requirement_id=requirement_id,
        result=result.to_wire(),
        attempt=attempt,
    )
    try:
        work.emit(proposal.proposal_id, event)
    except Refused as refused:  # a result that the log cannot hold is an error value like any other
        error = ErrorValue("EFFECT_INVALID_RESULT", refused.message, "", "", work.at)
        event = EffectFulfilled(
            at=work.at,
            proposal_id=proposal.proposal_id,
            requirement_id=requirement_id,
            result=EffectResult(error=error).to_wire(),
            attempt=attempt,
        )
        work.emit(proposal.proposal_id, event)
    if work.realm.schema_hash != work.domain.schema.hash:
        return  # another domain came into force meanwhile; whoever runs it goes on from the journal
    if work.attempt(partial(go_on, work, proposal)) is None:  # otherwise `recover` goes on from the journal
        start_next(work, proposal.submitted.execution_key)


def recover(work: Work) -> None:
    """Take over what a vanished worker left: every approved proposal reaches completed or failed (WP-exec).

    An effect whose result was not recorded may have happened: it is made again only if it is idempotent, and
    otherwise the execution fails with EFFECT_IN_DOUBT.
    """
    for proposal in list(work.realm.proposals.values()):
        if proposal.status == "executing" and _is_abandoned(work, proposal):
            _take_over(work, proposal)
    for key in list(work.realm.queues):
        start_next(work, key)


def _is_abandoned(work: Work, proposal: Proposal) -> bool:
    assert proposal.started is not None
    if proposal.started.worker == work.workers.me:
        claims = {(proposal.proposal_id, effect) for effect in proposal.requested}
        return claims.isdisjoint(work.performing) and claims.isdisjoint(work.claimed)
    if work.workers.is_gone(proposal.started.worker):
        return True
    return all(effect.deadline < work.at for effect in proposal.requested.values())


def _take_over(work: Work, proposal: Proposal) -> None:
    started = proposal.started
    assert started is not None
    work.emit(
        proposal.proposal_id,
        ExecutionStarted(
            at=work.at,
            proposal_id=proposal.proposal_id,
            on_world=started.on_world,
            now=started.now,
            seed=started.seed,
            enforcement=work.executor.enforcement,
            attempt=started.attempt + 1,
            worker=work.workers.me,
        ),
    )
    for effect in list(proposal.requested.values()):
        requirement = Requirement.from_wire(effect.requirement)
        if effect.idempotent:
            request(work, proposal, requirement)
            continue
        error = ErrorValue(
            "EFFECT_IN_DOUBT",
            f"The effect {requirement.type} was under way when its worker vanished; it may have happened, and it is "
            "not declared idempotent, so it was not made again.",
            requirement.action_id,
            requirement.node_path,
            work.at,
        )
        _fulfil(work, proposal, requirement.id, EffectResult(error=error), started.attempt + 1)
        return
    if not proposal.requested:
        go_on(work, proposal)


def seal(work: Work, proposal: Proposal, parent: str, outcome: Outcome) -> None:
    """Seal what came of an execution as a World, all or nothing (WP-world, design section 4).

    Equal content on the same parent is the same world: then the world is there already, and only the proposal's own
    end is recorded. A world that the log cannot hold is sealed as a failure that says so.
    """
    try:
        new_world = _seal_world(work, proposal, parent, outcome)
    except Refused as refused:
        action = proposal.submitted.intent["body"]["type"]
        outcome = failed(work.snapshot(parent), ErrorValue("WORLD_TOO_LARGE", refused.message, action, "", work.at))
        new_world = _seal_world(work, proposal, parent, outcome)
    told = proposal.proposal_id, new_world, parent, proposal.branch
    if outcome.error is None:
        work.emit(told[0], _completed(work.at, *told))
    else:
        work.emit(told[0], _failed(work.at, *told, error=outcome.error.to_wire()))
    work.desk().release_session(proposal.submitted.actor["actorId"], proposal.proposal_id, work.klis_now)


def _seal_world(work: Work, proposal: Proposal, parent: str, outcome: Outcome) -> str:
    """Emit the world that an outcome comes to, unless it is there already; return its id."""
    base = work.snapshot(parent)
    error = None if outcome.error is None else outcome.error.to_wire()
    data = base.data if error is not None else outcome.snapshot.data
    schema_hash = work.realm.schema_hash
    snapshot_hash = state_hash(data, errors=() if error is None else (error,), last_error=error)
    new_world = world_id(schema_hash, snapshot_hash, parent)
    if work.lookup.world_outcome(new_world) is not None:
        return new_world
    height = base.meta.version + 1
    work.emit(
        LINEAGE_STREAM,
        WorldSealed(
            at=work.at,
            world_id=new_world,
            content_id=content_id(schema_hash, snapshot_hash),
            schema_hash=schema_hash,
            snapshot_hash=snapshot_hash,
            parent=parent,
            created_by=proposal.proposal_id,
            branch=proposal.branch,
            outcome="completed" if error is None else "failed",
            height=height,
            patches=[patch.to_wire() for patch in outcome.patches] if error is None else [],
            error=error,
        ),
    )
    work.keep(new_world, data, outcome.snapshot.computed if error is None else base.computed, height)
    return new_world


def _completed(at: int, proposal_id: str, world: str, parent: str, branch: str) -> ProposalCompleted:
    return ProposalCompleted(at=at, proposal_id=proposal_id, world_id=world, parent=parent, branch=branch)


def _failed(
    at: int, proposal_id: str, world: str, parent: str, branch: str, *, error: dict[str, Any]
) -> ProposalFailed:
    return ProposalFailed(at=at, proposal_id=proposal_id, world_id=world, parent=parent, branch=branch, error=error)
