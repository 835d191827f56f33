"""What the public API uses of the writer: the commands, and the rest of its surface.

``world.engine.protocol.WorldProtocol`` is the writer; ``world.engine.verified_commands`` shares it with one caller.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from world.engine.commands import Commands
from world.engine.lease_commands import LeaseCommands

if TYPE_CHECKING:
    from world.core import Domain
    from world.engine.event_bus import Subscribers
    from world.engine.writability import Writability
    from world.pipeline.unit_of_work import UnitOfWork
    from world.state.realm_view import RealmView

__all__ = ["Writer"]


class Writer(Commands):
    """The writer of one realm as its callers use it."""

    subscribers: Subscribers

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """The domain whose actions run."""

    @property
    def leasing(self) -> LeaseCommands:
        """Leases that are requested directly, without a proposal."""
        return LeaseCommands(self.run)

    @property
    @abstractmethod
    def worker(self) -> str:
        """The id of this process's worker."""

    @abstractmethod
    def is_gone(self, worker: str) -> bool:
        """Return whether a worker certainly does not run any more."""

    @abstractmethod
    def now_ms(self) -> int:
        """Return the time that would be recorded now, ms since 1970."""

    @abstractmethod
    def realm(self) -> RealmView:
        """Return the realm as of now, an immutable view."""

    @abstractmethod
    def unit(self, *, looks: bool = True) -> UnitOfWork:
        """Return a unit of work that reads the published state and is never committed; see ``Reading.unit``."""

    @abstractmethod
    def refuse_waiting(self) -> None:
        """Refuse to wait where commands are refused: in a subscriber's handler, and in code that a command calls.

        Raises:
            RefusedError: ``CALL_FROM_HANDLER``, ``CALL_FROM_WITHIN``.
        """

    @abstractmethod
    def writability(self) -> Writability:
        """Return whether the realm would accept a write now; see ``world.engine.writability.writability``."""

    @abstractmethod
    def settle(self) -> None:
        """Take over abandoned executions, decide what timed out, and start what is approved."""

    @abstractmethod
    def close(self) -> None:
        """End this writer; other processes take over what it left."""
