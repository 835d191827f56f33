"""Following moves: a realm whose log was closed to writers is opened where its directory places it, and served there.

The hosted realm is replaced at once. Requests that have begun with the old one end there: those that only read are
answered, those that write are asked to repeat (``REALM_MOVED``); its streams end, and their readers continue with
``Last-Event-ID``, because positions are the same at both places. The old realm is closed after their end.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from world.errors import WorldProtocolError

if TYPE_CHECKING:
    from worldprotocol.api.realm import Realm
    from worldprotocol.server.log_watch import LogWatch
    from worldprotocol.server.service import HostedRealm, RealmToServe, Service

__all__ = ["Moves"]

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 5.0
"""Shortest and longest time between two attempts to open a realm where it is, in seconds."""

_LOGGER = logging.getLogger("worldprotocol.server")


class Moves:
    """Follows the realms of a service; used in its event loop.

    Args:
        service: the service.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._closed_logs: set[str] = set()
        self._following: dict[str, asyncio.Task[None]] = {}
        self._left: dict[asyncio.Task[None], tuple[Realm, LogWatch]] = {}
        self._stopping = asyncio.Event()

    def follow(self, name: str) -> None:
        """Begin to follow a realm whose log may have been closed to writers, unless that is under way.

        Args:
            name: of a realm that a directory places.
        """
        self._closed_logs.add(name)
        if not self._stopping.is_set() and name not in self._following:
            self._following[name] = asyncio.ensure_future(self._follow(name))

    def begin_stop(self) -> None:
        """Follow nothing any more."""
        self._stopping.set()

    async def join(self) -> None:
        """Wait until nothing is followed."""
        await asyncio.gather(*self._following.values())

    async def close(self) -> None:
        """Close the realms that were left, after the end of all requests."""
        for waiting, (realm, log_watch) in list(self._left.items()):
            waiting.cancel()
            await _close(realm, log_watch)

    async def _follow(self, name: str) -> None:
        """Open a realm where it is, until its log is open to writers."""
        pause_s = FIRST_PAUSE_S
        while not self._stopping.is_set():
            self._closed_logs.discard(name)
            is_open, is_served = await self._attempt(self._service.realms[name])
            if is_open and name not in self._closed_logs:
                break
            if is_open or is_served:
                pause_s = FIRST_PAUSE_S
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stopping.wait()
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        del self._following[name]

    async def _attempt(self, hosted: HostedRealm) -> tuple[bool, bool]:
        """Open a realm where it is, if its log is closed to writers.

        Args:
            hosted: the realm at the place where it was opened.

        Returns:
            Whether its log is open to writers, so that there is nothing to do, and whether it was opened elsewhere.
        """
        assert hosted.reopen is not None
        run = self._service.threads.run
        try:
            if (await run(hosted.realm.realm)).writer.closed is None:
                hosted.fault = None
                return True, False
            found = await run(hosted.reopen)
            if found is None:
                return False, False
            await self._replace(hosted, found)
        except Exception as error:
            hosted.fault = error.message if isinstance(error, WorldProtocolError) else "the server's log has the cause"
            is_own = isinstance(error, WorldProtocolError | OSError)
            _LOGGER.error(
                "The realm %s was moved, and cannot be opened where it is: %s",
                hosted.name,
                error,
                exc_info=None if is_own else error,
            )
            return False, False
        return False, True

    async def _replace(self, old: HostedRealm, found: RealmToServe) -> None:
        """Serve a realm where it was opened."""
        service = self._service
        try:
            new = service.hosted(found, old.jobs)
            await service.begin(new)
        except BaseException:
            await asyncio.to_thread(found.realm.close)
            raise
        service.realms[old.name] = new
        old.log_watch.close()
        for task in old.watching:
            task.cancel()
        waiting = asyncio.ensure_future(self._close_left(old.realm, old.log_watch))
        self._left[waiting] = old.realm, old.log_watch
        waiting.add_done_callback(lambda done: self._left.pop(done, None))
        _LOGGER.warning("The realm %s is served at %s now.", new.name, new.realm.log.address)

    async def _close_left(self, realm: Realm, log_watch: LogWatch) -> None:
        """Close a realm that was left, after the end of the requests that had begun before."""
        await self._service.running.ended_so_far()
        await _close(realm, log_watch)


async def _close(realm: Realm, log_watch: LogWatch) -> None:
    await log_watch.join()
    await asyncio.to_thread(realm.close)
