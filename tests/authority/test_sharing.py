"""Work shared among processes: in order, bounded, with a clear error when a process is lost, and nobody left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.pipeline.shop import open_shop
from tests.support.patience import PATIENCE_S
from world.errors import DamagedLogError, RefusedError
from world.log import open_log
from worldprotocol.analysis.recheck.whole_log import RecheckSetup
from worldprotocol.analysis.work.free_cores import watch_cores
from worldprotocol.analysis.work.processes import ProcessCrew
from worldprotocol.analysis.work.stretches import check_same_log
from worldprotocol.analysis.work.work_list import AHEAD, MAX_LOSSES, MAX_WAITING, TaskDone, Work, WorkList

ROOT = Path(__file__).parents[2]
HANGING = """
from tests.authority.test_sharing import in_order, noting

if __name__ == "__main__":
    for line in in_order(noting, list(range(9)), 2):
        print(line, flush=True)
"""


def in_order(begin: Any, tasks: Sequence[Any], jobs: int) -> Generator[Any, None, None]:
    """Yield the results of one work, performed by processes of this machine."""
    for done in WorkList([Work(begin, tasks)], ProcessCrew(jobs)).results():  # type: ignore[var-annotated]
        yield done.value()


@contextmanager
def squaring() -> Iterator[Callable[[int], tuple[int, int, str]]]:
    def squared(task: int) -> tuple[int, int, str]:
        while task == 0 and not Path("other").exists():  # the first result comes last, from a process of its own
            time.sleep(0.005)
        Path("other").touch()
        return task * task, os.getpid(), os.getcwd()

    yield squared


def ending(how: int, task: int) -> int:
    if task == 3:
        os.kill(os.getpid(), how)
    if task == 5:
        raise DamagedLogError("LOG_GAP", "The fifth is damaged.", position=5)
    return task


@contextmanager
def beginning(how: int) -> Iterator[Callable[[int], int]]:
    if not how:
        raise RefusedError("NOT_LOADED", "There is nothing to begin with.")
    yield partial(ending, how)


@contextmanager
def noting() -> Iterator[Callable[[int], int]]:
    """Tell the process's id first, and then never end."""

    def noted(task: int) -> int:
        if task >= 2:
            time.sleep(1_000)
        return os.getpid()

    yield noted


@pytest.mark.slow
def test_results_come_in_the_order_of_their_tasks_from_several_processes_in_this_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = list(in_order(squaring, range(50), 2))
    assert [one[0] for one in done] == [task * task for task in range(50)]
    assert len({one[1] for one in done}) == 2
    assert os.getpid() not in {one[1] for one in done}
    assert {one[2] for one in done} == {str(tmp_path)}


@pytest.mark.slow
def test_a_reader_who_is_slow_is_not_overrun_and_one_who_goes_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    handed: list[int] = []

    class Watched(list[int]):
        def __getitem__(self, at: int) -> int:  # type: ignore[override]
            handed.append(at)
            return super().__getitem__(at)

    reading = in_order(squaring, Watched(range(1_000)), 2)
    pids = {next(reading)[1] for _ in range(3)}
    assert max(handed) < 3 + max(MAX_WAITING, AHEAD) * 2
    reading.close()
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


@pytest.mark.slow
def test_a_task_that_ends_each_process_is_given_up_and_an_error_in_one_is_raised_here() -> None:
    with pytest.raises(RefusedError) as lost:
        list(in_order(partial(beginning, signal.SIGKILL), range(5), 1))
    assert (lost.value.code, lost.value.details) == ("PROCESS_LOST", {"exit_code": -9, "losses": MAX_LOSSES})
    assert "SIGKILL" in lost.value.message
    with pytest.raises(DamagedLogError) as damaged:
        list(in_order(partial(beginning, signal.SIGCONT), range(9), 1))
    assert damaged.value.details == {"position": 5}
    with pytest.raises(RefusedError, match="nothing to begin with"):
        list(in_order(partial(beginning, 0), range(9), 1))


@contextmanager
def killed_once(folder: Path, number: int) -> Iterator[Callable[[int], tuple[int, int]]]:
    """Kill the first process that gets a certain task, and no other."""

    def performed(task: int) -> tuple[int, int]:
        if number == 2 and task == 7:
            with suppress(FileExistsError):
                (folder / "killed").mkdir()
                os.kill(os.getpid(), signal.SIGKILL)
        return number, task

    yield performed


def test_when_a_process_is_lost_its_tasks_are_performed_again_and_the_answers_are_the_same(tmp_path: Path) -> None:
    works = [Work(partial(killed_once, tmp_path, number), range(10)) for number in range(4)]
    done: list[TaskDone[tuple[int, int]]] = list(WorkList(works, ProcessCrew(2)).results())
    assert (tmp_path / "killed").exists()
    for number in range(4):
        assert [one.value() for one in done if one.work == number] == [(number, task) for task in range(10)]


def test_an_error_ends_its_work_only_and_a_work_that_is_dropped_goes_no_further() -> None:
    works = [
        Work(partial(beginning, signal.SIGCONT), [0, 1, 2, 4, 4, 5, 6]),
        Work(noting, range(2)),
        Work(noting, range(9)),
    ]
    performed: WorkList[int] = WorkList(works, ProcessCrew(2))
    performed.drop(2)
    done = [(one.work, one.task, type(one.error)) for one in performed.results()]
    failed = [one for one in done if one[0] == 0]
    assert failed == [*((0, task, type(None)) for task in range(5)), (0, 5, DamagedLogError)]
    assert [one for one in done if one[0] == 1] == [(1, 0, type(None)), (1, 1, type(None))]
    assert len(done) == 8


@pytest.mark.slow
def test_an_interrupt_ends_the_processes_in_the_middle_of_what_never_ends() -> None:
    command = [sys.executable, "-c", HANGING]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        pids = [int(running.stdout.readline()) for _ in range(2)]
        assert all(psutil.pid_exists(pid) for pid in pids)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=PATIENCE_S)
    assert running.returncode != 0
    assert "KeyboardInterrupt" in errors
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


@dataclass(frozen=True, slots=True)
class Core:
    idle: float


@pytest.mark.parametrize(
    ("passed_s", "idle_s", "free"),
    [
        (10.0, [0.0, 10.0, 10.0, 10.0], 4),
        (10.0, [9.8, 0.1, 9.9, 10.0], 4),
        (10.0, [1.0, 4.0, 6.0, 9.0], 3),
        (10.0, [0.2, 0.0, 0.1, 0.0], 1),
        (0.01, [0.0, 0.0, 0.0, 0.0], 4),
    ],
)
def test_cores_that_others_use_are_not_counted_on(
    passed_s: float, idle_s: list[float], free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, idle = [100.0], [50.0, 60.0, 70.0, 80.0, 90.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: [Core(one) for one in idle])
    watched = watch_cores()
    now_s[0] += passed_s
    idle[:4] = [one + more for one, more in zip(idle, idle_s, strict=False)]
    idle[4] += passed_s  # a core that this process may not use
    assert watched() == free


def test_a_worker_that_finds_another_log_at_the_address_is_refused(tmp_path: Path) -> None:
    for name, items in (("one.db", 3), ("other.db", 1)):
        with open_shop(f"sqlite:///{tmp_path / name}") as realm:
            for _ in range(items):
                realm.act("ann", "sell", {"item": "tea"})
    with open_log(str(tmp_path / "one.db"), read_only=True) as log:
        head = log.head()
        check_same_log(log, head)
        check_same_log(log, log.root_at(5))
    for file in ("one.db", "other.db"):
        setup = RecheckSetup(str(tmp_path / file), "tests.pipeline.shop:shop", expected=head)
        if file == "one.db":
            with setup.stretches() as recheck:
                assert recheck((0, head.size)).first is None
            continue
        with pytest.raises(RefusedError) as refused, setup.stretches():
            pass
        assert refused.value.code == "CLUSTER_UNFIT"
