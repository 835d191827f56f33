"""Recheck of a large log: one process beside several; and a branch that never was, over the same log.

Usage: ``python -m bench recheck [--decisions N] [--jobs N ...]``; 125,000 decisions are 1,000,000 events. A log of
payments is made, each judged by four rules in Python; every ruling, verdict and execution is performed again. How much
of it is mere folding, which every process does for the whole log, stands in the first line. The ratio says how much
longer one process takes on the clock; to reach: more than 1.5 with two processes on two free cores. Below stands what a
branch that never was takes, with nothing otherwise in it, from the first payment on.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.judged import house, record
from world.events.proposal_events import ProposalSubmitted
from world.log import open_log
from worldprotocol.analysis.counterfactual import WhatIf, what_if
from worldprotocol.analysis.recheck.recheck import Rechecking
from worldprotocol.analysis.recheck.whole_log import RecheckSetup, recheck_log
from worldprotocol.analysis.work.workers import Workers


def measure(decisions: int, processes: Sequence[int]) -> None:
    """Print the figures of a log of so many decisions."""
    with tempfile.TemporaryDirectory() as place:
        file = record(Path(place), decisions)
        setup = RecheckSetup(file, "bench.judged:payments", (), ("bench.judged:house",))
        with setup.open() as world:
            size = world.log.head().size
            begin = time.process_time()
            Rechecking(world).stretch((size, size))
            folding_s = time.process_time() - begin
            begin = time.process_time()
            assert Rechecking(world).stretch((0, size)).ok
            all_s = time.process_time() - begin
        print(f"{decisions:,} decisions in a log of {size:,} events", flush=True)
        print(
            f"  one core   {size / all_s:>8,.0f} events/s, of which folding takes {folding_s / all_s:.0%}", flush=True
        )
        alone_s = 0.0
        for jobs in processes:
            begin = time.perf_counter()
            assert recheck_log(setup, workers=Workers(jobs or None)).ok
            taken_s = time.perf_counter() - begin
            alone_s = alone_s or taken_s
            words = f"{jobs} processes" if jobs else "as it likes"
            print(f"  {words:<11}{taken_s:>7.2f} s   ratio to the first {alone_s / taken_s:5.2f}", flush=True)
        with open_log(file, read_only=True) as log:
            start = next(iter(log.read(topics=[ProposalSubmitted.TOPIC]))).position - 1
        begin = time.perf_counter()
        report = what_if(WhatIf(file, "bench.judged:payments", start, at_hand=[house]))
        taken_s = time.perf_counter() - begin
        assert not report.changed
        print(f"  whatif     {taken_s:>7.2f} s   {decisions / taken_s:,.0f} proposals/s", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2, 0], help="processes; 0 is as many as it chooses")
    told = parser.parse_args()
    measure(told.decisions, told.jobs)


if __name__ == "__main__":
    main()
