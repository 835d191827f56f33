"""Opening realms again: after a move where the directory places it, and after the loss of events where it was.

A log that was closed to writers was moved. A log that lacks events which this process has seen is another one than the
realm was opened with: a database server was promoted that lacks commits, or a backup was restored.

The hosted realm is replaced at once. Requests that have begun with the old one end there: those that only read are
answered, those that write are asked to repeat (``REALM_MOVED``, ``LOG_SHRUNK``); its streams end, and their readers
continue with ``Last-Event-ID``. The old realm is closed after their end. After a move, positions are the same.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, WorldProtocolError

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
    """Follows the realms of a service; used in its event loop, unless a method says otherwise.

    Args:
        service: the service.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._closed_logs: set[str] = set()
        self._shrunk: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._following: dict[str, asyncio.Task[None]] = {}
        self._left: dict[asyncio.Task[None], tuple[Realm, LogWatch]] = {}
        self._stopping = asyncio.Event()

    def start(self) -> None:
        """Begin to serve the event loop that runs."""
        self._loop = asyncio.get_running_loop()

    def open_again(self, name: str) -> None:
        """Open a realm again whose log may lack events that were seen, unless that is under way; for any thread.

        Args:
            name: of a realm.
        """
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._open_again, name)

    def _open_again(self, name: str) -> None:
        if self._service.realms[name].reopen is not None:
            self._shrunk.add(name)
            self.follow(name)

    def follow(self, name: str) -> None:
        """Begin to follow a realm whose log may have been closed to writers, unless that is under way.

        Args:
            name: of a realm that can be opened again.
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
        """Open a realm where it is, until its log is open to writers and has all events that were seen."""
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
        """Open a realm where it is, if its log is closed to writers or lacks events.

        Args:
            hosted: the realm at the place where it was opened.

        Returns:
            Whether its log is open to writers, so that there is nothing to do, and whether it was opened again.
        """
        assert hosted.reopen is not None
        run = self._service.threads.run
        try:
            if not await self._has_shrunk(hosted) and not await self._was_closed(hosted):
                hosted.fault = None
                return True, False
            found = await run(hosted.reopen)
            if found is None:
                hosted.fault = None
                return False, False
            await self._replace(hosted, found)
        except Exception as error:
            own = error if isinstance(error, WorldProtocolError) else None
            hosted.fault = own or WorldProtocolError(ErrorCode.LOG_FAILED, "The server's log has the cause.")
            _LOGGER.error(
                "The realm %s cannot be opened again where it is: %s",
                hosted.name,
                error,
                exc_info=None if isinstance(error, WorldProtocolError | OSError) else error,
            )
            return False, False
        return False, True

    async def _was_closed(self, hosted: HostedRealm) -> bool:
        """Return whether a realm is to be looked for in its directory."""
        if not hosted.is_placed:
            return False
        return (await self._service.threads.run(hosted.realm.realm)).writer.closed is not None

    async def _has_shrunk(self, hosted: HostedRealm) -> bool:
        """Return whether the log of a realm lacks events that this process has seen."""
        if hosted.log_watch.has_shrunk:
            return True
        if hosted.name not in self._shrunk:
            return False
        try:
            await self._service.threads.run(partial(_look, hosted.realm))
        except DamagedLogError as error:
            if error.code != ErrorCode.LOG_SHRUNK:
                raise
            return True
        self._shrunk.discard(hosted.name)
        return False

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
        _LOGGER.warning("The realm %s was opened again, and is served at %s.", new.name, new.realm.log.address)

    async def _close_left(self, realm: Realm, log_watch: LogWatch) -> None:
        """Close a realm that was left, after the end of the requests that had begun before."""
        await self._service.running.ended_so_far()
        await _close(realm, log_watch)


def _look(realm: Realm) -> None:
    """Compare a log with what was seen of it, under its lock; nothing is written."""
    with realm.log.write():
        pass


async def _close(realm: Realm, log_watch: LogWatch) -> None:
    await log_watch.join()
    await asyncio.to_thread(realm.close)
