"""Sealing: the record of a world, the end of its proposal, and the release of the proposal's leases (WP-world).

Genesis, the outcomes of executions and the results of migrations are recorded by one function.

An execution that failed and may have changed the workspace restores that first, while its leases keep others away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from world.core.domain_rules import OWN_NAMES_RULES
from world.core.values import strict_equal
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import LINEAGE_STREAM
from world.events.proposal_events import ProposalCompleted, ProposalFailed
from world.events.realm_events import WorldSealed
from world.model.identity import content_id, requirement_id, world_id
from world.model.immutable_json import FrozenDict, freeze
from world.model.patch import EMPTY, Patch
from world.model.snapshot import ErrorValue, Requirement, error_state_hash
from world.pipeline.effect_requests import request_effect
from world.pipeline.execution_state import failed, leased_by, lost_leases
from world.pipeline.steps import Computed, Sealed, Step
from world.pipeline.unit_of_work import UnitOfWork
from world.state.ports import StepOutcome
from world.state.proposal import ROLLBACK, Proposal

__all__ = ["ParentWorld", "WorldContent", "record_world", "release", "seal"]


class WorldContent(Struct, frozen=True):
    """What a world consists of.

    Args:
        data: its data.
        computed: the computed values of the data.
        patches: from the parent's data to it; a failed world has none.
        error: why the execution failed; None for a completed world.
    """

    data: FrozenDict
    computed: FrozenDict
    patches: Sequence[Patch] = ()
    error: ErrorValue | None = None


class ParentWorld(Struct, frozen=True):
    """The world that another one is based on.

    Args:
        world_id: its id.
        height: its number of ancestors.
        created_by: id of the proposal that makes the new world.
    """

    world_id: str
    height: int
    created_by: str


def record_world(work: UnitOfWork, content: WorldContent, branch: str, parent: ParentWorld | None) -> str:
    """Append a world under the schema in force, unless it exists already; return its id.

    Args:
        work: the unit of work.
        content: what the world consists of.
        branch: the branch that it is sealed on.
        parent: the world that it is based on; None for genesis, whose data is recorded as a whole.

    Raises:
        RefusedError: the log cannot hold the event; ``INVALID_PATCH`` for a member that no snapshotHash covers.
    """
    error, schema_hash = content.error, work.realm.schema_hash
    snapshot_hash = error_state_hash(content.data, error)
    before = None if parent is None else parent.world_id
    _refuse_own_names(work, content.data, before)
    new_world = world_id(schema_hash, snapshot_hash, before)
    if before is not None and work.lookup.world_outcome(new_world, before) is not None:
        return new_world
    height = 0 if parent is None else parent.height + 1
    work.emit(
        LINEAGE_STREAM,
        WorldSealed(
            at=work.at,
            world_id=new_world,
            content_id=content_id(schema_hash, snapshot_hash),
            schema_hash=schema_hash,
            snapshot_hash=snapshot_hash,
            parent=before,
            created_by=None if parent is None else parent.created_by,
            branch=branch,
            outcome="completed" if error is None else "failed",
            height=height,
            data=content.data if parent is None else None,
            patches=list(content.patches),
            error=error,
        ),
    )
    work.keep(new_world, content.data, content.computed, height)
    return new_world


def _refuse_own_names(work: UnitOfWork, data: FrozenDict, before: str | None) -> None:
    """Refuse a world that changes members whose names begin with ``$``, which no hash covers (WP-dollar)."""
    adopted = work.realm.domain
    names = [name for name in data if name.startswith("$")]
    if not names or adopted is None or adopted.rules is None or adopted.rules < OWN_NAMES_RULES:
        return
    kept = EMPTY if before is None else work.data(before)
    for name in names:
        if name not in kept or not strict_equal(kept[name], data[name]):
            raise RefusedError(
                ErrorCode.INVALID_PATCH,
                f"A world cannot hold {name!r}: names that begin with $ belong to the engine, and no hash covers them.",
                path=name,
            )


def seal(work: UnitOfWork, computed: Computed) -> Iterable[Step]:
    """Seal the outcome of an execution as a World, all or nothing (WP-world, design section 4).

    Equal content on the same parent is the same world: then the world exists already, and only the end of the proposal
    is recorded. A world that the log cannot hold is sealed as a failure that says so. An execution that failed and may
    have changed the workspace is not sealed before that is restored (KO-3.3); one that lost its leases restores
    nothing, because another holder may have changed the workspace since.
    """
    proposal, parent, outcome = computed.proposal, computed.parent, computed.outcome
    if outcome.error is not None and _must_restore(work, proposal):
        _restore(work, proposal, outcome.error)
        return ()
    try:
        new_world = _seal_world(work, proposal, parent, outcome)
    except RefusedError as refused:
        outcome = failed(work.snapshot(parent), _too_large(work, proposal, refused))
        if _must_restore(work, proposal):
            return (Computed(proposal, parent, outcome),)
        new_world = _seal_world(work, proposal, parent, outcome)
    name, branch, error = proposal.proposal_id, proposal.branch, outcome.error
    if error is None:
        work.emit(
            name, ProposalCompleted(at=work.at, proposal_id=name, world_id=new_world, parent=parent, branch=branch)
        )
    else:
        work.emit(
            name,
            ProposalFailed(at=work.at, proposal_id=name, world_id=new_world, parent=parent, branch=branch, error=error),
        )
    return (Sealed(proposal),)


def release(work: UnitOfWork, sealed: Sealed) -> Iterable[Step]:
    """Release the leases of a proposal that has ended."""
    proposal = sealed.proposal
    work.desk().release_session(proposal.submitted.actor.actor_id, proposal.proposal_id, work.klis_now)
    return ()


def _too_large(work: UnitOfWork, proposal: Proposal, refused: RefusedError) -> ErrorValue:
    action = proposal.submitted.intent.body.type
    code = "WORLD_TOO_LARGE" if refused.code != ErrorCode.INVALID_PATCH else ErrorCode.INVALID_PATCH
    return ErrorValue.at(code, refused.message, action, "", work.at)


def _restore(work: UnitOfWork, proposal: Proposal, error: ErrorValue) -> None:
    """Request that the workspace be restored; the execution is sealed with ``error`` when that is done."""
    try:
        _request_rollback(work, proposal, error)
    except RefusedError as refused:  # an error that the log cannot hold is replaced by one that says so, like a world
        _request_rollback(work, proposal, _too_large(work, proposal, refused))


def _request_rollback(work: UnitOfWork, proposal: Proposal, error: ErrorValue) -> None:
    action, intent_id = proposal.submitted.intent.body.type, proposal.submitted.intent.intent_id
    what: dict[str, Any] = {"backup": proposal.verdict_id, "error": error.to_wire()}
    if proposal.may_linger:
        what["fresh"] = True
    params = freeze(what)
    place = "$rollback"
    name = requirement_id(work.realm.schema_hash, intent_id, action, place, ROLLBACK, params)
    request_effect(work, proposal, Requirement(name, ROLLBACK, params, action, place))


def _must_restore(work: UnitOfWork, proposal: Proposal) -> bool:
    """Return whether an execution made effects under leases for which the workspace was backed up."""
    if proposal.verdict_id is None or proposal.rollback is not None or not proposal.journal:
        return False
    if lost_leases(work.realm, proposal):
        return False
    keeper = work.keeper
    if proposal.backup is not None:
        return proposal.backup and (keeper is not None or proposal.workspace is not None)
    return keeper is not None and keeper.needs(leased_by(work.realm, proposal))


def _seal_world(work: UnitOfWork, proposal: Proposal, parent: str, outcome: StepOutcome) -> str:
    """Append the world of an outcome, unless it exists already; return its id."""
    base = work.snapshot(parent)
    before, after = ParentWorld(parent, base.meta.version, proposal.proposal_id), outcome.snapshot
    if outcome.error is not None:
        return record_world(work, WorldContent(base.data, base.computed, error=outcome.error), proposal.branch, before)
    return record_world(work, WorldContent(after.data, after.computed, outcome.patches), proposal.branch, before)
