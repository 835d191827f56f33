"""Events of callers: sessions that a server holds, and calls whose caller left, or is at another server.

Presence itself is not recorded; its end is. A session is named by its actor and by the id that its program gave it.
``caller.left`` is recorded in one unit with what follows from it. Source: docs/agents.md, "A call lives as long as its
caller".
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from world.events.base import Event
from world.events.verification import Verification
from world.model.record import Record

__all__ = [
    "CALLER_LEFT",
    "Attendance",
    "Attended",
    "CallerLeft",
    "CallerReturned",
    "NoticedBy",
    "SessionBegun",
    "SessionMoved",
    "session_stream",
]

CALLER_LEFT: Final = "caller left"
"""Reason of ``proposal.superseded`` where the caller of an undecided call left."""

NoticedBy = Literal["connection", "process", "renewal", "operator"]
"""How it was noticed that a caller left: its connection ended, its process, its renewals, or an operator said so."""


Attendance = Literal["hook", "run", "proxy"]
"""What attends a call while it waits and while it is made: the hook of an agent, ``worldctl run``, or an MCP proxy."""


class Attended(Record, frozen=True, kw_only=True):
    """How a call is attended: it lives as long as its caller.

    Args:
        by: what attends it.
        limit_ms: longest time for which it may run without a sign of its caller; None is that of its effect.
        server: id of the worker of the server at which its caller waits; None where no server answers it.
    """

    by: Attendance
    limit_ms: int | None = None
    server: str | None = None


def session_stream(actor_id: str, session: str | None) -> str:
    """Return the id of the stream of a session's events; of callers without a session, that of their actor."""
    return f"caller:{actor_id}" if session is None else f"session:{actor_id}:{session}"


class _SessionEvent(Event, frozen=True, kw_only=True):
    actor_id: str
    session: str

    @property
    def stream(self) -> str:
        """The stream of the session."""
        return session_stream(self.actor_id, self.session)


class SessionBegun(_SessionEvent, frozen=True, kw_only=True):
    """A session is held by a server, which its renewals reach; ``version`` is that of the client, where it states one.

    ``server`` is the id of the server's worker.
    """

    TOPIC: ClassVar[str] = "session.begun"
    client: str
    server: str
    version: str | None = None


class SessionMoved(_SessionEvent, frozen=True, kw_only=True):
    """Another server holds a session: its renewals reach that one, or the server that held it ended."""

    TOPIC: ClassVar[str] = "session.moved"
    server: str


class CallerLeft(Event, frozen=True, kw_only=True):
    """The caller of calls left: the proposals in ``calls`` end for that reason in the same unit.

    ``session`` is absent for a caller without one. Noticed by ``process`` or ``renewal``, the session has ended; else
    only these calls have. ``verified`` is the caller that said so; None where a server noticed it.
    """

    TOPIC: ClassVar[str] = "caller.left"
    client: str
    actor_id: str
    calls: list[str]
    noticed_by: NoticedBy
    session: str | None = None
    verified: Verification | None = None

    @property
    def stream(self) -> str:
        """The stream of the session."""
        return session_stream(self.actor_id, self.session)

    @property
    def ends_session(self) -> bool:
        """Whether the session has ended, too."""
        return self.session is not None and self.noticed_by in ("process", "renewal")


class CallerReturned(Event, frozen=True, kw_only=True):
    """The caller of an open call asks again at another server, whose worker is ``server``: the connection ends there.

    The connection that ended at an earlier server is not the end of the caller.
    """

    TOPIC: ClassVar[str] = "caller.returned"
    proposal_id: str
    server: str
