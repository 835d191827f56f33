"""The writer epoch of a log: which place may append to it.

A log is written at one place: a file, or a timeline of one database system. Its first epoch is 0; ``log.founded``
records its place, and where it does not, in earlier logs and those that begin in a file, any place may write.
``writer.opened`` begins the next one, after a failover of the database, a move, or the restoration of an archive;
``writer.closed`` ends one, and the log then gets no event until the next is opened. Source: docs/production.md,
"Writer epochs".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from msgspec import Struct

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.events.base import Event
from world.events.writer_events import WriterClosed, WriterOpened

__all__ = ["FIRST_TIMELINE", "WRITER_STEPS", "WriterEpoch", "WriterPlace", "closed_log"]

FIRST_TIMELINE: Final = 1
"""Timeline of a PostgreSQL server that was never promoted; also that of the epoch 0."""


class WriterPlace(Protocol):
    """A database server as a place at which the log is written (``world.log.values.ServerPlace``)."""

    @property
    def system(self) -> str:
        """Identifier of the database system."""
        ...

    @property
    def timeline(self) -> int:
        """Number of its timeline."""
        ...


class WriterEpoch(Struct, frozen=True):
    """The writer epoch in force.

    Args:
        epoch: its number; 0 before the first ``writer.opened``.
        system: identifier of the database system that writes; None where any may, or where the store is a file.
        timeline: timeline of that system.
        left: workers of earlier epochs that cannot record anything any more.
        closed: the event that closed it; None while it is open.
    """

    epoch: int = 0
    system: str | None = None
    timeline: int = FIRST_TIMELINE
    left: frozenset[str] = frozenset()
    closed: WriterClosed | None = None


def closed_log(closed: WriterClosed, *, place: str | None = None) -> RefusedError:
    """Return the refusal of a log that was closed to writers.

    Args:
        closed: the event that closed it.
        place: where the realm is, once its move has ended.
    """
    if place is not None:
        advice = f"it was moved to {place}; open it there."
    elif closed.reason == "move":
        advice = (
            "its realm is moved to another place. Use the realm by its directory (`--directory`), which names the "
            "place; `worldctl verify` of this log names it once the move has ended."
        )
    else:
        advice = "it was archived; restore the archive (`worldctl realm restore`) to go on."
    return RefusedError(
        ErrorCode.LOG_FENCED,
        f"The log was closed to writers in epoch {closed.epoch}: {advice}",
        epoch=closed.epoch,
        reason=closed.reason,
        **({} if place is None else {"place": place}),
    )


def _opened(realm: Any, event: WriterOpened) -> None:
    before: WriterEpoch = realm.writer
    if event.epoch != before.epoch + 1:
        raise DamagedLogError(ErrorCode.BAD_EPOCH, f"Writer epoch {event.epoch} cannot follow {before.epoch}.")
    left = before.left.union(event.left or ())
    realm.writer = WriterEpoch(event.epoch, event.system, event.timeline or FIRST_TIMELINE, left)


def _closed(realm: Any, event: WriterClosed) -> None:
    before: WriterEpoch = realm.writer
    if event.epoch != before.epoch or before.closed is not None:
        raise DamagedLogError(ErrorCode.BAD_EPOCH, f"Writer epoch {event.epoch} cannot be closed: it is not open.")
    realm.writer = WriterEpoch(before.epoch, before.system, before.timeline, before.left, event)


WRITER_STEPS: Final[Mapping[type[Event], Callable[[Any, Any], None]]] = {WriterOpened: _opened, WriterClosed: _closed}
