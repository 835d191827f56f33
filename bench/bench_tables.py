"""Export of the tables of a long log as Parquet: its memory at a quarter of the log and at all of it, and its speed.

Usage: ``python -m bench tables [--decisions N] [--log FILE]``; 125,000 decisions are 1,000,000 events. A log of
payments is made, or taken from FILE. Memory is what a fresh process holds at most beyond an open log; it should not
grow with the log. Beside the CPU seconds stand those of a plain SELECT + orjson decode of all rows, in one run.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from bench.bench_replay import peak_mb, plain, seconds
from bench.judged import record
from world.log import open_log
from worldprotocol.export.tables.columns import TABLES
from worldprotocol.export.tables.parquet import export_tables, file_of


def export(file: str, upto: int) -> tuple[float, float, int]:
    """Export the tables up to an event; return CPU seconds, the MB beyond an open log, and the bytes of the files."""
    with tempfile.TemporaryDirectory() as place, open_log(file, read_only=True) as log:
        before, begin = peak_mb(), time.process_time()
        export_tables(log, Path(place), upto=upto)
        taken_s = time.process_time() - begin
        size = sum(file_of(Path(place), table).stat().st_size for table in TABLES)
        return taken_s, peak_mb() - before, size


def measure(file: str) -> None:
    """Print the figures of a quarter of a log, and of all of it."""
    with open_log(file, read_only=True) as log:
        size = log.head().size
    bare_s = seconds(partial(plain, Path(file)))
    print(f"  {size:>9,} events   SELECT + orjson {bare_s:6.2f} s", flush=True)
    for upto in (size // 4, size):
        with ProcessPoolExecutor(1, get_context("spawn")) as fresh:  # one that has held nothing else
            taken_s, memory_mb, made = fresh.submit(export, file, upto).result()
        print(
            f"  {upto:>9,} events   export {taken_s:7.2f} CPU s, {upto / taken_s:>7,.0f} events/s   {memory_mb:+.0f} MB"
            f"   {made / upto:.0f} bytes of Parquet an event",
            flush=True,
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=20_000)
    parser.add_argument("--log", help="a log in place of a new one")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        measure(given.log or record(Path(place), given.decisions))


if __name__ == "__main__":
    main()
