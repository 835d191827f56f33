"""Operations on sessions of agents: their renewals, and their ends.

A session is renewed by the process that guards it, which holds the agent's process; one that was renewed and is not
renewed any more has ended (``worldprotocol.server.governed.absent_callers``). Presence is not recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from worldprotocol.operations import AnswerForm, OperationCall, RequestForm, operation
from worldprotocol.operations.acting.agents import agents_of
from worldprotocol.operations.fields import ID, NOW, Name, Position

if TYPE_CHECKING:
    from worldprotocol.operations.acting.agents import CallerName


class RenewSessions(RequestForm, frozen=True, kw_only=True):
    """Sessions of the caller's agents whose processes are there.

    `moves`: whether one that another server holds moves to the one that answers.
    """

    sessions: Annotated[list[Name], Meta(max_length=1_000)]
    moves: bool = False


class RenewedSessions(AnswerForm, frozen=True, kw_only=True):
    """How many sessions were renewed, those that another server holds, and the time, in ms since 1970."""

    renewed: int
    elsewhere: list[str]
    now: int


@operation(
    "sessions.renew",
    "POST /sessions:renew",
    "actor",
    is_keyed=True,
    example=(RenewSessions(sessions=["s-1"]), RenewedSessions(renewed=1, elsewhere=[], now=NOW)),
)
def renew_sessions(call: OperationCall, request: RenewSessions) -> RenewedSessions:
    """Note that sessions of the caller's agents are there.

    One whose program is known is recorded with its first renewal. One that another server holds stays there, unless it
    is to move; the answer names it in ``elsewhere``.
    """
    realm = call.hosted.realm
    absent = agents_of(call.hosted.name, call.served.agents).absent(realm)
    elsewhere = absent.renew(call.actor_id, request.sessions, moves=request.moves)
    return RenewedSessions(renewed=len({*request.sessions}), elsewhere=elsewhere, now=realm._acting.now_ms())


class EndSession(RequestForm, frozen=True, kw_only=True):
    """A session whose program has ended; `noticedBy` is how that was noticed.

    `endedAt`: when it ended by the clock of the server (`now` of a renewal), ms since 1970. Calls that were begun later
    are those of a program that continues the session, and stay. Without it, the time is that of the request.
    """

    session: Name
    noticed_by: Literal["process"] = "process"
    ended_at: Position | None = None


class EndedSession(AnswerForm, frozen=True, kw_only=True):
    """The proposals of the calls that ended."""

    calls: list[str]


@operation(
    "sessions.end",
    "POST /sessions:end",
    "actor operator",
    is_keyed=True,
    example=(EndSession(session="s-1"), EndedSession(calls=[ID])),
)
def end_session(call: OperationCall, request: EndSession) -> EndedSession:
    """End the calls of a session whose program has ended, and return the ids of their proposals.

    An operator may end the sessions of any actor. Calls that were begun after the program ended stay.
    """
    now = call.hosted.realm._acting.now_ms()
    until = now if request.ended_at is None else min(request.ended_at, now)
    absent = agents_of(call.hosted.name, call.served.agents).absent(call.hosted.realm)
    ended: list[str] = []
    for name in _named(call, request.session):
        is_own = name[0] == call.actor_id
        noticed_by = request.noticed_by if is_own else "operator"
        ended += absent.end_session(name, noticed_by, until=until, is_late=is_own, realm=call.realm)
    return EndedSession(calls=ended)


def _named(call: OperationCall, session: str) -> list[CallerName]:
    """Return the sessions that a caller may end: its own, and as an operator all of that id."""
    from world.state.access import right_fault

    view = call.hosted.realm.realm()
    names = [(call.actor_id, session)]
    if right_fault(view, call.verified, ("operator",), call.clock.now_ms()) is None:
        calls = (one for one in view.proposals.values() if one.session == session)
        names += [(one.submitted.actor.actor_id, session) for one in calls]
    return list(dict.fromkeys(names))
