"""Staying until proposals are decided and have ended: what ``worldctl submit --wait`` does."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from world.clock import SystemClock
from world.errors import LogBusyError
from world.state.realm_view import RealmView
from worldprotocol.api.realm import Realm

LOOK_S: Final = 0.2
"""Seconds between two looks at most."""

SETTLE_S: Final = 1.0
"""Seconds between two attempts at doing what is due, at least."""


def stay(world: Realm, proposals: Iterable[str], seconds: float) -> None:
    """Return when none of the proposals is open any more, or the time is over; meanwhile do what is due.

    Args:
        world: open for acting.
        proposals: their ids.
        seconds: how long at most; 0 returns at once.

    Raises:
        WorldProtocolError: what ``Realm.settle`` raises, but not ``LOG_BUSY``.
    """
    names, until, settled = set(proposals), time.monotonic() + seconds, 0.0

    def are_open(realm: RealmView) -> bool:
        return not names.isdisjoint(realm.proposals)

    while world.archive.peek(are_open):
        now = time.monotonic()
        if now >= until:
            return
        due = world.archive.peek(RealmView.next_due)
        if due is not None and due <= SystemClock().now_ms() and now - settled >= SETTLE_S:
            settled = now
            with suppress(LogBusyError):
                world.settle()
        else:
            time.sleep(min(LOOK_S, until - now))
