"""Who is there: the sessions of agents whose renewals reach this server, and the calls that wait for an answer.

It is kept in memory; the log has when a caller left, and which server holds a session. After the end of a server
another one takes its sessions over (``worldprotocol.server.governed.absent_callers``).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

__all__ = ["SILENT_S", "Presence", "PresentSession", "WaitingRequest"]

SILENT_S: Final = 15.0
"""Time without a renewal after which a session has ended, in seconds, where it was renewed before."""

MAX_SESSIONS: Final = 10_000
"""Sessions that are kept in memory and were not renewed; the oldest are dropped."""

SessionName = tuple[str, str]
"""Actor and id of a session."""


@dataclass(slots=True)
class PresentSession:
    """A session as far as its requests reached this server.

    Args:
        client: its program; None before its first call reached this server.
        version: version of the program, where it states one.
        renewed: when it was renewed, by a monotonic clock in seconds; None where it never was.
    """

    client: str | None = None
    version: str | None = None
    renewed: float | None = None


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
class Presence:
    """The callers of one realm that this server hears; safe to use from several threads.

    Args:
        clock: a monotonic clock, in seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _sessions: OrderedDict[SessionName, PresentSession] = field(default_factory=OrderedDict)
    _calls: dict[str, _Waiting] = field(default_factory=dict)
    _departed: dict[str, str | None] = field(default_factory=dict)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    # Sessions

    def meet(self, name: SessionName, client: str, version: str | None = None) -> None:
        """Note the program of a session, which called.

        Args:
            name: actor and id of the session.
            client: its program.
            version: version of the program, where it states one.
        """
        with self._mutex:
            known = self._sessions.setdefault(name, PresentSession())
            known.client, known.version = client, version or known.version
            self._drop_oldest()

    def renew(self, name: SessionName) -> None:
        """Note a renewal of a session."""
        with self._mutex:
            known = self._sessions.setdefault(name, PresentSession())
            known.renewed = self.clock()
            self._sessions.move_to_end(name)

    def release(self, name: SessionName) -> None:
        """Note that another server holds a session; no renewal of it is expected here."""
        with self._mutex:
            if name in self._sessions:
                self._sessions[name].renewed = None

    def find(self, name: SessionName) -> PresentSession | None:
        """Return a session; None where this server did not hear of it."""
        with self._mutex:
            return self._sessions.get(name)

    def forget(self, name: SessionName) -> None:
        """Drop a session that has ended."""
        with self._mutex:
            self._sessions.pop(name, None)

    def silent(self) -> list[SessionName]:
        """Return the sessions whose renewals stopped."""
        with self._mutex:
            end = self.clock() - SILENT_S
            return [name for name, one in self._sessions.items() if one.renewed is not None and one.renewed < end]

    def is_silent(self, name: SessionName, silent_s: float = SILENT_S) -> bool:
        """Return whether a session that was renewed before was not for a time, in seconds."""
        known = self.find(name)
        return known is not None and known.renewed is not None and known.renewed < self.clock() - silent_s

    def shift(self, seconds: float) -> None:
        """Leave a time out of account in which this process did not run: no renewal could arrive."""
        with self._mutex:
            for one in self._sessions.values():
                if one.renewed is not None:
                    one.renewed = min(self.clock(), one.renewed + seconds)

    def _drop_oldest(self) -> None:
        idle = len(self._sessions) - MAX_SESSIONS
        for name in [name for name, one in self._sessions.items() if one.renewed is None][: max(0, idle)]:
            del self._sessions[name]

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
