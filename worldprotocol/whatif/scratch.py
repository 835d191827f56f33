"""The scratch log: the beginning of the real one, event by event, up to where the branch leaves it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from world.errors import DamagedLog, Refused
from world.events import (
    BranchCreated,
    BranchSwitched,
    DomainAdopted,
    EffectFulfilled,
    ExecutionCancelled,
    HumanAnswered,
    ProjectionRecorded,
    ProposalSubmitted,
)
from world.log import EventLog, LoggedEvent, NewEvent, is_intact, open_log
from world.views.index import WorldIndex

__all__ = ["copy_beginning", "cut_before", "open_scratch"]

BATCH: Final = 1_000
"""Events that are copied in one commit."""

MOVING: Final = frozenset(
    kind.TOPIC
    for kind in (
        BranchCreated,
        BranchSwitched,
        DomainAdopted,
        EffectFulfilled,
        ExecutionCancelled,
        HumanAnswered,
        ProjectionRecorded,
        ProposalSubmitted,
    )
)
"""Topics of what somebody did to the worlds; actors and policies may still come into force before that."""

Progress = Callable[[int, int], None]


def cut_before(log: EventLog, position: int) -> int:
    """Return the last event before somebody next did something to the worlds.

    Args:
        log: the real log.
        position: where a world was sealed.
    """
    main = next(iter(log.read(topics=[BranchCreated.TOPIC])), None)
    begun = position if main is None else max(position, main.position)
    following = next(iter(log.read(begun, topics=sorted(MOVING))), None)
    return log.head().size if following is None else following.position - 1


def open_scratch(file: Path, view: WorldIndex) -> EventLog:
    """Make an empty log; after a crash it is made anew, so not every commit has to be on the disk at once."""
    return open_log(str(file), create=True, durability="normal", view=view)


def copy_beginning(source: EventLog, scratch: EventLog, view: WorldIndex, upto: int, progress: Progress) -> None:
    """Copy the first events of a log into an empty one, byte by byte.

    Raises:
        DamagedLog: ``EVENT_CHANGED``, ``TREE_DAMAGED``.
        Refused: ``LOG_NOT_EMPTY``.
    """
    if scratch.head().size:
        raise Refused("LOG_NOT_EMPTY", "The scratch log holds events already; name a file that does not exist.")
    batch: list[LoggedEvent] = []
    for event in source.read(upto=upto):
        if not is_intact(event):
            told = f"Event {event.position} was changed: its content and leaf hash disagree; `worldctl verify` tells."
            raise DamagedLog("EVENT_CHANGED", told, position=event.position)
        batch.append(event)
        if len(batch) == BATCH:
            _append(scratch, view, batch)
            batch = []
            progress(event.position, upto)
    if batch:
        _append(scratch, view, batch)
    if scratch.head().root != source.root_at(upto).root:
        raise DamagedLog("TREE_DAMAGED", "The copied events have another tree head than the log has for them.")


def _append(scratch: EventLog, view: WorldIndex, batch: list[LoggedEvent]) -> None:
    with scratch.write() as transaction:
        logged = transaction.append(
            NewEvent(event.stream, event.topic, event.schema_version, event.state, event.version) for event in batch
        )
        view.apply(transaction.cursor(), logged)
