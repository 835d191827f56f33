"""Retention: old and large backups go, open ones never, and what remains can always be restored."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host.backups import Backups
from host.backups.backup_folder import BackupFolder
from host.backups.journal import RestoreOrder, begin
from host.workspace import Workspace
from tests.host.trees import file, make, tree_of, workspace
from world.errors import RefusedError

pytestmark = pytest.mark.requirement("KO-7")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workspace]:
    with workspace(tmp_path) as found:
        yield found


def take(place: Workspace, backup_id: str, at: int, text: str, *, closed: bool = True) -> None:
    """Take a backup of one file with this content."""
    make(place.root, {"a": text})
    Backups(place).take(backup_id, [file("/a")], at=at, note={})
    if closed:
        Backups(place).close(backup_id)


def cut_off(place: Workspace) -> None:
    """Leave what a rollback leaves that is killed when it has begun."""
    with BackupFolder(place, make=True) as area:
        begin(area, RestoreOrder(also_remove=[], backup_id="one", only=None))


def ids(place: Workspace) -> list[str]:
    return [info.backup_id for info in Backups(place).list()]


def objects(place: Workspace) -> list[str]:
    return sorted(path.read_text() for path in (place.private / "backups/objects").glob("*/*"))


def test_closed_backups_go_by_age_and_open_ones_stay(place: Workspace) -> None:
    take(place, "old", 1_000, "old")
    take(place, "old-open", 1_000, "open", closed=False)
    take(place, "at-the-limit", 5_000, "limit")
    take(place, "young", 9_000, "young")
    done = Backups(place).prune(now_ms=10_000, max_age_ms=5_000, max_bytes=None)
    assert (done.removed, done.objects, done.freed_bytes, done.kept_bytes) == (["old"], 1, 3, 14)
    assert ids(place) == ["old-open", "at-the-limit", "young"]
    assert objects(place) == ["limit", "open", "young"]


def test_the_oldest_closed_backups_go_until_the_rest_is_small_enough(place: Workspace) -> None:
    for number in range(4):
        take(place, f"b{number}", number, f"{number}" * 100, closed=number != 0)
    done = Backups(place).prune(now_ms=10, max_age_ms=None, max_bytes=250)
    assert (done.removed, done.kept_bytes) == (["b1", "b2"], 200)
    assert ids(place) == ["b0", "b3"]
    assert Backups(place).prune(now_ms=10, max_age_ms=None, max_bytes=0).removed == ["b3"]
    assert Backups(place).prune(now_ms=10, max_age_ms=0, max_bytes=0).removed == []
    assert ids(place) == ["b0"]


def test_a_content_that_another_backup_refers_to_stays(place: Workspace) -> None:
    take(place, "one", 1, "shared")
    take(place, "two", 2, "shared", closed=False)
    assert Backups(place).prune(now_ms=10, max_age_ms=0, max_bytes=0).objects == 0
    make(place.root, {"a": "changed"})
    Backups(place).restore("two")
    assert (place.root / "a").read_text() == "shared"


def test_the_caller_says_what_must_stay(place: Workspace) -> None:
    take(place, "one", 1, "1")
    take(place, "two", 1, "2")
    done = Backups(place).prune(now_ms=10, max_age_ms=0, max_bytes=0, keep=lambda backup_id: backup_id == "one")
    assert (done.removed, ids(place)) == (["two"], ["one"])


def test_a_backup_whose_rollback_was_cut_off_stays(place: Workspace) -> None:
    take(place, "one", 1, "1")
    cut_off(place)
    assert Backups(place).prune(now_ms=10, max_age_ms=0, max_bytes=0).removed == []
    make(place.root, {"a": "changed"})
    assert [done.restored for done in Backups(place).finish_interrupted()] == [["/a"]]
    assert Backups(place).prune(now_ms=10, max_age_ms=0, max_bytes=0).removed == ["one"]


def test_taking_a_backup_finishes_a_rollback_that_was_cut_off_first(place: Workspace) -> None:
    take(place, "one", 1, "first", closed=False)
    cut_off(place)
    make(place.root, {"a": "half"})
    backups = Backups(place)
    backups.take("two", [file("/a")], at=2, note={})
    assert (place.root / "a").read_text() == "first"
    assert [done.restored for done in backups.finish_interrupted()] == [["/a"]]
    assert backups.finish_interrupted() == []


def test_a_rollback_whose_backup_is_damaged_is_told_and_changes_nothing(place: Workspace) -> None:
    take(place, "one", 1, "first", closed=False)
    cut_off(place)
    (place.private / "backups/sets/one.json").write_text("{}")
    make(place.root, {"a": "changed"})
    for _ in range(2):
        (told,) = Backups(place).finish_interrupted()
        assert (told.failed, told.restored) == (["one"], [])
        assert "sets/one.json" in told.reasons["one"]
    assert (place.root / "a").read_text() == "changed"


def test_a_damaged_note_of_a_rollback_removes_nothing(place: Workspace) -> None:
    take(place, "one", 1, "first", closed=False)
    with BackupFolder(place, make=True) as area:
        begin(area, RestoreOrder(also_remove=["/x"], backup_id="one", only=None))
    note = place.private / "backups/restoring/one.json"
    note.write_text(note.read_text().replace("/x", "/y"))
    make(place.root, {"y": "precious"})
    (told,) = Backups(place).finish_interrupted()
    assert "restoring/one.json" in told.reasons["one"]
    assert (place.root / "y").read_text() == "precious"


def test_while_a_backup_is_damaged_no_content_is_removed(place: Workspace) -> None:
    take(place, "good", 1, "good")
    take(place, "bad", 1, "bad")
    (place.private / "backups/sets/bad.json").write_text("{}")
    done = Backups(place).prune(now_ms=10, max_age_ms=0, max_bytes=0)
    assert (done.removed, done.objects, done.damaged) == (["good"], 0, ["bad"])
    assert objects(place) == ["bad", "good"]


def test_what_a_killed_process_was_writing_is_removed_but_not_while_another_prepares(place: Workspace) -> None:
    backups = Backups(place)
    backups.take("one", [], at=1, note={})
    left = place.private / "backups/temporary/left"
    left.write_text("half")
    with BackupFolder(place, make=True) as area, area.locked("preparing", shared=True):
        backups.prune(now_ms=1, max_age_ms=None, max_bytes=None)
        assert left.exists()
    backups.prune(now_ms=1, max_age_ms=None, max_bytes=None)
    assert not left.exists()


def test_pruning_waits_for_a_backup_that_is_being_taken(place: Workspace) -> None:
    Backups(place).take("one", [], at=1, note={})
    Backups(place).close("one")
    done = threading.Event()

    def prune() -> None:
        Backups(place).prune(now_ms=10, max_age_ms=0, max_bytes=0)
        done.set()

    with BackupFolder(place, make=True) as area, area.locked():
        thread = threading.Thread(target=prune)
        thread.start()
        assert not done.wait(0.1)
        assert ids(place) == ["one"]
    thread.join()
    assert ids(place) == []


def test_closing_is_remembered_and_may_be_repeated(place: Workspace) -> None:
    take(place, "one", 1, "1", closed=False)
    backups = Backups(place)
    backups.close("one")
    backups.close("one")
    assert backups.get("one").state == "closed"
    with pytest.raises(RefusedError) as refused:
        backups.close("two")
    assert refused.value.code == "NO_SUCH_BACKUP"


@settings(max_examples=25)
@given(seed=st.integers(0, 1 << 32))
@pytest.mark.slow
def test_whatever_is_pruned_every_backup_that_remains_restores_its_own_tree(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chance = random.Random(seed)
    with workspace(tmp_path_factory.mktemp("prune")) as place:
        (place.root / "d").mkdir()
        backups, expected, open_ones = Backups(place), {}, set()
        for at in range(20):
            match chance.choice(("change", "change", "take", "take", "close", "prune")):
                case "change":
                    make(place.root, {f"d/{chance.randrange(4)}": "x" * chance.randrange(50)})
                case "take":
                    backups.take(f"b{at}", [file("/d/*")], at=at, note={})
                    expected[f"b{at}"] = tree_of(place.root / "d")
                    open_ones.add(f"b{at}")
                case "close" if open_ones:
                    backups.close(closing := chance.choice(sorted(open_ones)))
                    open_ones.discard(closing)
                case "prune":
                    backups.prune(
                        now_ms=at, max_age_ms=chance.choice((None, 0, 5)), max_bytes=chance.choice((None, 0, 60))
                    )
        left = ids(place)
        assert open_ones <= set(left)
        for backup_id in left:
            for name in os.listdir(place.root / "d"):
                (place.root / "d" / name).write_text("damaged")
            assert backups.restore(backup_id).failed == []
            assert tree_of(place.root / "d") == expected[backup_id]
