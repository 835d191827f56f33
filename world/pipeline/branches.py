"""Branches: finding one, making one at a world that may be built on, and making one the active branch.

Sources: WP-base, WP-epoch, WP-schema; design section 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from world.core import ComputeContext, genesis
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import LINEAGE_STREAM
from world.events.realm_events import BranchCreated, BranchSwitched
from world.model.new_names import check_branch_name
from world.pipeline.preparation.prepared import prepared_misfit
from world.pipeline.steps import LeftBehind, Step
from world.pipeline.unit_of_work import UnitOfWork
from world.state.branches import Branch
from world.state.proposal import INGRESS

__all__ = ["check_base", "create_branch", "find_branch", "fork_name", "misfit", "switch_branch"]


def find_branch(work: UnitOfWork, name: str | None) -> Branch:
    """Return a branch; None is the active one.

    Raises:
        RefusedError: ``UNKNOWN_BRANCH``.
    """
    branch = work.realm.branches.get(work.realm.active if name is None else name)
    if branch is None:
        known = sorted(work.realm.branches)
        raise RefusedError(
            ErrorCode.UNKNOWN_BRANCH, f"There is no branch {name!r}; there are {', '.join(known)}.", known=known
        )
    return branch


def check_base(work: UnitOfWork, world_id: str, *, allow_failed: bool) -> None:
    """Refuse a world that nothing may be built on (WP-base, WP-schema).

    Raises:
        RefusedError: ``UNKNOWN_WORLD``, ``FAILED_BASE``, ``EVENT_ARCHIVED``; ``DATA_DOES_NOT_FIT`` for one of an
            earlier schema that does not obey the one in force.
    """
    known = work.lookup.world_outcome(world_id)
    if known is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_WORLD, f"There is no world {world_id!r}; `worldctl worlds` lists them.", world_id=world_id
        )
    if known[0] == "failed" and not allow_failed:
        raise RefusedError(
            ErrorCode.FAILED_BASE,
            f"World {world_id} holds a failed execution; nothing is built on it unless you allow it "
            "(allow_failed_base, --allow-failed).",
            world_id=world_id,
        )
    _refuse_archived(work, world_id)
    in_force = work.realm.domain
    if in_force is None or in_force.previous is None:
        return  # every world has this schema
    found = misfit(work, world_id)
    if found is not None:
        raise RefusedError(
            ErrorCode.DATA_DOES_NOT_FIT,
            f"World {world_id} {found[0]}. Begin at a world that was sealed since that schema was adopted.",
            world_id=world_id,
            **found[1],
        )


def misfit(work: UnitOfWork, world_id: str) -> tuple[str, dict[str, Any]] | None:
    """Return why a world does not obey the domain's schema, as half a sentence and details; None where it does.

    Raises:
        RefusedError: ``COMPUTED_TIMED_OUT``.
    """
    ready = prepared_misfit(work, world_id)
    return _misfit(work, world_id) if ready is None else ready[0]


def _misfit(work: UnitOfWork, world_id: str) -> tuple[str, dict[str, Any]] | None:
    data = work.snapshot(world_id).data
    fields = work.domain.schema.state.fields or {}
    missing = [name for name, spec in fields.items() if spec.required and name not in data]
    if missing:
        return f"lacks {', '.join(missing)}, which the new schema requires", {"missing": missing}
    try:
        work.limits.in_time(lambda: genesis(work.domain, ComputeContext(now=0, random_seed=""), data))
    except RefusedError as refused:
        if refused.code == ErrorCode.COMPUTED_TIMED_OUT:
            raise
        faults = refused.message.removesuffix(".")
        return f"does not obey the new schema: {faults}", {"faults": refused.details.get("faults")}
    return None


def _refuse_archived(work: UnitOfWork, world_id: str) -> None:
    """Refuse a world before the cut of the log, unless a branch is there, so that the cut has kept it."""
    cut = work.realm.archived
    if cut is None or any(world_id in (one.head, one.tip) for one in work.realm.branches.values()):
        return
    position = work.lookup.sealed_at(world_id)
    if position is not None and position <= cut.upto:
        raise RefusedError(
            ErrorCode.EVENT_ARCHIVED,
            f"World {world_id} was sealed by event {position}, and the log was cut after event {cut.upto}; nothing new "
            "is built on it. Begin at a newer world.",
            position=position,
            world_id=world_id,
        )


def create_branch(work: UnitOfWork, name: str, world_id: str, *, by: str, is_fork: bool = False) -> None:
    """Create a branch at a world; ``check_base`` comes first.

    The branch of a fork is part of a submission, which records the verification of its caller.

    Raises:
        RefusedError: ``BRANCH_EXISTS``, ``INVALID_NAME``.
    """
    check_branch_name(name)
    if name in work.realm.branches:
        raise RefusedError(
            ErrorCode.BRANCH_EXISTS, f"There is a branch {name!r} already; choose another name.", branch=name
        )
    event = BranchCreated(at=work.at, branch=name, world_id=world_id, by=by)
    work.emit(LINEAGE_STREAM, event if is_fork else work.of_caller(event))


def fork_name(work: UnitOfWork, world_id: str) -> str:
    """Return a name for a fork from a world that no branch has."""
    stem = f"fork-{world_id[:8]}"
    number = 1
    while f"{stem}-{number}" in work.realm.branches:
        number += 1
    return f"{stem}-{number}"


def switch_branch(work: UnitOfWork, name: str, *, by: str) -> Iterator[Step]:
    """Make a branch the active one: the epoch rises, and undecided proposals are left behind (WP-epoch).

    Returns:
        A step for each proposal that is superseded.

    Raises:
        RefusedError: ``UNKNOWN_BRANCH``, ``BRANCH_IS_ACTIVE``.
    """
    name = find_branch(work, name).name
    if name == work.realm.active:
        raise RefusedError(ErrorCode.BRANCH_IS_ACTIVE, f"{name!r} is the active branch already.", branch=name)
    epoch = work.realm.epoch + 1
    work.emit(LINEAGE_STREAM, work.of_caller(BranchSwitched(at=work.at, branch=name, epoch=epoch, by=by)))
    for proposal in list(work.realm.proposals.values()):
        if proposal.status in INGRESS:
            yield LeftBehind(proposal)
