"""Executing approved proposals: one after the other where keys are equal, effects between commits, then sealing.

The computation is pure and starts again from its base each time, with the journal answering the effects made so far.
Effects are requested here and made elsewhere, after the commit (design sections 4, 5, 8; WP-exec, HC-journal).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from world.core import EffectAnswer
from world.errors import RefusedError
from world.events.execution_events import (
    EffectDropped,
    EffectFulfilled,
    EffectRequested,
    EffectRetried,
    ExecutionStarted,
)
from world.events.proposal_events import ProposalCompleted, ProposalFailed
from world.events.realm_events import WorldSealed
from world.events.run_events import RunObserved, RunRolledBack, RunViolated
from world.klis.triple import Triple
from world.model.actor import ActorRef
from world.model.identity import content_id, requirement_id, state_hash, world_id
from world.model.immutable_json import freeze
from world.model.literal_secrets import LITERAL_SECRET, literal_message
from world.model.snapshot import ErrorValue, Requirement, Snapshot
from world.pipeline.existence import RESOURCE_ABSENT, Base, absent_in, absent_message
from world.pipeline.proposal_manifest import manifest_of
from world.pipeline.unit_of_work import LINEAGE_STREAM, Task, UnitOfWork
from world.state.ports import EffectAttempt, ExecutionOrder, Performed, StepOutcome
from world.state.proposal import ROLLBACK, Proposal
from world.state.realm_state import RealmState

GRACE_MS = 5_000
"""How long after an effect's time limit its worker may still be recording the result, in milliseconds."""

MAX_IN_EVENT: Final = 1_000
"""Observations of one event; an effect may touch more than one event can hold."""

MAX_BACKOFF_MS: Final = 3_600_000
"""The longest wait before an effect is made again, in milliseconds."""

LEASES_REVOKED = "LEASES_REVOKED"
"""The error's code where an execution lost its leases."""

CANCELLED = "CANCELLED"
"""The error's code where somebody called an execution off."""

ENGINE_ERRORS = frozenset({LEASES_REVOKED, CANCELLED, LITERAL_SECRET, "EFFECT_TOO_LARGE", "WORLD_TOO_LARGE"})
"""Codes of errors that do not follow from the action, so that performing it again gives something else."""


def start_next(work: UnitOfWork, key: str) -> None:
    """Start the approved proposals of an execution key in the order of their decisions (WP-exkey).

    Those that need no effect are sealed at once; the first that does keeps the key until it has ended.
    """
    realm = work.realm
    while key not in realm.running and realm.queues.get(key):
        proposal = realm.proposals[realm.queues[key][0]]
        if lacks_workspace(work, proposal):
            return
        branch = realm.branches[proposal.branch]
        if work.attempt(partial(work.snapshot, branch.head)) is not None:
            return  # nothing can be computed there at the moment; `recover` tries again
        if not work.begins():
            return  # `recover` begins it, in the unit that follows
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
                existence=_existence(work, proposal, branch.head),
            ),
        )
        go_on(work, proposal)


def _existence(work: UnitOfWork, proposal: Proposal, on_world: str) -> list[dict[str, Any]] | None:
    """Observe again what an execution depends on; None where it depends on nothing that can be checked."""
    leased = leased_by(work.realm, proposal)
    base = Base(proposal.branch, on_world)
    return work.existence(leased, proposal.proposal_id, base, before="execution") or None


def go_on(work: UnitOfWork, proposal: Proposal) -> None:
    """Compute as far as the journal goes: request the next effects, or seal."""
    assert proposal.started is not None
    if proposal.requested or proposal.in_doubt:
        return  # whoever makes them, or says what became of them, brings it further
    told = why_over(work.realm, proposal) or _why_absent(proposal)
    if told is not None:
        _end_early(work, proposal, *told)
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
    finish(work, proposal, head, outcome)


def lacks_workspace(work: UnitOfWork, proposal: Proposal) -> bool:
    """Tell whether only a process that has the workspace may execute this: its leases were backed up there (KO-3.3)."""
    return bool(proposal.backup) and work.executor.keeper is None


def lost_leases(realm: RealmState, proposal: Proposal) -> bool:
    """Tell whether the leases that a proposal was granted were revoked (KM-2.2)."""
    agent = proposal.submitted.actor["actorId"]
    return proposal.verdict_id is not None and not realm.klis.holds(agent, proposal.proposal_id)


def why_over(realm: RealmState, proposal: Proposal) -> tuple[str, str] | None:
    """Return why an execution may touch nothing any more, as an error's code and sentence; None while it may."""
    if lost_leases(realm, proposal):
        message = "The leases that it was granted were revoked before it was done. Issue the intent again."
        return LEASES_REVOKED, message
    called_off = proposal.cancelled
    if called_off is not None:
        return CANCELLED, f"{called_off.by} called it off: {called_off.reason}"
    return None


def _why_absent(proposal: Proposal) -> tuple[str, str] | None:
    """Return the code and message of an execution that depends on something absent; None where nothing is."""
    existence = None if proposal.started is None else proposal.started.existence
    return (RESOURCE_ABSENT, absent_message(existence)) if existence and absent_in(existence) else None


def _end_early(work: UnitOfWork, proposal: Proposal, code: str, message: str) -> None:
    head = work.realm.branches[proposal.branch].head
    action = proposal.submitted.intent["body"]["type"]
    finish(work, proposal, head, failed(work.snapshot(head), ErrorValue(code, message, action, "", work.at)))


def finish(work: UnitOfWork, proposal: Proposal, parent: str, outcome: StepOutcome) -> None:
    """Seal an outcome; where an execution failed that may have touched the workspace, give that back first (KO-3.3).

    Whoever lost the leases touches nothing any more: what is there now may be somebody else's work.
    """
    if outcome.error is None or not _has_to_give_back(work, proposal):
        seal(work, proposal, parent, outcome)
        return
    try:
        _give_back(work, proposal, outcome.error)
    except RefusedError as refused:  # an error that the log cannot hold is told as one, like a world
        action = proposal.submitted.intent["body"]["type"]
        _give_back(work, proposal, ErrorValue("WORLD_TOO_LARGE", refused.message, action, "", work.at))


def _give_back(work: UnitOfWork, proposal: Proposal, error: ErrorValue) -> None:
    """Request that the workspace be given back as it was; ``error`` is what the execution is sealed with then."""
    action, intent_id = proposal.submitted.intent["body"]["type"], proposal.submitted.intent["intentId"]
    told: dict[str, Any] = {"backup": proposal.verdict_id, "error": error.to_wire()}
    if proposal.may_linger:
        told["fresh"] = True
    params = freeze(told)
    place = "$rollback"
    name = requirement_id(work.realm.schema_hash, intent_id, action, place, ROLLBACK, params)
    request(work, proposal, Requirement(name, ROLLBACK, params, action, place))


def _has_to_give_back(work: UnitOfWork, proposal: Proposal) -> bool:
    """Tell whether an execution made effects under leases for which the workspace was backed up."""
    if proposal.verdict_id is None or proposal.rollback is not None or not proposal.journal:
        return False
    keeper = work.executor.keeper
    if keeper is None or lost_leases(work.realm, proposal):
        return False
    if proposal.backup is not None:
        return proposal.backup
    return keeper.needs(leased_by(work.realm, proposal))


def leased_by(realm: RealmState, proposal: Proposal) -> tuple[Triple, ...]:
    """Return what a proposal holds leases for."""
    agent = proposal.submitted.actor["actorId"]
    session = realm.klis.sessions.get((agent, proposal.proposal_id))
    return () if session is None else tuple(lease.triple for lease in session.leases())


def _requested(work: UnitOfWork, proposal: Proposal, requirement: Requirement) -> bool:
    """Request an effect; one that the log must not or cannot hold ends the execution."""
    literals = work.executor.literal_secrets(requirement.type, requirement.params)
    if literals:
        message = literal_message(f"The effect {requirement.type}", literals)
        error = ErrorValue(LITERAL_SECRET, message, requirement.action_id, requirement.node_path, work.at)
        head = work.realm.branches[proposal.branch].head
        finish(work, proposal, head, failed(work.snapshot(head), error))
        return False
    try:
        request(work, proposal, requirement)
    except RefusedError as refused:
        head = work.realm.branches[proposal.branch].head
        error = ErrorValue("EFFECT_TOO_LARGE", refused.message, requirement.action_id, requirement.node_path, work.at)
        finish(work, proposal, head, failed(work.snapshot(head), error))
        return False
    return True


def _on_new_head(work: UnitOfWork, proposal: Proposal, head: Snapshot) -> StepOutcome:
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


def failed(base: Snapshot, error: ErrorValue) -> StepOutcome:
    """Return the outcome of an execution that failed without the core: the base's data, with the error."""
    return StepOutcome("failed", (), base, error)


def order_of(proposal: Proposal, base: Snapshot) -> ExecutionOrder:
    """Return the order that tells an executor all it needs."""
    assert proposal.started is not None
    return ExecutionOrder(
        proposal_id=proposal.proposal_id,
        intent=proposal.intent,
        snapshot=base,
        approved_scope=proposal.approved_scope,
        now=proposal.started.now,
        seed=proposal.started.seed,
        journal=proposal.effect_journal(),
        actor=ActorRef.read(proposal.submitted.actor),
        scope_rules=proposal.scope_rules,
    )


def request(work: UnitOfWork, proposal: Proposal, requirement: Requirement, *, not_before: int = 0) -> None:
    """Journal that an effect is about to be made, and leave it to be made after the commit.

    Args:
        work: the unit of work.
        proposal: the execution that asks for it.
        requirement: the effect.
        not_before: ms since 1970, for one that is made again after a while.
    """
    assert proposal.started is not None
    terms = work.executor.terms(requirement.type, requirement.params)
    attempt, at = proposal.started.attempt, max(work.at, not_before)
    work.emit(
        proposal.proposal_id,
        EffectRequested(
            at=work.at,
            proposal_id=proposal.proposal_id,
            requirement=requirement.to_wire(),
            idempotent=terms.idempotent or requirement.type == ROLLBACK,
            attempt=attempt,
            deadline=at + terms.time_limit_ms + GRACE_MS,
        ),
    )
    order = order_of(proposal, work.snapshot(proposal.started.on_world))
    call = _call_of(work, proposal, requirement)
    work.tasks.append(Task(proposal.proposal_id, requirement, attempt, order, call, not_before))
    work.claimed.add((proposal.proposal_id, requirement.id))


def _call_of(work: UnitOfWork, proposal: Proposal, requirement: Requirement) -> EffectAttempt:
    failure = proposal.failures.get(requirement.id)
    agent = proposal.submitted.actor["actorId"]
    session = work.realm.klis.sessions.get((agent, proposal.proposal_id))
    leases = [] if session is None else session.leases()
    klis = work.realm.klis
    return EffectAttempt(
        declared=_declared(work, proposal),
        attempt=1 if failure is None else failure.failures + 1,
        requested_at=proposal.requested_at[requirement.id],
        fencing_token=max((lease.token for lease in leases), default=0),
        types=klis.types,
        names=klis.in_force.names,
        declaration_required=klis.in_force.manifest_rules >= 2,
    )


def _declared(work: UnitOfWork, proposal: Proposal) -> tuple[Triple, ...] | None:
    """Return what was declared and what was leased: a manifest may name more than one predicate of a resource.

    None is for a proposal that was decided without arbitration, because its log had no KLIS settings then, and, under
    the rules of manifests of version 1, for one without leases. No other proposal has a manifest and no verdict:
    another domain is adopted only when every approved proposal has ended (``OPEN_PROPOSALS``).
    """
    if work.realm.klis.settings is None:
        return None
    leased = leased_by(work.realm, proposal)
    if not leased and work.realm.klis.in_force.manifest_rules < 2:
        return None
    try:
        manifest = manifest_of(work, proposal, proposal.approved_scope)
    except RefusedError:  # it was read before the grant; an expression that gives something else now widens nothing
        manifest = None
    if manifest is not None and proposal.verdict_id is None:
        return None
    return tuple(dict.fromkeys([*leased, *(manifest.declared if manifest is not None else ())]))


def fulfil(work: UnitOfWork, task: Task, performed: Performed) -> None:
    """Journal what came of an effect and go on; a late or repeated result is dropped and logged (HC-compute)."""
    proposal = work.realm.proposals.get(task.proposal_id)
    name = task.requirement.id
    under_way = None if proposal is None else proposal.requested.get(name)
    if proposal is None or under_way is None or under_way.attempt != task.attempt:
        if proposal is not None:
            _tell_seen(work, task.proposal_id, performed)  # it happened all the same
        reason = "nobody waits for this result any more"
        work.emit(
            task.proposal_id,
            EffectDropped(at=work.at, proposal_id=task.proposal_id, requirement_id=name, reason=reason),
        )
        return
    failure = proposal.failures.get(name)
    if failure is not None and failure.failures >= task.call.attempt:
        # It was recorded: the acknowledgement of that commit was lost, and with it who was to make the effect again.
        request(work, proposal, task.requirement, not_before=failure.due)
        return
    _tell_seen(work, task.proposal_id, performed)
    if performed.retryable and _made_again(work, proposal, task, performed):
        return
    fulfil_with(work, proposal, name, performed.result, task.attempt, _used(performed))


def _used(performed: Performed) -> list[dict[str, Any]] | None:
    return [dict(one) for one in performed.secrets] or None


def _tell_seen(work: UnitOfWork, run_id: str, performed: Performed) -> None:
    """Put into the log what was seen while an effect was made (KO-4)."""
    stream = f"run:{run_id}"
    seen = [dict(one) for one in performed.observed]
    for start in range(0, len(seen), MAX_IN_EVENT):
        work.emit(stream, RunObserved(at=work.at, run_id=run_id, observed=seen[start : start + MAX_IN_EVENT]))
    for violation in performed.violations:
        work.emit(stream, RunViolated(at=work.at, run_id=run_id, violation=dict(violation)))


def _made_again(work: UnitOfWork, proposal: Proposal, task: Task, performed: Performed) -> bool:
    """Leave an effect that failed to be made again after its backoff; False where it has had its retries."""
    requirement, error = task.requirement, performed.result.error
    terms = work.executor.terms(requirement.type, requirement.params)
    failures = task.call.attempt
    if error is None or not terms.idempotent or failures > terms.retries or why_over(work.realm, proposal):
        return False
    due = work.at + min(terms.backoff_ms * 2 ** (failures - 1), MAX_BACKOFF_MS)
    event = EffectRetried(
        at=work.at,
        proposal_id=proposal.proposal_id,
        requirement_id=requirement.id,
        error=error.to_wire(),
        failures=failures,
        due=due,
        secrets=_used(performed),
    )
    try:
        work.emit(proposal.proposal_id, event)
    except RefusedError:  # an error that the log cannot hold is its result, where it is told as one
        return False
    request(work, proposal, requirement, not_before=due)
    return True


def fulfil_with(
    work: UnitOfWork,
    proposal: Proposal,
    requirement_id: str,
    result: EffectAnswer,
    attempt: int,
    secrets: list[dict[str, Any]] | None = None,
) -> None:
    """Journal the result of an effect that is under way, with the secrets that it used, and go on."""
    event = EffectFulfilled(
        at=work.at,
        proposal_id=proposal.proposal_id,
        requirement_id=requirement_id,
        result=result.to_wire(),
        attempt=attempt,
        secrets=secrets,
    )
    asked = proposal.requested[requirement_id].requirement
    try:
        work.emit(proposal.proposal_id, event)
    except RefusedError as refused:  # a result that the log cannot hold is an error value like any other
        error = ErrorValue("EFFECT_INVALID_RESULT", refused.message, "", "", work.at)
        event = EffectFulfilled(
            at=work.at,
            proposal_id=proposal.proposal_id,
            requirement_id=requirement_id,
            result=EffectAnswer(error=error).to_wire(),
            attempt=attempt,
            secrets=secrets,
        )
        work.emit(proposal.proposal_id, event)
    if asked["type"] == ROLLBACK:
        _seal_rolled_back(work, proposal, asked["params"]["error"], result)
        return
    if work.realm.schema_hash != work.domain.schema.hash:
        return  # another domain came into force meanwhile; whoever runs it goes on from the journal
    if work.attempt(partial(go_on, work, proposal)) is None:  # otherwise `recover` goes on from the journal
        start_next(work, proposal.submitted.execution_key)


def _seal_rolled_back(work: UnitOfWork, proposal: Proposal, error: Mapping[str, Any], result: EffectAnswer) -> None:
    """Seal an execution that failed and whose workspace was given back, with the error it failed with."""
    name, backup = proposal.proposal_id, proposal.verdict_id or ""
    told = result.value if isinstance(result.value, Mapping) else {}
    failed_to = list(told.get("failed", ())) or ([result.error.message] if result.error is not None else [])
    work.emit(
        f"run:{name}",
        RunRolledBack(
            at=work.at,
            run_id=name,
            verdict_id=backup,
            restored=list(told.get("restored", ())),
            removed=list(told.get("removed", ())),
            failed=failed_to,
        ),
    )
    head = work.realm.branches[proposal.branch].head
    seal(work, proposal, head, failed(work.snapshot(head), ErrorValue.from_wire(error)))
    start_next(work, proposal.submitted.execution_key)


def seal(work: UnitOfWork, proposal: Proposal, parent: str, outcome: StepOutcome) -> None:
    """Seal what came of an execution as a World, all or nothing (WP-world, design section 4).

    Equal content on the same parent is the same world: then the world is there already, and only the proposal's own
    end is recorded. A world that the log cannot hold is sealed as a failure that says so.
    """
    try:
        new_world = _seal_world(work, proposal, parent, outcome)
    except RefusedError as refused:
        action = proposal.submitted.intent["body"]["type"]
        outcome = failed(work.snapshot(parent), ErrorValue("WORLD_TOO_LARGE", refused.message, action, "", work.at))
        if _has_to_give_back(work, proposal):
            finish(work, proposal, parent, outcome)
            return
        new_world = _seal_world(work, proposal, parent, outcome)
    told = proposal.proposal_id, new_world, parent, proposal.branch
    if outcome.error is None:
        work.emit(told[0], _completed(work.at, *told))
    else:
        work.emit(told[0], _failed(work.at, *told, error=outcome.error.to_wire()))
    work.desk().release_session(proposal.submitted.actor["actorId"], proposal.proposal_id, work.klis_now)


def _seal_world(work: UnitOfWork, proposal: Proposal, parent: str, outcome: StepOutcome) -> str:
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
