"""Runs of shell commands whose processes ended without a report: their leases end, and their results are not known."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import Final

from world.errors import RefusedError, WorldProtocolError
from world.events.verification import Verification
from worldprotocol.agents.command_runs import CommandRuns
from worldprotocol.api.realm import Realm
from worldprotocol.server.governed.running_calls import RunningCalls
from worldprotocol.server.threads import Threads

__all__ = ["end_silent", "watch_runs"]

_LOGGER = logging.getLogger("worldprotocol.server")

INTERVAL_S: Final = 5.0
"""Time between two looks for silent runs, in seconds."""


async def watch_runs(realm: Realm, running: RunningCalls, threads: Threads) -> None:
    """End the calls of runs that are silent, until the task is cancelled."""
    while True:
        await asyncio.sleep(INTERVAL_S)
        try:
            for verified, key in running.take_silent():
                await threads.run(partial(end_silent, realm, verified, key))
        except (WorldProtocolError, OSError) as error:
            _LOGGER.error("Runs that are silent could not be ended: %s", error)


def end_silent(realm: Realm, verified: Verification, key: str) -> None:
    """End the call of a run whose process ended without a report.

    Args:
        realm: the realm, open for acting.
        verified: the agent, as the run was verified.
        key: the key of the call.
    """
    with suppress(RefusedError):  # it has ended meanwhile
        CommandRuns(realm.as_caller(verified), verified.actor_id or "").give_up(key)
