"""What became of a proposal that no person can answer any more, in one sentence."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from world.errors import RefusedError
from world.events.proposal_events import HumanAnswered, HumanTimedOut
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from world.state.proposal import Proposal


def fate_of(archive: Archive, proposal_id: str) -> str:
    """Say why a proposal waits for nobody: there is none, or how and when it was decided or left behind.

    Args:
        archive: of the realm.
        proposal_id: what was to be answered.
    """
    try:
        proposal = archive.proposal(proposal_id)
    except RefusedError:
        return f"There is no proposal {proposal_id!r}; `worldctl inbox` lists what waits for people."
    return f"Proposal {proposal_id} waits for nobody any more: {_told(archive, proposal)}"


def _told(archive: Archive, proposal: Proposal) -> str:
    events = [decoded(logged) for logged in archive.log.stream(proposal.proposal_id)]
    if proposal.status == "superseded":
        return (
            f"it was superseded at {moment(_at(events[-1]))}, before it was decided, by a change of the active branch "
            "or of the domain. Submit the intent anew."
        )
    record = proposal.decision
    if record is None:
        return f"it is {proposal.status}, and no person is asked."
    last = next((event for event in reversed(events) if isinstance(event, HumanTimedOut | HumanAnswered)), None)
    late = last if isinstance(last, HumanTimedOut) else None  # after an earlier one, the next step was asked
    timed_out = "" if late is None else f"nobody decided by {moment(late.deadline)}, so it timed out and "
    words = f"{timed_out}{'' if timed_out else 'it '}was {record['decision']} at {moment(record['decidedAt'])}"
    if not timed_out and record.get("reason"):
        words += f" ({record['reason'].rstrip('.')})"
    if record["decision"] == "approved":
        return f"{words}; it is {proposal.status} now."
    return f"{words}. Submit the intent anew where it is still wanted."


def _at(event: Any) -> int:
    return int(event.at)


def moment(at_ms: int | None) -> str:
    """Return a time in milliseconds as ISO 8601 in UTC, to the second; None is empty."""
    if at_ms is None:
        return ""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"
