"""Lines of descent, and the heads of branches at a past position of the log.

Worlds are located through the index and read from the events, newest first, in blocks; so memory use does not depend
on the length of a line. Sources: WP-lineage, CARD-audit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.events.proposal_events import ProposalCompleted, ProposalFailed
from world.events.realm_events import BranchCreated, BranchSwitched, WorldSealed
from world.log import LoggedEvent
from world.read_models.archive import Archive, WorldRow
from world.read_models.decoding import decoded
from world.read_models.live.sealed_snapshot import SealedSnapshot, open_snapshot
from world.read_models.live.state_loading import index_damaged
from world.state.branches import Branch

FIRST_BLOCK: Final = 64
"""Number of worlds or events in the first block; most queries concern the newest ones."""

BLOCK: Final = 4_096
"""Maximum number of worlds or events in one block."""

NO_ANCESTOR: Final = "it lacks an ancestor of a world"
"""Why an index is damaged where it does not have the line of a world."""


def line(archive: Archive, world_id: str) -> Iterator[WorldRow]:
    """Yield a world and its ancestors, down to genesis.

    Raises:
        RefusedError: ``UNKNOWN_WORLD``.
        DamagedLogError: ``INDEX_DAMAGED`` where the index lacks an ancestor.
    """
    at: str | None = archive.world(world_id).world_id
    most, above = FIRST_BLOCK, None
    while at is not None:
        rows = [WorldRow(*row) for row in archive.rows("line", {"of_world": at, "most": most})]
        if not rows or any(type(row.height) is not int or type(row.position) is not int for row in rows):
            raise index_damaged(NO_ANCESTOR)
        for row in rows:  # heights must decrease, so that a damaged index cannot cause an endless loop
            if above is not None and (row.height != above.height - 1 or row.position >= above.position):
                raise index_damaged(NO_ANCESTOR)
            above = row
        yield from rows
        at = rows[-1].parent
        if (len(rows) < most and at is not None) or (at is None and rows[-1].height != 0):
            raise index_damaged(NO_ANCESTOR)
        most = min(most * 4, BLOCK)


def sealed_line(archive: Archive, world_id: str) -> Iterator[tuple[int, WorldSealed]]:
    """Yield the events that sealed a world and its ancestors, with their positions, down to genesis.

    Raises:
        RefusedError: ``UNKNOWN_WORLD``.
        DamagedLogError: ``INDEX_DAMAGED``; an event was changed after it was logged.
    """
    rows = line(archive, world_id)
    while part := list(islice(rows, FIRST_BLOCK)):
        batches = archive.log.events_at([row.position for row in reversed(part)])
        logged = [event for events in batches for event in events]
        for row, one in zip(part, reversed(logged), strict=True):
            event = decoded(one)
            if not isinstance(event, WorldSealed) or (event.world_id, event.parent) != (row.world_id, row.parent):
                raise index_damaged(NO_ANCESTOR)
            yield row.position, event


def common_ancestor(archive: Archive, one: str, other: str) -> str:
    """Return the newest common ancestor of two worlds; one of the two where it is an ancestor of the other.

    Raises:
        RefusedError: ``UNKNOWN_WORLD``.
        DamagedLogError: ``NO_GENESIS`` where they have none, which only a damaged log can cause.
    """
    mine, theirs = line(archive, one), line(archive, other)
    left, right = next(mine), next(theirs)
    while left.world_id != right.world_id:
        higher = left.height if left.height >= right.height else None
        following = next(mine, None) if higher is not None else next(theirs, None)
        if following is None:
            raise DamagedLogError(
                ErrorCode.NO_GENESIS,
                f"Worlds {one[:12]} and {other[:12]} have no common ancestor; run `worldctl verify`.",
            )
        if higher is not None:
            left = following
        else:
            right = following
    return left.world_id


@dataclass(frozen=True, slots=True)
class Heads:
    """State of the branches after an event.

    Args:
        active: the name of the active branch; empty before the first branch was created.
        branches: by name, in order of creation.
    """

    active: str
    branches: dict[str, Branch]

    def head(self, name: str | None = None) -> str:
        """Return the head of a branch; None is the active one.

        Raises:
            RefusedError: ``UNKNOWN_BRANCH``.
        """
        branch = self.branches.get(self.active if name is None else name)
        if branch is None:
            if not self.branches:
                raise RefusedError(ErrorCode.UNKNOWN_BRANCH, "At that point there was no branch yet.")
            known = ("are " if len(self.branches) > 1 else "is ") + ", ".join(sorted(self.branches))
            wanted = "no branch" if name is None else f"no branch {name!r}"
            raise RefusedError(ErrorCode.UNKNOWN_BRANCH, f"At that point there is {wanted}; there {known}.")
        return branch.head


def heads_at(archive: Archive, position: int) -> Heads:
    """Return the state of the branches after an event, from the newest event that moved each.

    Args:
        archive: archive of the log.
        position: position of the event; 0 is before the first one.

    Raises:
        RefusedError: ``EVENT_ARCHIVED`` for an event before a cut.
        DamagedLogError: an event that was read was changed after it was logged.
    """
    try:
        return _heads(archive, position, None)
    except RefusedError as refused:
        snapshot = open_snapshot(archive.log) if refused.code == ErrorCode.EVENT_ARCHIVED else None
        if snapshot is None or position < snapshot.upto:
            raise
    return _heads(archive, position, snapshot)


def _heads(archive: Archive, position: int, snapshot: SealedSnapshot | None) -> Heads:
    """Return the state of the branches, from the events after a snapshot, or from all events."""
    floor = 0 if snapshot is None else snapshot.upto
    sealed = {} if snapshot is None else {name: (head, tip) for name, head, tip in snapshot.branches}
    tips = _sealed_at_end(archive, position, floor)
    branches = {}
    for name, event in ((event.branch, event) for at, event in _created(archive) if at <= position):
        head, tip = sealed.get(name, (event.world_id, event.world_id))
        completed = _newest_ended(archive, name, ProposalCompleted, (floor, position))
        failed = _newest_ended(archive, name, ProposalFailed, (floor, position))
        if completed is not None:
            head = tip = completed[1]
        if failed is not None and (completed is None or failed[0] > completed[0]):
            tip = failed[1]
        branches[name] = Branch(name, head, tips.get(name, tip))
    return Heads(_active(archive, position, next(iter(branches), "")), branches)


def _sealed_at_end(archive: Archive, position: int, floor: int) -> dict[str, str]:
    """Return the worlds by branch that were sealed up to a position without the end of their proposals up to there.

    Both are recorded in one commit, the end soon after the world.
    """
    tips: dict[str, str] = {}
    for logged in archive.log.read(max(floor, position - FIRST_BLOCK), position):
        if logged.topic in (WorldSealed.TOPIC, ProposalCompleted.TOPIC, ProposalFailed.TOPIC):
            event = decoded(logged)
            if isinstance(event, WorldSealed):
                tips[event.branch] = event.world_id
            elif isinstance(event, ProposalCompleted | ProposalFailed):
                tips.pop(event.branch, None)
    return tips


def _newest_ended(
    archive: Archive, branch: str, kind: type[ProposalCompleted | ProposalFailed], span: tuple[int, int]
) -> tuple[int, str] | None:
    """Return position and world of the newest end of a proposal of a branch in (after, upto]; None without any."""
    after, upto = span
    status = "completed" if kind is ProposalCompleted else "failed"
    for (at,) in archive.rows("newest_ended", {"of_branch": branch, "of_status": status, "upto": upto}):
        if number(at) <= after:
            return None
        event = decoded(archive.event_at(number(at)))
        if not isinstance(event, kind) or event.branch != branch:
            raise index_damaged(f"it misplaces the end of a proposal of the branch {branch!r:.80}")
        return number(at), event.world_id
    return None


def _created(archive: Archive) -> Iterator[tuple[int, BranchCreated]]:
    """Yield the events that created the branches, with their positions."""
    for name, at in archive.rows("branch_places"):
        event = decoded(archive.event_at(number(at)))
        if not isinstance(event, BranchCreated) or event.branch != name:
            raise index_damaged(f"it misplaces the branch {name!r:.80}")
        yield number(at), event


def _active(archive: Archive, position: int, first: str) -> str:
    """Return the name of the active branch: the last one switched to, or the first one without a switch."""
    for (at,) in reversed(archive.rows("landmarks")):
        if number(at) <= position:
            logged = archive.event_at(at)
            if logged.topic == BranchSwitched.TOPIC:
                event = decoded(logged)
                return event.branch if isinstance(event, BranchSwitched) else first
    return first


def _backwards(archive: Archive, position: int, topics: Sequence[str] | None, floor: int) -> Iterator[LoggedEvent]:
    """Yield events, all or those of some topics, from a position down to the one after another."""
    step = FIRST_BLOCK
    while position > floor:
        after = max(floor, position - step)
        yield from reversed(list(archive.log.read(after, position, topics=topics)))
        position, step = after, min(step * 4, BLOCK)


def recorded_by(archive: Archive, at_ms: int) -> int:
    """Return the position of the last event that was recorded at or before a time; 0 where there is none.

    Args:
        archive: archive of the log.
        at_ms: ms since 1970-01-01 UTC. Where a clock was set back, the last event of all is used.
    """
    for logged in _backwards(archive, archive.log.head().size, None, 0):
        if decoded(logged).at <= at_ms:
            return logged.position
    return 0


def number(value: Any) -> int:
    """Return a number from the index, such as a position.

    Raises:
        DamagedLogError: ``INDEX_DAMAGED`` where the value is not an integer.
    """
    if type(value) is not int:
        raise index_damaged(f"it has {value!r:.40} in place of a number")
    return value
