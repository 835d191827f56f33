"""What is open when a log is cut is there afterwards, and can be finished."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.open_items import ENDED, OpenItems, YardRealm
from world.audit.sealing import last_commit
from world.audit.verify import verify
from world.log import open_log
from world.read_models.live.sealed_snapshot import archived_event
from worldprotocol.export.archive.checking import head_in
from worldprotocol.export.archive.cutting import cut, open_for_cutting, plan_cut
from worldprotocol.export.archive.writing import plan_archive, write_archive
from worldprotocol.export.proofs.checkpoint import Trusted, checkpoint_of
from worldprotocol.export.proofs.receipt import Subject, check_proof, make_receipt


@pytest.mark.requirement("CARD-replay", "CARD-log", "CARD-audit")
def test_all_that_is_open_at_a_cut_can_be_finished_after_it(tmp_path: Path) -> None:
    path = str(tmp_path / "realm.db")
    items = OpenItems(path)
    filled = YardRealm(path)
    for number in range(120):
        filled.grow_by(number)
    filled.close()
    with open_for_cutting(path) as log:
        old = checkpoint_of(log.root_at(300), "example.com/cut")
        receipt = make_receipt(log, Subject("event", "100", 100), old)
        plan = plan_archive(log, (), 768, has_tables=False)
        archive = write_archive(
            log, tmp_path / "archive", plan, checkpoint_of(log.root_at(plan.upto), "example.com/cut")
        )
        done = cut(log, plan_cut(log, [archive], last_commit(log, 768)), by="operator", now_ms=0)
        log.compact()
        assert (done.removed > 600, verify(log).ok) == (True, True)
    finished = items.finish()
    assert {item.what: item.ended for item in finished} == ENDED
    assert all(item.begun < done.upto for item in finished)
    assert check_proof(receipt, Trusted()).checkpoints[0].head == head_in(archive, 300)
    with open_log(path, read_only=True) as log:
        assert verify(log).findings == ()
        event = archived_event(log)
        assert event is not None
        assert event.upto == done.upto
