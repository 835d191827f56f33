"""The governed runs of a log, newest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from world.events.run_events import RunClosed, RunOpened
from world.model.record import WireForm
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from world.read_models.lineage import number
from world.read_models.live.state_loading import index_damaged

__all__ = ["RunLine", "list_runs"]

ALL: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class RunLine(WireForm):
    """One run.

    Args:
        opened: its beginning.
        closed: its end; None while it is open.
        position: position of the event with its beginning.
    """

    opened: RunOpened
    closed: RunClosed | None
    position: int
    WIRE: ClassVar = (
        "runId=opened.run_id agentId=opened.agent_id sessionId=opened.session_id kind=opened.kind mode=opened.mode "
        "command=opened.command outcome openedAt=opened.at closedAt=closed.at? exitCode=closed.exit_code?"
    )

    @property
    def outcome(self) -> str:
        """How it ended, or ``open``."""
        return "open" if self.closed is None else self.closed.outcome


def list_runs(
    archive: Archive,
    *,
    most: int | None = None,
    agent: str | None = None,
    open_only: bool = False,
    upto: int | None = None,
    before: int | None = None,
) -> Iterator[RunLine]:
    """Yield runs, newest first.

    Args:
        archive: of the log.
        most: highest number of runs; None is all.
        agent: only runs of this agent.
        open_only: only runs that have not ended.
        upto: state of the log after this event; None is now.
        before: only runs that were opened before this position; None is all.
    """
    is_filtered = open_only or agent is not None or upto is not None
    found = 0
    limit = ALL if is_filtered or most is None else most
    for _, agent_id, _, opened_at, closed_at in archive.rows("runs", {"most": limit, "before": before or ALL}):
        if upto is not None:
            if number(opened_at) > upto:
                continue
            closed_at = None if closed_at is None or number(closed_at) > upto else closed_at
        if (agent is not None and agent_id != agent) or (open_only and closed_at is not None):
            continue
        if most is not None and found >= most:
            return
        found += 1
        opened = decoded(archive.log.event_at(number(opened_at)))
        closed = None if closed_at is None else decoded(archive.log.event_at(number(closed_at)))
        if not isinstance(opened, RunOpened) or not (closed is None or isinstance(closed, RunClosed)):
            raise index_damaged("it has a run at a wrong position")
        yield RunLine(opened, closed, number(opened_at))
