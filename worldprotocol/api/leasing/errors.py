"""Errors of lease requests that end without leases: died, timed out, cancelled."""

from __future__ import annotations

from collections.abc import Mapping

from world.error_codes import ErrorCode
from world.errors import RefusedError, WaitTimeoutError
from world.events.lease_events import VerdictGiven
from world.events.resource_values import NamedConflict
from world.klis.session import Rank
from world.klis.wait_die import spread
from world.model.record import to_wire

__all__ = ["cancelled", "died", "ended", "retry_ms", "timed_out"]


def retry_ms(verdict: VerdictGiven) -> int:
    """Return after how many ms a request that died is repeated at the latest, a different time for each request."""
    after = verdict.retry_after_ms or 0
    return after + spread(after, verdict.request_id, 0)


def _conflict_text(conflict: NamedConflict) -> str:
    what = "holds" if conflict.lease_id is not None else "waits before it for"
    return f"{conflict.holder!r} {what} {conflict.predicate} on {conflict.resource}"


def _reason_of_death(verdict: VerdictGiven, ranks: Mapping[str, Rank]) -> str:
    """Describe a conflict with an older agent; holders have priority over waiting agents."""
    own = ranks[verdict.agent_id]
    older = [conflict for conflict in verdict.conflicts if ranks[conflict.holder] <= own]
    if not older:  # a setting limits how many are listed
        return f"{_conflict_text(verdict.conflicts[0])}, and another conflicting agent that is not listed here is older"
    first = min(older, key=lambda conflict: conflict.lease_id is None)
    if first.lease_id is None:
        return _conflict_text(first)
    is_own = ranks[first.holder] == own
    return f"{_conflict_text(first)} {'in another session' if is_own else 'and is older'}"


def died(verdict: VerdictGiven, ranks: Mapping[str, Rank]) -> RefusedError:
    """Return the error for a Die verdict (Wait-Die, KP-3a)."""
    return RefusedError(
        ErrorCode.DIED,
        f"{_reason_of_death(verdict, ranks)}, so {verdict.agent_id!r} must not wait; acquire again in "
        f"{verdict.retry_after_ms} ms (`worldctl explain {verdict.verdict_id}`).",
        verdict_id=verdict.verdict_id,
        retry_after_ms=verdict.retry_after_ms,
        conflicts=to_wire(verdict.conflicts),
    )


def timed_out(request_id: str, verdict: VerdictGiven) -> WaitTimeoutError:
    """Return the error for a request that was not granted within its timeout."""
    return WaitTimeoutError(
        ErrorCode.WAIT_TIMED_OUT,
        f"{_conflict_text(verdict.conflicts[0])}; it was not free in time. The request was withdrawn; acquire again, "
        "or with a longer timeout.",
        request_id=request_id,
        verdict_id=verdict.verdict_id,
        conflicts=to_wire(verdict.conflicts),
    )


def cancelled(request_id: str) -> RefusedError:
    """Return the error for a wait that another thread cancelled."""
    return RefusedError(
        ErrorCode.WAIT_CANCELLED, "The wait was cancelled; the request was withdrawn.", request_id=request_id
    )


def ended(request_id: str, reason: str) -> RefusedError:
    """Return the error for a request that left the queue because it was evaluated again and refused."""
    return RefusedError(
        reason.upper(),
        f"The waiting request {request_id} was evaluated again and not granted: {reason}. Correct the cause and "
        "request again.",
        request_id=request_id,
    )
