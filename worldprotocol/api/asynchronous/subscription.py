"""``AsyncRealm.subscribe``: new events as an asynchronous iterator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from world.events.base import Event
from worldprotocol.api.asynchronous.twins import CallPool

if TYPE_CHECKING:
    from world.engine.event_bus import Schedule
    from worldprotocol.api.realm import Realm

__all__ = ["Subscription"]


class Subscription(AsyncIterator[tuple[int, Event]]):
    """Events with their positions, in the order of the log, from the moment of entering on.

    ``async with`` begins and ends it; without, the first step of the iteration begins it and ``aclose`` ends it. Events
    are kept until they are taken, so take them as fast as they come. A task that takes them may act.
    """

    def __init__(self, realm: Realm, pool: CallPool) -> None:
        """Create a subscription that has not begun."""
        self._realm = realm
        self._pool = pool
        self._arrived: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        self._end: Callable[[], None] | None = None

    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def __anext__(self) -> tuple[int, Event]:
        """Return the next event; raises ``RefusedError`` ``LOG_READ_ONLY``, ``LOG_CLOSED``."""
        await self._begin()
        return await self._arrived.get()

    async def aclose(self) -> None:
        """End the subscription; repeated calls have no effect."""
        if self._end is not None:
            self._end()

    async def _begin(self) -> None:
        if self._end is not None:
            return
        loop = asyncio.get_running_loop()

        def handle(position: int, event: Event, _schedule: Schedule) -> None:
            loop.call_soon_threadsafe(self._arrived.put_nowait, (position, event))

        beginning = self._pool.start(lambda: self._realm.subscribe(handle), unclaimed=lambda end: end())
        try:
            self._end = await asyncio.shield(beginning)
        except asyncio.CancelledError:
            beginning.add_done_callback(lambda done: None if done.exception() else done.result()())
            raise
