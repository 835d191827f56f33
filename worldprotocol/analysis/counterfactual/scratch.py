"""The scratch log: the beginning of the real one, event by event, up to where the branch leaves it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from world.errors import DamagedLogError, RefusedError
from world.events.codec import encode_event
from world.events.execution_events import EffectFulfilled, ExecutionCancelled
from world.events.proposal_events import HumanAnswered, ProjectionRecorded, ProposalSubmitted
from world.events.realm_events import BranchCreated, BranchSwitched, DomainAdopted, LogBranched
from world.log import EventLog, LoggedEvent, NewEvent, is_intact, open_log
from world.pipeline.unit_of_work import REALM_STREAM
from world.read_models.decoding import decoded
from world.read_models.index import WorldIndex
from worldprotocol.analysis.counterfactual.asked import WHATIF

__all__ = ["copy_beginning", "cut_before", "scratch_log"]

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

Progress = Callable[[int], None]
"""Called with how many events were gone through."""


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


@contextmanager
def scratch_log(given: Path | None, view: WorldIndex) -> Iterator[EventLog]:
    """Give an empty log; it is made in a folder that goes, and put where it is wanted when all is done.

    After a crash it is made anew, so not every commit has to be on the disk at once.

    Args:
        given: the file that stays; None for none.
        view: kept up to date with the log.

    Raises:
        RefusedError: ``FILE_EXISTS``; ``INVALID_TARGET`` where no file can be made.
    """
    if given is not None and given.exists():
        raise _exists(given)
    try:
        place = tempfile.TemporaryDirectory(prefix=".whatif-", dir=None if given is None else given.parent)
    except OSError as error:
        raise _no_target(given, error) from None
    with place as folder:
        made = Path(folder, "scratch.db")
        with open_log(str(made), create=True, durability="normal", view=view) as log:
            yield log
        if given is not None:
            _put(made, given)


def _put(made: Path, given: Path) -> None:
    """Give a closed log its name, unless another file has it by now."""
    try:
        os.link(made, given)
    except FileExistsError:
        raise _exists(given) from None
    except OSError:  # a file system without links
        try:
            made.rename(given)
        except OSError as error:
            raise _no_target(given, error) from None


def _exists(given: Path) -> RefusedError:
    told = f"{str(given)!r} exists already; name a new file for the scratch log."
    return RefusedError("FILE_EXISTS", told, path=str(given))


def _no_target(given: Path | None, error: OSError) -> RefusedError:
    told = f"{str(given or tempfile.gettempdir())!r} cannot be written: {error.strerror}."
    return RefusedError("INVALID_TARGET", told, path=str(given))


def copy_beginning(source: EventLog, scratch: EventLog, view: WorldIndex, upto: int, progress: Progress) -> None:
    """Copy the first events of a log into an empty one, byte by byte.

    Raises:
        DamagedLogError: ``EVENT_CHANGED``, ``TREE_DAMAGED``.
        RefusedError: ``LOG_NOT_EMPTY``.
    """
    if scratch.head().size:
        raise RefusedError("LOG_NOT_EMPTY", "The scratch log holds events already; name a file that does not exist.")
    batch: list[LoggedEvent] = []
    for event in source.read(upto=upto):
        if not is_intact(event):
            told = f"Event {event.position} was changed: its content and leaf hash disagree; `worldctl verify` tells."
            raise DamagedLogError("EVENT_CHANGED", told, position=event.position)
        batch.append(event)
        if len(batch) == BATCH:
            _append(scratch, view, batch)
            batch = []
            progress(event.position)
    if batch:
        _append(scratch, view, batch)
    if scratch.head().root != source.root_at(upto).root:
        raise DamagedLogError("TREE_DAMAGED", "The copied events have another tree head than the log has for them.")
    _mark(scratch, view, decoded(source.event_at(upto)).at)


def _mark(scratch: EventLog, view: WorldIndex, at: int) -> None:
    """Say in the log that it is no real one from here on."""
    head = scratch.head()
    marked = LogBranched(at=at, size=head.size, root=head.root_hex, by=WHATIF)
    with scratch.write() as transaction:
        state = encode_event(marked)
        logged = transaction.append([NewEvent(REALM_STREAM, LogBranched.TOPIC, LogBranched.VERSION, state)])
        view.apply(transaction.cursor(), logged)


def _append(scratch: EventLog, view: WorldIndex, batch: list[LoggedEvent]) -> None:
    with scratch.write() as transaction:
        logged = transaction.append(
            NewEvent(event.stream, event.topic, event.schema_version, event.state, event.version) for event in batch
        )
        view.apply(transaction.cursor(), logged)
