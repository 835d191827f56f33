"""What holds of an execution: its leases, why it has to end early, and the order for its executor."""

from __future__ import annotations

from world.events.execution_events import EffectRequested
from world.klis.triple import Triple
from world.model.secrets.literal import LITERAL_SECRET
from world.model.snapshot import ErrorValue, Requirement, Snapshot
from world.pipeline.unit_of_work import UnitOfWork
from world.state.ports import ExecutionOrder, StepOutcome
from world.state.proposal import ROLLBACK, Proposal
from world.state.realm_view import ReadableRealm

__all__ = [
    "CANCELLED",
    "ENGINE_ERRORS",
    "LEASES_REVOKED",
    "NOT_CALLED",
    "OUTCOME_UNKNOWN",
    "ends_at_limit",
    "failed",
    "lacks_workspace",
    "leased_by",
    "lost_leases",
    "order_of",
    "why_effect_over",
    "why_over",
]

LEASES_REVOKED = "LEASES_REVOKED"
"""The error's code where an execution lost its leases."""

CANCELLED = "CANCELLED"
"""The error's code where an execution was called off."""

NOT_CALLED = "TOOL_NOT_CALLED"
"""The error's code of a call of a tool that was not made."""

OUTCOME_UNKNOWN = "TOOL_OUTCOME_UNKNOWN"
"""The error's code of a call of a tool that was begun, and whose result was not reported."""

ENGINE_ERRORS = frozenset({LEASES_REVOKED, CANCELLED, LITERAL_SECRET, "EFFECT_TOO_LARGE", "WORLD_TOO_LARGE"})
"""Codes of errors that do not follow from the action, so that performing it again gives something else."""


def lacks_workspace(work: UnitOfWork, proposal: Proposal) -> bool:
    """Return whether a workspace is necessary and absent: the leases were backed up, and not in one of this process.

    A backup without a recorded workspace may be in any (KO-3.3).
    """
    keeper = work.keeper
    return bool(proposal.backup) and (keeper is None or proposal.workspace not in (None, keeper.workspace_id))


def lost_leases(realm: ReadableRealm, proposal: Proposal) -> bool:
    """Return whether the leases that a proposal was granted were revoked (KM-2.2)."""
    agent = proposal.submitted.actor.actor_id
    return proposal.verdict_id is not None and not realm.klis.holds(agent, proposal.proposal_id)


def why_over(realm: ReadableRealm, proposal: Proposal) -> tuple[str, str] | None:
    """Return why an execution must not make effects any more, as an error's code and message; None while it may."""
    if lost_leases(realm, proposal):
        message = "The leases that it was granted were revoked before it was done. Issue the intent again."
        return LEASES_REVOKED, message
    called_off = proposal.cancelled
    if called_off is not None:
        return CANCELLED, f"{called_off.by} called it off: {called_off.reason}"
    return None


def why_effect_over(realm: ReadableRealm, proposal: Proposal, requirement: Requirement) -> tuple[str, str] | None:
    """Return why an effect must not be made any more; the rollback of a cancelled execution is made all the same."""
    if requirement.type == ROLLBACK and not lost_leases(realm, proposal):
        return None
    return why_over(realm, proposal)


def ends_at_limit(asked: EffectRequested) -> bool:
    """Return whether a call whose time is over has ended, with an unknown outcome, so that it is not in doubt.

    A proxy does not make a call again whose outcome is unknown, so a person says what became of it.
    """
    return asked.offer is not None and asked.offer.attended in ("hook", "run")


def leased_by(realm: ReadableRealm, proposal: Proposal) -> tuple[Triple, ...]:
    """Return the triples that a proposal holds leases for."""
    agent = proposal.submitted.actor.actor_id
    return tuple(lease.triple for lease in realm.klis.leases_of(agent, proposal.proposal_id))


def failed(base: Snapshot, error: ErrorValue) -> StepOutcome:
    """Return the outcome of an execution that failed outside of its computation: the base's data, with the error."""
    return StepOutcome("failed", (), base, error)


def order_of(proposal: Proposal, base: Snapshot) -> ExecutionOrder:
    """Return everything that an executor needs to compute an execution."""
    assert proposal.started is not None
    return ExecutionOrder(
        proposal_id=proposal.proposal_id,
        intent=proposal.intent,
        snapshot=base,
        approved_scope=proposal.approved_scope,
        now=proposal.started.now,
        seed=proposal.started.seed,
        journal=proposal.effect_journal(),
        actor=proposal.submitted.actor,
        scope_rules=proposal.scope_rules,
    )
