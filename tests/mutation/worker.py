"""Runs tests against changed modules, each run in a forked process of its own, in a scratch copy of the project.

``python -m tests.mutation.worker`` in the copy reads one job a line from stdin and answers each on stdout, both JSON.
It imports the libraries that tests need once and nothing of the project, so that a run costs little more than its
tests. When a run ends, also at its time limit, every process that it started is killed.

A job is ``{"changes": {path: source}, "tests": [...], "options": [...], "time_limit_s": n}``; the answer is
``{"outcome": "killed" | "survived" | "timed out" | "no tests", "seconds": n, "output": text}``.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import resource
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import psutil

LIBRARIES = (
    "hypothesis.internal.conjecture.engine",
    "hypothesis.strategies",
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "cel",
    "click",
    "eventsourcing.persistence",
    "httpx",
    "jsonschema",
    "msgspec",
    "orjson",
    "psutil",
    "pydantic",
    "rfc8785",
    "sqlalchemy",
    "yaml",
)
"""What is imported before the forks; a library that is missing or has moved only makes runs slower."""

OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "--tb=line", "-W", "ignore::pytest.PytestAssertRewriteWarning")

OUTPUT_CHARACTERS = 2_000

SET_CHILD_SUBREAPER = 36
"""Of prctl: a process whose parent ends becomes a child of the worker, so that it can be found (Linux)."""

WRONG_USAGE = 4
"""The exit status of pytest for arguments it cannot use; also where a module that it needs cannot be imported."""

NO_TESTS = 5
"""The exit status of pytest where nothing was selected."""


def main() -> None:
    """Answer jobs until stdin ends."""
    import pytest  # noqa: F401 - imported for the forks

    for library in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    sys.dont_write_bytecode = True
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Make the changes, run the tests, and take the changes back."""
    originals = {path: Path(path).read_text(encoding="utf-8") for path in job["changes"]}
    try:
        for path, source in job["changes"].items():
            Path(path).write_text(source, encoding="utf-8")
        return _run(job["tests"], job["options"], job["time_limit_s"])
    finally:
        for path, source in originals.items():
            Path(path).write_text(source, encoding="utf-8")


def _run(tests: list[str], options: list[str], time_limit_s: float) -> dict[str, Any]:
    began, output = time.monotonic(), Path(".mutation-output")
    child = os.fork()
    if child == 0:
        _test(output, [*tests, *options], time_limit_s)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        seconds = time.monotonic() - began
        if ended or seconds > time_limit_s:
            break
        time.sleep(0.02)
    _end_all()
    if not ended:
        return {"outcome": "timed out", "seconds": seconds, "output": ""}
    code = os.waitstatus_to_exitcode(status)
    text = output.read_text(encoding="utf-8", errors="replace")[-OUTPUT_CHARACTERS:]
    outcome = {0: "survived", NO_TESTS: "no tests"}.get(code, "killed")
    if code == WRONG_USAGE and "ERROR: not found:" in text:
        raise RuntimeError(f"The baseline names tests that do not exist; remove .mutation/ and run again.\n{text}")
    return {"outcome": outcome, "seconds": seconds, "output": text}


def _end_all() -> None:
    """Kill every process below this one, whatever its session."""
    while below := psutil.Process().children(recursive=True):
        for process in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _test(output: Path, arguments: list[str], time_limit_s: float) -> None:
    """Run pytest and end this process with its exit status."""
    code = 1
    try:
        os.setsid()
        cpu_s = int(time_limit_s) + 60
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, most))  # ends an endless loop even where the worker was killed
        with output.open("w", encoding="utf-8") as told:
            os.dup2(told.fileno(), 1)
            os.dup2(told.fileno(), 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        import pytest

        code = int(pytest.main([*OPTIONS, *arguments]))
    except BaseException:  # noqa: BLE001 - the forked process ends here
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
