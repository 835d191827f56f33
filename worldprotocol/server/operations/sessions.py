"""Operations on sessions of agents: their renewals, and their ends.

A session is renewed by the process that guards it, which holds the agent's process; one that was renewed and is not
renewed any more has ended (``worldprotocol.server.governed.absent_callers``). Presence is not recorded.
"""

from __future__ import annotations

from functools import partial

from fastapi import Response

from world.state.access import right_fault
from worldprotocol.server.bodies import SessionsToRenew, SessionToEnd
from worldprotocol.server.call import Authorized, Call, answer
from worldprotocol.server.governed.calls import agents_of
from worldprotocol.server.governed.heard_callers import CallerName
from worldprotocol.server.operation_table import handles

__all__: list[str] = []


@handles("sessions.renew")
async def renew_sessions(call: Authorized, body: SessionsToRenew) -> Response:
    """Note that sessions of the caller are there; one whose program is known is recorded with its first renewal.

    One that another server holds stays there, unless it is to move; the answer names it in ``elsewhere``.
    """
    realm = call.hosted.realm
    renew = partial(agents_of(call).absent(realm).renew, call.actor_id, body.sessions, moves=body.moves)
    elsewhere = await call.run(renew)
    return answer({"renewed": len({*body.sessions}), "elsewhere": elsewhere, "now": realm._acting.now_ms()})


@handles("sessions.end")
async def end_session(call: Authorized, body: SessionToEnd) -> Response:
    """End the calls of a session whose program has ended, and return the ids of their proposals.

    An operator may end the sessions of any actor. Calls that were begun after the program ended stay.
    """
    now = call.hosted.realm._acting.now_ms()
    until = now if body.endedAt is None else min(body.endedAt, now)
    absent = agents_of(call).absent(call.hosted.realm)
    ended: list[str] = []
    for name in await call.run(partial(_named, call, body.session)):
        noticed_by = body.noticedBy if name[0] == call.actor_id else "operator"
        end = partial(absent.end_session, name, noticed_by, until=until, is_late=noticed_by != "operator")
        ended += await call.run(partial(end, realm=call.realm))
    return answer({"calls": ended})


def _named(call: Call, session: str) -> list[CallerName]:
    """Return the sessions that a caller may end: its own, and as an operator all of that id."""
    view = call.hosted.realm.realm()
    names = [(call.actor_id, session)]
    if right_fault(view, call.verified, ("operator",), call.service.clock.now_ms()) is None:
        calls = (one for one in view.proposals.values() if one.session == session)
        names += [(one.submitted.actor.actor_id, session) for one in calls]
    return list(dict.fromkeys(names))
