"""Sessions of agents' programs on the log, and the records that a caller left, or returned to another server.

A session is on the log from its first renewal on, with the server that its renewals reach. It has ended when a caller
left that ends it (``world.events.caller_events``); with another renewal it begins again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from world.events.base import Event
from world.events.caller_events import CallerLeft, SessionBegun, SessionMoved, session_stream
from world.pipeline.callers import Leaving, calls_of, goes_on, leave, note_return, resume_call, returns_to
from world.pipeline.driver import advance
from world.pipeline.unit_of_work import UnitOfWork
from world.read_models.decoding import decoded
from worldprotocol.api.realm import Realm

__all__ = [
    "HeldSession",
    "Leaving",
    "RecordedSession",
    "caller_left",
    "caller_returned",
    "held_session",
    "hold_session",
    "recorded_session",
    "resume_held_call",
]

AT_ONCE: Final = 16
"""Events of a session that are read at once, newest first, until one says whether it has ended."""


class HeldSession(NamedTuple):
    """A session that has not ended.

    Args:
        client: its program.
        server: id of the worker of the server that holds it.
        at: when it began, ms since 1970.
        version: version of the program, where it states one.
        moves: how often it moved to another server.
    """

    client: str
    server: str
    at: int
    version: str | None = None
    moves: int = 0


class RecordedSession(NamedTuple):
    """What was read of a session.

    Args:
        version: of the last event of its stream that was read.
        held: the session after that event; None where it is not recorded, or has ended.
    """

    version: int
    held: HeldSession | None


def recorded_session(realm: Realm, actor_id: str, session: str, known: RecordedSession | None) -> RecordedSession:
    """Return a session of an actor as the log has it; only what was appended since it was read last is read.

    Args:
        realm: the realm.
        actor_id: its actor.
        session: its id.
        known: what was read last; None where nothing was.
    """
    stream = session_stream(actor_id, session)
    if known is not None:
        newer = realm.log.stream(stream, after=known.version, skip_archived=True)
        version = newer[-1].version if newer else known.version
        return RecordedSession(version, _folded(map(decoded, newer), known.held))
    found: list[Event] = []
    newest, upto = 0, None
    while rows := realm.log.stream(stream, upto=upto, limit=AT_ONCE, descending=True, skip_archived=True):
        newest, upto = newest or rows[0].version, rows[-1].version - 1
        for event in map(decoded, rows):
            found.append(event)
            if isinstance(event, SessionBegun) or (isinstance(event, CallerLeft) and event.ends_session):
                return RecordedSession(newest, _folded(reversed(found)))
    return RecordedSession(newest, _folded(reversed(found)))


def held_session(realm: Realm, actor_id: str, session: str) -> HeldSession | None:
    """Return a session of an actor as the log has it; None where it is not recorded, or has ended.

    Args:
        realm: the realm.
        actor_id: its actor.
        session: its id.
    """
    return recorded_session(realm, actor_id, session, None).held


def hold_session(realm: Realm, actor_id: str, session: str, client: str, version: str | None = None) -> None:
    """Record that this process holds a session; nothing is recorded where the log says so.

    Args:
        realm: the realm, open for acting.
        actor_id: its actor.
        session: its id.
        client: its program.
        version: version of the program, where it states one.
    """
    stream, me = session_stream(actor_id, session), realm._acting.worker

    def command(work: UnitOfWork) -> None:
        known = _folded(_own(work, stream), held_session(realm, actor_id, session))
        if known is None:
            begun = SessionBegun(
                at=work.at, actor_id=actor_id, session=session, client=client, server=me, version=version
            )
            work.emit(stream, begun)
        elif known.server != me:
            work.emit(stream, SessionMoved(at=work.at, actor_id=actor_id, session=session, server=me))

    command.any_schema = True  # type: ignore[attr-defined]  # read by world.engine.protocol
    realm._acting.run(command)


def caller_left(
    realm: Realm, caller: Leaving | Callable[[UnitOfWork], Leaving | None], *, of_holder: bool = False
) -> list[str]:
    """Record that a caller left, which ends its calls, and return the ids of their proposals.

    A session that began again after its process ended (``Leaving.until``) is left alone; one whose later calls stay
    begins again.

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
        known = None
        if left.session is not None and left.calls is None:
            own = _own(work, session_stream(left.actor_id, left.session))
            known = _folded(own, held_session(realm, left.actor_id, left.session))
        if of_holder and known is not None and known.server != realm._acting.worker:
            return []
        if known is not None and left.until is not None and known.at > left.until:
            return []
        ended = [one.proposal_id for one in calls_of(work, left)]
        before = len(work.emitted)
        advance(work, leave(work, left, is_known=known is not None))
        if known is not None and len(work.emitted) > before and goes_on(work, left):
            _begin_again(work, left, known)
        return ended

    command.any_schema = True  # type: ignore[attr-defined]
    return realm._acting.run(command)


def _begin_again(work: UnitOfWork, left: Leaving, known: HeldSession) -> None:
    """Record that another process continues a session whose process ended, at the server that holds it."""
    assert left.session is not None
    begun = SessionBegun(
        at=work.at,
        actor_id=left.actor_id,
        session=left.session,
        client=known.client,
        server=known.server,
        version=known.version,
    )
    work.emit(begun.stream, begun)


def caller_returned(realm: Realm, proposal_id: str) -> None:
    """Record that the caller of an open call asks again at this process; nothing is recorded where the log says so.

    Args:
        realm: the realm, open for acting.
        proposal_id: its proposal.
    """
    here, proposal = realm._acting.worker, realm.realm().proposals.get(proposal_id)
    if proposal is None or not returns_to(proposal, here):
        return

    def command(work: UnitOfWork) -> None:
        note_return(work, proposal_id, here)

    command.any_schema = True  # type: ignore[attr-defined]
    realm._acting.run(command)


def resume_held_call(realm: Realm, proposal_id: str) -> None:
    """Request the leases of an approved call whose caller asks again.

    Args:
        realm: the realm, open for acting.
        proposal_id: its proposal.
    """
    realm._acting.run(lambda work: advance(work, resume_call(work, proposal_id)))


def _own(work: UnitOfWork, stream: str) -> list[Event]:
    return [one.event for one in work.emitted if one.stream == stream]


def _folded(events: Iterable[Event], held: HeldSession | None = None) -> HeldSession | None:
    for event in events:
        if isinstance(event, SessionBegun):
            held = HeldSession(event.client, event.server, event.at, event.version)
        elif isinstance(event, SessionMoved) and held is not None:
            held = held._replace(server=event.server, moves=held.moves + 1)
        elif isinstance(event, CallerLeft) and event.ends_session:
            held = None
    return held
