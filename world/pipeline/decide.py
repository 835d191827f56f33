"""The decision: the one DecisionRecord of a proposal, or its end without one (WP-decision, WP-epoch)."""

from __future__ import annotations

from collections.abc import Iterable

from world.events.proposal_events import DecisionMade, ProposalSuperseded
from world.model.decision import DecisionRecord
from world.pipeline.steps import Approved, Decidable, LeftBehind, Step
from world.pipeline.unit_of_work import UnitOfWork

__all__ = ["decide", "supersede"]


def decide(work: UnitOfWork, decidable: Decidable) -> Iterable[Step]:
    """Record the one decision about a proposal; an approved one starts when it is first in its execution key."""
    proposal, ruling, granted = decidable.proposal, decidable.ruling, decidable.granted
    record = DecisionRecord(
        decision_id=work.ids.new_id(),
        proposal_id=proposal.proposal_id,
        authority=ruling.authority,
        decision="approved" if ruling.verdict == "approve" else "rejected",
        reason=ruling.reason,
        decided_at=work.at,
        approved_scope=ruling.approved_scope if ruling.verdict == "approve" else None,
        policy_hash=ruling.policy_hash,
        trace=ruling.trace,
    )
    work.emit(
        proposal.proposal_id,
        DecisionMade(
            at=work.at,
            proposal_id=proposal.proposal_id,
            decision=record,
            verdict_id=None if granted is None else granted.verdict_id,
            backup=None if granted is None else granted.backup,
            existence=decidable.existence,
            workspace=None if granted is None else granted.workspace,
        ),
    )
    if proposal.proposal_id in work.realm.klis.refused:  # it was decided without leases
        work.desk().withdraw(proposal.proposal_id, work.klis_now, reason="decided")
    return (Approved(proposal.submitted.execution_key),) if ruling.verdict == "approve" else ()


def supersede(work: UnitOfWork, left: LeftBehind) -> Iterable[Step]:
    """End a proposal that is not decided, without a decision (WP-epoch); it leaves the queue for leases."""
    proposal = left.proposal
    event = ProposalSuperseded(
        at=work.at,
        proposal_id=proposal.proposal_id,
        epoch=work.realm.epoch,
        reason=left.reason,
        successor=left.successor,
        by=left.by,
    )
    work.emit(proposal.proposal_id, event if left.by is None else work.of_caller(event))
    klis = work.realm.klis
    if proposal.proposal_id in klis.requests or proposal.proposal_id in klis.refused:
        work.desk().withdraw(proposal.proposal_id, work.klis_now, reason="superseded")
    # An earlier proposal that left the queue may have let this one be granted just before.
    work.desk().release_session(proposal.submitted.actor.actor_id, proposal.proposal_id, work.klis_now)
    return ()
