"""Allowed calls that are not begun: their agent is gone, and they hold leases that others wait for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from world.errors import RefusedError, WorldProtocolError
from world.state.effect_steps import unclaimed_offers
from world.state.realm_view import RealmView
from worldprotocol.agents.tool_calls import EFFECT
from worldprotocol.api.realm import Realm
from worldprotocol.server.threads import Threads

__all__ = ["cancel_unclaimed", "watch_unclaimed"]

_LOGGER = logging.getLogger("worldprotocol.server")

INTERVAL_S: Final = 30.0
"""Time between two looks, in seconds."""


def cancel_unclaimed(realm: Realm, unclaimed_s: float, now_ms: int) -> list[str]:
    """Cancel the calls that have been allowed for a time and that their agents have not begun.

    Args:
        realm: the realm, open for acting.
        unclaimed_s: the time, in seconds.
        now_ms: ms since 1970.

    Returns:
        The ids of their proposals.
    """

    def late(view: RealmView) -> list[str]:
        offers = ((name, asked) for name in view.offered for asked in unclaimed_offers(view.proposals[name]))
        return [
            name
            for name, asked in offers
            if asked.requirement.type == EFFECT
            and asked.offer is not None
            and asked.offer.by_actor
            and asked.at + unclaimed_s * 1000 <= now_ms
        ]

    cancelled = []
    for name in dict.fromkeys(realm.archive.peek(late)):
        with suppress(RefusedError):  # it has ended meanwhile
            realm.host.cancel(name, by="server", reason=f"The agent did not begin the call within {unclaimed_s:g} s.")
            cancelled.append(name)
    return cancelled


async def watch_unclaimed(realm: Realm, threads: Threads, unclaimed_s: float, now_ms: Callable[[], int]) -> None:
    """Cancel allowed calls that are not begun, until the task is cancelled."""
    while True:
        await asyncio.sleep(min(INTERVAL_S, unclaimed_s))
        try:
            await threads.run(lambda: cancel_unclaimed(realm, unclaimed_s, now_ms()))
        except (WorldProtocolError, OSError) as error:
            _LOGGER.error("Allowed calls that were not begun could not be cancelled: %s", error)
