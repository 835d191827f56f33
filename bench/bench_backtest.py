"""Backtest: decisions per second of one core, beside judging and beside calling the rule functions bare.

Usage: ``python -m bench backtest [--decisions N ...] [--jobs N ...]``. A log of payments is made, and every one is
judged again by the four rules of ``bench.judged``, in CEL and in Python: they read the input, the actor, the state,
and how many payments there were within a day. The first figure is what calling the functions of the Python rules
for these cases comes to; then ``judge()`` alone, for cases that are ready; then the whole backtest, which reads the
log, checks the hashes of its events, builds the states and makes the cases; seconds are those that one core spent
on it. Below stands what passes on the clock for the whole command with one process, with two, and with as many as
the backtest takes by itself. To reach: 0.4 of the rule functions called bare.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from authority import PolicyRegistry, StandardAuthority
from bench.judged import bare, record
from world.events.proposal_events import ProposalJudged
from world.state.ports import Case
from worldprotocol.analysis.backtest import Backtest, BacktestSetup
from worldprotocol.analysis.rejudging import CaseRejudger
from worldprotocol.analysis.work.workers import Workers

TO_REACH = 0.4
ROUNDS = 3


class Noting:
    """An authority that notes the cases it judges."""

    def __init__(self, judging: Any) -> None:
        """Hand them on."""
        self.cases: list[Case] = []
        self._judging = judging

    def judge(self, case: Case) -> Any:
        """Note a case, and judge it."""
        self.cases.append(case)
        return self._judging.judge(case)


def core_s(work: Callable[[], object]) -> float:
    """Return the least of a core's seconds that a call takes in some rounds."""
    least = float("inf")
    for _ in range(ROUNDS):
        begin = time.process_time()
        work()
        least = min(least, time.process_time() - begin)
    return least


def measure_core(setup: BacktestSetup, decisions: int) -> str:
    """Return the figures of one core, as a line."""
    judge = setup.judge()
    size = judge.archive.log.head().size
    counts = judge.stretch(0, size).counts
    assert counts == {"judged": decisions, "same": decisions}, counts
    authority = StandardAuthority(PolicyRegistry([judge.policy]))
    judge._authority = noting = Noting(authority)  # type: ignore[assignment]
    judge.stretch(0, size)
    cases = noting.cases
    alone = core_s(lambda: [bare(case) for case in cases])
    judged = core_s(lambda: [authority.judge(case) for case in cases])
    whole = core_s(lambda: CaseRejudger(judge.archive, judge.domain, judge.policy, setup.wanted).stretch(0, size))
    reached = decisions / whole
    return (
        f"bare {decisions / alone:>9,.0f} /s   judge() {decisions / judged:>8,.0f} /s   backtest {reached:>8,.0f} /s"
        f"   ratio to bare {alone / whole:5.2f}, to judge() {judged / whole:5.2f}   to reach {TO_REACH} of bare"
    )


def measure_command(setup: BacktestSetup, jobs: int | None) -> str:
    """Return how long the whole takes on the clock, with what starts before the first case."""
    begin = time.perf_counter()
    for _ in Backtest(setup, Workers(jobs)).lines():
        pass
    return f"{time.perf_counter() - begin:.2f} s"


def measure(decisions: int, processes: Sequence[int]) -> None:
    """Print the figures of a log of so many decisions."""
    with tempfile.TemporaryDirectory() as place:
        file = record(Path(place), decisions)
        setups = {
            "CEL": BacktestSetup(file, "bench.judged:payments", str(Path(place) / "rules.toml")),
            "Python": BacktestSetup(file, "bench.judged:payments", "bench.judged:house"),
        }
        judge = setups["CEL"].judge()
        rulings = sum(1 for _ in judge.archive.log.read(topics=[ProposalJudged.TOPIC]))
        print(f"{rulings:,} decisions in a log of {judge.archive.log.head().size:,} events", flush=True)
        for name, setup in setups.items():
            print(f"  {name:<7} {measure_core(setup, decisions)}", flush=True)
            taken = [f"{jobs or 'as it chooses'} {measure_command(setup, jobs or None)}" for jobs in processes]
            print(f"  {'':<7} processes: {', '.join(taken)}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, nargs="+", default=[1_000, 20_000])
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2, 0], help="processes; 0 is as many as it chooses")
    told = parser.parse_args()
    for decisions in told.decisions:
        measure(decisions, told.jobs)


if __name__ == "__main__":
    main()
