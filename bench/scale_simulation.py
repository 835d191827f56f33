"""A simulation of many realms on many servers with failures, from measured service times.

Usage: ``python -m bench.scale_simulation [--seed N] [--realms N] [--servers N] [--rate R] [--seconds S]
[--no-failures] [--write]``. The model is ``bench.scale_model``; its service times are measured
(``scale_measured.json``), all else is assumed (``scale_inputs.toml``). Prints throughput, waiting times in virtual
time, failures with their recovery, utilisation, and how far the run agrees with Little's law and the utilisation law.
The same seed prints the same.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from bench.scale_arithmetic import PAGE, filled
from bench.scale_inputs import assumed, measured, simulated
from bench.scale_model import Failures, Outage, Scale, Simulation

PERCENTILES = (50.0, 99.0, 99.9)
RANKS = ((1, 1), (2, 10), (11, 100), (101, 10**9))
"""First and last rank of the groups of realms whose waiting times are printed."""


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the percentile of sorted values, by the nearest rank."""
    return values[max(0, math.ceil(percent / 100 * len(values)) - 1)]


def shown_percentiles(values: Iterable[float]) -> str:
    """Return the percentiles and the maximum in milliseconds."""
    found = sorted(values)
    if not found:
        return "none"
    cut = "  ".join(f"p{percent:g} {percentile(found, percent) * 1e3:>9,.1f}" for percent in PERCENTILES)
    return f"{cut}  most {found[-1] * 1e3:>9,.1f} ms"


def little(simulation: Simulation) -> tuple[float, float]:
    """Return the mean number of unfinished proposals: counted over time, and as arrival rate times mean time.

    The time of a proposal that is unfinished at the end counts up to there.
    """
    seconds = simulation.scale.seconds
    spent = sum(response for *_, response in simulation.responses)
    spent += sum(seconds - at for at in simulation.unfinished)
    return simulation.population_s / seconds, simulation.submitted / seconds * spent / max(1, simulation.submitted)


def utilisation(simulation: Simulation) -> tuple[float, float]:
    """Return the mean utilisation of the engine processes: as counted, and as work completed times its mean demand."""
    scale, service = simulation.scale, simulation.scale.service
    busy = sum(process.busy for server in simulation.servers for process in server.processes)
    demand = simulation.commits * service.engine_commit_s + simulation.completed * service.engine_proposal_s
    cores = scale.servers * scale.processes * scale.seconds
    return busy / cores, demand / cores


def shown_outage(outage: Outage) -> str:
    """Return a line about a failure."""
    end = "not in this run" if outage.recovered_at is None else f"{outage.recovered_at - outage.at:7.2f} s"
    return (
        f"  {outage.at:>8.1f} s  {outage.kind:<18} {outage.realms:>5,} realms, {outage.delayed:>4,} with proposals"
        f" that waited   recovered after {end}"
    )


def report(simulation: Simulation, seed: int) -> str:
    """Return what a run is to print.

    Args:
        simulation: after ``run``.
        seed: of the run.
    """
    scale, service = simulation.scale, simulation.scale.service
    waits = [(number, wait) for number, wait, _ in simulation.responses]
    processes = [one.busy / scale.seconds for server in simulation.servers for one in server.processes]
    databases = [one.cpu.busy / scale.seconds / scale.database_cores for one in simulation.databases]
    share = 1 / sum((rank + 1) ** -scale.zipf for rank in range(scale.realms))
    commit = (
        f"engine {service.engine_commit_s * 1e6:,.0f} + {service.engine_proposal_s * 1e6:,.0f} us, "
        f"database {service.database_commit_s * 1e6:,.0f} + {service.database_proposal_s * 1e6:,.0f} us"
    )
    place = f"{scale.servers} servers with {scale.processes} engine processes, {scale.databases} primaries"
    unfinished, each = len(simulation.unfinished), simulation.completed / max(1, simulation.commits)
    flushes = sum(one.flushes for one in simulation.databases)
    lines = [
        f"seed {seed}: {scale.realms:,} realms on {place}; {scale.seconds:,.0f} s of virtual time",
        f"  CPU of a commit and of each proposal in it: {commit}; flush {service.flush_s * 1e3:g} ms",
        f"  offered {scale.rate:,.0f}/s, {share:.1%} to the first realm (Zipf {scale.zipf:g})",
        f"submitted {simulation.submitted:,}, completed {simulation.completed:,}, unfinished {unfinished:,}",
        f"  completed {simulation.completed / scale.seconds:,.1f}/s; submissions repeated {simulation.repeated:,}",
        f"commits {simulation.commits:,}, {each:.2f} proposals each; {flushes:,} flushes",
        f"wait for the commit       {shown_percentiles(wait for _, wait in waits)}",
        f"until completed           {shown_percentiles(response for *_, response in simulation.responses)}",
    ]
    for first, last in RANKS:
        if first <= scale.realms:
            name = f"rank {first}" if first == last else f"ranks {first} to {min(last, scale.realms):,}"
            group = (wait for number, wait in waits if first <= number + 1 <= last)
            lines.append(f"  wait, {name:<20}{shown_percentiles(group)}")
    lines.append(
        f"utilisation of engine processes: mean {sum(processes) / len(processes):.1%}, most {max(processes):.1%}; "
        f"of the primaries' cores: mean {sum(databases) / len(databases):.1%}, most {max(databases):.1%}"
    )
    lines.append(f"failures: {len(simulation.outages)}")
    lines += [shown_outage(outage) for outage in simulation.outages]
    counted, computed = little(simulation)
    lines.append(f"Little's law: {counted:,.3f} unfinished in the mean, rate times mean time {computed:,.3f}")
    busy, demand = utilisation(simulation)
    lines.append(
        f"utilisation law: engine processes {busy:.4%} busy, completed work times its mean demand {demand:.4%}"
    )
    return "\n".join(lines)


def simulate(scale: Scale, seed: int) -> str:
    """Run a simulation, and return what it prints."""
    simulation = Simulation(scale, seed)
    simulation.run()
    return report(simulation, seed)


def fenced(printed: str) -> str:
    """Return an output as a block of a page."""
    return f"```text\n{printed}\n```"


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate and print."""
    scale = simulated(measured(), assumed())
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--realms", type=int, default=scale.realms)
    parser.add_argument("--servers", type=int, default=scale.servers)
    parser.add_argument("--rate", type=float, default=scale.rate, help="proposals a second in all")
    parser.add_argument("--seconds", type=float, default=scale.seconds, help="virtual time")
    parser.add_argument("--no-failures", action="store_true")
    parser.add_argument("--write", action="store_true", help="write the output into docs/scale.md as well")
    given = parser.parse_args(arguments)
    wanted = replace(scale, realms=given.realms, servers=given.servers, rate=given.rate, seconds=given.seconds)
    if given.no_failures:
        wanted = replace(wanted, failures=Failures())
    printed = simulate(wanted, given.seed)
    print(printed)
    if given.write:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), {"simulation": fenced(printed)}), encoding="utf-8")


if __name__ == "__main__":
    main()
