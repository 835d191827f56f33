"""Times of the writes of a realm, for metrics."""

from __future__ import annotations

from collections.abc import Callable

from world.engine.observing import WriteTiming
from world.engine.preparation import PreparingCommands
from worldprotocol.api.realm import Realm

__all__ = ["time_writes"]


def time_writes(realm: Realm, note: Callable[[WriteTiming], None]) -> None:
    """Call a function after each write of this process to the log of a realm, in the thread that wrote.

    Args:
        realm: open for acting, and not of one caller (``Realm.as_caller``).
        note: called with the times of the write, without the log's lock.

    Raises:
        RefusedError: ``LOG_READ_ONLY``.
    """
    engine = realm._acting
    assert isinstance(engine, PreparingCommands)
    engine.time_writes(note)
