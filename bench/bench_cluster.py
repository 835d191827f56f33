"""Recheck and backtest of several realms on a Dask cluster, beside one process: the same answers, and their cost.

Usage: ``python -m bench cluster [--proposals N] [--realms N] [--workers N ...] [--log FILE]``. A log of payments is
made (or taken from FILE), and copied for each realm. One process works on all of them; then a scheduler and so many
workers do, each time a new cluster; every answer is compared with that of the one process. CPU seconds are those of
this process, the scheduler and the workers together, with their start; the ratio to the one process says what the
distribution costs. Seconds on the clock mean something only where each worker has a core of its own. In the last line,
one of two workers is killed when a third is done.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.judged import record
from worldprotocol.analysis.backtest import Backtest, BacktestSetup, backtest_logs
from worldprotocol.analysis.recheck.whole_log import LogRecheck, RecheckSetup, recheck_logs
from worldprotocol.analysis.work.workers import Workers

DOMAIN = "bench.judged:payments"
HOUSE = "bench.judged:house"

Progress = Callable[[int, int], None]


def recheck(files: Sequence[str], workers: Workers, progress: Progress) -> list[Any]:
    """Return the answers of a recheck."""
    asked = [LogRecheck(RecheckSetup(file, DOMAIN, (), (HOUSE,), every=True)) for file in files]
    recheck_logs(asked, workers=workers, progress=progress)
    return [one.error or one.done.to_wire() for one in asked]


def backtest(files: Sequence[str], workers: Workers, progress: Progress) -> list[Any]:
    """Return the answers of a backtest."""
    asked = [Backtest(BacktestSetup(file, DOMAIN, HOUSE)) for file in files]
    lines = list(backtest_logs(asked, workers=workers, progress=progress))
    return [
        (one.error or one.summary(), [line for at, line in lines if at == number]) for number, one in enumerate(asked)
    ]


@contextmanager
def cluster(count: int) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Start a scheduler and workers; give the executor's address and the workers."""
    dask = [sys.executable, "-m", "dask"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "scheduler.json"
        words = ["scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
        started = [subprocess.Popen([*dask, *words], **quiet)]
        try:
            while not file.exists() or not file.read_text():
                time.sleep(0.05)
            words = ["worker", "--scheduler-file", str(file), "--nthreads", "1", "--no-nanny", "--no-dashboard"]
            started += [
                subprocess.Popen([*dask, *words, "--local-directory", f"{place}/{number}"], **quiet)
                for number in range(count)
            ]
            address = _once_complete(file, count)
            yield address, started[1:]
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait()


def _once_complete(file: Path, count: int) -> str:
    from distributed import Client

    connect: Any = Client
    client = connect(scheduler_file=str(file), set_as_default=False)
    client.wait_for_workers(count)
    address: str = client.scheduler.address
    client.close()
    return address.replace("tcp://", "dask://")


def _cpu_s() -> float:
    """Return the CPU seconds of this process and of those that it started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _measured(work: Callable[[], list[Any]]) -> tuple[list[Any], float, float]:
    cpu_s, clock_s = _cpu_s(), time.perf_counter()
    answers = work()
    return answers, _cpu_s() - cpu_s, time.perf_counter() - clock_s


def measure(files: Sequence[str], proposals: int, counts: Sequence[int], kinds: Sequence[str]) -> None:
    """Print the figures of each analysis."""
    print(f"{len(files)} realms of {proposals:,} proposals; {os.cpu_count()} cores", flush=True)
    for kind in kinds:
        do = {"recheck": recheck, "backtest": backtest}[kind]
        alone, alone_s, clock_s = _measured(lambda: do(files, Workers(1), _quiet))  # noqa: B023 - called at once
        print(f"  {kind:<9} one process  {alone_s:>8.1f} CPU s             {clock_s:>8.1f} s", flush=True)
        for count in [*counts, 0]:

            def shared(count: int = count, do: Any = do) -> list[Any]:
                with cluster(count or 2) as (address, workers):
                    killing = _quiet if count else _kill_once(workers[0])
                    found: list[Any] = do(files, Workers(executor=address), killing)
                    return found

            answers, cpu_s, clock_s = _measured(shared)
            assert answers == alone, (answers, alone)
            words = f"{count} worker{'s'[: count != 1]}" if count else "2, 1 killed"
            print(
                f"  {kind:<9} {words:<11}  {cpu_s:>8.1f} CPU s, ratio {cpu_s / alone_s:4.2f} {clock_s:>8.1f} s",
                flush=True,
            )


def _quiet(done: int, total: int) -> None:
    pass


def _kill_once(worker: subprocess.Popen[bytes]) -> Progress:
    """Return a progress that kills a worker when a third is done."""

    def progress(done: int, total: int) -> None:
        if done * 3 > total and worker.poll() is None:
            worker.send_signal(signal.SIGKILL)
            worker.wait()

    return progress


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--proposals", type=int, default=5_000)
    parser.add_argument("--realms", type=int, default=4)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--only", choices=["recheck", "backtest"], nargs="+", default=["recheck", "backtest"])
    parser.add_argument("--log", help="a log of bench.judged with so many proposals, which is copied")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        made = told.log or record(Path(place), told.proposals)
        files = [shutil.copyfile(made, Path(place) / f"realm{number}.db") for number in range(told.realms)]
        measure([str(file) for file in files], told.proposals, told.workers, told.only)


if __name__ == "__main__":
    main()
