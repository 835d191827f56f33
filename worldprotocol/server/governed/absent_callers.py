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
from world.pipeline.callers import goes_on
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
    begun_at,
    begun_run,
    call_with_key,
    calls_by_session,
    calls_of_session,
    keys_of,
)
from worldprotocol.server.governed.heard_callers import SILENT_S, CallerName
from worldprotocol.server.governed.presence import Presence
from worldprotocol.server.governed.running_calls import RunningCalls

__all__ = ["AbsentCallers"]

MISSES_S: Final = 7.0
"""Time without a sign after which the caller of a cancelled call is not waited for, in seconds."""

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
        mine = [name for name, one in held.items() if one is None or self._takes(one.server, moves=moves)]
        self.presence.renew(actor_id, mine)
        for name in mine:
            self._hold(name, held[name])
        return [session for _, session in names if (actor_id, session) not in mine]

    def is_refused(self, name: CallerName) -> bool:
        """Return whether the renewals of a session are refused here, and no server holds it."""
        return self.presence.is_refused(name) and self._held(name) is None

    def _hold(self, name: CallerName, held: HeldSession | None) -> None:
        known = self.presence.program(name)
        if held is not None and not self._is_here(held.server):
            hold_session(self.realm, *name, held.client)
        elif held is None and (client := self._stated_client(name)) is not None:
            hold_session(self.realm, *name, client, None if known is None else known.version)

    def hold_run(self, name: CallerName, *, moves: bool) -> bool:
        """Record that this server holds a run that reached it, and return whether it does.

        Args:
            name: actor, and the key of its call.
            moves: as of ``renew``.
        """
        proposal = self._call(name)
        if proposal is None:
            return True
        if not self._takes(proposal.caller_at, moves=moves):
            return False
        caller_returned(self.realm, proposal.proposal_id)
        return True

    def hear_run(self, name: CallerName, *, moves: bool) -> bool:
        """Note a sign of a run, if this server holds it, and return whether it does; see ``hold_run``."""
        is_held = self.hold_run(name, moves=moves)
        if is_held:
            self.running.hear(name)
        return is_held

    def expect_run(self, name: CallerName) -> None:
        """Expect a run to be heard of here, unless it began: the server that holds it hears it."""
        proposal = self._call(name)
        if proposal is not None and begun_run(self.realm, proposal) is None:
            caller_returned(self.realm, proposal.proposal_id)
            self.running.expect(name)

    def take_over(self) -> None:
        """Take over the sessions and runs with open calls whose server ended, and expect them to be heard of."""
        acting, proposals = self.realm._acting, self.realm.realm().proposals.values()
        for name in calls_by_session(proposals):
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
        return call_with_key(self.realm.realm().proposals.values(), name)

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
            made = None if proposal is None else is_made(work, proposal)
            if proposal is None or made is None:
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
        realm: Realm | None = None,
    ) -> list[str]:
        """End the calls of a session that has ended, and return the ids of their proposals.

        Args:
            name: actor and id of the session.
            noticed_by: how it was noticed.
            of_holder: leave a session alone that another server holds, or that is renewed again; of one that none
                holds, leave the calls that were begun lately, which another server may hear.
            until: when its process ended, ms since 1970, so that calls which were begun later stay; None is now.
            realm: the realm for the caller that says so; None is this server.
        """
        actor_id, session = name
        is_awaited = False

        def leaving(work: UnitOfWork) -> Leaving | None:
            nonlocal is_awaited
            if of_holder and not self.presence.is_silent(name):
                return None
            is_unheld = of_holder and self._held(name) is None
            calls = list(calls_of_session(work.realm.proposals.values(), name))
            runs = [one for one in calls if is_run(one)]
            running = {one.proposal_id for one in runs if begun_run(self.realm, one, work) is not None}
            left = Leaving(
                actor_id=actor_id,
                client=self._client(name, calls),
                noticed_by=noticed_by,
                session=session,
                running=running,
                not_made={one.proposal_id for one in runs} - running,
                until=work.at - int(SILENT_S * 1000) if is_unheld else until,
            )
            is_awaited = is_unheld and goes_on(work, left)
            return left

        ended = caller_left(realm or self.realm, leaving, of_holder=of_holder)
        held = self._held(name)
        if held is None and (not of_holder or self.presence.is_silent(name)) and not is_awaited:
            self.presence.forget(name)
        elif held is not None and not self._is_here(held.server):
            self.presence.drop(name)
        return ended

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

        def is_made(work: UnitOfWork, proposal: Proposal) -> bool | None:
            return True if self._is_left(proposal, work) else None

        if self._is_left(cancelled):
            of_session = cancelled.cancelled is not None and cancelled.cancelled.reason == CALLER_LEFT
            self.end_call(cancelled.proposal_id, "connection" if of_session else "operator", is_made)

    def _is_left(self, proposal: Proposal, work: UnitOfWork | None = None) -> bool:
        """Return whether a call was cancelled that is being made by a caller of which there is no sign."""
        if proposal.cancelled is None or not any(keys_of(proposal)):
            return False
        actor_id, run = proposal.submitted.actor.actor_id, begun_run(self.realm, proposal, work)
        if run is not None:
            return self._is_here(proposal.caller_at) and not self.running.is_heard((actor_id, run), MISSES_S)
        name = (actor_id, proposal.session or "")
        held = self._held(name)
        if held is None:  # a server that hears the session would have recorded that by now
            is_late = begun_at(proposal) + MISSES_S * 1000 < self.realm._acting.now_ms()
            return is_late and self.presence.is_silent(name, MISSES_S)
        return self._is_here(held.server) and self.presence.is_silent(name, MISSES_S)

    def _client(self, name: CallerName, calls: Iterable[Proposal]) -> str:
        held = self._held(name)
        return self._stated_client(name, calls) or (UNKNOWN if held is None else held.client)

    def _stated_client(self, name: CallerName, calls: Iterable[Proposal] | None = None) -> str | None:
        """Return the program of a session whose calls reached this server, or that has open calls; else None."""
        known = self.presence.program(name)
        if known is not None:
            return known.client
        named = calls_of_session(self.realm.realm().proposals.values(), name) if calls is None else calls
        return next((one.client for one in named if one.client), None)
