"""The looks of a server for callers that are gone, at intervals."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from world.errors import WorldProtocolError
from worldprotocol.server.governed.absent_callers import AbsentCallers
from worldprotocol.server.threads import Threads

__all__ = ["CallerWatch", "watch_callers"]

R = TypeVar("R")

_LOGGER = logging.getLogger("worldprotocol.server")

INTERVAL_S: Final = 1.0
"""Time between two looks for callers that are gone, in seconds."""

TAKES_OVER_S: Final = 10.0
"""Time between two looks for callers whose server ended, in seconds."""

STOPPED_S: Final = 3.0
"""Delay of a look after which this process is taken as having been stopped, in seconds."""


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
