"""Events of the writer epochs: at which place the log is written, and when it was closed to writers."""

from __future__ import annotations

from typing import ClassVar, Literal

from world.events.base import Event
from world.events.verification import Verification

__all__ = ["CloseReason", "OpenReason", "WriterClosed", "WriterOpened"]

OpenReason = Literal["failover", "move", "restore", "abandon"]
CloseReason = Literal["move", "archive"]


class WriterOpened(Event, frozen=True, kw_only=True):
    """A writer epoch began: from here on the log is written at this place, and nowhere else.

    ``system`` and ``timeline`` name the place on a database server (``world.log.values.ServerPlace``); they are absent
    where the store is a file. ``left`` are the workers of earlier epochs whose executions were open and are continued
    by others; absent where they can record again, after a failover and after an abandoned move. ``by`` is absent where
    the engine noticed the failover.
    """

    TOPIC: ClassVar[str] = "writer.opened"
    epoch: int
    reason: OpenReason
    system: str | None = None
    timeline: int | None = None
    left: list[str] | None = None
    by: str | None = None
    verified: Verification | None = None


class WriterClosed(Event, frozen=True, kw_only=True):
    """A writer epoch ended: at this place the log gets no further event.

    ``target`` is where the log continues after a move, without a password.
    """

    TOPIC: ClassVar[str] = "writer.closed"
    epoch: int
    reason: CloseReason
    by: str
    target: str | None = None
    verified: Verification | None = None
