"""A realm keeps the ends of its commits wherever it is, because questions about the past and cuts go by them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.cli.inside import Inside
from tests.directory.yard import NAME, create, opened
from world.audit.sealing import last_commit
from world.audit.verify import verify
from world.errors import RefusedError
from world.log import EventLog, TreeHead, open_log
from world.read_models.live.sealed_snapshot import archived_upto
from worldprotocol.directory.directory import RealmDirectory
from worldprotocol.export.archive.cutting import cut, open_for_cutting, plan_cut, restore
from worldprotocol.export.archive.manifest import ArchiveFolder
from worldprotocol.export.archive.writing import plan_archive, write_archive
from worldprotocol.export.jsonl import export_log, import_log
from worldprotocol.export.proofs.checkpoint import checkpoint_of

pytestmark = pytest.mark.slow

COUNTS = 60
"""Proposals of a realm: their events are more than are copied at first, and fewer than a thousand."""


def heads(address: str | Path, upto: int | None = None) -> list[TreeHead]:
    with open_log(str(address), read_only=True) as log:
        return list(log.heads(0, upto))


def counted(directory: RealmDirectory, place: Path) -> list[str]:
    """Found the yard and count in it; return the ids of the proposals."""
    with create(directory, place) as realm:
        return [realm.act("a0", "count", {"who": "a0"}).proposal_id for _ in range(COUNTS)]


@pytest.mark.requirement("CARD-log", "CARD-audit")
def test_a_moved_and_a_restored_realm_have_every_tree_head(directory: RealmDirectory, tmp_path: Path) -> None:
    counted(directory, tmp_path / "a.db")
    before = heads(tmp_path / "a.db")
    assert len(before) > COUNTS
    directory.move(NAME, tmp_path / "b.db")
    assert heads(tmp_path / "b.db", before[-1].size) == before
    moved = heads(tmp_path / "b.db")
    directory.archive(NAME, tmp_path / "kept")
    directory.restore(NAME, tmp_path / "c.db")
    assert heads(tmp_path / "c.db", moved[-1].size) == moved
    with open_log(str(tmp_path / "c.db"), read_only=True) as log:
        assert verify(log).findings == ()


@pytest.mark.requirement("CARD-audit")
def test_the_past_of_a_moved_realm_ends_with_the_commit_that_is_named(
    directory: RealmDirectory, tmp_path: Path
) -> None:
    cli = Inside(tmp_path)
    proposals = counted(directory, tmp_path / "a.db")
    directory.move(NAME, tmp_path / "b.db")
    asked = ("worlds", "--at", proposals[9], "--limit", "3", "--json")
    expected = cli("--log", "a.db", *asked).out
    assert expected
    assert cli("--log", "b.db", *asked).out == expected


@pytest.mark.parametrize("every_head", [True, False])
def test_an_import_has_the_tree_heads_of_its_file(directory: RealmDirectory, tmp_path: Path, every_head: bool) -> None:
    counted(directory, tmp_path / "a.db")
    with open_log(str(tmp_path / "a.db"), read_only=True) as log:
        export_log(log, out := io.BytesIO(), every_head=every_head)
    import_log(io.BytesIO(out.getvalue()), str(tmp_path / "b.db"))
    before = heads(tmp_path / "a.db")
    assert heads(tmp_path / "b.db") == (before if every_head else before[-1:])


def archived(log: EventLog, folder: Path, upto: int) -> ArchiveFolder:
    plan = plan_archive(log, (), upto, has_tables=False)
    return write_archive(log, folder, plan, checkpoint_of(log.root_at(plan.upto), "example.com/yard"))


def cut_whole(log: EventLog, archive: ArchiveFolder) -> int:
    return cut(log, plan_cut(log, [archive], 256), by="ann", now_ms=0).upto


@pytest.mark.requirement("CARD-log", "CARD-replay")
def test_a_realm_whose_contents_were_given_back_is_moved_and_cut_again(
    directory: RealmDirectory, tmp_path: Path
) -> None:
    counted(directory, tmp_path / "a.db")
    with open_for_cutting(str(tmp_path / "a.db")) as log:
        archive = archived(log, tmp_path / "archive", 256)
        upto = cut_whole(log, archive)
        assert upto == last_commit(log, 256)
    with open_for_cutting(str(tmp_path / "a.db"), has_view=False) as log:
        restore(log, [archive])
    directory.move(NAME, tmp_path / "b.db")
    with open_for_cutting(str(tmp_path / "b.db")) as log:
        assert archived_upto(log) == 0
        assert cut_whole(log, archive) == upto
        assert archived_upto(log) == upto
        assert verify(log).findings == ()
    with open_for_cutting(str(tmp_path / "a.db")) as log, pytest.raises(RefusedError) as refused:
        cut_whole(log, archive)  # the old place
    assert refused.value.code == "LOG_FENCED"
    with opened(directory) as realm:
        assert realm.act("a0", "count", {"who": "a0"}).status == "completed"
        assert realm.data()["counts"] == {"a0": COUNTS + 1}
