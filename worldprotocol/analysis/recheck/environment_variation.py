"""Recheck in varied surroundings: what a step takes from elsewhere than its record comes to light (CARD-replay).

Every run is a process of its own that rechecks the whole log. Two runs are as they are; each other one differs from
them in one thing: ``hashseed`` (the order of sets of texts), ``order`` (that in which projections and policies are
loaded, and what was performed before a step: some are performed once more, for nothing), ``locale`` (set by
``setlocale``) or ``timezone`` (``TZ``). Members of JSON objects have one order everywhere, which needs no varying.
Where runs come to different ends at an event, what was varied is what made it; where the first two do, the step
differs by itself.
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
from world.errors import RefusedError
from worldprotocol.analysis.process_pool import cores
from worldprotocol.analysis.recheck.whole_log import RecheckSetup

__all__ = ["VARIATIONS", "Run", "Varied", "recheck_varied"]

VARIATIONS: Final = ("hashseed", "order", "locale", "timezone")
"""What can be varied."""

RUNS: Final = 3
"""Runs for each variation, unless told otherwise."""

ZONES: Final = ("WPA-14", "WPB+12", "WPC-5:45", "WPD+3:30")
"""Time zones as POSIX writes them, so that no database of zones is needed; the sign is turned around there."""

PREFERRED: Final = ("tr_TR", "de_DE", "ja_JP")
"""Locales that are taken first where there are any: dotless letters, other sorting, other dates."""

START: Final = (
    "import sys; sys.path[:] = sys.argv[1:]; from worldprotocol.analysis.recheck.varied_run import main; main()"
)
"""What a run executes: it imports from where this process does, and from nowhere else."""

NOTHING: Final = "nothing"


@dataclass(slots=True)
class Run:
    """A recheck of the whole log in certain surroundings.

    Args:
        varied: what is varied in it, ``nothing`` for those that are as they are.
        value: how; a variable of its environment is written as ``NAME=value``.
        order: with what number the order of things is shuffled; None leaves it.
        position: the last event it looked at.
        divergences: what came out differently, by position, as JSON; drift is left out.
        drift: what could not be performed again.
        steps: how many steps it performed.
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
        """The variables of its environment that are not as they are."""
        name, _, value = self.value.partition("=")
        return {name: value} if value else {}


@dataclass(frozen=True, slots=True)
class Varied:
    """What the runs came to.

    Args:
        runs: all of them; the first is as it is.
        itself: the first event at which the first two runs differ; None where they agree everywhere.
        made: for each variation the first event at which it makes a difference, None where it makes none.
    """

    runs: list[Run]
    itself: int | None
    made: dict[str, int | None]

    @property
    def ok(self) -> bool:
        """Whether every run came out as recorded."""
        return not any(run.divergences or run.drift for run in self.runs)

    def at(self, varied: str, position: int) -> list[dict[str, Any]]:
        """Return what the runs of a variation, and the one that is as it is, came to at an event."""
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
            "byItself": None if self.itself is None else self._told(NOTHING, self.itself),
            "varied": {name: None if at is None else self._told(name, at) for name, at in self.made.items()},
        }

    def _told(self, varied: str, position: int) -> dict[str, Any]:
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
    """Recheck a log again and again, with one thing varied at a time.

    Args:
        setup: the log and the code.
        vary: what to vary, of ``VARIATIONS``; nothing repeats the same run only.
        runs: how often for each variation.
        upto: the last position; None is the newest event.
        jobs: how many processes at once; None is one for each core.
        progress: called with runs done and runs in all.

    Raises:
        RefusedError: ``INVALID_VALUE`` for what cannot be varied, ``PROCESS_LOST``, and what a recheck refuses.
    """
    unknown = [name for name in vary if name not in VARIATIONS]
    if unknown:
        raise RefusedError("INVALID_VALUE", f"{unknown[0]!r} cannot be varied; there are {', '.join(VARIATIONS)}.")
    many = max(2, runs) if not vary else 2
    planned = [Run(NOTHING, f"run {number}") for number in range(1, many + 1)]
    for name in dict.fromkeys(vary):
        planned += _runs(name, runs)
    _perform(planned, setup, upto, jobs or cores(), progress)
    return _compared(planned)


def _runs(name: str, runs: int) -> Iterator[Run]:
    """Yield the runs of a variation; there are no more locales than the system has."""
    if name == "hashseed":
        for number in range(1, runs + 1):
            yield Run(name, f"PYTHONHASHSEED={number}")
    elif name == "order":
        for number in range(1, runs + 1):
            yield Run(name, f"shuffle {number}", order=number)
    elif name == "locale":
        for told in _locales()[:runs]:
            yield Run(name, f"LC_ALL={told}")
    else:
        for number in range(runs):
            zone = ZONES[number] if number < len(ZONES) else f"WPE{number % 24 - 12:+d}"
            yield Run(name, f"TZ={zone}")


def _locales() -> list[str]:
    """Return the locales of this system, the most different ones first."""
    known: list[str] = []
    program = tool("locale")
    if program is not None:
        told = subprocess.run([program, "-a"], capture_output=True, text=True, check=False)
        known = told.stdout.split()
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
    """Perform all runs, so many at once; whatever ends this early ends the processes."""
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
    """Perform one run in a process of its own and take in what it says."""
    told = {
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
            out, _ = process.communicate(json.dumps(told).encode())
        finally:
            process.kill()
            processes.discard(process)
    lines = [json.loads(line) for line in out.splitlines()]
    end = lines.pop() if lines else {}
    if "error" in end:
        raise RefusedError(end["error"]["code"], end["error"]["message"], **end["error"].get("details", {}))
    if "position" not in end or "topic" in end:
        raise RefusedError(
            "PROCESS_LOST",
            f"The run with {run.value} ended by itself (exit code {process.returncode}). It may have been short of "
            "memory; try again with fewer processes (--jobs 1).",
            exit_code=process.returncode,
        )
    run.position, run.steps = end["position"], end["steps"]
    run.drift = [line["divergence"] for line in lines if line["drift"]]
    for line in lines:
        if not line["drift"]:
            run.divergences.setdefault(line["divergence"]["position"], line["divergence"])


def _compared(runs: list[Run]) -> Varied:
    """Return at which event each variation first makes a difference, as far as all runs came."""
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
