"""Scratch copies of the project, each with a worker that runs tests in it; the work tree itself is never changed."""

from __future__ import annotations

import compileall
import json
import os
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("world", "projections", "authority", "host", "worldprotocol")
SKIPPED = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.db", "*.egg-info")
ENVIRONMENT = {"HYPOTHESIS_PROFILE": "mutation"}


def copy_project(place: Path) -> None:
    """Copy the project, and compile it so that a changed module is never taken from its old bytecode."""
    shutil.copytree(ROOT, place, ignore=SKIPPED)
    for package in PACKAGES:
        compileall.compile_dir(place / package, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)


def end(process: subprocess.Popen[Any]) -> None:
    """Kill a process with every process below it, whatever their sessions, and wait for it."""
    if process.poll() is None:
        below = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for one in below:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()


class Worker:
    """A scratch copy with the process that runs tests in it (``tests.mutation.worker``)."""

    def __init__(self, place: Path) -> None:
        """Start the process in a copy of the project."""
        self.place = place
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutation.worker"],
            cwd=place,
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the process that ends them all, see ``stop``
        )

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a job.

        Raises:
            RuntimeError: the process ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"The worker in {self.place} ended with status {self._process.wait()}.")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        """End the process and all that its tests started."""
        end(self._process)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@contextmanager
def workers(number: int) -> Iterator[Queue[Worker]]:
    """Yield idle workers; they end, and their copies are removed, with the block, also on Ctrl-C."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="mutation-", ignore_cleanup_errors=True)))
        idle: Queue[Worker] = Queue()
        copy_project(folder / "copy")
        for index in range(number):
            worker = Worker(Path(shutil.copytree(folder / "copy", folder / str(index))))
            stack.callback(worker.stop)
            idle.put(worker)
        yield idle
