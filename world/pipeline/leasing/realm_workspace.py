"""The realm's workspace: one folder, registered by its id, with the backups of files that leases permit to change.

A process that has not this workspace grants no leases to change files: it leaves the proposal (``proposal.held`` with
the cause ``workspace``), or the request in the queue, to a process that has it. Sources: KO-3.3, KO-7.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import REALM_STREAM
from world.events.proposal_events import ProposalHeld
from world.events.realm_events import WorkspaceRegistered
from world.klis.triple import Triple, changes_files
from world.pipeline.unit_budget import DUE_AT_ONCE
from world.pipeline.unit_of_work import UnitOfWork
from world.state.proposal import Proposal

__all__ = ["await_workspace", "is_elsewhere", "judge_left_requests", "regained", "register_workspace"]


def register_workspace(work: UnitOfWork, workspace_id: str, by: str, *, replace: bool = False) -> bool:
    """Record the realm's workspace; return False where it is registered already.

    Args:
        work: the unit of work.
        workspace_id: its id.
        by: actor id that the log records.
        replace: register it in place of another one.

    Raises:
        RefusedError: ``OTHER_WORKSPACE`` where another one is registered.
    """
    registered = work.realm.workspace
    if registered is not None and registered.workspace_id == workspace_id:
        return False
    if registered is not None and not replace:
        raise RefusedError(
            ErrorCode.OTHER_WORKSPACE,
            f"The realm's workspace is {registered.workspace_id}, registered by {registered.by}, not {workspace_id}.",
            workspace=registered.workspace_id,
        )
    work.emit(REALM_STREAM, WorkspaceRegistered(at=work.at, workspace_id=workspace_id, by=by))
    return True


def is_elsewhere(work: UnitOfWork, triples: Sequence[Triple]) -> bool:
    """Return whether claims are granted only by another process, which has the realm's workspace."""
    return work.realm.workspace is not None and work.keeper is None and changes_files(triples)


def await_workspace(work: UnitOfWork, proposal: Proposal) -> None:
    """Record that a proposal waits for a process that has the realm's workspace."""
    registered, keeper = work.realm.workspace, work.executor.keeper
    assert registered is not None
    if proposal.held is not None and proposal.held.in_force == registered.workspace_id:
        return
    held = ProposalHeld(
        at=work.at,
        proposal_id=proposal.proposal_id,
        cause="workspace",
        names=[],
        in_force=registered.workspace_id,
        at_hand=None if keeper is None else keeper.workspace_id,
    )
    work.emit(proposal.proposal_id, held)


def regained(work: UnitOfWork) -> Iterator[Proposal]:
    """Yield the proposals that wait for the workspace and whose leases have not been requested, where it is here."""
    if not work.realm.held or work.keeper is None:
        return
    begun = 0
    for name in list(work.realm.held):
        proposal = work.realm.proposals.get(name)
        if proposal is None or proposal.held is None or proposal.held.cause != "workspace":
            continue
        asked = work.realm.klis.asks_again_at(proposal.submitted.actor.actor_id, name)
        if asked or not work.realm.still_lacks_leases(proposal):
            continue
        begun += 1
        if begun > DUE_AT_ONCE:
            work.is_unfinished = True
            return
        yield proposal


def judge_left_requests(work: UnitOfWork) -> None:
    """Judge the queued requests to change files again that another process may have left to this one.

    Only where leases were changed by another process since the last time: a process judges what its own changes affect.
    """
    realm = work.realm
    of_others = realm.klis_version - realm.klis_own
    if realm.klis_seen == of_others:
        return
    realm.klis_seen = of_others
    if realm.workspace is not None and work.keeper is not None and realm.klis.requests:
        work.desk().judge_left(changes_files, work.klis_now)
