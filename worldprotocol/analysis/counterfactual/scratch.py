"""Scratch log: a copy of the first events of the real log."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.events.base import REALM_STREAM
from world.events.codec import encode_event
from world.events.execution_events import EffectFulfilled, ExecutionCancelled
from world.events.proposal_events import HumanAnswered, ProjectionRecorded, ProposalSubmitted
from world.events.realm_events import BranchCreated, BranchSwitched, DomainAdopted, LogBranched
from world.log import EventLog, LoggedEvent, NewEvent, is_intact, open_log
from world.read_models.decoding import decoded
from world.read_models.index import WorldIndex
from worldprotocol.analysis.counterfactual.asked import WHATIF

__all__ = ["copy_beginning", "cut_before", "scratch_log"]

BATCH: Final = 1_000
"""Events per commit of the copy."""

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
"""Topics of events that lead to worlds; adoptions and registrations before them are kept."""

Progress = Callable[[int], None]
"""Called with the number of copied events."""


def cut_before(log: EventLog, position: int) -> int:
    """Return the position of the last event before the next one of ``MOVING``.

    Args:
        log: the real log.
        position: position of a sealed world.
    """
    main = next(iter(log.read(topics=[BranchCreated.TOPIC])), None)
    begun = position if main is None else max(position, main.position)
    following = next(iter(log.read(begun, topics=sorted(MOVING))), None)
    return log.head().size if following is None else following.position - 1


@contextmanager
def scratch_log(given: Path | None, view: WorldIndex) -> Iterator[EventLog]:
    """Create an empty log in a temporary folder, and move it to its file at the end.

    After a crash it is created again, so its commits need not be durable.

    Args:
        given: the file that is kept; None keeps none.
        view: view of the log, kept up to date.

    Raises:
        RefusedError: ``FILE_EXISTS``; ``INVALID_TARGET`` if the file cannot be created.
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
    """Move a closed log to its file, unless the file exists."""
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
    message = f"{str(given)!r} exists already; name a new file for the scratch log."
    return RefusedError(ErrorCode.FILE_EXISTS, message, path=str(given))


def _no_target(given: Path | None, error: OSError) -> RefusedError:
    message = f"{str(given or tempfile.gettempdir())!r} cannot be written: {error.strerror}; name another file."
    return RefusedError(ErrorCode.INVALID_TARGET, message, path=str(given))


def copy_beginning(source: EventLog, scratch: EventLog, view: WorldIndex, upto: int, progress: Progress) -> None:
    """Copy the first events of a log into an empty one, byte by byte.

    Raises:
        DamagedLogError: ``EVENT_CHANGED``, ``TREE_DAMAGED``.
        RefusedError: ``LOG_NOT_EMPTY``.
    """
    if scratch.head().size:
        raise RefusedError(ErrorCode.LOG_NOT_EMPTY, "The scratch log is not empty; name a file that does not exist.")
    batch: list[LoggedEvent] = []
    for event in source.read(upto=upto):
        if not is_intact(event):
            message = f"Event {event.position} was changed: its content and leaf hash disagree; run `worldctl verify`."
            raise DamagedLogError(ErrorCode.EVENT_CHANGED, message, position=event.position)
        batch.append(event)
        if len(batch) == BATCH:
            _append(scratch, view, batch)
            batch = []
            progress(event.position)
    if batch:
        _append(scratch, view, batch)
    if scratch.head().root != source.root_at(upto).root:
        raise DamagedLogError(
            ErrorCode.TREE_DAMAGED, "The tree head of the copied events differs from the log's; run `worldctl verify`."
        )
    _mark(scratch, view, decoded(source.event_at(upto)).at)


def _mark(scratch: EventLog, view: WorldIndex, at: int) -> None:
    """Mark the log as a scratch log from here on."""
    head = scratch.head()
    marked = LogBranched(at=at, size=head.size, root=head.root_hex, by=WHATIF)
    with scratch.write() as transaction:
        event = NewEvent(REALM_STREAM, LogBranched.TOPIC, LogBranched.VERSION, encode_event(marked))
        scratch.insert_events([event], transaction=transaction)
        view.apply(transaction.cursor(), transaction.appended)


def _append(scratch: EventLog, view: WorldIndex, batch: list[LoggedEvent]) -> None:
    with scratch.write() as transaction:
        copies = [
            NewEvent(event.stream, event.topic, event.schema_version, event.state, event.version) for event in batch
        ]
        scratch.insert_events(copies, transaction=transaction)
        view.apply(transaction.cursor(), transaction.appended)
