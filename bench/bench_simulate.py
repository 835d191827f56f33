"""Steps of simulations per second of CPU: checked, unchecked, and beside ``act`` in memory; and over all cores.

Usage: ``python -m bench simulate [--seeds N] [--steps N]``. A step is a command to the real engine, with its commit in
an SQLite database in memory. The ratio is that of the CPU time of the unchecked steps to that of a whole simulation,
which checks every step and finally verifies and rechecks the log. To reach: 0.8. ``act`` is one governed proposal of a
small realm in memory.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from bench.realms import BenchRealm
from world.code.time_limit import unlimited
from world.pipeline.submit import Submission
from worldprotocol.analysis.work.free_cores import cores
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


def rate(steps: int, work: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Return steps per second of CPU, or of another clock."""
    begin = clock()
    work()
    return steps / (clock() - begin)


def act_rate(count: int) -> float:
    """Return the governed proposals of a small realm in memory per second of CPU, one commit each."""
    realm = BenchRealm("sqlite:///:memory:")
    try:
        return rate(count, lambda: [realm.protocol.submit(Submission(realm.intent(at))) for at in range(count)])
    finally:
        realm.close()


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
    act = act_rate(min(all_steps, 1_000))
    alone = rate(all_steps, lambda: list(run_seeds(seeds, given.steps, DEPOT, processes=1)), time.perf_counter)
    shared = rate(all_steps, lambda: list(run_seeds(seeds, given.steps, DEPOT)), time.perf_counter)
    rows = (
        ("act in memory", f"{act:8,.0f} /s"),
        ("steps alone, one process", f"{bare:8,.0f} /s"),
        ("checked, one process", f"{whole:8,.0f} /s   ratio {whole / bare:.2f} to steps, {whole / act:.2f} to act"),
        (
            f"checked, {cores()} processes",
            f"{shared:8,.0f} /s   ratio {shared / alone:.2f} on the clock to one process",
        ),
    )
    for name, shown in rows:
        print(f"  {name:<32}{shown}")


if __name__ == "__main__":
    main()
