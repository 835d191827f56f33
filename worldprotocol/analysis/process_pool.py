"""Work shared among processes: tasks are handed out in turn, and their results come back in order.

Each process is begun once, by a function that loads what it needs and returns what does a task. No process is far ahead
of the reader of the results, so memory is bounded; when the reader goes, the processes are ended. Where the system can,
they are forked from one process that has imported everything already, since the imports take longer than all else.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import psutil

from world.errors import RefusedError

__all__ = ["cores", "in_order", "watch_cores"]

T = TypeVar("T")
R = TypeVar("R")

AHEAD: Final = 2
"""Tasks that a process has at hand: the one it does, and the next."""

MAX_WAITING: Final = 4
"""Results for each process that may wait for an earlier one."""

TELLS_S: Final = 0.1
"""Seconds after which the system's count of idle time, kept in hundredths, tells something."""

SAFE_PATH: Final = "PYTHONSAFEPATH"

PRELOADED: Final = (
    "worldprotocol.analysis.backtest",
    "worldprotocol.analysis.recheck.whole_log",
    "authority.policies.policy_file",
)


def cores() -> int:
    """Return how many cores this process may use."""
    told = getattr(os, "sched_getaffinity", None)
    return len(told(0)) if told is not None else os.cpu_count() or 1


def watch_cores() -> Callable[[], int]:
    """Watch from now on how busy the cores are that this process may use.

    Returns:
        tells how many of them were free since: the one that this process used and those that idled. Where too little
        time has passed to tell, all of them.
    """
    begun, before = time.monotonic(), _idle_s()

    def free() -> int:
        passed = time.monotonic() - begun
        if passed < TELLS_S:
            return cores()
        return max(1, min(cores(), 1 + round((_idle_s() - before) / passed)))

    return free


def _idle_s() -> float:
    """Return for how many seconds the cores that this process may use have idled, together."""
    every = psutil.cpu_times(percpu=True)
    told = getattr(os, "sched_getaffinity", None)
    mine = range(len(every)) if told is None else told(0)
    return sum(every[at].idle for at in mine if at < len(every))


def in_order(begin: Callable[[], Callable[[T], R]], tasks: Sequence[T], jobs: int) -> Iterator[R]:
    """Yield the results of tasks in their order.

    Args:
        begin: called once in each process, in the current folder; what it returns does a task. It, the tasks and the
            results can be sent to another process.
        tasks: what is to be done.
        jobs: how many processes, at most as many as there are tasks.

    Raises:
        RefusedError: ``PROCESS_LOST`` when a process ended by itself; and whatever ``begin`` or a task raises.
    """
    context = _context()
    sharing: _Sharing[T, R] = _Sharing(tasks)
    try:
        for _ in range(min(jobs, len(tasks))):
            mine, its = context.Pipe()
            process = context.Process(target=_work, args=(its, begin, Path.cwd()), daemon=True)
            sharing.workers.append(_Worker(process, mine))
            with _safe_path():
                process.start()
            its.close()  # so that this end tells when the process is gone
        yield from sharing.results()
    finally:
        for worker in sharing.workers:
            worker.end()


@dataclass(slots=True, eq=False)
class _Worker:
    """A process, the end of the pipe that leads to it, and the tasks it has at hand."""

    process: BaseProcess
    connection: Connection[Any, Any]
    tasks: list[int] = field(default_factory=list)

    def lost(self) -> RefusedError:
        """Return the error for a process that ended by itself."""
        self.process.join()
        code = self.process.exitcode or 0
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return RefusedError(
            "PROCESS_LOST",
            f"A process that shared the work ended by itself ({how}), and its part is not done. It may have been "
            "short of memory; try again with fewer processes (--jobs 1).",
            exit_code=code,
        )

    def end(self) -> None:
        if self.process.pid is not None:
            self.process.kill()  # it only reads, and may be in the middle of a rule that never ends
            self.process.join()
        self.connection.close()


@dataclass(slots=True)
class _Sharing(Generic[T, R]):
    """Tasks on their way out, and results on their way back."""

    tasks: Sequence[T]
    workers: list[_Worker] = field(default_factory=list)
    handed: int = 0
    come: int = 0
    waiting: dict[int, R] = field(default_factory=dict)

    def results(self) -> Iterator[R]:
        while self.come < len(self.tasks):
            self._hand_out()
            if self.come in self.waiting:
                self.come += 1
                yield self.waiting.pop(self.come - 1)
            else:
                self._take_in()

    def _hand_out(self) -> None:
        """Give every process its next task, as long as no result would wait for too many others."""
        for _ in range(AHEAD):
            for worker in self.workers:
                is_near = self.handed < min(len(self.tasks), self.come + MAX_WAITING * len(self.workers))
                if is_near and len(worker.tasks) < AHEAD:
                    try:
                        worker.connection.send((self.handed, self.tasks[self.handed]))
                    except OSError:  # the process is gone, perhaps because of an error that it sent before
                        while True:
                            self._receive(worker)
                    worker.tasks.append(self.handed)
                    self.handed += 1

    def _take_in(self) -> None:
        ready = wait([worker.connection for worker in self.workers])
        for worker in self.workers:
            if worker.connection in ready:
                self._receive(worker)

    def _receive(self, worker: _Worker) -> None:
        """Take in the next result of a process.

        Raises:
            RefusedError: ``PROCESS_LOST``: the process is gone, and has sent nothing more; and whatever it raised.
        """
        try:
            at, result, error = worker.connection.recv()
        except (EOFError, OSError):
            raise worker.lost() from None
        if error is not None:
            raise error
        worker.tasks.remove(at)
        self.waiting[at] = result


def _context() -> Any:
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    return context


@contextmanager
def _safe_path() -> Iterator[None]:
    """Start interpreters that do not search the current folder; what these start in turn is not affected.

    multiprocessing runs them with ``-c``, which puts the current folder first on their path, until they take over the
    path of this process. Only the environment can prevent that.
    """
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = before


def _work(connection: Connection[Any, Any], begin: Callable[[], Callable[[T], R]], folder: Path) -> None:
    """Do tasks until nobody wants any more results; whoever began this process ends it on Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.pop(SAFE_PATH, None)
    try:
        os.chdir(folder)
        do = begin()
        while True:
            at, task = connection.recv()
            connection.send((at, do(task), None))
    except (EOFError, ConnectionError):  # nobody reads any more
        return
    except Exception as error:  # noqa: BLE001 - it is raised again where the results are read
        connection.send((-1, None, error))
