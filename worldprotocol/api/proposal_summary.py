"""Proposals that no longer wait for human decisions: why, in a sentence, and the calls whose callers left."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from world.errors import RefusedError
from world.events.caller_events import CALLER_LEFT
from world.events.proposal_events import HumanAnswered, HumanTimedOut, ProposalSuperseded
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from world.state.proposal import Proposal

MOST_LEFT: Final = 50
"""Superseded proposals of a branch that are looked at for those whose callers left, the newest first."""


def calls_left(archive: Archive, branch: str, upto: int) -> list[tuple[Proposal, int]]:
    """Return the calls whose callers left before they were decided, and when (ms since 1970), newest first.

    They are those among the newest ``MOST_LEFT`` proposals of a branch that were superseded and that the log still has.

    Args:
        archive: archive of the log.
        branch: the branch.
        upto: position of the last event.

    Raises:
        DamagedLogError: as ``Archive.rows`` and ``Archive.event_at``.
    """
    found: list[tuple[Proposal, int]] = []
    for _ in range(MOST_LEFT):
        rows = archive.rows("newest_ended", {"of_branch": branch, "of_status": "superseded", "upto": upto})
        if not rows:
            break
        position = int(rows[0][0])
        try:
            event = decoded(archive.event_at(position))
            if isinstance(event, ProposalSuperseded) and event.by is None and event.reason == CALLER_LEFT:
                found.append((archive.proposal(event.proposal_id), event.at))
        except RefusedError:  # its content was removed from a cut log
            break
        upto = position - 1
    return found


def left_entry(proposal: Proposal, at: int) -> dict[str, Any]:
    """Return a call whose caller left as JSON, as the inbox lists it.

    Args:
        proposal: one of ``calls_left``.
        at: when its caller left, ms since 1970.
    """
    trace = proposal.submitted.trace or {}
    return {
        "proposalId": proposal.proposal_id,
        "actor": proposal.submitted.actor.to_wire(),
        "wants": proposal.intent.body.to_wire(),
        "branch": proposal.branch,
        "since": proposal.submitted.at,
        "leftAt": at,
        "status": proposal.status,
        "endedReason": CALLER_LEFT,
        "trace": {name: trace[name] for name in ("client", "session") if name in trace},
    }


def fate_of(archive: Archive, proposal_id: str) -> str:
    """Return why a proposal does not wait for a human decision.

    Args:
        archive: archive of the log.
        proposal_id: id of the proposal.
    """
    try:
        proposal = archive.proposal(proposal_id)
    except RefusedError:
        return f"There is no proposal {proposal_id!r}; `worldctl inbox` lists the waiting ones."
    return f"Proposal {proposal_id} no longer waits for a human decision: {_summary(archive, proposal)}"


def _summary(archive: Archive, proposal: Proposal) -> str:
    events = [decoded(logged) for logged in archive.log.stream(proposal.proposal_id)]
    if proposal.status == "superseded":
        ending = events[-1]
        if isinstance(ending, ProposalSuperseded) and ending.by is not None:
            return f"it was withdrawn at {moment(ending.at)} by {ending.by} ({(ending.reason or '').rstrip('.')})."
        if isinstance(ending, ProposalSuperseded) and ending.reason == CALLER_LEFT:
            return f"its caller left at {moment(ending.at)}; the agent may make the call again."
        return (
            f"it was superseded at {moment(ending.at)}, before it was decided, by a change of the active branch "
            "or of the domain. Submit the intent again."
        )
    record = proposal.decision
    if record is None:
        return f"it is {proposal.status}, and no human decision is requested."
    last = next((event for event in reversed(events) if isinstance(event, HumanTimedOut | HumanAnswered)), None)
    late = (
        last if isinstance(last, HumanTimedOut) else None
    )  # after an earlier time-out the binding's next step was asked
    timed_out = "" if late is None else f"it was not decided by {moment(late.deadline)}, so it timed out and "
    words = f"{timed_out}{'' if timed_out else 'it '}was {record.decision} at {moment(record.decided_at)}"
    if not timed_out and record.reason:
        words += f" ({record.reason.rstrip('.')})"
    if record.decision == "approved":
        return f"{words}; it is {proposal.status} now."
    return f"{words}. Submit the intent again if it is still needed."


def moment(at_ms: int | None) -> str:
    """Return a time in milliseconds as ISO 8601 in UTC, to the second; None is empty."""
    if at_ms is None:
        return ""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"
