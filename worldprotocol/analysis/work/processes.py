"""Lanes that are processes of this machine.

If the system permits it, they are forked from one process with all imports done, since imports take most of the start
time. They read only, so that they can be killed at any time.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

from worldprotocol.analysis.work.performing import Outcome, Parcel, perform
from worldprotocol.analysis.work.work_list import LaneLostError

__all__ = ["ProcessCrew", "ending_of"]

SAFE_PATH: Final = "PYTHONSAFEPATH"

PRELOADED: Final = (
    "worldprotocol.analysis.backtest",
    "worldprotocol.analysis.recheck.whole_log",
    "authority.policies.policy_file",
)


class ProcessCrew:
    """Processes of this machine.

    Args:
        count: number of processes.
    """

    def __init__(self, count: int) -> None:
        self._lanes: list[_ProcessLane] = []
        self._count = count

    def lanes(self) -> Sequence[_ProcessLane]:
        """Return the processes; another one is started for each that was lost."""
        for lost in [one for one in self._lanes if one.lost() is not None]:
            lost.end()
            self._lanes.remove(lost)
        while len(self._lanes) < self._count:
            self._lanes.append(_ProcessLane())
        return tuple(self._lanes)

    def close(self) -> None:
        """Kill the processes: a rule may run in an endless loop."""
        for lane in self._lanes:
            lane.end()


class _ProcessLane:
    """One process, started with its first task."""

    def __init__(self) -> None:
        self._context = _StartContext()
        context: Any = self._context
        with _safe_path():  # its semaphores start a process of multiprocessing
            self._executor = ProcessPoolExecutor(1, context, initializer=_enter, initargs=(Path.cwd(),))
        self._is_broken = False

    def submit(self, parcel: Parcel) -> Future[Outcome]:
        """Hand a task to the process; it is started if it does not run yet.

        Raises:
            BrokenExecutor: the process has ended.
        """
        with _safe_path():
            try:
                future = self._executor.submit(perform, parcel)
            except BrokenExecutor:
                self._is_broken = True
                raise
        future.add_done_callback(self._note)
        return future

    def _note(self, future: Future[Outcome]) -> None:
        if not future.cancelled() and isinstance(future.exception(), BrokenExecutor):
            self._is_broken = True

    def lost(self) -> LaneLostError | None:
        """Return how the process ended."""
        process = self._context.process
        if process is None or not self._is_broken:
            return None
        self._executor.shutdown()  # its thread reads the exit code too
        process.join()
        return ending_of(process.exitcode or 0)

    def end(self) -> None:
        """Kill the process, and wait for its end."""
        process = self._context.process
        if process is not None:
            process.kill()
        self._executor.shutdown(cancel_futures=True)


class _StartContext:
    """The context of multiprocessing from which a process is started, and which remembers it."""

    def __init__(self) -> None:
        self.process: BaseProcess | None = None
        self._context = _context()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def Process(self, *args: Any, **options: Any) -> BaseProcess:  # noqa: N802 - the name in multiprocessing
        """Create the process."""
        created: BaseProcess = self._context.Process(*args, **options, daemon=True)
        self.process = created
        return created


def ending_of(code: int) -> LaneLostError:
    """Return how a process ended, by its exit code; a negative one is a signal."""
    return LaneLostError(f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}", code)


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


def _enter(folder: Path) -> None:
    """Prepare a process: the one that started it handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.pop(SAFE_PATH, None)
    os.chdir(folder)
