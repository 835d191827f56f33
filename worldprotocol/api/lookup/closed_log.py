"""A log that was closed to writers: why, and where its realm is now.

What a closed log holds is a state of the past. The event that closed it names the place to which its realm was to be
moved. That place is shown once the move has ended: when the log there continues after the same events.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, ClassVar, Final

from world.error_codes import ErrorCode
from world.errors import RefusedError, WorldProtocolError
from world.events.writer_events import WriterClosed, WriterOpened
from world.log import EventLog, TreeHead, list_logs, open_log
from world.log.url import hidden_name, parse_address
from world.model.record import WireForm
from world.read_models.decoding import decoded
from world.state.writer_epoch import closed_log

__all__ = ["ClosedLog", "closed_at_end", "naming_place"]

ANSWER_S: Final = 5.0
"""Time in which the place of a moved realm has to answer, in seconds."""


@dataclass(frozen=True, slots=True)
class ClosedLog(WireForm):
    """A log that was closed to writers.

    Args:
        closed: the event that closed it, its last one.
        head: its tree head.
        has_ended: whether the move has ended; None where the new place does not answer, and for an archived log.
    """

    closed: WriterClosed
    head: TreeHead
    has_ended: bool | None = None
    WIRE: ClassVar = "epoch=closed.epoch reason=closed.reason *move?"

    @property
    def move(self) -> dict[str, Any] | None:
        """Facts about a move; ``place`` is absent while it has not ended."""
        if self.closed.reason != "move":
            return None
        return {"hasEnded": self.has_ended} | ({} if self.has_ended is False else {"place": self.closed.target})

    @classmethod
    def looked_up(cls, closed: WriterClosed, head: TreeHead) -> ClosedLog:
        """Look for the realm at the place that the closing event names.

        Args:
            closed: the last event of the log.
            head: the tree head of the log.
        """
        target = closed.target
        if closed.reason != "move" or target is None:
            return cls(closed, head)
        return cls(closed, head, _in_time(lambda: _goes_on(target, head)))

    def __str__(self) -> str:
        """Return why the log is closed, as a clause."""
        begin = f"closed to writers in epoch {self.closed.epoch}"
        if self.closed.reason != "move":
            return f"{begin}: the realm was archived; `worldctl realm restore` continues it"
        if self.has_ended:
            return f"{begin}: the realm was moved to {self.closed.target} and continues there"
        if self.has_ended is False:
            return (
                f"{begin}: a move of the realm has begun and not ended; repeat the command of the move, or give it up "
                "with `worldctl realm move NAME --abandon`"
            )
        return (
            f"{begin} for a move to {self.closed.target}, which cannot be read from here; its directory says whether "
            "the move has ended (`worldctl realm history NAME`)"
        )


def closed_at_end(log: EventLog) -> ClosedLog | None:
    """Return why a log is closed to writers; None for one that is open, and where its end cannot be read.

    Args:
        log: an open log.
    """
    with suppress(WorldProtocolError):  # `worldctl verify` names the damage
        head = log.head()
        last = log.event_at(head.size) if head.size else None
        if last is not None and last.topic == WriterClosed.TOPIC:
            event = decoded(last)
            assert isinstance(event, WriterClosed)
            return ClosedLog.looked_up(event, head)
    return None


def naming_place(refused: RefusedError, address: str) -> RefusedError:
    """Return the refusal of a closed log with the place where its realm is now, if its move has ended.

    Args:
        refused: any refusal.
        address: of the log that refused.
    """
    if refused.code != ErrorCode.LOG_FENCED or refused.details.get("reason") != "move":
        return refused
    with suppress(WorldProtocolError), open_log(address, read_only=True) as log:
        found = closed_at_end(log)
        if found is not None and found.has_ended:
            return closed_log(found.closed, place=found.closed.target)
    return refused


def _goes_on(target: str, head: TreeHead) -> bool | None:
    """Return whether the log at a place continues after a tree head; None where there is neither it nor its copy."""
    try:
        names, name = list_logs(target), parse_address(target).name
        if name not in names:
            return False if any(one.startswith(hidden_name(name, "")) for one in names) else None
        with open_log(target, read_only=True) as there:
            if there.head().size < head.size or there.root_at(head.size) != head:
                return False
            return there.head().size > head.size and there.event_at(head.size + 1).topic == WriterOpened.TOPIC
    except WorldProtocolError:
        return None


def _in_time(look: Callable[[], bool | None]) -> bool | None:
    """Return what a function returns; None where it takes too long."""
    answers: SimpleQueue[bool | None] = SimpleQueue()
    # a daemon: a server that never answers would keep the process from ending
    threading.Thread(target=lambda: answers.put(look()), daemon=True).start()
    try:
        return answers.get(timeout=ANSWER_S)
    except Empty:
        return None
