"""``AsyncRealm.leases``: direct use of leases in asyncio; a request that waits holds no thread."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import Any, Self, Unpack

from world.engine.lease_commands import LeaseCommands
from worldprotocol.api.asynchronous.twins import CallPool, Twin, awaited
from worldprotocol.api.leases import LeaseOptions, Leases
from worldprotocol.api.leasing.async_calls import run_to_end
from worldprotocol.api.leasing.handle import LeaseHandle

__all__ = ["Acquiring", "AsyncLeaseHandle", "AsyncLeases"]


class AsyncLeaseHandle(Twin[LeaseHandle]):
    """Leases that were granted together; ``sync`` has their attributes, such as ``token``."""

    @property
    def token(self) -> int:
        """Fencing token, larger than the tokens of all earlier grants."""
        return self._sync.token

    check = awaited(LeaseHandle.check)
    heartbeat = awaited(LeaseHandle.heartbeat)

    def keep_alive(self) -> None:
        """Send three heartbeats per TTL from a thread of its own until the leases are released."""
        self._sync.keep_alive()

    async def release(self) -> None:
        """Release the leases, even if the task is cancelled meanwhile; repeated calls have no effect."""
        await run_to_end(self._sync.release)

    async def stop_beating(self) -> None:
        """Stop the heartbeats; the leases expire after their TTL."""
        await run_to_end(self._sync.stop_beating)

    async def is_active(self) -> bool:
        """Return whether every lease is in force according to the current log."""
        return await self._pool.run(lambda: self._sync.is_active)

    async def __aenter__(self) -> Self:
        self.keep_alive()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.release()


class Acquiring:
    """A request for leases: awaited, it returns them; in ``async with``, they are kept alive and released."""

    def __init__(self, leases: Leases, pool: CallPool, options: LeaseOptions) -> None:
        """Create a request that begins when it is awaited or entered."""
        self._leases = leases
        self._pool = pool
        self._options = options
        self._held: AsyncLeaseHandle | None = None

    def __await__(self) -> Generator[Any, None, AsyncLeaseHandle]:
        return self._acquire().__await__()

    async def __aenter__(self) -> AsyncLeaseHandle:
        self._held = await self._acquire()
        return await self._held.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._held is not None:
            await self._held.release()

    async def _acquire(self) -> AsyncLeaseHandle:
        return AsyncLeaseHandle(await self._leases.acquire_in(self._pool.start, **self._options), self._pool)


class AsyncLeases(Twin[Leases]):
    """Direct use of leases in asyncio; ``AsyncRealm.leases``."""

    @property
    def desk(self) -> LeaseCommands:
        """The individual commands; they block, as ``Leases.desk``."""
        return self._sync.desk

    def acquire(self, **options: Unpack[LeaseOptions]) -> Acquiring:
        """Acquire leases, and wait if Wait-Die permits; await the result or use it in ``async with``.

        A cancelled task withdraws its request, and releases what was granted meanwhile.

        Args:
            **options: see ``worldprotocol.api.leases.LeaseOptions``.

        Raises:
            RefusedError: as ``Leases.acquire``, when the result is awaited.
        """
        return Acquiring(self._sync, self._pool, options)
