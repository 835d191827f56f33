"""A cut that is repeated after the contents were given back, and one beside a log that was closed to writers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bench.realms import BenchRealm
from world.audit.sealing import last_commit
from world.audit.verify import verify
from world.errors import RefusedError
from world.events.realm_events import LogArchived
from world.log import EventLog
from world.log.log import rebuild_view
from world.read_models.archive import Archive
from world.read_models.index import WorldIndex
from world.read_models.live.sealed_snapshot import SealedSnapshot, archived_upto, read_snapshot
from worldprotocol.export.archive.cutting import CutPlan, cut, open_for_cutting, restore
from worldprotocol.export.archive.manifest import ArchiveFolder
from worldprotocol.export.archive.writing import plan_archive, write_archive
from worldprotocol.export.proofs.checkpoint import checkpoint_of

pytestmark = pytest.mark.slow


def grown(address: Path) -> None:
    realm = BenchRealm(str(address), durability="normal")
    for number in range(60):
        realm.grow_by(number)
    realm.close()


def archived(log: EventLog, folder: Path) -> ArchiveFolder:
    plan = plan_archive(log, (), 256, has_tables=False)
    return write_archive(log, folder, plan, checkpoint_of(log.root_at(256), "example.com/shelf"))


@pytest.mark.requirement("CARD-log", "CARD-replay")
def test_a_cut_after_the_index_was_made_again_keeps_what_the_newest_worlds_need(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    grown(path)
    with open_for_cutting(str(path)) as log:
        archive, upto = archived(log, tmp_path / "a"), last_commit(log, 256)
        cut(log, CutPlan((archive,), upto, 0), by="ann", now_ms=0)
    with open_for_cutting(str(path), has_view=False) as log:
        restore(log, [archive])
    rebuild_view(str(path), WorldIndex())
    with open_for_cutting(str(path)) as log:
        assert archived_upto(log) == 0
        cut(log, CutPlan((archive,), upto, upto), by="ann", now_ms=0)
        assert archived_upto(log) == upto
        assert verify(log).findings == ()
        newest = Archive(log).rows("worlds", {"most": 1})[0][0]
        assert Archive(log).checked_state(newest)


def test_no_content_is_removed_from_a_log_that_was_closed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.db"
    grown(path)

    def close_before(log: EventLog, event: LogArchived) -> SealedSnapshot:
        realm = BenchRealm(str(path))
        realm.protocol.close_writer("move", by="ann", target="elsewhere.db")
        realm.close()
        return read_snapshot(log, event)

    monkeypatch.setattr("worldprotocol.export.archive.cutting.read_snapshot", close_before)
    archive = cast("ArchiveFolder", SimpleNamespace(digest="0" * 64))
    with open_for_cutting(str(path)) as log:
        with pytest.raises(RefusedError) as refused:
            cut(log, CutPlan((archive,), last_commit(log, 256), 0), by="ann", now_ms=0)
        assert refused.value.code == "LOG_FENCED"
        assert archived_upto(log) == 0
        assert verify(log).findings == ()
