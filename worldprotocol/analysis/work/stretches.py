"""Work on logs in stretches, by one process or by several.

Without a choice of processes, this process handles the first stretch; its duration determines how many work on the
rest. The stretches of each log are assigned in the order of the log, so that a process which needs the state before a
stretch can fold up to it. Backtest and recheck use this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from world.error_codes import ErrorCode
from world.errors import RefusedError, WorldProtocolError
from worldprotocol.analysis.work.free_cores import cores, watch_cores
from worldprotocol.analysis.work.work_list import TaskDone, Work, WorkList
from worldprotocol.analysis.work.workers import Workers
from worldprotocol.api.bootstrap import EventLog, TreeHead

__all__ = ["LogAudit", "LogWork", "Progress", "Stretch", "Stretches", "audit_logs", "check_same_log"]

R = TypeVar("R")

Stretch = tuple[int, int]
"""Positions after the first number, up to and including the second."""

Progress = Callable[[int, int], None]
"""Called with the number of events done, and of all events."""

CHUNK: Final = 4_000
"""Maximum number of events in a stretch, and between two reports of progress."""

FIRST: Final = 2_000
"""Events of the first stretch, which is timed."""

PAYS_S: Final = 1.5
"""CPU seconds of work that justify one more process; more than its start costs."""

SHARES: Final = 4
"""Minimum number of stretches per process, so that all end at about the same time."""


@dataclass(frozen=True, slots=True)
class LogWork(Generic[R]):
    """What is done with one log.

    Args:
        address: the log.
        begin: opens the log and loads the code, in this or another process, and gives the function for a stretch;
            serialisable.
        after: position before the first event.
        upto: the last position.
        fold: cost of folding an event that another process handles, relative to handling it; 0 if a stretch needs no
            earlier event.
    """

    address: str
    begin: Callable[[], AbstractContextManager[Callable[[Stretch], R]]]
    after: int
    upto: int
    fold: float = 0


class LogAudit(Protocol[R]):
    """Audit of one log, with its result so far.

    Attributes:
        error: why there is no audit of this log, or why it ended early.
    """

    error: WorldProtocolError | None

    def work(self) -> LogWork[R]:
        """Return the work on this log."""
        ...

    def take(self, result: R) -> Iterator[dict[str, Any]]:
        """Add the result of the next stretch, and yield its findings."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether what is left of the log is not looked at."""
        ...


def audit_logs(
    asked: Sequence[LogAudit[R]], *, workers: Workers | None, progress: Progress | None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Audit several logs; the result of each is that for the log alone.

    An error of one log ends its audit only, and is kept in its ``error``.

    Args:
        asked: the logs; their results are kept in them.
        workers: the processes; None chooses them by the length of the logs, at most one for each core.
        progress: called at intervals.

    Yields:
        The number of a log and a finding, for each log in its order.

    Raises:
        RefusedError: the codes of ``Workers.crew``.
    """
    works, audits = [], []
    for number, one in enumerate(asked):
        if one.error is not None:
            continue
        try:
            works.append(one.work())
            audits.append((number, one))
        except WorldProtocolError as error:
            one.error = error
    total = sum(work.upto - work.after for work in works)
    done = [0] * len(works)
    stretches = Stretches(works, workers or Workers())
    for at, upto, result in stretches.results():
        number, one = audits[at]
        try:
            for finding in one.take(result.value()):
                yield number, finding
        except WorldProtocolError as error:
            one.error = error
        if one.error is not None or one.is_settled:
            stretches.drop(at)
            upto = works[at].upto
        done[at] = upto - works[at].after
        if progress is not None:
            progress(sum(done), total)


def check_same_log(log: EventLog, expected: TreeHead | None) -> None:
    """Check that a process works on the log that it was given, and not on another one at the same address.

    Args:
        log: as the process opened it.
        expected: a tree head of the log that was meant; None where the caller opened it.

    Raises:
        RefusedError: ``CLUSTER_UNFIT``.
    """
    if expected is not None and (log.head().size < expected.size or log.root_at(expected.size) != expected):
        raise RefusedError(
            ErrorCode.CLUSTER_UNFIT,
            f"A worker found another log at {log.address} than was to be audited. Give an address that leads to the "
            "same log on every machine: PostgreSQL, or a shared folder.",
            position=expected.size,
        )


class Stretches(Generic[R]):
    """Work on several logs.

    Args:
        works: the logs.
        workers: the processes.

    Attributes:
        dropped: numbers of the logs whose work was ended early.
    """

    def __init__(self, works: Sequence[LogWork[R]], workers: Workers) -> None:
        self._works = works
        self._workers = workers
        self._done = [work.after for work in works]
        self.dropped: set[int] = set()
        self._list: WorkList[R] | None = None

    def drop(self, work: int) -> None:
        """Leave out what is left of a log."""
        self.dropped.add(work)
        if self._list is not None:
            self._list.drop(work)

    def results(self) -> Iterator[tuple[int, int, TaskDone[R]]]:
        """Yield the number of the log, the end of a stretch, and its result, for each log in its order.

        Raises:
            RefusedError: the codes of ``Workers.crew``. Errors of a log are in its last result, ``PROCESS_LOST`` too.
        """
        many = self._workers.jobs or cores()
        if not self._workers.is_cluster and many > 1 and self._workers.jobs is None:
            many = yield from self._first()
        if not self._workers.is_cluster and many < 2:
            for number in self._left():
                yield from self._here(number, CHUNK)
            return
        yield from self._shared(many)

    def _left(self) -> list[int]:
        """Return the logs that are not done."""
        return [
            number
            for number, work in enumerate(self._works)
            if number not in self.dropped and self._done[number] < work.upto
        ]

    def _first(self) -> Generator[tuple[int, int, TaskDone[R]], None, int]:
        """Perform the first stretch in this process; return how many processes its duration justifies."""
        free, begun = watch_cores(), time.process_time()  # CPU time: elapsed time is longer on a busy machine
        for number in self._left()[:1]:
            yield from self._here(number, FIRST, most=FIRST)
        done = sum(self._done) - sum(work.after for work in self._works)
        left = sum(self._works[number].upto - self._done[number] for number in self._left())
        left_s = (time.process_time() - begun) / max(done, 1) * left
        return min(free(), int(left_s / PAYS_S))

    def _here(self, number: int, chunk: int, most: int | None = None) -> Iterator[tuple[int, int, TaskDone[R]]]:
        """Perform a log in this process, up to a number of events; None is all of them."""
        work = self._works[number]
        last = work.upto if most is None else min(work.upto, self._done[number] + most)
        try:
            with work.begin() as function:
                while self._done[number] < last and number not in self.dropped:
                    after = self._done[number]
                    self._done[number] = min(after + chunk, last)
                    result = function((after, self._done[number]))
                    yield number, self._done[number], TaskDone(number, 0, result)
        except WorldProtocolError as error:
            self.dropped.add(number)
            yield number, self._done[number], TaskDone(number, 0, error=error)

    def _shared(self, many: int) -> Iterator[tuple[int, int, TaskDone[R]]]:
        """Perform what is left in other processes."""
        left = self._left()
        events = sum(self._works[number].upto - self._done[number] for number in left)
        step = max(1, min(CHUNK, -(-events // (many * SHARES))))
        tasks = {
            number: [
                (at, min(at + step, self._works[number].upto))
                for at in range(self._done[number], self._works[number].upto, step)
            ]
            for number in left
        }
        count = sum(map(len, tasks.values()))
        if not count:
            return
        crew = self._workers.crew(
            self._workers.jobs if self._workers.is_cluster else min(many, count),
            [self._works[number].address for number in left],
        )
        works = [Work(work.begin, tasks.get(number, ()), work.fold) for number, work in enumerate(self._works)]
        self._list = WorkList(works, crew)
        for done in self._list.results():
            if done.error is not None:
                self.dropped.add(done.work)
            yield done.work, tasks[done.work][done.task][1], done
