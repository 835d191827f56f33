"""What a server does about callers: it notes which it holds, and ends the calls of those that are gone.

A session has ended where its renewals stopped, a run where it was silent, a request where its connection ended. The log
has which server holds a session, and at which one the caller of a call is, so also its run. That one alone takes
silence for the end; another one that hears the caller says so, for the caller to come back to the holder, or to move. A
run is a caller of its own: the end of its session cancels its call, and it has 15 s to end its processes and to report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from world.events.caller_events import CALLER_LEFT, NoticedBy
from world.pipeline.callers import MOST_RETURNS, goes_on
from world.pipeline.unit_of_work import UnitOfWork
from world.state.proposal import Proposal
from worldprotocol.agents.command_runs import is_run
from worldprotocol.api.callers.sessions import (
    HeldSession,
    Leaving,
    caller_left,
    caller_returned,
    hold_session,
    recorded_session,
)
from worldprotocol.api.realm import Realm
from worldprotocol.server.governed.calls_of_callers import (
    begun_run,
    calls_of_session,
    keys_of,
)
from worldprotocol.server.governed.heard_callers import SILENT_S, CallerName
from worldprotocol.server.governed.presence import Presence
from worldprotocol.server.governed.running_calls import RunningCalls

__all__ = ["AbsentCallers"]

MISSES_S: Final = 7.0
"""Time without a sign after which the caller of a cancelled call is not waited for, in seconds."""

MOST_MOVES: Final = 1_000
"""How often a session may say that it moves here from a server that runs; the one that holds it then ends it."""

UNKNOWN: Final = "unknown"
"""Recorded as the program of a caller that stated none."""


IsMade = Callable[[UnitOfWork, Proposal], bool | None]
"""Returns whether a call may have been made; None where its caller is not gone."""


@dataclass(frozen=True, slots=True)
class AbsentCallers:
    """Notes the callers of one realm that this server holds, and ends what those left that are gone.

    Args:
        realm: the realm, open for acting.
        presence: the callers that this server hears.
        running: the runs that this server hears.
    """

    realm: Realm
    presence: Presence
    running: RunningCalls

    # Callers that this server holds

    def renew(self, actor_id: str, sessions: Iterable[str], *, moves: bool) -> list[str]:
        """Note that sessions of an actor are there, record that this server holds them, and return the other ones.

        Args:
            actor_id: the actor.
            sessions: their ids.
            moves: whether they move here from other servers that run; from one that ended, they always do.

        Returns:
            The sessions that another server holds; nothing is noted of them.

        Raises:
            RefusedError: ``TOO_MANY_OPEN``; those that this server held before are noted.
        """
        names = [(actor_id, one) for one in dict.fromkeys(sessions)]
        held = {name: self._held(name) for name in names}
        elsewhere = [
            name
            for name, one in held.items()
            if one is not None and not self._takes(one.server, moves=moves and one.moves < MOST_MOVES)
        ]
        mine = [name for name in names if name not in elsewhere]
        self.presence.renew(actor_id, mine)
        for name in mine:
            self._hold(name, held[name])
        return [session for _, session in elsewhere]

    def is_refused(self, name: CallerName) -> bool:
        """Return whether the renewals of a session are refused here, and no server holds it."""
        return self.presence.is_refused(name) and self._held(name) is None

    def _hold(self, name: CallerName, held: HeldSession | None) -> None:
        if held is not None and self._is_here(held.server):
            return
        client, known = self._client(name), self.presence.program(name)
        if client is not None:
            hold_session(self.realm, *name, client, None if known is None else known.version)

    def hear_run(self, name: CallerName, *, moves: bool) -> bool:
        """Note a sign of a run, if this server holds it, which is recorded, and return whether it does.

        Args:
            name: actor, and the key of its call.
            moves: as of ``renew``.
        """
        proposal = self._call(name)
        if proposal is not None:
            if not self._takes(proposal.caller_at, moves=moves and proposal.returns < MOST_RETURNS):
                return False
            caller_returned(self.realm, proposal.proposal_id)
        self.running.hear(name)
        return True

    def take_run(self, name: CallerName) -> bool:
        """Record that this server holds a run, unless that began, and return whether it is to begin."""
        proposal = self._call(name)
        if proposal is None or begun_run(self.realm, proposal) is not None:
            return False
        caller_returned(self.realm, proposal.proposal_id)
        return True

    def expect_run(self, name: CallerName) -> None:
        """Expect a run to be heard of here, unless it began: the server that holds it hears it."""
        if self.take_run(name):
            self.running.expect(name)

    def take_over(self) -> None:
        """Take over the sessions and runs with open calls whose server ended, and expect them to be heard of."""
        acting, proposals = self.realm._acting, self.realm.realm().proposals.values()
        attended = ((one.submitted.actor.actor_id, one.session) for one in proposals if one.submitted.attended)
        for name in dict.fromkeys((actor, session) for actor, session in attended if session is not None):
            held = self._held(name)
            if held is not None and acting.is_gone(held.server):
                hold_session(self.realm, *name, held.client)
                self.presence.hear(name)
        for one in proposals:
            if one.caller_at is not None and acting.is_gone(one.caller_at):
                key = begun_run(self.realm, one)
                if key is not None:
                    caller_returned(self.realm, one.proposal_id)
                    self.running.expect((one.submitted.actor.actor_id, key))

    def _is_here(self, server: str | None) -> bool:
        """Return whether a recorded server is this one; where none is recorded, each is."""
        return server in (None, self.realm._acting.worker)

    def _takes(self, server: str | None, *, moves: bool) -> bool:
        """Return whether this server takes a caller that another one may hold."""
        return server is None or self._is_here(server) or moves or self.realm._acting.is_gone(server)

    def _call(self, name: CallerName) -> Proposal | None:
        """Return the open call that an actor began with a key; None where there is none."""
        own = (one for one in self.realm.realm().proposals.values() if one.submitted.actor.actor_id == name[0])
        return next((one for one in own if name[1] in keys_of(one)), None)

    def _held(self, name: CallerName) -> HeldSession | None:
        read = recorded_session(self.realm, *name, self.presence.recorded(name))
        self.presence.record(name, read)
        return read.held

    # Callers that are gone

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
            if proposal is None or (made := is_made(work, proposal)) is None:
                return None
            return Leaving(
                actor_id=proposal.submitted.actor.actor_id,
                client=proposal.client or UNKNOWN,
                noticed_by=noticed_by,
                session=proposal.session,
                calls=[proposal_id],
                not_made=() if made else (proposal_id,),
            )

        caller_left(self.realm, leaving)

    def end_departed(self, proposal_id: str) -> None:
        """End a call whose connection ended, unless its caller returned, here or elsewhere, or an equal one is made."""

        def is_made(_: UnitOfWork, proposal: Proposal) -> bool | None:
            departed = self.presence.departed()
            is_back = proposal_id not in departed or not self._is_here(proposal.caller_at)
            return None if is_back or any(key != departed[proposal_id] for key in keys_of(proposal)) else False

        self.end_call(proposal_id, "connection", is_made)
        self.presence.settle(proposal_id)

    def end_session(
        self,
        name: CallerName,
        noticed_by: NoticedBy,
        *,
        of_holder: bool = False,
        until: int | None = None,
        is_late: bool = False,
        realm: Realm | None = None,
    ) -> list[str]:
        """End the calls of a session that has ended, and return the ids of their proposals.

        Args:
            name: actor and id of the session.
            noticed_by: how it was noticed.
            of_holder: leave a session alone that another server holds, or that is renewed again; of one that none
                holds, leave the calls that were begun lately, which another server may hear.
            until: when its process ended, ms since 1970, so that calls which were begun, or asked again, later stay;
                None is now.
            is_late: whether it may have been continued meanwhile: of a session that the log has, calls that were not
                begun and were asked at another server stay, where they may have been asked again; they end for want of
                renewals.
            realm: the realm for the caller that says so; None is this server.
        """
        goes_on_here = False

        def leaving(work: UnitOfWork) -> Leaving | None:
            nonlocal goes_on_here
            if of_holder and not self.presence.is_silent(name):
                return None
            held, calls = self._held(name), list(calls_of_session(work.realm.proposals.values(), name))
            begun = {one.proposal_id: begun_run(self.realm, one, work) is not None for one in calls if is_run(one)}
            end = work.at - int(SILENT_S * 1000) if of_holder and held is None else until
            left = Leaving(
                actor_id=name[0],
                client=self._client(name, calls) or UNKNOWN,
                noticed_by=noticed_by,
                session=name[1],
                running={one for one, has_begun in begun.items() if has_begun},
                not_made={one for one, has_begun in begun.items() if not has_begun},
                until=end,
                continued=self._continued(calls, end, is_late=is_late and held is not None),
            )
            goes_on_here = goes_on(work, left)
            return left

        ended = caller_left(realm or self.realm, leaving, of_holder=of_holder)
        held = self._held(name)
        is_over = held is None and not goes_on_here
        if is_over and not of_holder:
            self.presence.forget(name)
        elif self.presence.is_silent(name) if is_over else held is not None and not self._is_here(held.server):
            self.presence.drop(name)  # its program is kept: with another renewal it begins again
        return ended

    def _continued(self, calls: Iterable[Proposal], until: int | None, *, is_late: bool) -> set[str]:
        """Return the calls that were not begun, and of which a process asked after a time, or may have elsewhere."""
        waiting = [one for one in calls if until is not None and not one.claims]
        here = [one.proposal_id for one in waiting if self._is_here(one.caller_at)]
        elsewhere = {one.proposal_id for one in waiting if is_late} - {*here}
        return elsewhere | {one for one in here if self.presence.asked_at(one) > (until or 0)}

    def end_run(self, name: CallerName) -> None:
        """End the call of a run that is silent, unless another server holds it."""

        def is_made(work: UnitOfWork, proposal: Proposal) -> bool | None:
            is_gone = name[1] in keys_of(proposal) and not self.running.is_heard(name)
            if not is_gone or not self._is_here(proposal.caller_at):
                return None
            return begun_run(self.realm, proposal, work) is not None

        proposal = self._call(name)
        if proposal is not None:
            self.end_call(proposal.proposal_id, "connection", is_made)
        if not self.running.is_heard(name):
            self.running.drop(name)

    def end_cancelled(self, cancelled: Proposal) -> None:
        """End a cancelled call that is being made by a caller of which there is no sign."""
        if cancelled.cancelled is not None and self._is_left(cancelled):
            noticed_by: NoticedBy = "connection" if cancelled.cancelled.reason == CALLER_LEFT else "operator"
            self.end_call(cancelled.proposal_id, noticed_by, lambda work, one: self._is_left(one, work) or None)

    def _is_left(self, proposal: Proposal, work: UnitOfWork | None = None) -> bool:
        """Return whether a call was cancelled that is being made by a caller of which there is no sign."""
        if proposal.cancelled is None or not any(keys_of(proposal)):
            return False
        actor_id, run = proposal.submitted.actor.actor_id, begun_run(self.realm, proposal, work)
        if run is not None:
            return self._is_here(proposal.caller_at) and not self.running.is_heard((actor_id, run), MISSES_S)
        name = (actor_id, proposal.session or "")
        if (held := self._held(name)) is None:  # a server that hears the session would have recorded that by now
            begun_at = max(proposal.submitted.at, *(one.at for one in proposal.claims.values()))
            is_mine = begun_at + MISSES_S * 1000 < self.realm._acting.now_ms()
        else:
            is_mine = self._is_here(held.server)
        return is_mine and self.presence.is_silent(name, MISSES_S)

    def _client(self, name: CallerName, calls: Iterable[Proposal] | None = None) -> str | None:
        """Return the program of a session, as it, its open calls, or the log states it; None where none does."""
        known = self.presence.program(name)
        if known is not None:
            return known.client
        named = calls_of_session(self.realm.realm().proposals.values(), name) if calls is None else calls
        stated = next((one.client for one in named if one.client), None)
        held = self._held(name) if stated is None else None
        return stated if held is None else held.client
