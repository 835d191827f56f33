"""The CPU time of a governed proposal with traces, and with none.

Usage: ``python -m bench telemetry [--proposals N] [--rounds R]``. ``act`` of a pure action in memory, one caller:
where the program has not imported OpenTelemetry, where it has and has configured no provider, and where an SDK makes
every span and drops it. In turns, the median of CPU times. To reach: 1.01 without a provider.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from bench.turns import in_turns, show
from bench.written import governed, propose
from worldprotocol import Realm
from worldprotocol.api.telemetry.context import TRACES

ABSENT, IDLE, TRACED = "OpenTelemetry not imported", "imported, no provider", "every span made and dropped"


class Dropped(SpanExporter):
    """Drops every span."""

    def export(self, spans: Any) -> SpanExportResult:
        """Export nothing."""
        return SpanExportResult.SUCCESS


def work(world: Realm, proposals: int, *, is_imported: bool) -> Callable[[], float]:
    """Return a work that proposes, and returns the CPU time of one proposal in seconds."""
    numbers = iter(range(1 << 60))

    def once() -> float:
        module = sys.modules[TRACES]
        if not is_imported:
            del sys.modules[TRACES]
        try:
            begin = time.process_time()
            for _ in range(proposals):
                propose(world, next(numbers))
            return (time.process_time() - begin) / proposals
        finally:
            sys.modules[TRACES] = module

    return once


def main() -> None:
    """Measure, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--proposals", type=int, default=40, help="proposals of one turn")
    parser.add_argument("--rounds", type=int, default=60, help="turns")
    given = parser.parse_args()
    with ExitStack() as opened:
        absent, idle = (opened.enter_context(governed("sqlite:///:memory:")) for _ in range(2))
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(Dropped()))
        trace.set_tracer_provider(provider)
        traced = opened.enter_context(governed("sqlite:///:memory:"))
        works = {
            ABSENT: work(absent, given.proposals, is_imported=False),
            IDLE: work(idle, given.proposals, is_imported=True),
            TRACED: work(traced, given.proposals, is_imported=True),
        }
        show(in_turns(works, given.rounds), base=ABSENT, unit="us", scale=1e6, each=" CPU")


if __name__ == "__main__":
    main()
