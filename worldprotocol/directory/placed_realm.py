"""A realm that a directory places: after a move, its next command runs at the new place.

A log that was closed to writers refuses a command before it does anything (``LOG_FENCED``). Then the directory is read,
the realm is opened where it is now, and the command runs there. A command that was recorded before the log was closed,
and whose effects were not, is repeated only if it submits an intent, which has one proposal at every place.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from world.engine.commands import Prepare
from world.engine.lease_commands import LeaseCommands
from world.engine.writer import Writer
from world.error_codes import ErrorCode
from world.errors import RefusedError, WaitTimeoutError
from world.pipeline.unit_of_work import UnitOfWork
from world.state.writer_epoch import closed_log
from worldprotocol.api.realm import Realm
from worldprotocol.api.waiting.proposals import timeout_seconds
from worldprotocol.directory.directory_log import DirectoryLog
from worldprotocol.directory.writers import is_open_somewhere, open_where_placed

if TYPE_CHECKING:
    from world.core import Domain
    from world.engine.event_bus import Subscribers
    from world.engine.observing import Observer
    from world.engine.writability import Writability
    from world.read_models.archive import Archive
    from world.state.proposal import Proposal
    from world.state.realm_view import RealmView
    from worldprotocol.api.bootstrap import Components, EventLog
    from worldprotocol.api.options import EngineOptions
    from worldprotocol.api.waiting.proposals import Until

__all__ = ["PlacedRealm"]

MOST_MOVES: Final = 10
"""Most places at which one command is tried."""

_LOOK_S: Final = 2.0
"""How often a wait looks whether the realm was moved, in seconds."""

R = TypeVar("R")


class _Placement:
    """The place of a realm in this process; safe to use from many threads.

    Args:
        directory: the directory.
        name: of the realm.
        domain: as for ``Realm.open``.
        options: as for ``Realm.open``.
    """

    def __init__(self, directory: DirectoryLog, name: str, domain: Domain | str | Path, options: EngineOptions) -> None:
        """Open the realm where it is."""
        self._directory = directory
        self._name = name
        self._domain = domain
        given: dict[str, Any] = dict(options)  # iterators would be read at the first place, and be empty at the next
        read = {key: list(value) for key, value in given.items() if isinstance(value, Iterator)}
        self._options = cast("EngineOptions", given | read)
        self._changing = threading.Lock()
        self._left: list[EventLog] = []
        self.owned: DirectoryLog | None = None
        self._place, self.current = self._opened()

    def follow(self, closed: Writer) -> bool:
        """Go where the realm is now; return False where it is nowhere open to writers.

        Args:
            closed: the writer whose log was closed.

        Raises:
            RefusedError: the realm cannot be opened at its place; see ``Realm.open``.
        """
        with self._changing:
            if self.current._acting is not closed:
                return True  # another thread has followed
            if not is_open_somewhere(self._directory, self._name):
                return False
            if self._directory.state().entry(self._name).place == self._place:
                return True  # the work that had closed it was abandoned
            before = self.current
            self._place, self.current = self._opened()
            before._acting.close()
            self._left.append(before.log)  # other threads may still read it
            return True

    def close(self) -> None:
        """Close the realm at all places."""
        try:
            self.current.close()
        finally:
            for log in self._left:
                log.close()
            if self.owned is not None:
                self.owned.close()

    def _opened(self) -> tuple[str, Realm]:
        return open_where_placed(
            self._directory, self._name, lambda place: Realm.open(place, domain=self._domain, **self._options)
        )


class _NotedCommand:
    """A command that notes whether it ran; attributes that the writer reads are those of it."""

    __slots__ = ("_command", "has_run")

    def __init__(self, command: Callable[[UnitOfWork], Any]) -> None:
        self._command = command
        self.has_run = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._command, name)

    def __call__(self, work: UnitOfWork) -> Any:
        self.has_run = True
        return self._command(work)


class FollowingWriter(Writer):
    """The writer of a realm at its present place.

    Args:
        placement: the place.
    """

    def __init__(self, placement: _Placement) -> None:
        self._placement = placement
        self._ids = placement.current._composed.ids

    def run(self, command: Callable[[UnitOfWork], R], *, others_too: bool = False, prepare: Prepare | None = None) -> R:
        """Run one command where the realm is; see ``WorldProtocol.run``.

        Raises:
            RefusedError: ``LOG_FENCED`` where the realm was archived, or a move does not end; what the command refuses.
        """
        was_recorded, moves = False, 0
        while True:
            here, noted = self._here, _NotedCommand(command)
            try:
                return cast(R, here.run(noted, others_too=others_too, prepare=prepare))
            except RefusedError as refused:
                if was_recorded and refused.code == ErrorCode.INTENT_ALREADY_SUBMITTED:
                    return cast(R, self.archive.proposal(refused.details["proposal_id"]))
                was_recorded, moves = noted.has_run, moves + 1
                submits = getattr(command, "intent_names", None) is not None
                may_repeat = moves < MOST_MOVES and (submits or not was_recorded)
                was_left = refused.code == ErrorCode.LOG_CLOSED and here is not self._here  # another thread followed
                if refused.code != ErrorCode.LOG_FENCED and not was_left:
                    raise
                if not self._placement.follow(here) or not may_repeat:
                    raise

    @property
    def _here(self) -> Writer:
        return self._placement.current._acting

    @property
    def subscribers(self) -> Subscribers:  # type: ignore[override]  # it changes with the place
        """Subscribers at the present place."""
        return self._here.subscribers

    @property
    def observer(self) -> Observer | None:  # type: ignore[override]  # as above
        """What follows the commands, for traces."""
        return self._here.observer

    @property
    def holds_submissions(self) -> bool:  # type: ignore[override]  # as above
        """Whether intents are recorded, to be held; see ``Commands``."""
        return self._here.holds_submissions

    @property
    def archive(self) -> Archive:  # type: ignore[override]  # as above
        """Past worlds and ended proposals, of the present place."""
        return self._here.archive

    @property
    def domain(self) -> Domain:
        """The domain whose actions run."""
        return self._here.domain

    @property
    def leasing(self) -> LeaseCommands:
        """Leases that are requested directly, without a proposal."""
        return LeaseCommands(self.run)

    @property
    def worker(self) -> str:
        """The id of this process's worker at the present place."""
        return self._here.worker

    def is_gone(self, worker: str) -> bool:
        """Return whether a worker certainly does not run any more."""
        return self._here.is_gone(worker)

    def now_ms(self) -> int:
        """Return the time that would be recorded now, ms since 1970."""
        return self._here.now_ms()

    def realm(self) -> RealmView:
        """Return the realm as of now; see ``Writer.realm``."""
        return self._here.realm()

    def unit(self, *, looks: bool = True) -> UnitOfWork:
        """Return a unit of work that reads the published state; see ``Reading.unit``."""
        return self._here.unit(looks=looks)

    def refuse_waiting(self) -> None:
        """Refuse to wait where commands are refused; see ``Writer.refuse_waiting``."""
        self._here.refuse_waiting()

    def writability(self) -> Writability:
        """Return whether the realm would accept a write now, where it is; see ``Writer.writability``."""
        return self._here.writability()

    def settle(self) -> None:
        """Do what is due, where the realm is."""
        here = self._here
        try:
            here.settle()
        except RefusedError as refused:
            if refused.code != ErrorCode.LOG_FENCED or not self._placement.follow(here):
                raise
            self._here.settle()

    def close(self) -> None:
        """Close the writer at all places."""
        self._placement.close()


class PlacedRealm(Realm):
    """A realm, open for acting at the place that a directory names; ``RealmDirectory.realm`` opens it.

    What was read from ``log``, ``archive`` and ``realm()`` before a move is that of the old place.
    """

    def __init__(self, directory: DirectoryLog, name: str, domain: Domain | str | Path, options: EngineOptions) -> None:
        """Open the realm where it is; see ``RealmDirectory.realm``."""
        self._placement = _Placement(directory, name, domain, options)
        current = self._placement.current
        super().__init__(current.log, current.parts, FollowingWriter(self._placement))

    @property
    def _log(self) -> EventLog:
        return self._placement.current.log

    @_log.setter
    def _log(self, log: EventLog) -> None:
        """Leave it to the placement."""

    @property
    def _archive(self) -> Archive:
        return self._placement.current.archive

    @_archive.setter
    def _archive(self, archive: Archive) -> None:
        """Leave it to the placement."""

    @property
    def _parts(self) -> Components | None:
        return self._placement.current.parts

    @_parts.setter
    def _parts(self, parts: Components | None) -> None:
        """Leave it to the placement."""

    def wait(self, proposal: Proposal | str, timeout: float | None = None, *, until: Until = "ended") -> Proposal:
        """Wait until a proposal is decided and has ended, also across a move; see ``RealmReader.wait``.

        Raises:
            WaitTimeoutError: ``NOT_ENDED_IN_TIME``.
            RefusedError: as ``RealmReader.wait``; ``LOG_FENCED`` where the realm was archived.
        """
        seconds = timeout_seconds(timeout)
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            here = self._placement.current
            left = None if end is None else max(0.0, end - time.monotonic())
            try:
                return super().wait(proposal, _LOOK_S if left is None else min(_LOOK_S, left), until=until)
            except WaitTimeoutError:
                if left is not None and left <= _LOOK_S:
                    raise
            closed = here.realm().writer.closed
            if closed is not None and not self._placement.follow(here._acting):
                raise closed_log(closed)

    def closing(self, directory: DirectoryLog) -> Self:
        """Close a directory, too, when this realm is closed; return this realm."""
        self._placement.owned = directory
        return self

    def close(self) -> None:
        """Close the log at all places; idempotent."""
        self._placement.close()
