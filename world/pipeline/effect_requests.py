"""Requesting effects: each is journaled before it is made, and made after the commit (design section 8; HC-journal)."""

from __future__ import annotations

from world.errors import RefusedError
from world.events.execution_events import EffectRequested
from world.klis.triple import Triple
from world.model.snapshot import Requirement
from world.pipeline.execution_state import leased_by, order_of
from world.pipeline.leasing.proposal_manifest import manifest_of
from world.pipeline.unit_of_work import Task, UnitOfWork
from world.state.ports import EffectAttempt
from world.state.proposal import ROLLBACK, Proposal

__all__ = ["request_effect"]

GRACE_MS = 5_000
"""How long after an effect's time limit its worker may still be recording the result, in milliseconds."""


def request_effect(work: UnitOfWork, proposal: Proposal, requirement: Requirement, *, not_before: int = 0) -> None:
    """Journal the request of an effect, and add the task that makes it after the commit.

    Args:
        work: the unit of work.
        proposal: the execution that needs it.
        requirement: the effect.
        not_before: ms since 1970, for an effect that is retried after a backoff.
    """
    assert proposal.started is not None
    terms = work.executor.terms(requirement.type, requirement.params)
    attempt, at = proposal.started.attempt, max(work.at, not_before)
    work.emit(
        proposal.proposal_id,
        EffectRequested(
            at=work.at,
            proposal_id=proposal.proposal_id,
            requirement=requirement,
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
