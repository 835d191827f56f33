"""What a server does when callers are gone: it ends their calls, and takes over the sessions of servers that ended.

A session has ended where its renewals stopped, a run where it was silent, a request where its connection ended. A run
is a caller of its own: it outlives the session by the time in which it ends its processes and reports.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from world.errors import WorldProtocolError
from world.events.caller_events import NoticedBy
from world.pipeline.unit_of_work import UnitOfWork
from world.state.proposal import Proposal
from worldprotocol.agents.call_values import EFFECT
from worldprotocol.agents.command_runs import has_begun, is_run
from worldprotocol.api.callers.sessions import (
    HeldSession,
    Leaving,
    caller_left,
    hold_session,
    recorded_session,
)
from worldprotocol.api.realm import Realm
from worldprotocol.server.governed.heard_callers import CallerName
from worldprotocol.server.governed.presence import Presence
from worldprotocol.server.governed.running_calls import RunningCalls
from worldprotocol.server.threads import Threads

__all__ = ["AbsentCallers", "CallerWatch", "watch_callers"]

R = TypeVar("R")

_LOGGER = logging.getLogger("worldprotocol.server")

INTERVAL_S: Final = 1.0
"""Time between two looks for callers that are gone, in seconds."""

TAKES_OVER_S: Final = 10.0
"""Time between two looks for sessions whose server ended, in seconds."""

STOPPED_S: Final = 3.0
"""Delay of a look after which this process is taken as having been stopped, in seconds."""

MISSES_S: Final = 7.0
"""Time without a sign after which the caller of a cancelled call is not waited for, in seconds."""

UNKNOWN: Final = "unknown"
"""Recorded as the program of a caller that stated none."""


IsMade = Callable[[UnitOfWork, Proposal], bool | None]
"""Returns whether a call may have been made; None where its caller is not gone."""


@dataclass(frozen=True, slots=True)
class AbsentCallers:
    """Ends what the callers of one realm left.

    Args:
        realm: the realm, open for acting.
        presence: the callers that this server hears.
        running: the runs that this server hears.
    """

    realm: Realm
    presence: Presence
    running: RunningCalls

    def end_call(self, proposal_id: str, noticed_by: NoticedBy, is_made: IsMade) -> None:
        """End a call whose caller is gone.

        Args:
            proposal_id: its proposal.
            noticed_by: how it was noticed.
            is_made: returns within the unit whether the call may have been made, where it was begun; None where its
                caller is not gone.
        """

        def leaving(work: UnitOfWork) -> Leaving | None:
            proposal = work.realm.proposals.get(proposal_id)
            made = None if proposal is None else is_made(work, proposal)
            if proposal is None or made is None:
                return None
            trace = proposal.submitted.trace or {}
            session = trace.get("session")
            return Leaving(
                actor_id=proposal.submitted.actor.actor_id,
                client=str(trace.get("client") or UNKNOWN),
                noticed_by=noticed_by,
                session=None if session is None else str(session),
                calls=[proposal_id],
                not_made=() if made else (proposal_id,),
            )

        caller_left(self.realm, leaving)

    def end_departed(self, proposal_id: str) -> None:
        """End a call whose connection ended, unless its caller returned, here or elsewhere, or an equal one is made."""
        here = (None, self.realm._acting.worker)

        def is_made(_: UnitOfWork, proposal: Proposal) -> bool | None:
            departed = self.presence.departed()
            own, is_back = departed.get(proposal_id), proposal_id not in departed or proposal.caller_at not in here
            return None if is_back or any(key != own for key in _keys(proposal)) else False

        self.end_call(proposal_id, "connection", is_made)
        self.presence.settle(proposal_id)

    def end_session(
        self, name: CallerName, noticed_by: NoticedBy, *, of_holder: bool = False, realm: Realm | None = None
    ) -> list[str]:
        """End the calls of a session that has ended, and return the ids of their proposals.

        Args:
            name: actor and id of the session.
            noticed_by: how it was noticed.
            of_holder: leave a session alone that another server holds, or that is renewed again.
            realm: the realm for the caller that says so; None is this server.
        """
        actor_id, session = name
        heard: list[str] = []

        def leaving(work: UnitOfWork) -> Leaving | None:
            if of_holder and not self.presence.is_silent(name):
                return None
            calls = list(_of_session(work.realm.proposals.values(), name))
            begun = {one.proposal_id: key for one in calls if (key := _begun_run(self.realm, one, work)) is not None}
            kept = {proposal_id for proposal_id, key in begun.items() if self.running.is_heard((actor_id, key))}
            heard[:] = [begun[proposal_id] for proposal_id in kept]
            return Leaving(
                actor_id=actor_id,
                client=self._client(name, calls),
                noticed_by=noticed_by,
                session=session,
                kept=kept,
                not_made={one.proposal_id for one in calls if is_run(one) and one.proposal_id not in begun},
            )

        ended = caller_left(realm or self.realm, leaving, of_holder=of_holder)
        for key in heard:
            self.running.dismiss((actor_id, key))
        if of_holder and not self.presence.is_silent(name):
            return ended
        if of_holder and self._is_elsewhere(name):
            self.presence.drop(name)
        elif not of_holder or self._held(name) is None:
            self.presence.forget(name)
        return ended

    def hold_renewed(self, name: CallerName, *, moves: bool) -> bool:
        """Record that this server holds a session whose renewal reached it, and return whether it does.

        Args:
            name: actor and id of the session.
            moves: whether it moves here from another server that runs; from one that ended, it always does.
        """
        known, held, acting = self.presence.program(name), self._held(name), self.realm._acting
        if held is None:
            client = self._stated_client(name)
            if client is not None:
                hold_session(self.realm, *name, client, None if known is None else known.version)
        elif held.server != acting.worker:
            if not moves and not acting.is_gone(held.server):
                return False
            hold_session(self.realm, *name, held.client)
        return True

    def _held(self, name: CallerName) -> HeldSession | None:
        read = recorded_session(self.realm, *name, self.presence.recorded(name))
        self.presence.record(name, read)
        return read.held

    def end_run(self, name: CallerName) -> None:
        """End the call of a run that is silent."""
        actor_id, key = name

        def is_made(work: UnitOfWork, proposal: Proposal) -> bool | None:
            is_gone = key in _keys(proposal) and not self.running.is_heard(name)
            return _begun_run(self.realm, proposal, work) is not None if is_gone else None

        for proposal in self.realm.realm().proposals.values():
            if proposal.submitted.actor.actor_id == actor_id and key in _keys(proposal):
                self.end_call(proposal.proposal_id, "connection", is_made)
        if not self.running.is_heard(name):
            self.running.end(name)

    def end_cancelled(self, cancelled: Proposal) -> None:
        """End a cancelled call that is being made by a caller of which there is no sign."""

        def is_made(work: UnitOfWork, proposal: Proposal) -> bool | None:
            return True if self._is_left(proposal, work) else None

        if self._is_left(cancelled):
            self.end_call(cancelled.proposal_id, "operator", is_made)

    def _is_left(self, proposal: Proposal, work: UnitOfWork | None = None) -> bool:
        """Return whether a call was cancelled that is being made by a caller of which there is no sign."""
        if proposal.cancelled is None or not any(_keys(proposal)):
            return False
        actor_id, run = proposal.submitted.actor.actor_id, _begun_run(self.realm, proposal, work)
        if run is not None:
            return not self.running.is_heard((actor_id, run), MISSES_S)
        name = (actor_id, str((proposal.submitted.trace or {}).get("session")))
        return self.presence.is_silent(name, MISSES_S) and not self._is_elsewhere(name)

    def _is_elsewhere(self, name: CallerName) -> bool:
        """Return whether another server holds a session, which hears its renewals; some may reach this one, too."""
        held = self._held(name)
        return held is not None and held.server != self.realm._acting.worker

    def take_over(self) -> None:
        """Take over the sessions and runs with open calls whose server ended, and expect them to be heard of."""
        acting = self.realm._acting
        for name, calls in _by_session(self.realm.realm().proposals.values()).items():
            actor_id, held = name[0], self._held(name)
            if held is not None and held.server != acting.worker and acting.is_gone(held.server):
                hold_session(self.realm, *name, held.client)
                self.presence.hear(name)
            begun = [one for one in calls if one.started is not None and acting.is_gone(one.started.worker)]
            for key in filter(None, (_begun_run(self.realm, one) for one in begun)):
                self.running.expect((actor_id, key))

    def _client(self, name: CallerName, calls: Iterable[Proposal]) -> str:
        held = self._held(name)
        return self._stated_client(name, calls) or (UNKNOWN if held is None else held.client)

    def _stated_client(self, name: CallerName, calls: Iterable[Proposal] | None = None) -> str | None:
        """Return the program of a session whose calls reached this server, or that has open calls; else None."""
        known = self.presence.program(name)
        if known is not None:
            return known.client
        named = _of_session(self.realm.realm().proposals.values(), name) if calls is None else calls
        stated = ((one.submitted.trace or {}).get("client") for one in named)
        return next((str(one) for one in stated if one), None)


class CallerWatch:
    """Looks for callers that are gone, and ends what they left.

    Args:
        absent: ends what they left.
        threads: the pool in which it does.
    """

    def __init__(self, absent: AbsentCallers, threads: Threads) -> None:
        self._absent, self._threads = absent, threads
        self._looked = absent.presence.clock()
        self._took_over = -math.inf
        self._has_failed = False

    async def look(self) -> None:
        """Do what is due; a step that fails is logged and repeated with the next look, and skips no other.

        The time in which this server was stopped, or could not read the log, is no silence of a caller.
        """
        absent, self._has_failed = self._absent, False
        view = await self._tried(absent.realm.realm)
        if view is None:
            return
        now = absent.presence.clock()
        if now - self._looked > INTERVAL_S + STOPPED_S:
            absent.presence.shift(now - self._looked)
            absent.running.shift(now - self._looked)
        if now - self._took_over >= TAKES_OVER_S:
            self._took_over = now
            await self._tried(absent.take_over)
        for session in absent.presence.silent():
            await self._tried(partial(absent.end_session, session, "renewal", of_holder=True))
        for run in absent.running.silent():
            await self._tried(partial(absent.end_run, run))
        for proposal_id in absent.presence.departed():
            await self._tried(partial(absent.end_departed, proposal_id))
        for proposal in view.proposals.values():
            if proposal.cancelled is not None:
                await self._tried(partial(absent.end_cancelled, proposal))
        self._looked = now if self._has_failed else absent.presence.clock()

    async def _tried(self, call: Callable[[], R]) -> R | None:
        """Return the result of a call in a thread; None where it failed."""
        try:
            return await self._threads.run(call)
        except Exception as error:  # whatever it is, the calls of other callers end
            self._has_failed = True
            is_known = isinstance(error, WorldProtocolError | OSError)
            _LOGGER.error("What callers left that are gone could not be ended: %s", error, exc_info=not is_known)
            return None


async def watch_callers(absent: AbsentCallers, threads: Threads) -> None:
    """End what callers left that are gone, until the task is cancelled."""
    watch = CallerWatch(absent, threads)
    while True:
        await watch.look()
        await asyncio.sleep(INTERVAL_S)


def _of_session(proposals: Iterable[Proposal], name: CallerName) -> Iterator[Proposal]:
    for one in proposals:
        trace = one.submitted.trace or {}
        if (one.submitted.actor.actor_id, trace.get("session")) == name:
            yield one


def _by_session(proposals: Iterable[Proposal]) -> dict[CallerName, list[Proposal]]:
    found: dict[CallerName, list[Proposal]] = {}
    for one in proposals:
        session = (one.submitted.trace or {}).get("session")
        if one.submitted.attended is not None and session is not None:
            found.setdefault((one.submitted.actor.actor_id, str(session)), []).append(one)
    return found


def _keys(proposal: Proposal) -> Iterator[str]:
    """Yield the keys with which calls of a proposal were begun."""
    for name, claim in proposal.claims.items():
        if claim.key is not None and proposal.requested[name].requirement.type == EFFECT:
            yield claim.key


def _begun_run(realm: Realm, proposal: Proposal, work: UnitOfWork | None = None) -> str | None:
    """Return the key of the call whose run began, by the log and by a unit; None where none did."""
    if not is_run(proposal):
        return None
    emitted = [] if work is None else [one.event for one in work.emitted]
    claims = (one for one in proposal.claims.values() if one.key is not None)
    return next((one.key for one in claims if has_begun(realm, one, emitted)), None)
