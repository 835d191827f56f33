"""Observers of an engine: what they see of commands, stages and commits, for traces and metrics.

An observer changes no result. An engine without one makes no call for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from world.clock import wall_clock_ns
from world.state.ports import Authority, Executor

if TYPE_CHECKING:
    from world.pipeline.submit import Submission
    from world.pipeline.unit_of_work import StageObserver
    from world.state.writer_epoch import WriterPlace

__all__ = ["Observer", "TimedLog", "WritableLog", "WriteTiming"]

C = TypeVar("C")
_LOGGER = logging.getLogger("worldprotocol")


@dataclass(slots=True)
class WriteTiming:
    """Times of one write to a log, in ns since 1970; a time that was not reached is 0.

    Only the first one is of the wall clock; the others are as much later as a monotonic clock says.

    Args:
        began: when the write began to wait for the log's lock.
        locked: when it held the lock.
        applied: when the commands had run, and the commit began.
        ended: when the commit was durable, or the write was given up.
        events: number of appended events.
        position: position of the newest event, after the write.
        error: why it was given up; None for a commit.
        units_ended: units of work of other processes that it ended, since they held the lock for too long.
    """

    began: int
    locked: int = 0
    applied: int = 0
    ended: int = 0
    events: int = 0
    position: int = 0
    error: BaseException | None = None
    units_ended: int = 0

    @property
    def lock_wait_s(self) -> float:
        """How long the write waited for the lock, in seconds."""
        return ((self.locked or self.ended) - self.began) / 1e9

    @property
    def commit_s(self) -> float:
        """How long the commit took, without the commands, in seconds; 0 where it did not begin."""
        return (self.ended - self.applied) / 1e9 if self.applied else 0.0


class WritableLog(Protocol):
    """What a unit of work needs of the log (``world.log.EventLog``)."""

    @property
    def log_id(self) -> int:
        """Number of the log in its store."""
        ...

    @property
    def backend(self) -> Literal["sqlite", "postgresql"]:
        """Name of the back end."""
        ...

    @property
    def units_ended(self) -> int:
        """How many units of work of other processes it has ended."""
        ...

    def write(self, questions: Any = (), *, is_unit: bool = False) -> AbstractContextManager[Any]:
        """Take the log's lock, give a transaction, and commit it when the block ends."""
        ...

    def insert_events(self, stored_events: Any, *, transaction: Any = None) -> list[int]:
        """Append events in a transaction."""
        ...

    def place(self) -> WriterPlace | None:
        """Return where the writer that has the log's lock writes; None for a file."""
        ...


class TimedLog:
    """A log whose writes are timed.

    Args:
        log: the log.
        note: called after each write, without the log's lock, in the thread that wrote; an error of it is logged.
    """

    def __init__(self, log: WritableLog, note: Callable[[WriteTiming], None]) -> None:
        """Time the writes of a log from now on."""
        self._log = log
        self._note = note
        self.log_id = log.log_id
        self.backend = log.backend

    @property
    def units_ended(self) -> int:
        """How many units of work of other processes the log has ended."""
        return self._log.units_ended

    @contextmanager
    def write(self, questions: Any = (), *, is_unit: bool = False) -> Iterator[Any]:
        """Write as the log does, and note the times."""
        begin, ended = time.perf_counter_ns(), self._log.units_ended
        timing = WriteTiming(wall_clock_ns())

        def now() -> int:
            return timing.began + time.perf_counter_ns() - begin

        try:
            with self._log.write(questions, is_unit=is_unit) as transaction:
                timing.locked = now()
                yield transaction
                timing.events = len(transaction.appended)
                timing.position = transaction.head.size + timing.events
                timing.applied = now()
        except BaseException as error:
            timing.error = error
            raise
        finally:
            timing.ended, timing.units_ended = now(), self._log.units_ended - ended
            try:
                self._note(timing)
            except Exception:  # the write is as it is
                _LOGGER.exception("A write was not noted.")

    def insert_events(self, stored_events: Any, *, transaction: Any = None) -> list[int]:
        """Append events in a transaction."""
        return self._log.insert_events(stored_events, transaction=transaction)

    def place(self) -> WriterPlace | None:
        """Return where the log is written."""
        return self._log.place()


class Observer(Protocol):
    """Follows what an engine does; the methods return what the engine uses in place of what they take."""

    @property
    def stages(self) -> StageObserver:
        """Called for the stages of the pipeline."""
        ...

    def submission(self, asked: Submission) -> Submission:
        """Return a submission of the calling thread with the trace that it is part of."""
        ...

    def authority(self, authority: Authority) -> Authority:
        """Return an Authority that gives the same rulings."""
        ...

    def executor(self, executor: Executor) -> Executor:
        """Return an executor with the same outcomes."""
        ...

    def command(self, command: Callable[[Any], C]) -> Callable[[Any], C]:
        """Return a command with the same result, in the thread of its caller; another thread may run it."""
        ...

    def wrote(self, timing: WriteTiming) -> None:
        """Note a write to the log."""
        ...
