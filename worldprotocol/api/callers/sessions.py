"""Sessions of agents' programs on the log, and the record that a caller left.

A session is on the log from its first renewal on, with the server that its renewals reach. It has ended when a caller
left that ends it (``world.events.caller_events``); with another renewal it begins again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from world.events.base import Event
from world.events.caller_events import CallerLeft, SessionBegun, SessionMoved, session_stream
from world.pipeline.callers import Leaving, calls_of, leave, resume_call
from world.pipeline.driver import advance
from world.pipeline.unit_of_work import UnitOfWork
from world.read_models.decoding import decoded
from worldprotocol.api.realm import Realm

__all__ = ["HeldSession", "Leaving", "caller_left", "held_session", "hold_session", "resume_held_call"]


class HeldSession(NamedTuple):
    """A session that has not ended.

    Args:
        client: its program.
        server: id of the worker of the server that holds it.
        since: since when that server holds it, ms since 1970.
    """

    client: str
    server: str
    since: int


def held_session(realm: Realm, actor_id: str, session: str) -> HeldSession | None:
    """Return a session of an actor as the log has it; None where it is not recorded, or has ended.

    Args:
        realm: the realm.
        actor_id: its actor.
        session: its id.
    """
    return _folded(_events(realm, session_stream(actor_id, session)))


def hold_session(
    realm: Realm, actor_id: str, session: str, client: str, version: str | None = None, *, after_ms: int = 0
) -> None:
    """Record that this process holds a session; nothing is recorded where the log says so.

    Args:
        realm: the realm, open for acting.
        actor_id: its actor.
        session: its id.
        client: its program.
        version: version of the program, where it states one.
        after_ms: time for which another server keeps a session at least, in ms.
    """
    stream, me = session_stream(actor_id, session), realm._acting.worker

    def command(work: UnitOfWork) -> None:
        known = _folded([*_events(realm, stream), *_own(work, stream)])
        if known is None:
            begun = SessionBegun(
                at=work.at, actor_id=actor_id, session=session, client=client, server=me, version=version
            )
            work.emit(stream, begun)
        elif known.server != me and work.at - known.since >= after_ms:
            work.emit(stream, SessionMoved(at=work.at, actor_id=actor_id, session=session, server=me))

    command.any_schema = True  # type: ignore[attr-defined]  # read by world.engine.protocol
    realm._acting.run(command)


def caller_left(
    realm: Realm, caller: Leaving | Callable[[UnitOfWork], Leaving | None], *, of_holder: bool = False
) -> list[str]:
    """Record that a caller left, which ends its calls, and return the ids of their proposals.

    Args:
        realm: the realm, open for acting; ``Realm.as_caller`` says who was verified.
        caller: the caller, or what returns it within the unit; None where it has not left.
        of_holder: leave a session alone that another server holds.

    Raises:
        RefusedError: where the verified caller may not say so.
    """

    def command(work: UnitOfWork) -> list[str]:
        left = caller if isinstance(caller, Leaving) else caller(work)
        if left is None:
            return []
        stream = session_stream(left.actor_id, left.session)
        ends = left.session is not None and left.calls is None
        known = _folded([*_events(realm, stream), *_own(work, stream)]) if ends else None
        if of_holder and known is not None and known.server != realm._acting.worker:
            return []
        ended = [one.proposal_id for one in calls_of(work, left)]
        advance(work, leave(work, left, is_known=known is not None))
        return ended

    command.any_schema = True  # type: ignore[attr-defined]
    return realm._acting.run(command)


def resume_held_call(realm: Realm, proposal_id: str) -> None:
    """Request the leases of an approved call whose caller asks again.

    Args:
        realm: the realm, open for acting.
        proposal_id: its proposal.
    """
    realm._acting.run(lambda work: advance(work, resume_call(work, proposal_id)))


def _events(realm: Realm, stream: str) -> list[Event]:
    return [decoded(one) for one in realm.log.read(stream=stream, skip_archived=True)]


def _own(work: UnitOfWork, stream: str) -> list[Event]:
    return [one.event for one in work.emitted if one.stream == stream]


def _folded(events: Iterable[Event]) -> HeldSession | None:
    held: HeldSession | None = None
    for event in events:
        if isinstance(event, SessionBegun):
            held = HeldSession(event.client, event.server, event.at)
        elif isinstance(event, SessionMoved) and held is not None:
            held = held._replace(server=event.server, since=event.at)
        elif isinstance(event, CallerLeft) and event.ends_session:
            held = None
    return held
