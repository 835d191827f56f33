"""Simulation of many seeds in several processes, up to the first failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from worldprotocol.analysis.work.free_cores import cores
from worldprotocol.analysis.work.performing import Begin
from worldprotocol.analysis.work.processes import ProcessCrew
from worldprotocol.analysis.work.work_list import Work, WorkList
from worldprotocol.simulation.scenario import load_scenario
from worldprotocol.simulation.simulation import InvariantViolation, simulate

__all__ = ["Ran", "run_seeds"]


@dataclass(frozen=True, slots=True)
class Ran:
    """Result of one seed.

    Args:
        seed: the seed.
        steps: how many steps were done.
        events: how many events the log held.
        violation: what did not hold, None where all did.
    """

    seed: int
    steps: int
    events: int
    violation: InvariantViolation | None


@contextmanager
def _begin(steps: int, scenario: str) -> Iterator[Callable[[int], Ran]]:
    loaded = load_scenario(scenario)

    def run(seed: int) -> Ran:
        came = simulate(seed, steps, loaded)
        return Ran(seed, came.steps, came.events, came.violation)

    yield run


def _shared(begin: Begin, seeds: Sequence[int], count: int) -> Iterator[Ran]:
    runs: WorkList[Ran] = WorkList([Work(begin, seeds)], ProcessCrew(count))
    return (done.value() for done in runs.results())


def run_seeds(
    seeds: Sequence[int],
    steps: int,
    scenario: str,
    *,
    processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Ran]:
    """Yield the result of each seed, in order, up to the first failure.

    Args:
        seeds: the seeds.
        steps: how many steps each is simulated for.
        scenario: a reference; see ``load_scenario``.
        processes: how many; None is one for each core, and 1 is this process alone.
        progress: called with seeds done and seeds in all.

    Raises:
        RefusedError: what loading the scenario refuses.
    """
    begin = partial(_begin, steps, scenario)
    count = min(processes or cores(), len(seeds))
    with begin() as run:
        came = map(run, seeds) if count <= 1 else _shared(begin, seeds, count)
        for done, ran in enumerate(came, 1):
            if progress is not None:
                progress(done, len(seeds))
            yield ran
            if ran.violation is not None:
                return
