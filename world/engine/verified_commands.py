"""Commands of a verified caller: those of the writer, with the verification in each unit of work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from world.clock import IdSource
from world.engine.commands import Prepare
from world.engine.writer import Writer
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.verification import Verification
from world.pipeline.unit_of_work import UnitOfWork
from world.read_models.unit_lookup import UnitLookup

if TYPE_CHECKING:
    from world.core import Domain
    from world.engine.writability import Writability
    from world.read_models.archive import Archive
    from world.state.realm_view import RealmView

__all__ = ["OnceProtocol", "RepeatedRequestError", "VerifiedProtocol"]

R = TypeVar("R")


class _VerifiedCommand:
    """A command that runs with the verification of its caller; attributes that the writer reads are those of it."""

    __slots__ = ("_command", "_verified")

    def __init__(self, command: Callable[[UnitOfWork], Any], verified: Verification) -> None:
        self._command = command
        self._verified = verified

    def __getattr__(self, name: str) -> Any:
        return getattr(self._command, name)

    def __call__(self, work: UnitOfWork) -> Any:
        work.verified = self._verified
        try:
            return self._command(work)
        finally:
            work.verified = None


class VerifiedProtocol(Writer):
    """The commands of one verified caller on a writer, which other callers share.

    Args:
        protocol: the writer.
        ids: source of new ids.
        verified: the caller.
    """

    def __init__(self, protocol: Writer, ids: IdSource, verified: Verification) -> None:
        """Share the writer's archive and ids."""
        self._protocol = protocol
        self._verified = verified
        self._ids = ids
        self.holds_submissions = protocol.holds_submissions
        self.subscribers = protocol.subscribers
        self.observer = protocol.observer

    @property
    def verified(self) -> Verification:
        """The caller."""
        return self._verified

    def run(self, command: Callable[[UnitOfWork], R], *, others_too: bool = False, prepare: Prepare | None = None) -> R:
        """Run one command; see ``WorldProtocol.run``."""
        verified: Callable[[UnitOfWork], R] = _VerifiedCommand(command, self._verified)
        return self._protocol.run(verified, others_too=others_too, prepare=prepare)

    @property
    def archive(self) -> Archive:  # type: ignore[override]  # that of the writer may change
        """Past worlds and ended proposals."""
        return self._protocol.archive

    @property
    def domain(self) -> Domain:
        """The domain whose actions run."""
        return self._protocol.domain

    @property
    def worker(self) -> str:
        """The id of this process's worker."""
        return self._protocol.worker

    def is_gone(self, worker: str) -> bool:
        """Return whether a worker certainly does not run any more."""
        return self._protocol.is_gone(worker)

    def now_ms(self) -> int:
        """Return the time that would be recorded now, ms since 1970."""
        return self._protocol.now_ms()

    def realm(self) -> RealmView:
        """Return the realm as of now; see ``Writer.realm``."""
        return self._protocol.realm()

    def refuse_waiting(self) -> None:
        """Refuse to wait where commands are refused; see ``Writer.refuse_waiting``."""
        self._protocol.refuse_waiting()

    def writability(self) -> Writability:
        """Return whether the realm would accept a write now; see ``Writer.writability``."""
        return self._protocol.writability()

    def unit(self, *, looks: bool = True) -> UnitOfWork:
        """Return a unit of work that reads the published state; see ``Reading.unit``."""
        return self._protocol.unit(looks=looks)

    def settle(self) -> None:
        """Do what is due; see ``Writer.settle``."""
        self._protocol.settle()

    def close(self) -> None:
        """Close the writer."""
        self._protocol.close()


class RepeatedRequestError(RefusedError):
    """An earlier request of the caller with the same key is recorded, or shares this commit.

    Args:
        events: what it recorded.
    """

    def __init__(self, events: Sequence[Any]) -> None:
        super().__init__(ErrorCode.IDEMPOTENCY_CONFLICT, "The request was recorded before.")
        self.events = events


class _FirstCommand:
    """A command that is refused, under the log's lock, where its request was recorded; see ``_VerifiedCommand``."""

    __slots__ = ("_command", "_owner")

    def __init__(self, command: Callable[[UnitOfWork], Any], owner: tuple[str, str]) -> None:
        self._command = command
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._command, name)

    def __call__(self, work: UnitOfWork) -> Any:
        assert isinstance(work.lookup, UnitLookup)
        events = work.lookup.events_of_key(*self._owner)
        if events:
            raise RepeatedRequestError(events)
        return self._command(work)


class OnceProtocol(VerifiedProtocol):
    """The command of a request with a key, refused under the log's lock where an earlier one recorded events.

    Equal requests may share a commit, so the events of that commit count, too.

    Args:
        protocol: the writer.
        ids: source of new ids.
        verified: the caller, with actor and key.
    """

    def run(self, command: Callable[[UnitOfWork], R], *, others_too: bool = False, prepare: Prepare | None = None) -> R:
        """Run one command; see ``WorldProtocol.run``.

        Raises:
            RepeatedRequestError: the request is a repeated one.
        """
        owner = self._verified.actor_id or "", self._verified.key or ""
        first: Callable[[UnitOfWork], R] = _FirstCommand(command, owner)
        return super().run(first, others_too=others_too, prepare=prepare)
