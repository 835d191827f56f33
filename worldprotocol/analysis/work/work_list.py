"""Work list: tasks of several works, performed by several processes.

A work is a sequence of tasks that share what a process loads for them, such as the stretches of one log. Each process
is a lane: an executor of ``concurrent.futures`` that performs one task after the other. A lane keeps to its work as
long as that has tasks, so that few processes fold the same state, and then helps with the work that has the most left,
unless the lanes of that work will be done before this one has folded the state. The results of a work come in the
order of its tasks, and the number of results that wait for an earlier one is limited, so memory is bounded.

When a lane is lost, its tasks are performed by other lanes; a task with which several lanes were lost is given up.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.analysis.work.performing import MAX_BEGUN, Begin, Outcome, Parcel

__all__ = ["Crew", "Lane", "LaneLostError", "TaskDone", "Work", "WorkList"]

R = TypeVar("R")

AHEAD: Final = 2
"""Tasks assigned to a lane: the current one and the next."""

MAX_WAITING: Final = 4
"""Results per lane that may wait for an earlier one of the same work."""

MAX_LOSSES: Final = 3
"""Lanes that may be lost with the same task before it is given up."""

LOOK_S: Final = 0.5
"""Seconds between two looks at which lanes there are, while nothing is done."""


class LaneLostError(Exception):
    """A lane ended without a result.

    Args:
        how: how it ended, such as ``signal SIGKILL``.
        exit_code: exit code of its process, negative for a signal; None if it is unknown.
    """

    def __init__(self, how: str, exit_code: int | None = None) -> None:
        super().__init__(how)
        self.how = how
        self.exit_code = exit_code


class Lane(Protocol):
    """A process that performs tasks, through an executor of ``concurrent.futures``."""

    def submit(self, parcel: Parcel) -> Future[Outcome]:
        """Hand a task to the process.

        Raises:
            BrokenExecutor: the process has ended.
        """

    def lost(self) -> LaneLostError | None:
        """Return how the process ended, None while no loss is known here."""


class Crew(Protocol):
    """The lanes of a work list."""

    def lanes(self) -> Sequence[Lane]:
        """Return the lanes that there are now, at least one; those that are lost are replaced where possible.

        Raises:
            RefusedError: there are no lanes and will be none.
        """

    def close(self) -> None:
        """End all lanes, also in the middle of a task."""


@dataclass(frozen=True, slots=True)
class Work:
    """Tasks that share what a process loads for them.

    Args:
        begin: begins the work in a process.
        tasks: its tasks, in order; they and their results are serialisable.
        fold: cost of folding the state over a task that another process performs, relative to performing it; 0 if a
            task needs no earlier one.
    """

    begin: Begin
    tasks: Sequence[Any]
    fold: float = 0


@dataclass(frozen=True, slots=True)
class TaskDone(Generic[R]):
    """Result of a task.

    Args:
        work: number of the work.
        task: number of the task in its work.
        result: the result; None after an error.
        error: the error; the work ends with it.
    """

    work: int
    task: int
    result: R | None = None
    error: Exception | None = None

    def value(self) -> R:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value] # a result may be None


@dataclass(slots=True)
class _Progress:
    """How far a work is."""

    work: Work
    handed: int = 0
    come: int = 0
    again: list[int] = field(default_factory=list)
    waiting: dict[int, Outcome] = field(default_factory=dict)
    losses: Counter[int] = field(default_factory=Counter)

    def left(self) -> int:
        """Return how many tasks are not assigned."""
        return len(self.work.tasks) - self.handed + len(self.again)

    def has_next(self, most_waiting: int) -> bool:
        """Return whether a task may be assigned now."""
        return bool(self.again) or self.handed < min(len(self.work.tasks), self.come + most_waiting)

    def next(self) -> int:
        """Return the number of the next task, which exists."""
        return self.again[0] if self.again else self.handed

    def take_next(self) -> int:
        """Return the number of the next task, which is assigned now."""
        if self.again:
            return heapq.heappop(self.again)
        self.handed += 1
        return self.handed - 1


@dataclass(slots=True, eq=False)
class _Assigned:
    """A lane with its tasks, in the order of their assignment, and the last task of each work that it keeps."""

    lane: Lane
    work: int | None = None
    tasks: list[tuple[int, int, Future[Outcome]]] = field(default_factory=list)
    kept: dict[int, int] = field(default_factory=dict)

    def note(self, work: int, task: int, future: Future[Outcome]) -> None:
        """Record a task that was handed to the lane."""
        self.work = work
        self.tasks.append((work, task, future))
        self.kept.pop(work, None)
        self.kept[work] = task
        for old in list(self.kept)[:-MAX_BEGUN]:
            del self.kept[old]

    def to_fold(self, work: int, task: int) -> int:
        """Return the number of earlier tasks whose events the lane has to fold before it performs one."""
        last = self.kept.get(work, -1)
        return task - (last + 1 if last < task else 0)


class WorkList(Generic[R]):
    """Tasks of several works, performed by a crew.

    Args:
        works: the works.
        crew: the processes; ``results`` closes it.
    """

    def __init__(self, works: Sequence[Work], crew: Crew) -> None:
        self._left = {number: _Progress(work) for number, work in enumerate(works) if work.tasks}
        self._crew = crew
        self._assigned: list[_Assigned] = []

    def drop(self, work: int) -> None:
        """Leave out what is left of a work."""
        self._left.pop(work, None)
        for one in self._assigned:
            for number, _, future in one.tasks:
                if number == work:
                    future.cancel()

    def results(self) -> Iterator[TaskDone[R]]:
        """Yield the results, those of each work in the order of its tasks, until all are done or dropped.

        Raises:
            RefusedError: there are no lanes; see ``Crew.lanes``. ``PROCESS_LOST`` is an error of a task.
        """
        try:
            while self._left:
                self._look()
                self._hand_out()
                self._take_in()
                yield from self._in_order()
        finally:
            self._crew.close()

    def _look(self) -> None:
        """Update the lanes that there are now, and the tasks of those that are lost."""
        known = {id(one.lane): one for one in self._assigned}
        for one in self._assigned:
            lost = one.lane.lost()
            if lost is not None:
                self._give_back(one, lost)
        self._assigned = [known.get(id(lane)) or _Assigned(lane) for lane in self._crew.lanes()]
        present = {id(one.lane) for one in self._assigned}
        for key, one in known.items():
            if key not in present and one.tasks:
                self._give_back(one, one.lane.lost() or LaneLostError("an unknown cause"))

    def _give_back(self, lost: _Assigned, how: LaneLostError) -> None:
        """Return the tasks of a lost lane to their works; the first of them was being performed."""
        pending = [(number, task) for number, task, future in lost.tasks if not self._received(number, task, future)]
        lost.tasks.clear()
        for at, (number, task) in enumerate(pending):
            progress = self._left.get(number)
            if progress is None:
                continue
            progress.losses[task] += at == 0
            if progress.losses[task] < MAX_LOSSES:
                heapq.heappush(progress.again, task)
            else:
                progress.waiting[task] = None, _given_up(how, progress.losses[task])

    def _received(self, number: int, task: int, future: Future[Outcome]) -> bool:
        """Record the outcome of a future, and return whether it has one that is not the loss of its lane."""
        if not future.done() or _is_loss(future):
            future.cancel()
            return False
        error, progress = future.exception(), self._left.get(number)
        if progress is not None:
            progress.waiting[task] = future.result() if error is None else (None, _as_error(error))
        return True

    def _hand_out(self) -> None:
        """Assign every lane its next tasks, within the limit of waiting results."""
        for _ in range(AHEAD):
            for one in self._assigned:
                number = self._next_work(one) if len(one.tasks) < AHEAD else None
                if number is None:
                    continue
                progress = self._left[number]
                task = progress.take_next()
                try:
                    future = one.lane.submit(Parcel(number, progress.work.begin, progress.work.tasks[task]))
                except BrokenExecutor:  # the next look finds the lane lost, with its other tasks
                    heapq.heappush(progress.again, task)
                    continue
                one.note(number, task, future)

    def _next_work(self, lane: _Assigned) -> int | None:
        """Return the work of a lane, or else the one with the most tasks left for each of its lanes."""
        most_waiting = MAX_WAITING * len(self._assigned)
        own = self._left.get(-1 if lane.work is None else lane.work)
        if own is not None and own.has_next(most_waiting):
            return lane.work
        if own is not None and own.left() and own.work.fold:
            return None  # it waits for a result, which takes less time than folding another state and this one again
        lanes = Counter(one.work for one in self._assigned if one is not lane)
        ready = [
            number
            for number, progress in self._left.items()
            if progress.has_next(most_waiting) and self._pays(lane, number, lanes[number])
        ]
        return min(ready, key=lambda number: (lanes[number] / self._left[number].left(), number), default=None)

    def _pays(self, lane: _Assigned, work: int, lanes: int) -> bool:
        """Return whether a work gets done earlier with another lane, which has to fold its state first."""
        progress = self._left[work]
        return lane.to_fold(work, progress.next()) * progress.work.fold * lanes < progress.left()

    def _in_order(self) -> Iterator[TaskDone[R]]:
        """Yield the results that wait for no earlier one."""
        for number, progress in list(self._left.items()):
            while number in self._left and progress.come in progress.waiting:
                task, (result, error) = progress.come, progress.waiting.pop(progress.come)
                progress.come += 1
                if error is not None or progress.come == len(progress.work.tasks):
                    self.drop(number)
                yield TaskDone(number, task, result, error)

    def _take_in(self) -> None:
        """Wait for a result, and record all that there are."""
        wait({future for one in self._assigned for *_, future in one.tasks}, LOOK_S, FIRST_COMPLETED)
        for one in self._assigned:
            if any(number in self._left and _is_loss(future) for number, _, future in one.tasks):
                self._give_back(one, one.lane.lost() or LaneLostError("an unknown cause"))
                continue
            one.tasks = [
                (number, task, future)
                for number, task, future in one.tasks
                if not future.cancelled() and not (future.done() and self._received(number, task, future))
            ]


def _is_loss(future: Future[Outcome]) -> bool:
    if not future.done() or future.cancelled():
        return future.cancelled()
    return isinstance(future.exception(), (BrokenExecutor, LaneLostError))


def _as_error(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")


def _given_up(how: LaneLostError, losses: int) -> RefusedError:
    """Return the error for a task with which processes are lost again and again."""
    return RefusedError(
        ErrorCode.PROCESS_LOST,
        f"{losses} processes ended unexpectedly with the same part of the work, the last one by {how.how}. They may "
        "have run out of memory; try again with fewer processes at once (--jobs 1).",
        exit_code=how.exit_code,
        losses=losses,
    )
