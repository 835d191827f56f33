"""Requesting effects: each is journaled before it is made, and made after the commit (design section 8; HC-journal).

An external effect is offered to workers instead: no task is added, and the request has no deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from world.errors import RefusedError
from world.events.claim_events import EffectOffer
from world.events.execution_events import EffectRequested, ExecutionStarted
from world.events.proposal_events import ProposalHeld
from world.klis.triple import Triple
from world.model.snapshot import Requirement
from world.pipeline.execution_state import lacks_workspace, leased_by, order_of
from world.pipeline.leasing.proposal_manifest import manifest_of
from world.pipeline.unit_of_work import Task, UnitOfWork
from world.state.effect_claim import DeclaredTriple
from world.state.ports import EffectAttempt, EffectTerms
from world.state.proposal import ROLLBACK, Proposal

__all__ = [
    "GRACE_MS",
    "attempt_of",
    "await_handler",
    "called_effect",
    "is_mine",
    "make_mine",
    "may_request",
    "offer_again",
    "request_effect",
]

GRACE_MS = 5_000
"""How long after an effect's time limit its worker may still be recording the result, in milliseconds."""


def request_effect(work: UnitOfWork, proposal: Proposal, requirement: Requirement, *, not_before: int = 0) -> None:
    """Journal the request of an effect, and add the task that makes it after the commit, or offer it to workers.

    Args:
        work: the unit of work.
        proposal: the execution that needs it.
        requirement: the effect.
        not_before: ms since 1970, for an effect that is retried after a backoff.
    """
    terms = _terms_of(work, proposal, requirement)
    if not terms.external and not is_mine(work, proposal):
        make_mine(work, proposal)  # the worker that makes an effect is the one that executes
    assert proposal.started is not None
    attempt, at = proposal.started.attempt, max(work.at, not_before)
    work.emit(
        proposal.proposal_id,
        EffectRequested(
            at=work.at,
            proposal_id=proposal.proposal_id,
            requirement=requirement,
            idempotent=terms.idempotent or requirement.type == ROLLBACK,
            attempt=attempt,
            deadline=0 if terms.external else at + terms.time_limit_ms + GRACE_MS,
            offer=_offer(work, proposal, requirement, terms) if terms.external else None,
        ),
    )
    if terms.external:
        return
    order = order_of(proposal, work.snapshot(proposal.started.on_world))
    call = attempt_of(work, proposal, requirement)
    work.tasks.append(Task(proposal.proposal_id, requirement, attempt, order, call, not_before))
    work.claimed.add((proposal.proposal_id, requirement.id))


def offer_again(work: UnitOfWork, proposal: Proposal, asked: EffectRequested) -> None:
    """Journal that an offered effect is offered once more, on the same terms."""
    assert proposal.started is not None
    work.emit(proposal.proposal_id, replace(asked, at=work.at, attempt=proposal.started.attempt))


def may_request(work: UnitOfWork, effect_type: str, params: Mapping[str, Any] | None = None) -> bool:
    """Return whether this process may request an effect: its terms are certain, and so is the workspace it needs."""
    terms = work.executor.terms(effect_type, params)
    return terms.known and not (terms.external and terms.needs_workspace and work.realm.workspace is None)


def await_handler(work: UnitOfWork, proposal: Proposal, requirement: Requirement) -> None:
    """Record that an execution waits for a process that has the handler of its next effect, or the workspace for it."""
    name = proposal.proposal_id
    work.emit(name, ProposalHeld(at=work.at, proposal_id=name, cause="effect", names=[requirement.type]))


def _terms_of(work: UnitOfWork, proposal: Proposal, requirement: Requirement) -> EffectTerms:
    """Return the terms on which an effect is requested: it is offered where its workspace is elsewhere."""
    terms = work.executor.terms(requirement.type, requirement.params)
    if terms.external or not terms.needs_workspace:
        return terms
    if requirement.type == ROLLBACK:
        return terms.offered() if lacks_workspace(work, proposal) else terms
    return terms.offered() if work.realm.workspace is not None and work.keeper is None else terms


def _offer(work: UnitOfWork, proposal: Proposal, requirement: Requirement, terms: EffectTerms) -> EffectOffer:
    registered = work.realm.workspace
    workspace = None
    if requirement.type == ROLLBACK:
        workspace = proposal.workspace
    elif terms.needs_workspace and registered is not None:
        workspace = registered.workspace_id
    attended = proposal.submitted.attended if terms.by_actor else None
    limit_ms = terms.time_limit_ms if attended is None or attended.limit_ms is None else attended.limit_ms
    return EffectOffer(
        time_limit_ms=min(terms.time_limit_ms, limit_ms),
        retries=terms.retries,
        backoff_ms=terms.backoff_ms,
        workspace=workspace,
        by_actor=terms.by_actor or None,
        attended=None if attended is None else attended.by,
    )


def is_mine(work: UnitOfWork, proposal: Proposal) -> bool:
    """Return whether this worker is the one that executes a proposal."""
    return proposal.started is not None and proposal.started.worker == work.workers.me


def make_mine(work: UnitOfWork, proposal: Proposal) -> None:
    """Make this worker the one that executes: later results of the worker before are dropped."""
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
            existence=started.existence,
        ),
    )


def called_effect(work: UnitOfWork, proposal: Proposal, requirement: Requirement) -> dict[str, Any]:
    """Return the members of ``CalledEffect`` for an effect of an execution.

    Args:
        work: the unit of work.
        proposal: the execution, which has started.
        requirement: the effect.
    """
    started, intent, call = proposal.started, proposal.submitted.intent, attempt_of(work, proposal, requirement)
    assert started is not None
    declared = None
    if call.declared is not None:
        declared = [DeclaredTriple.from_wire(triple.to_wire()) for triple in call.declared]
    return {
        "proposal_id": proposal.proposal_id,
        "requirement": requirement,
        "idempotency_key": f"{intent.intent_id}:{requirement.id}",
        "attempt": call.attempt,
        "intent": intent,
        "now": started.now,
        "seed": started.seed,
        "on_world": started.on_world,
        "requested_at": call.requested_at,
        "fencing_token": call.fencing_token,
        "actor": proposal.submitted.actor,
        "approved_scope": proposal.approved_scope,
        "scope_rules": proposal.scope_rules,
        "declared": declared,
        "declaration_required": call.declaration_required,
        "types": call.types.to_wire(),
        "ignores_case": call.names.ignores_case,
        "ignores_normal_form": call.names.ignores_normal_form,
    }


def attempt_of(work: UnitOfWork, proposal: Proposal, requirement: Requirement) -> EffectAttempt:
    """Return the facts about the next attempt at an effect that was requested."""
    failure = proposal.failures.get(requirement.id)
    agent = proposal.submitted.actor.actor_id
    klis = work.realm.klis
    leases = klis.leases_of(agent, proposal.proposal_id)
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
    except RefusedError:  # the grant was made from a valid manifest; a different one now widens nothing
        manifest = None
    if manifest is not None and proposal.verdict_id is None:
        return None
    return tuple(dict.fromkeys([*leased, *(manifest.declared if manifest is not None else ())]))
