"""How fast simulations go: steps a second with the model's checks, without them, and over all cores.

Usage: ``python -m bench simulate [--seeds N] [--steps N]``. A step is a command to the real engine, with its commit in
an SQLite database in memory; the ratio says what the checks after every step, the last look at the whole log and its
recheck cost.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from world.code.time_limit import unlimited
from worldprotocol.analysis.process_pool import cores
from worldprotocol.simulation import DEPOT, Simulation, draw_steps, run_seeds, simulate
from worldprotocol.simulation.depot import scenario


class _Unchecked(Simulation):
    """A simulation whose model follows the log, because steps choose by it, and checks nothing else."""

    def check(self) -> None:
        for row in self.workers[0].log.audit_rows(self.model.log.size, 10_000):
            self.model.take(row)


def unchecked(seeds: range, steps: int) -> None:
    """Do the steps of seeds, and no more."""
    for seed in seeds:
        simulation = _Unchecked(seed, scenario)
        for step in draw_steps(seed, steps, scenario):
            simulation.do(step)
        simulation.close()


def rate(steps: int, work: Callable[[], object]) -> float:
    """Return steps per second."""
    begin = time.perf_counter()
    work()
    return steps / (time.perf_counter() - begin)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=300)
    given = parser.parse_args()
    seeds, all_steps = range(given.seeds), given.seeds * given.steps
    simulate(0, 20, scenario)
    bare = rate(all_steps, lambda: unlimited(lambda: unchecked(seeds, given.steps)))
    whole = rate(all_steps, lambda: [simulate(seed, given.steps, scenario) for seed in seeds])
    shared = rate(all_steps, lambda: list(run_seeds(seeds, given.steps, DEPOT)))
    print(f"  steps alone, one process        {bare:8,.0f} /s")
    print(f"  checked after each, one process {whole:8,.0f} /s   ratio {whole / bare:.2f}")
    print(f"  checked after each, {cores()} processes {shared:8,.0f} /s   ratio {shared / whole:.2f}")


if __name__ == "__main__":
    main()
