"""Who is there: the sessions of agents whose renewals reach this server, and the calls that wait for an answer.

It is kept in memory; the log has when a caller left, and which server holds a session. After the end of a server
another one takes its sessions over (``worldprotocol.server.governed.absent_callers``).
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NoReturn, TypeVar

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.api.callers.sessions import RecordedSession
from worldprotocol.server.governed.heard_callers import SILENT_S, CallerName, HeardCallers

__all__ = ["Presence", "SessionProgram", "WaitingRequest"]

MAX_SESSIONS: Final = 10_000
"""Sessions, and calls, of which is kept in memory what is known without a renewal; the oldest are dropped."""

K = TypeVar("K")
V = TypeVar("V")

_LOGGER = logging.getLogger("worldprotocol.server")


class SessionProgram(NamedTuple):
    """The program of a session.

    Args:
        client: its name.
        version: its version, where it states one.
    """

    client: str
    version: str | None = None


MAX_SESSIONS_OF_ACTOR: Final = 100
"""Most sessions of one actor that a server holds, since their ids are the choice of the caller."""

TOO_MANY: Final = (
    f"this server holds {MAX_SESSIONS_OF_ACTOR} sessions of this actor. Until one ends, which is {SILENT_S:g} s after "
    "its last renewal, the end of the program of another one is not noticed, and its calls end at their limits. Give "
    "the agents of each machine an actor of their own."
)
"""Why a session is not renewed, and what to do."""


def keep_newest(kept: OrderedDict[K, V], name: K, value: V) -> None:
    """Keep a value as the newest one, and drop the oldest of too many."""
    kept[name] = value
    kept.move_to_end(name)
    if len(kept) > MAX_SESSIONS:
        kept.popitem(last=False)


@dataclass(slots=True)
class _Waiting:
    """The requests of one call: how many are counted, how many of these are here, and how many were answered."""

    counted: int = 0
    here: int = 0
    answered: int = 0


@dataclass(slots=True)
class WaitingRequest:
    """A request that waits for the answer to a call, until it is answered or its connection ends.

    Args:
        call: the requests of its call.
        before: how many of these were answered when it arrived.
        is_here: whether its connection has not ended.
    """

    call: _Waiting
    before: int
    is_here: bool = True

    def leave(self) -> None:
        """Note that the connection ended; the answer was not sent."""
        self.call.here -= 1
        self.is_here = False

    @property
    def is_last(self) -> bool:
        """Whether no other request for the call is here, and none was answered since this one arrived."""
        return self.call.here == 0 and self.call.answered == self.before


@dataclass(slots=True)
class Presence(HeardCallers):
    """The sessions of one realm that this server hears by their renewals, and the calls that wait; thread-safe."""

    _programs: OrderedDict[CallerName, SessionProgram] = field(default_factory=OrderedDict)
    _calls: dict[str, _Waiting] = field(default_factory=dict)
    _departed: dict[str, str | None] = field(default_factory=dict)
    _recorded: OrderedDict[CallerName, RecordedSession] = field(default_factory=OrderedDict)
    _refused: OrderedDict[CallerName, None] = field(default_factory=OrderedDict)
    _asked: OrderedDict[str, int] = field(default_factory=OrderedDict)

    # Sessions

    def meet(self, name: CallerName, client: str, version: str | None = None) -> None:
        """Note the program of a session, which called.

        Args:
            name: actor and id of the session.
            client: its program.
            version: version of the program, where it states one.
        """
        with self._mutex:
            known = self._programs.get(name)
            self._programs[name] = SessionProgram(client, version or (None if known is None else known.version))
            if len(self._programs) > MAX_SESSIONS:
                oldest = next((one for one in self._programs if one not in self._heard), None)
                self._programs.pop(name if oldest is None else oldest)

    def renew(self, actor_id: str, names: Collection[CallerName]) -> None:
        """Note that sessions of an actor are there which this server holds, or is to hold.

        Args:
            actor_id: the actor.
            names: the sessions.

        Raises:
            RefusedError: ``TOO_MANY_OPEN``; those that were noted before are noted again.
        """
        with self._mutex:
            known = [name for name in names if name in self._heard]
            self._heard |= dict.fromkeys(known, self.clock())
            added = [name for name in names if name not in self._heard]
            if added and len(added) + self._sessions_of(actor_id) > MAX_SESSIONS_OF_ACTOR:
                self._refuse(actor_id, added)
            self._heard |= dict.fromkeys(added, self.clock())
            for name in names:
                self._refused.pop(name, None)

    def _refuse(self, actor_id: str, names: Iterable[CallerName]) -> NoReturn:
        """Refuse sessions, and note that for the answers to their calls.

        Raises:
            RefusedError: ``TOO_MANY_OPEN``.
        """
        for name in names:
            if name not in self._refused:
                _LOGGER.warning("The session %s of %s is not renewed: %s", name[1], actor_id, TOO_MANY)
            keep_newest(self._refused, name, None)
        raise RefusedError(ErrorCode.TOO_MANY_OPEN, f"{actor_id!r} is refused more sessions: {TOO_MANY}")

    def is_refused(self, name: CallerName) -> bool:
        """Return whether the last renewal of a session was refused, because its actor has too many."""
        with self._mutex:
            return name in self._refused

    def expect(self, name: CallerName) -> None:
        """Note that a session has a guard, whose renewals follow; one too many for its actor is not waited for."""
        with self._mutex:
            if self._sessions_of(name[0]) < MAX_SESSIONS_OF_ACTOR:
                self._heard.setdefault(name, self.clock())

    def _sessions_of(self, actor_id: str) -> int:
        return sum(name[0] == actor_id for name in self._heard)

    def program(self, name: CallerName) -> SessionProgram | None:
        """Return the program of a session; None where no call of it reached this server."""
        with self._mutex:
            return self._programs.get(name)

    def recorded(self, name: CallerName) -> RecordedSession | None:
        """Return what was read of a session on the log; None where nothing was."""
        with self._mutex:
            return self._recorded.get(name)

    def record(self, name: CallerName, read: RecordedSession) -> None:
        """Note what was read of a session on the log."""
        with self._mutex:
            keep_newest(self._recorded, name, read)

    def forget(self, name: CallerName) -> None:
        """Drop a session that has ended."""
        self.drop(name)
        with self._mutex:
            self._programs.pop(name, None)
            self._recorded.pop(name, None)
            self._refused.pop(name, None)

    # Calls that wait

    @contextmanager
    def waiting(self, proposal_id: str) -> Iterator[WaitingRequest]:
        """Count a request that waits for the answer to a call, and yield it; its caller has not left."""
        with self._mutex:
            call = self._calls.setdefault(proposal_id, _Waiting())
            call.counted += 1
            call.here += 1
            self._departed.pop(proposal_id, None)
            request = WaitingRequest(call, call.answered)
        try:
            yield request
        finally:
            with self._mutex:
                call.counted -= 1
                if request.is_here:
                    call.here -= 1
                    call.answered += 1
                if not call.counted:
                    self._calls.pop(proposal_id, None)

    def ask(self, proposal_id: str, at: int) -> None:
        """Note when a call was asked last, in ms since 1970."""
        with self._mutex:
            keep_newest(self._asked, proposal_id, at)

    def asked_at(self, proposal_id: str) -> int:
        """Return when a call was asked last, in ms since 1970; 0 where that is not known here."""
        with self._mutex:
            return self._asked.get(proposal_id, 0)

    def depart(self, proposal_id: str, claimed: str | None = None) -> None:
        """Note a call whose connection ended, until its end is recorded or its caller returns.

        Args:
            proposal_id: its proposal.
            claimed: the key with which its request claimed it; None where it did not.
        """
        with self._mutex:
            self._departed[proposal_id] = claimed

    def settle(self, proposal_id: str) -> None:
        """Note that the end of a call is recorded."""
        with self._mutex:
            self._departed.pop(proposal_id, None)

    def departed(self) -> dict[str, str | None]:
        """Return the calls whose connections ended, and whose ends are not recorded, with the keys of their claims."""
        with self._mutex:
            return dict(self._departed)
