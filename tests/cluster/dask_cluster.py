"""A Dask scheduler and its workers, each a process of its own on this machine."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distributed import Client

from tests.cli.realm import ROOT, environment
from tests.support.patience import PATIENCE_S


@dataclass
class DaskCluster:
    """A scheduler with workers, whose output is in files of a folder; use it in ``with``."""

    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    client: Any = None

    def __enter__(self) -> DaskCluster:
        file = self.folder / "scheduler.json"
        self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file))
        connect: Any = Client
        self.client = connect(scheduler_file=str(file), timeout=PATIENCE_S, set_as_default=False)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):
            self.client.close()
        for process in reversed(self.processes):
            process.kill()
            process.wait(PATIENCE_S)

    @property
    def executor(self) -> str:
        """The address, as ``--executor`` takes it."""
        return str(self.client.scheduler.address).replace("tcp://", "dask://")

    @property
    def output(self) -> str:
        """What the scheduler and the workers have printed."""
        return "".join(file.read_text() for file in sorted(self.folder.glob("*.out")))

    def start_workers(self, count: int, path: Path = ROOT, python: tuple[str, ...] = (sys.executable,)) -> None:
        """Start workers and wait for them.

        Args:
            count: how many.
            path: folder from which they import besides those of the environment.
            python: the interpreter, with its options.
        """
        before = len(self.client.scheduler_info(n_workers=-1)["workers"])
        for _ in range(count):
            words = ("--nthreads", "1", "--no-nanny", "--local-directory", str(self.folder / "scratch"))
            self._start(
                "worker", "--scheduler-file", str(self.folder / "scheduler.json"), *words, path=path, python=python
            )
        self.client.wait_for_workers(before + count, timeout=PATIENCE_S)

    def _start(self, *words: str, path: Path = ROOT, python: tuple[str, ...] = (sys.executable,)) -> None:
        variables = environment() | {"PYTHONPATH": str(path)}
        variables.pop("PYTHONWARNINGS")  # those of Dask are not this project's
        with open(self.folder / f"{len(self.processes)}.out", "wb") as out:
            command = [*python, "-m", "dask", *words, "--no-dashboard"]
            self.processes.append(
                subprocess.Popen(command, cwd=self.folder, env=variables, stdout=out, stderr=subprocess.STDOUT)
            )
