"""Which tasks of a work list are handed to which process, where a process has to fold what others performed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pytest

from worldprotocol.analysis.work.performing import Outcome, Parcel
from worldprotocol.analysis.work.work_list import LaneLostError, Work, WorkList

FOLD = 0.25


def begin() -> AbstractContextManager[Callable[[Any], Any]]:
    return nullcontext(lambda task: task)


@dataclass
class TimedLane:
    """A process in simulated time: a task takes its time, and folding each task before it a part of that."""

    task_s: float
    now_s: float = 0
    folded: int = 0
    performed: list[tuple[int, int]] = field(default_factory=list)
    queue: deque[tuple[Parcel, Future[Outcome]]] = field(default_factory=deque)
    reached: dict[int, int] = field(default_factory=dict)

    def submit(self, parcel: Parcel) -> Future[Outcome]:
        future: Future[Outcome] = Future()
        self.queue.append((parcel, future))
        return future

    def lost(self) -> LaneLostError | None:
        return None

    def ends_s(self) -> float:
        """Return when the current task ends."""
        return self.now_s + self.task_s * (1 + FOLD * self._gap(self.queue[0][0]))

    def end_task(self) -> None:
        self.now_s = self.ends_s()
        parcel, future = self.queue.popleft()
        self.folded += self._gap(parcel)
        self.reached[parcel.work] = parcel.task + 1
        self.performed.append((parcel.work, parcel.task))
        future.set_result((parcel.task, None))

    def _gap(self, parcel: Parcel) -> int:
        reached = self.reached.get(parcel.work, 0)
        return int(parcel.task - reached) if parcel.task >= reached else int(parcel.task)


class TimedCrew:
    """Processes in simulated time; each look is the end of the next task."""

    def __init__(self, *lanes: TimedLane) -> None:
        self.all = lanes
        self.now_s = 0.0

    def lanes(self) -> Sequence[TimedLane]:
        busy = [lane for lane in self.all if lane.queue]
        if busy:
            first = min(busy, key=TimedLane.ends_s)
            first.end_task()
            self.now_s = max(self.now_s, first.now_s)
            for idle in self.all:
                if not idle.queue:
                    idle.now_s = max(idle.now_s, self.now_s)
        return self.all

    def close(self) -> None:
        assert not any(lane.queue for lane in self.all)


def performed(crew: TimedCrew, works: int, tasks: int, fold: float = FOLD) -> None:
    """Perform works on a crew; each result comes once and in order."""
    listed: WorkList[int] = WorkList([Work(begin, range(tasks), fold) for _ in range(works)], crew)
    done = [(one.work, one.value()) for one in listed.results()]
    for number in range(works):
        assert [task for work, task in done if work == number] == list(range(tasks))


def test_processes_that_are_done_first_do_not_fold_a_log_whose_process_is_about_to_end() -> None:
    crew = TimedCrew(*(TimedLane(1 + number / 20) for number in range(4)))
    performed(crew, works=4, tasks=200)
    assert [lane.folded for lane in crew.all] == [0, 0, 0, 0]
    assert [{work for work, _ in lane.performed} for lane in crew.all] == [{0}, {1}, {2}, {3}]


@pytest.mark.parametrize("works", [1, 2, *(pytest.param(works, marks=pytest.mark.slow) for works in (3, 5))])
def test_processes_fold_a_log_where_that_gets_it_done_earlier(works: int) -> None:
    crew = TimedCrew(*(TimedLane(1 + number / 20) for number in range(2)))
    performed(crew, works, tasks=200)
    assert all(lane.performed for lane in crew.all)
    assert max(lane.now_s for lane in crew.all) < (works / 2 * 200) * 1.3
    assert sum(lane.folded for lane in crew.all) <= 200  # one log at most is shared


def test_a_process_waits_for_one_that_folds_instead_of_folding_another_log() -> None:
    crew = TimedCrew(TimedLane(1), TimedLane(1), TimedLane(0.4))
    performed(crew, works=2, tasks=200)
    for lane in crew.all:
        order = [work for work, _ in groupby(work for work, _ in lane.performed)]
        assert len(order) == len(set(order)), order  # none leaves a log and returns to it


def test_tasks_that_need_no_earlier_one_go_to_any_process_that_is_free() -> None:
    crew = TimedCrew(*(TimedLane(1 + 3 * (number == 3)) for number in range(4)))
    performed(crew, works=4, tasks=40, fold=0)
    assert any(len({work for work, _ in lane.performed}) > 1 for lane in crew.all)
