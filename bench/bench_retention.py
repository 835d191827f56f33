"""What an archive and a cut of a realm cost, and what is left.

Usage: ``python -m bench retention [--proposals N] [--keep N]``. A realm is filled, archived but for its newest
proposals, and cut. Printed are bytes, and the CPU time of each step for each event that it handles. A receipt and a
checkpoint from before the cut have to hold afterwards, also against the archive, and `verify` has to find nothing. What
was open in the first commits (``bench.open_items``) has to be open after the cut, and is finished then.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from bench.open_items import OpenItems, YardRealm
from world.audit.verify import verify
from world.log import EventLog, open_log, verify_consistency
from world.read_models.archive import Archive
from world.read_models.live.state_loading import load_realm
from worldprotocol.export.archive.checking import check_archive, head_in
from worldprotocol.export.archive.cutting import cut, open_for_cutting, plan_cut
from worldprotocol.export.archive.manifest import ArchiveFolder
from worldprotocol.export.archive.writing import end_of_archive, plan_archive, write_archive
from worldprotocol.export.proofs.checkpoint import Trusted, checkpoint_of
from worldprotocol.export.proofs.note import SigningKey
from worldprotocol.export.proofs.receipt import Subject, check_proof, make_receipt

PROPOSALS, KEEP = 200_000, 10_000
EVENTS_EACH = 8
ORIGIN = "example.com/measured"
KEY = SigningKey(ORIGIN, bytes(32))

T = TypeVar("T")


def timed(what: str, events: int, work: Callable[[], T]) -> T:
    """Do some work, and print its CPU time in all and for each event."""
    begin = time.process_time()
    done = work()
    taken = time.process_time() - begin
    print(f"{what:<44} {taken:>9.1f} s   {1e6 * taken / max(events, 1):>8.1f} us an event", flush=True)
    return done


def grown(address: str, proposals: int) -> None:
    """Fill a realm."""
    realm = YardRealm(address)
    realm.grow(EVENTS_EACH * proposals)
    realm.close()


def mebibytes(*paths: Path) -> float:
    """Return the size of files and folders in MiB."""
    files = [one for path in paths for one in ([path] if path.is_file() else path.rglob("*")) if one.is_file()]
    return sum(one.stat().st_size for one in files) / (1 << 20)


def measure(folder: Path, proposals: int, keep: int) -> None:
    """Fill, archive and cut a realm, and check what has to hold."""
    path = folder / "realm.db"
    items = OpenItems(str(path))
    timed("fill", EVENTS_EACH * proposals, lambda: grown(str(path), proposals))
    with open_log(str(path), read_only=True) as log:
        size, whole = log.head().size, mebibytes(path)
        old = checkpoint_of(log.root_at(size // 3), ORIGIN, [KEY])
        receipt = make_receipt(log, Subject("event", str(size // 4), size // 4), old)
        plan = plan_archive(log, (), end_of_archive(Archive(log), keep, None), has_tables=True)
        signed = checkpoint_of(log.root_at(plan.upto), ORIGIN, [KEY])
        archive = timed("archive", plan.events, lambda: write_archive(log, folder / "archive", plan, signed))
        timed("check of the archive", plan.events, lambda: check_archive(archive))
        assert timed("verify, before", size, lambda: verify(log)).ok
    with open_for_cutting(str(path)) as log:
        cutting = plan_cut(log, [archive], plan.upto)
        done = timed("cut", cutting.upto, lambda: cut(log, cutting, by="bench", now_ms=0))
        timed("compact", size, log.compact)
        assert timed("verify, after", log.head().size, lambda: verify(log)).ok
        timed("state from the index", 1, lambda: load_realm(log, Archive(log)))
        timed("old receipt against the archive", size // 3, lambda: check_old(log, archive, receipt, size // 3))
    for item in timed("finish what was open", 1, items.finish):
        assert item.begun <= cutting.upto
        print(f"open since event {item.begun:<4} {item.what:<22} {item.ended}", flush=True)
    with open_log(str(path), read_only=True) as log:
        assert timed("verify, all finished", log.head().size, lambda: verify(log)).ok
    print(f"{'events':<44} {size:>9,}", flush=True)
    print(f"{'contents removed, kept before the cut':<44} {done.removed:>9,} {done.kept:>9,}", flush=True)
    print(f"{'log before and after, MiB':<44} {whole:>9.0f} {mebibytes(path):>9.0f}", flush=True)
    for name in ("events.jsonl", "tlog", "tables"):
        print(f"{'archive: ' + name + ', MiB':<44} {mebibytes(folder / 'archive' / name):>9.0f}", flush=True)


def check_old(log: EventLog, archive: ArchiveFolder, receipt: bytes, size: int) -> None:
    """Check a receipt and a checkpoint from before the cut against the log, and against the archive alone."""
    checked = check_proof(receipt, Trusted((KEY.verifier,)))
    head = checked.checkpoints[0].head
    assert head == log.root_at(size) == head_in(archive, size)
    proof = log.prove_consistency(size)
    assert verify_consistency(size, proof.second.size, proof.first.root, proof.second.root, proof.path)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--proposals", type=int, default=PROPOSALS)
    parser.add_argument("--keep", type=int, default=KEEP)
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="retention-"))
    try:
        measure(folder, asked.proposals, asked.keep)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
