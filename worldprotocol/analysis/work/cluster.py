"""Lanes that are workers of a Dask cluster.

Each lane is the executor of one worker. On the worker, a process of its own performs the tasks (``cluster_worker``), so
that every run loads the code as it is then, and Ctrl-C ends a task that would not end by itself. The scheduler and the
dashboard get functions without a name of a log in their keys and arguments; what the workers need travels inside.

Dask sends pickled code. Any program that reaches the scheduler can run code on the workers, so its network must be
trusted.
"""

from __future__ import annotations

import logging
import os
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future
from contextlib import suppress
from typing import Any, Final

from distributed import Client
from distributed.scheduler import KilledWorker

from world.clock import SystemIds
from world.error_codes import ErrorCode
from world.errors import RefusedError, WorldProtocolError
from worldprotocol.analysis.work.installed_code import DISTRIBUTION, installed_code
from worldprotocol.analysis.work.performing import Outcome, Parcel
from worldprotocol.analysis.work.work_list import LaneLostError

__all__ = ["ClusterCrew"]

CONNECT_S: Final = 10
"""Seconds in which the scheduler has to answer."""

LOOK_S: Final = 0.5
"""Least seconds between two looks at which workers there are."""

ABSENT_S: Final = 30
"""Seconds that a cluster may be without workers before the work is given up; a nanny starts lost ones again."""

Known = Mapping[str, Any]


class ClusterCrew:
    """Workers of a Dask cluster; those that come later take part too.

    Args:
        address: address of the scheduler, as Dask writes it.
        most: number of workers that are used at most; None is all.
        logs: addresses of the logs that the workers open.

    Raises:
        RefusedError: ``CLUSTER_UNREACHABLE`` if the scheduler does not answer or has no workers; ``CLUSTER_UNFIT`` if a
            worker has another release or other code of this package.
    """

    def __init__(self, address: str, most: int | None, logs: Sequence[str] = ()) -> None:
        self._address = address
        self._most = most
        self._local = [one for one in logs if _is_file(one)]
        self._run = SystemIds().new_id()
        self._lanes: dict[str, _WorkerLane] = {}
        self._gone: list[_WorkerLane] = []
        connect: Any = Client  # its methods have no types
        self._looked_s = self._seen_s = time.monotonic()
        self._levels = _quiet()
        try:
            self._client = connect(address, timeout=CONNECT_S, set_as_default=False, name="worldctl")
        except (OSError, TimeoutError, ValueError) as error:
            _restore(self._levels)
            raise self._unreachable(f"it does not answer ({type(error).__name__})") from None
        try:
            self._renew()
            if not self._lanes:
                raise self._unreachable("it has no workers; start some with `dask worker`")
        except BaseException:
            self._client.close()
            _restore(self._levels)
            raise

    def lanes(self) -> Sequence[_WorkerLane]:
        """Return the workers that there are now.

        Raises:
            RefusedError: ``CLUSTER_UNREACHABLE``, ``CLUSTER_UNFIT``.
        """
        now_s = time.monotonic()
        if now_s - self._looked_s >= LOOK_S or any(lane.is_suspect for lane in self._lanes.values()):
            self._looked_s = now_s
            self._renew()
        if self._lanes:
            self._seen_s = now_s
        elif now_s - self._seen_s > ABSENT_S:
            raise self._unreachable(f"its last worker ended {ABSENT_S} s ago, and none has joined since")
        return tuple(self._lanes.values())

    def close(self) -> None:
        """Cancel what is queued, and end the processes of this run on the workers."""
        for lane in [*self._lanes.values(), *self._gone]:
            lane.cancel()
        with suppress(Exception):  # a cluster that is gone has nothing to end
            self._client.run(_end_run(self._run), workers=list(self._lanes), on_error="ignore")
        self._client.close()
        _restore(self._levels)

    def _renew(self) -> None:
        """Update the lanes to the workers that the scheduler has now."""
        present = self._workers()
        for address in [one for one, lane in self._lanes.items() if present.get(one) != lane.identity]:
            lane = self._lanes.pop(address)
            lane.is_gone = True
            self._gone.append(lane)
        for lane in self._lanes.values():
            lane.is_suspect = False
        most = len(present) if self._most is None else self._most
        added = [one for one in present if one not in self._lanes][: max(0, most - len(self._lanes))]
        if added:
            self._check(added)
        for address in added:
            executor = self._client.get_executor(workers=[address], allow_other_workers=False, pure=False)
            self._lanes[address] = _WorkerLane(executor, address, present[address], self._run, self._local)

    def _workers(self) -> dict[str, str]:
        """Return the addresses of the workers, with their own folders: a worker started again has another one."""
        try:
            info = self._client.scheduler_info(n_workers=-1)
        except Exception as error:  # noqa: BLE001 - Dask raises many for a connection that is lost
            raise self._unreachable(f"the connection was lost ({type(error).__name__})") from None
        if self._client.status != "running":
            raise self._unreachable("the connection was lost")
        return {address: worker["local_directory"] for address, worker in info["workers"].items()}

    def _check(self, workers: Sequence[str]) -> None:
        """Refuse workers that would perform other code of this package.

        Raises:
            RefusedError: ``CLUSTER_UNFIT``.
        """
        own = installed_code()
        found: dict[str, Any] = self._client.run(_code_of_worker(), workers=list(workers), on_error="return")
        for worker, code in found.items():
            if isinstance(code, OSError):
                continue  # it has ended meanwhile
            why = _unfit(code, own)
            if why is not None:
                raise RefusedError(
                    ErrorCode.CLUSTER_UNFIT,
                    f"The worker {worker} cannot do this work: {why}. Start the workers in an environment with the "
                    f"same release of {DISTRIBUTION} as here ({own['version']}), Python and the same distributions.",
                    worker=worker,
                )

    def _unreachable(self, why: str) -> RefusedError:
        return RefusedError(
            ErrorCode.CLUSTER_UNREACHABLE,
            f"The Dask scheduler {self._address} cannot be used: {why}. Check the address, the scheduler and its "
            "workers, or leave out --executor.",
            executor=self._address,
        )


class _WorkerLane:
    """One worker of the cluster."""

    def __init__(self, executor: Executor, worker: str, identity: str, run: str, local: Sequence[str]) -> None:
        self.identity = identity
        self.is_gone = False
        self.is_suspect = False
        self._executor = executor
        self._worker = worker
        self._run = run
        self._local = local
        self._pending: set[Future[Any]] = set()

    def submit(self, parcel: Parcel) -> Future[Outcome]:
        """Hand a task to the worker."""
        inner = self._executor.submit(_on_worker(self._run, os.getcwd(), pickle.dumps(parcel)))
        outer: Future[Outcome] = Future()
        self._pending.add(inner)

        def pass_on(done: Future[Any]) -> None:
            self._pending.discard(done)
            if outer.cancelled() or not outer.set_running_or_notify_cancel():
                return
            try:
                outer.set_result(self._read(done.result()))
            except (CancelledError, KilledWorker):
                self.is_suspect = True
                outer.set_exception(LaneLostError("the loss of the worker"))
            except Exception as error:  # noqa: BLE001 - the future hands it on
                outer.set_exception(error)

        outer.add_done_callback(lambda done: inner.cancel() if done.cancelled() else None)
        inner.add_done_callback(pass_on)
        return outer

    def lost(self) -> LaneLostError | None:
        """Return that the scheduler has the worker no more."""
        return LaneLostError(f"the loss of the worker {self._worker}") if self.is_gone else None

    def cancel(self) -> None:
        """Cancel what was handed to the worker."""
        for future in tuple(self._pending):
            future.cancel()

    def _read(self, answer: tuple[bytes | None, int]) -> Outcome:
        """Return the outcome of a task.

        Raises:
            LaneLostError: the process of the worker has ended.
        """
        outcome, exit_code = answer
        if outcome is None:
            raise LaneLostError(f"the process of the worker {self._worker} with exit code {exit_code}", exit_code)
        result, error = pickle.loads(outcome)  # noqa: S301 - a scheduler that sends code is trusted
        return result, self._explained(error)

    def _explained(self, error: Exception | None) -> Exception | None:
        """Return an error; one about the surroundings of the worker also names it and what it needs."""
        advice = ""
        if not isinstance(error, WorldProtocolError) or error.code not in _ENVIRONMENT:
            return error
        if error.code in _ABOUT_LOG and self._local:
            advice = (
                " A worker on another machine opens a file only in a folder that both machines share, under the same "
                "path; otherwise keep the log in PostgreSQL."
            )
        elif error.code == ErrorCode.NOT_LOADED:
            advice = " The code of the realm has to be on the machine of each worker, under the same path or installed."
        message = f"On the worker {self._worker}: {error.message}{advice}"
        return type(error)(error.code, message, **{**error.details, "worker": self._worker})


_ABOUT_LOG: Final = {ErrorCode.LOG_NOT_FOUND, ErrorCode.LOG_UNAVAILABLE, ErrorCode.NOT_A_LOG}

_ENVIRONMENT: Final = {*_ABOUT_LOG, ErrorCode.NOT_LOADED, ErrorCode.CLUSTER_UNFIT}
"""Errors of a worker that another machine, with the same log and the same code, would not have."""


_LOGGERS: Final = ("distributed", "distributed.client", "tornado.application")


def _quiet() -> dict[str, int]:
    """Silence the loggers of Dask, which report each lost worker; return their levels.

    What is wrong is an error of this module.
    """
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    for name in levels:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return levels


def _restore(levels: Mapping[str, int]) -> None:
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def _is_file(address: str) -> bool:
    return "://" not in address or address.startswith(("sqlite", "parquet"))


def _unfit(code: Any, own: Known) -> str | None:
    """Return what is wrong with the code of a worker; None if it is that of this process."""
    if isinstance(code, ModuleNotFoundError):
        return f"it has no module {code.name}"
    if isinstance(code, BaseException):
        return f"it failed with {type(code).__name__}: {code}"
    for name, what in (("version", "release"), ("python", "Python"), ("digest", "code, with the same release")):
        if code[name] != own[name]:
            return f"it has another {what}: {code[name]} in place of {own[name]}"
    here, there = own["distributions"], code["distributions"]
    other = sorted(name for name in {*here, *there} if here.get(name) != there.get(name))
    if other:
        return "it has other distributions: " + ", ".join(
            f"{name} {there.get(name, 'absent')} in place of {here.get(name, 'absent')}" for name in other
        )
    return None


# What Dask sends are functions inside of functions: they are sent by value, so that neither the scheduler nor the
# dashboard needs this package, and their arguments are not shown.


def _on_worker(run: str, folder: str, parcel: bytes) -> Callable[[], Any]:
    def perform() -> Any:
        from worldprotocol.analysis.work.cluster_worker import perform_in_process

        return perform_in_process(run, folder, parcel)

    return perform


def _code_of_worker() -> Callable[[], Any]:
    def code() -> Any:
        from worldprotocol.analysis.work.installed_code import installed_code

        return installed_code()

    return code


def _end_run(run: str) -> Callable[[], None]:
    def end() -> None:
        from worldprotocol.analysis.work.cluster_worker import end_run

        end_run(run)

    return end
