"""What an operator's confirmation of the clock does: it lifts the bound on recorded time, and brings lease time back.

Greater times that were recorded before count no more, when a later clock is compared with what is recorded.

Lease time never goes back by itself. After a commit whose clock was ahead it would stand still until the clocks get
there, so a confirmation sets it to the time confirmed (``world.klis.ledger``), and counts anew what was to end by the
wrong time: the deadlines of votes and of effects under way. What has ended stays ended.
"""

from __future__ import annotations

from world.events.lease_events import ClockConfirmed, ProposalRescheduled
from world.pipeline.unit_of_work import UnitOfWork
from world.state.proposal import Proposal

__all__ = ["confirm_clock", "later_times"]


def confirm_clock(work: UnitOfWork, by: str, reason: str) -> ClockConfirmed | None:
    """Record that the clock of this unit of work is right.

    Args:
        work: the unit of work.
        by: who confirms it.
        reason: why, for the record.

    Returns:
        The event; None where the clock is neither ahead nor behind, and nothing was recorded ahead of it, by more than
        the limit.

    Raises:
        RefusedError: ``REASON_MISSING``.
    """
    ledger = work.realm.klis
    latest = work.at + ledger.in_force.max_clock_ahead_ms
    is_back = ledger.clock > latest or any(any(later_times(one, latest)) for one in work.realm.proposals.values())
    if not is_back and not work.clock.is_ahead(work.at) and not work.clock.is_behind(work.at):
        return None
    work.clock.confirm()
    if ledger.clock > work.at:
        work.desk().advance(ledger.clock)
    event = work.desk().confirm_clock(work.at, by=by, reason=reason)
    for proposal in list(work.realm.proposals.values()) if is_back else ():
        deadline, effects = later_times(proposal, work.at)
        if deadline is not None or effects:
            work.emit(
                proposal.proposal_id,
                ProposalRescheduled(at=work.at, proposal_id=proposal.proposal_id, deadline=deadline, effects=effects),
            )
    return event


def later_times(proposal: Proposal, now: int) -> tuple[int | None, dict[str, int]]:
    """Return the deadlines of a proposal's vote and effects, counted anew from ``now`` (ms), where that is sooner.

    Returns:
        The deadline of the vote, None where it stays; and those of effects under way by the ids of their requirements:
        of a claimed effect that of its claim, and 0 of one that waits for a worker, which has none.
    """
    deadline = None
    wait = None if proposal.ruling is None else proposal.ruling.timeout_ms
    if proposal.status == "evaluating" and proposal.deadline is not None and wait is not None:
        deadline = now + wait if now + wait < proposal.deadline else None
    times = {name: proposal.claims.get(name, asked) for name, asked in proposal.requested.items()}
    effects = {name: one.deadline and now + one.deadline - one.at for name, one in times.items() if one.at > now}
    return deadline, effects
