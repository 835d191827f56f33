"""What checkpoints, receipts and consistency proofs cost on a large log, against hashing all of its leaves.

Usage: ``python -m bench proofs [--events N]``. Proofs are made from stored subtree roots: at most two chunks of leaves
and the roots of all chunks are read. The ratio says how many times cheaper one is than computing the root of the tree
from leaf hashes that are in memory already; a store would have to be read as well.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from world.log import EventLog, NewEvent, open_log
from world.log.merkle import tree_root
from worldprotocol.export.proofs.checkpoint import Trusted, checkpoint_of
from worldprotocol.export.proofs.note import SigningKey
from worldprotocol.export.proofs.receipt import Subject, check_proof, make_consistency, make_receipt

EVENTS = 1_000_000
BATCH = 10_000
ORIGIN = "example.com/measured"
KEY = SigningKey(ORIGIN, bytes(32))
TRUSTED = Trusted((KEY.verifier,))
PRIME = 7_919


def seconds(count: int, work: Callable[[int], Any]) -> float:
    """Return how long ``work`` takes, in seconds, over so many calls; it is given the number of the call."""
    work(0)
    begin = time.perf_counter()
    for number in range(count):
        work(number)
    return (time.perf_counter() - begin) / count


def report(what: str, taken: float, all_leaves: float) -> None:
    """Print a time and how many times shorter than hashing all leaves it is."""
    print(f"{what:<58} {1000 * taken:>10.2f} ms   1/{all_leaves / taken:,.0f} of all leaves", flush=True)


def fill(log: EventLog, events: int) -> list[bytes]:
    """Append so many small events and return their leaf hashes."""
    leaves: list[bytes] = []
    for start in range(0, events, BATCH):
        with log.write() as transaction:
            numbers = range(start, min(events, start + BATCH))
            logged = transaction.append(NewEvent(f"s{n}", "bench.measured", 1, b'{"n":%d}' % n, 1) for n in numbers)
            leaves += [event.leaf for event in logged]
    return leaves


def independent_verifier() -> ModuleType:
    """Load docs/verify_receipt.py."""
    path = Path(__file__).resolve().parents[1] / "docs" / "verify_receipt.py"
    spec = importlib.util.spec_from_file_location("verify_receipt", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure(log: EventLog, leaves: list[bytes]) -> None:
    """Print the table."""
    size = len(leaves)
    begin = time.perf_counter()
    root = tree_root(leaves)
    whole = time.perf_counter() - begin
    print(f"{f'root over {size:,} leaf hashes in memory':<58} {1000 * whole:>10.2f} ms", flush=True)
    made = checkpoint_of(log.root_at(size), ORIGIN, [KEY])
    assert made.head.root == root

    def place(number: int) -> int:
        return number * PRIME % size + 1

    def receipt(number: int) -> bytes:
        return make_receipt(log, Subject("event", str(place(number)), place(number)), made)

    def consistency(number: int) -> bytes:
        old = checkpoint_of(log.root_at(place(number)), ORIGIN, [KEY])
        return make_consistency(log, old, made)

    report("checkpoint: root from stored parts, signed", seconds(20, lambda _: _checkpoint(log)), whole)
    report("receipt for any event, checked", seconds(20, receipt), whole)
    report("consistency proof, old head computed and signed, checked", seconds(20, consistency), whole)
    data, verifier = receipt(3), independent_verifier()
    asked = argparse.Namespace(vkey=[KEY.verifier.to_text()], head=[], origin=None)
    report("receipt checked here", seconds(200, lambda _: check_proof(data, TRUSTED)), whole)
    report("receipt checked by docs/verify_receipt.py", seconds(200, lambda _: verifier.check(data, asked)), whole)
    print(f"{'size of a receipt':<58} {len(data):>10,} bytes", flush=True)


def _checkpoint(log: EventLog) -> str:
    return checkpoint_of(log.root_at(log.head().size), ORIGIN, [KEY]).to_text()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS, help="leaves of the tree")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="bench-proofs-", ignore_cleanup_errors=True) as directory,
        open_log(str(Path(directory, "proofs.db")), create=True, durability="normal") as log,
    ):
        measure(log, fill(log, arguments.events))


if __name__ == "__main__":
    main()
