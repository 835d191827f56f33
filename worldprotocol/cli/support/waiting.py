"""Staying until proposals are decided and have ended: what ``worldctl submit --wait`` does."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from world.clock import SystemClock
from world.errors import LogBusyError, WaitTimeoutError
from world.state.realm_view import RealmView
from worldprotocol.api.realm import Realm

SETTLE_S: Final = 1.0
"""Seconds between two attempts at doing what is due, at least."""


def stay(world: Realm, proposals: Iterable[str], seconds: float) -> None:
    """Return when none of the proposals is open any more, or the time is over; meanwhile do what is due.

    Args:
        world: open for acting; a command has no timer that does what is due.
        proposals: their ids.
        seconds: how long at most; 0 returns at once.

    Raises:
        WorldProtocolError: what ``Realm.wait`` and ``Realm.settle`` raise, but not ``LOG_BUSY``.
    """
    until, settled = time.monotonic() + seconds, 0.0
    for proposal_id in proposals:
        while not _has_ended(world, proposal_id, min(SETTLE_S, until - time.monotonic())):
            if (now := time.monotonic()) >= until:
                return
            due = world.archive.peek(RealmView.next_due)
            if due is not None and due <= SystemClock().now_ms() and now - settled >= SETTLE_S:
                settled = now
                with suppress(LogBusyError):
                    world.settle()


def _has_ended(world: Realm, proposal_id: str, seconds: float) -> bool:
    try:
        world.wait(proposal_id, max(0.0, seconds))
    except WaitTimeoutError:
        return False
    return True
