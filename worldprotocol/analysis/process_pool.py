"""Pool of processes that returns the results of tasks in their order.

Each process is initialised once, by a function that loads its input and returns the function for a task. The number of
pending results is limited, so memory is bounded; when the consumer stops, the processes are ended. If the system
permits it, they are forked from one process with all imports done, since imports take most of the start time.
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

from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["cores", "in_order", "watch_cores"]

T = TypeVar("T")
R = TypeVar("R")

AHEAD: Final = 2
"""Tasks assigned to a process: the current one and the next."""

MAX_WAITING: Final = 4
"""Results per process that may wait for an earlier one."""

MIN_WATCH_S: Final = 0.1
"""Seconds after which the system's idle time, counted in hundredths, is meaningful."""

SAFE_PATH: Final = "PYTHONSAFEPATH"

PRELOADED: Final = (
    "worldprotocol.analysis.backtest",
    "worldprotocol.analysis.recheck.whole_log",
    "authority.policies.policy_file",
)


def cores() -> int:
    """Return the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def watch_cores() -> Callable[[], int]:
    """Measure from now on the load of the cores that this process may use.

    Returns:
        A function that returns the number of free cores since: the one that this process used and the idle ones. If
        too little time has passed, it returns all of them.
    """
    begun, before = time.monotonic(), _idle_s()

    def free() -> int:
        passed = time.monotonic() - begun
        if passed < MIN_WATCH_S:
            return cores()
        return max(1, min(cores(), 1 + round((_idle_s() - before) / passed)))

    return free


def _idle_s() -> float:
    """Return the total idle seconds of the cores that this process may use."""
    every = psutil.cpu_times(percpu=True)
    affinity = getattr(os, "sched_getaffinity", None)
    mine = range(len(every)) if affinity is None else affinity(0)
    return sum(every[at].idle for at in mine if at < len(every))


def in_order(begin: Callable[[], Callable[[T], R]], tasks: Sequence[T], jobs: int) -> Iterator[R]:
    """Yield the results of tasks in their order.

    Args:
        begin: called once in each process, in the current folder; returns the function for a task. It, the tasks and
            the results must be serialisable.
        tasks: the tasks.
        jobs: number of processes, at most the number of tasks.

    Raises:
        RefusedError: ``PROCESS_LOST`` if a process ended unexpectedly; and the exceptions of ``begin`` and of tasks.
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
            its.close()  # so that this end is closed when the process ends
        yield from sharing.results()
    finally:
        for worker in sharing.workers:
            worker.end()


@dataclass(slots=True, eq=False)
class _Worker:
    """Process, this end of its pipe, and its assigned tasks."""

    process: BaseProcess
    connection: Connection[Any, Any]
    tasks: list[int] = field(default_factory=list)

    def lost(self) -> RefusedError:
        """Return the error for a process that ended unexpectedly."""
        self.process.join()
        code = self.process.exitcode or 0
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return RefusedError(
            ErrorCode.PROCESS_LOST,
            f"A worker process ended unexpectedly ({how}), and its tasks are not done. It may have run out of memory; "
            "try again with fewer processes (--jobs 1).",
            exit_code=code,
        )

    def end(self) -> None:
        if self.process.pid is not None:
            self.process.kill()  # it only reads, and a rule may run in an endless loop
            self.process.join()
        self.connection.close()


@dataclass(slots=True)
class _Sharing(Generic[T, R]):
    """Assignment of tasks and collection of results."""

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
        """Assign every process its next task, within the limit of pending results."""
        for _ in range(AHEAD):
            for worker in self.workers:
                is_near = self.handed < min(len(self.tasks), self.come + MAX_WAITING * len(self.workers))
                if is_near and len(worker.tasks) < AHEAD:
                    try:
                        worker.connection.send((self.handed, self.tasks[self.handed]))
                    except OSError:  # the process ended, perhaps after sending an error
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
        """Receive the next result of a process.

        Raises:
            RefusedError: ``PROCESS_LOST`` if the process ended without a result; and the exceptions of the process.
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
    """Start interpreters that do not search the current folder.

    multiprocessing runs them with ``-c``, which puts the current folder first on their path until they copy the path of
    this process. Only the environment can prevent that. Their own child processes are not affected.
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
    """Run tasks until the pipe is closed; the parent process handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.pop(SAFE_PATH, None)
    try:
        os.chdir(folder)
        do = begin()
        while True:
            at, task = connection.recv()
            connection.send((at, do(task), None))
    except (EOFError, ConnectionError):  # the consumer has stopped
        return
    except Exception as error:  # noqa: BLE001 - it is raised again by the consumer
        connection.send((-1, None, error))
