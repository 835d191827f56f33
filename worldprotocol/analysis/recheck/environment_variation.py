"""Recheck in varied environments, to detect steps that depend on them (CARD-replay).

Every run is a separate process that rechecks the whole log. Two runs use an unchanged environment; each other run
differs from them in one variation: ``hashseed`` (order of sets of strings), ``order`` (order of loading projections and
policies, and additional performances of some steps), ``locale`` (set by ``setlocale``) or ``timezone`` (``TZ``). The
order of members of JSON objects is fixed and needs no variation. If runs differ at an event, the variation is the
cause; if the first two runs differ, the step is nondeterministic.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Final

from host.system_paths import tool
from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.analysis.recheck.whole_log import RecheckSetup
from worldprotocol.analysis.work.free_cores import cores

__all__ = ["VARIATIONS", "Run", "Varied", "recheck_varied"]

VARIATIONS: Final = ("hashseed", "order", "locale", "timezone")
"""Names of the variations."""

RUNS: Final = 3
"""Default number of runs for each variation."""

ZONES: Final = ("WPA-14", "WPB+12", "WPC-5:45", "WPD+3:30")
"""Time zones in POSIX syntax, which needs no zone database; POSIX inverts the sign."""

PREFERRED: Final = ("tr_TR", "de_DE", "ja_JP")
"""Preferred locales: they differ in letter case, collation and dates."""

START: Final = (
    "import sys; sys.path[:] = sys.argv[1:]; from worldprotocol.analysis.recheck.varied_run import main; main()"
)
"""Program of a run; it imports from the same path as this process only."""

NOTHING: Final = "nothing"


@dataclass(slots=True)
class Run:
    """Recheck of the whole log in one environment.

    Args:
        varied: name of the variation; ``nothing`` for an unchanged environment.
        value: its value; an environment variable is written as ``NAME=value``.
        order: seed for shuffling; None shuffles nothing.
        position: position of the last checked event.
        divergences: divergences by position, as JSON, without drift.
        drift: steps that could not be performed again.
        steps: number of performed steps.
    """

    varied: str
    value: str
    order: int | None = None
    position: int = 0
    divergences: dict[int, Any] = field(default_factory=dict)
    drift: list[Any] = field(default_factory=list)
    steps: dict[str, int] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        """The changed environment variables."""
        name, _, value = self.value.partition("=")
        return {name: value} if value else {}


@dataclass(frozen=True, slots=True)
class Varied:
    """Result of the runs.

    Args:
        runs: all runs; the first one has an unchanged environment.
        itself: the first event at which the first two runs differ, if any.
        made: for each variation the first event at which it causes a difference, if any.
    """

    runs: list[Run]
    itself: int | None
    made: dict[str, int | None]

    @property
    def ok(self) -> bool:
        """Whether every run reproduced the record."""
        return not any(run.divergences or run.drift for run in self.runs)

    def at(self, varied: str, position: int) -> list[dict[str, Any]]:
        """Return the results of a variation's runs, and of the first run, at an event."""
        shown = [run for run in self.runs if run.varied == varied or run is self.runs[0]]
        return [
            {"varied": run.varied, "value": run.value, "divergence": run.divergences.get(position)} for run in shown
        ]

    def to_wire(self) -> dict[str, Any]:
        """Return it as JSON."""
        base = self.runs[0]
        return {
            "ok": self.ok,
            "position": min(run.position for run in self.runs),
            "steps": base.steps,
            "divergences": [*base.drift, *base.divergences.values()],
            "runs": [
                {"varied": run.varied, "value": run.value, "divergences": len(run.divergences)} for run in self.runs
            ],
            "byItself": None if self.itself is None else self._outcomes(NOTHING, self.itself),
            "varied": {name: None if at is None else self._outcomes(name, at) for name, at in self.made.items()},
        }

    def _outcomes(self, varied: str, position: int) -> dict[str, Any]:
        return {"position": position, "outcomes": self.at(varied, position)}


def recheck_varied(
    setup: RecheckSetup,
    vary: Sequence[str] = (),
    *,
    runs: int = RUNS,
    upto: int | None = None,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Varied:
    """Recheck a log several times, with one variation at a time.

    Args:
        setup: the log and the code.
        vary: variations, of ``VARIATIONS``; an empty sequence repeats the same run.
        runs: number of runs for each variation.
        upto: the last position; None is the newest event.
        jobs: number of concurrent processes; None is one for each core.
        progress: called with the number of runs done and of all runs.

    Raises:
        RefusedError: ``INVALID_VALUE`` for an unknown variation, ``PROCESS_LOST``, and the codes of ``recheck``.
    """
    unknown = [name for name in vary if name not in VARIATIONS]
    if unknown:
        raise RefusedError(
            ErrorCode.INVALID_VALUE,
            f"There is no variation {unknown[0]!r}; the variations are {', '.join(VARIATIONS)}.",
        )
    many = max(2, runs) if not vary else 2
    planned = [Run(NOTHING, f"run {number}") for number in range(1, many + 1)]
    for name in dict.fromkeys(vary):
        planned += _runs(name, runs)
    _perform(planned, setup, upto, jobs or cores(), progress)
    return _compared(planned)


def _runs(name: str, runs: int) -> Iterator[Run]:
    """Yield the runs of a variation; locales are limited to those of the system."""
    if name == "hashseed":
        for number in range(1, runs + 1):
            yield Run(name, f"PYTHONHASHSEED={number}")
    elif name == "order":
        for number in range(1, runs + 1):
            yield Run(name, f"shuffle {number}", order=number)
    elif name == "locale":
        for locale in _locales()[:runs]:
            yield Run(name, f"LC_ALL={locale}")
    else:
        for number in range(runs):
            zone = ZONES[number] if number < len(ZONES) else f"WPE{number % 24 - 12:+d}"
            yield Run(name, f"TZ={zone}")


def _locales() -> list[str]:
    """Return the locales of this system, the most different ones first."""
    known: list[str] = []
    program = tool("locale")
    if program is not None:
        listing = subprocess.run([program, "-a"], capture_output=True, text=True, check=False)
        known = listing.stdout.split()
    best = [name for stem in PREFERRED for name in known if name.startswith(stem)]
    rest = [name for name in known if "." in name]
    return list(dict.fromkeys([*best, *rest, "C"]))


def _perform(
    runs: Sequence[Run],
    setup: RecheckSetup,
    upto: int | None,
    jobs: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Perform all runs, at most ``jobs`` at once; an exception ends the processes."""
    processes: set[subprocess.Popen[bytes]] = set()
    with ThreadPoolExecutor(jobs) as threads:
        left = {threads.submit(_one, run, setup, upto, processes) for run in runs}
        try:
            while left:
                done, left = wait(left, return_when=FIRST_COMPLETED)
                for one in done:
                    one.result()
                if progress is not None:
                    progress(len(runs) - len(left), len(runs))
        except BaseException:
            for one in left:
                one.cancel()
            for process in list(processes):
                process.kill()
            raise


def _one(run: Run, setup: RecheckSetup, upto: int | None, processes: set[subprocess.Popen[bytes]]) -> None:
    """Perform one run in a separate process and read its output."""
    instructions = {
        "address": setup.address,
        "domain": setup.domain,
        "projections": setup.projections,
        "policies": setup.policies,
        "folder": str(setup.folder),
        "upto": upto,
        "order": run.order,
        "locale": next(iter(run.variables.values())) if run.varied == "locale" else None,
    }
    environment = {**os.environ, "PYTHONHASHSEED": "0", **run.variables}
    command = [sys.executable, "-P", "-c", START, *sys.path]  # -P: the current folder is not searched
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, start_new_session=True, **pipes) as process:
        processes.add(process)
        try:
            out, _ = process.communicate(json.dumps(instructions).encode())
        finally:
            process.kill()
            processes.discard(process)
    lines = [json.loads(line) for line in out.splitlines()]
    end = lines.pop() if lines else {}
    if "error" in end:
        raise RefusedError(end["error"]["code"], end["error"]["message"], **end["error"].get("details", {}))
    if "position" not in end or "topic" in end:
        raise RefusedError(
            ErrorCode.PROCESS_LOST,
            f"The run with {run.value} ended unexpectedly (exit code {process.returncode}). It may have run out of "
            "memory; try again with fewer processes (--jobs 1).",
            exit_code=process.returncode,
        )
    run.position, run.steps = end["position"], end["steps"]
    run.drift = [line["divergence"] for line in lines if line["drift"]]
    for line in lines:
        if not line["drift"]:
            run.divergences.setdefault(line["divergence"]["position"], line["divergence"])


def _compared(runs: list[Run]) -> Varied:
    """Return the first event at which each variation causes a difference."""
    base = [run for run in runs if run.varied == NOTHING]
    last = min(run.position for run in runs)
    own = {at for at in _places(base, last) if _differs(base, at)}
    made = {}
    for name in dict.fromkeys(run.varied for run in runs if run.varied != NOTHING):
        some = [base[0], *(run for run in runs if run.varied == name)]
        made[name] = next((at for at in _places(some, last) if at not in own and _differs(some, at)), None)
    return Varied(runs, min(own, default=None), made)


def _places(runs: Sequence[Run], last: int) -> list[int]:
    return sorted({at for run in runs for at in run.divergences if at <= last})


def _differs(runs: Sequence[Run], at: int) -> bool:
    first = runs[0].divergences.get(at)
    return any(run.divergences.get(at) != first for run in runs[1:])
