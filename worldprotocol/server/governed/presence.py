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

__all__ = ["SILENT_S", "Presence", "PresentSession"]

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
        is_held: whether the log says that this server holds it.
    """

    client: str | None = None
    version: str | None = None
    renewed: float | None = None
    is_held: bool = False


@dataclass(slots=True)
class _Waiting:
    """The requests of one call: how many are here or left just now, and how many arrived since the first of these."""

    requests: int = 0
    arrivals: int = 0


@dataclass(slots=True)
class Presence:
    """The callers of one realm that this server hears; safe to use from several threads.

    Args:
        clock: a monotonic clock, in seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _sessions: OrderedDict[SessionName, PresentSession] = field(default_factory=OrderedDict)
    _calls: dict[str, _Waiting] = field(default_factory=dict)
    _departed: dict[str, None] = field(default_factory=dict)
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

    def renew(self, name: SessionName) -> PresentSession:
        """Note a renewal of a session, and return the session."""
        with self._mutex:
            known = self._sessions.setdefault(name, PresentSession())
            known.renewed = self.clock()
            self._sessions.move_to_end(name)
            return known

    def take_over(self, name: SessionName, client: str) -> None:
        """Note a session that this server holds from now on; it is expected to be renewed."""
        with self._mutex:
            known = self._sessions.setdefault(name, PresentSession())
            known.client = known.client or client
            known.renewed, known.is_held = self.clock() if known.renewed is None else known.renewed, True

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

    def is_silent(self, name: SessionName, silent_s: float) -> bool:
        """Return whether a session that was renewed before was not for a time, in seconds."""
        known = self.find(name)
        return known is not None and known.renewed is not None and known.renewed < self.clock() - silent_s

    def shift(self, seconds: float) -> None:
        """Leave a time out of account in which this process did not run: no renewal could arrive."""
        with self._mutex:
            for one in self._sessions.values():
                if one.renewed is not None:
                    one.renewed += seconds

    def _drop_oldest(self) -> None:
        idle = len(self._sessions) - MAX_SESSIONS
        for name in [name for name, one in self._sessions.items() if one.renewed is None][: max(0, idle)]:
            del self._sessions[name]

    # Calls that wait

    @contextmanager
    def waiting(self, proposal_id: str) -> Iterator[None]:
        """Count a request that waits for the answer to a call."""
        with self._counted(proposal_id) as call:
            call.arrivals += 1
            yield

    @contextmanager
    def departing(self, proposal_id: str) -> Iterator[Callable[[], bool]]:
        """Yield what says whether another request for a call arrived since its connection ended."""
        with self._counted(proposal_id) as call:
            before = call.arrivals
            yield lambda: call.arrivals != before

    @contextmanager
    def _counted(self, proposal_id: str) -> Iterator[_Waiting]:
        with self._mutex:
            call = self._calls.setdefault(proposal_id, _Waiting())
            call.requests += 1
        try:
            yield call
        finally:
            with self._mutex:
                call.requests -= 1
                if not call.requests:
                    self._calls.pop(proposal_id, None)

    def depart(self, proposal_id: str) -> None:
        """Note a call whose connection ended, until its end is recorded."""
        with self._mutex:
            self._departed[proposal_id] = None

    def settle(self, proposal_id: str) -> None:
        """Note that the end of a call is recorded."""
        with self._mutex:
            self._departed.pop(proposal_id, None)

    def departed(self) -> list[str]:
        """Return the calls whose connections ended, and whose ends are not recorded."""
        with self._mutex:
            return list(self._departed)
