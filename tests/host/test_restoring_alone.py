"""Rollback of single entries, and on fresh inodes: what is not the holder's stays, and old handles lead nowhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from host.backups import Backups
from host.environment import HostEnvironment
from host.workspace import Workspace
from tests.host.trees import file, make, tree_of, workspace

pytestmark = pytest.mark.requirement("KO-3.3")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workspace]:
    (tmp_path / "ws/.klock").mkdir(parents=True)
    with workspace(tmp_path) as found:
        yield found


def saved(place: Workspace, *names: str) -> Backups:
    backups = Backups(place)
    backups.take("one", [file(name) for name in names], at=1, note={})
    return backups


def test_a_folder_that_came_to_be_stays_with_what_others_put_into_it(place: Workspace) -> None:
    backups = saved(place, "/dir")
    make(place.root, {"dir/x.txt": "another agent's work"})
    done = backups.restore("one")
    assert (done.removed, done.failed) == ([], ["/dir"])
    assert "content that is not part of the backup" in done.reasons["/dir"]
    assert (place.root / "dir/x.txt").read_text() == "another agent's work"


@pytest.mark.parametrize("made", ["file", "link", "folder"])
def test_a_single_entry_that_came_to_be_is_removed(place: Workspace, made: str) -> None:
    make(place.root, {"other/kept": "kept"})
    backups, path = saved(place, "/new"), place.root / "new"
    if made == "file":
        path.write_text("new")
    elif made == "link":
        path.symlink_to("other")
    else:
        path.mkdir()
    done = backups.restore("one")
    assert (done.removed, done.failed) == (["/new"], [])
    assert not os.path.lexists(path)
    assert (place.root / "other/kept").read_text() == "kept"


def test_a_folder_and_its_file_that_both_came_to_be_are_removed(place: Workspace) -> None:
    backups = saved(place, "/dir", "/dir/a", "/dir/sub/*")
    make(place.root, {"dir/a": "a", "dir/sub/deep/b": "b"})
    done = backups.restore("one")
    assert (done.removed, done.failed) == (["/dir", "/dir/a", "/dir/sub"], [])
    assert not (place.root / "dir").exists()


def test_only_what_is_asked_for_is_removed_below_a_folder_that_came_to_be(place: Workspace) -> None:
    backups = saved(place, "/dir")
    make(place.root, {"dir/x.txt": "x"})
    assert backups.restore("one", only=[file("/dir/x.txt")]).removed == []
    assert (place.root / "dir/x.txt").exists()


def test_a_file_does_not_come_back_over_a_folder_with_the_work_of_others(place: Workspace) -> None:
    make(place.root, {"a": "a"})
    backups = saved(place, "/a")
    (place.root / "a").unlink()
    make(place.root, {"a/x.txt": "another agent's work"})
    assert backups.restore("one").failed == ["/a"]
    assert (place.root / "a/x.txt").read_text() == "another agent's work"
    (place.root / "a/x.txt").unlink()
    assert backups.restore("one").restored == ["/a"]
    assert (place.root / "a").read_text() == "a"


def test_a_fresh_rollback_leaves_no_open_handle_that_leads_to_a_file(place: Workspace) -> None:
    make(place.root, {"d/a": "a", "d/b": "b"})
    os.link(place.root / "d/a", place.root / "d/same")
    premises = HostEnvironment(place, saved(place, "/d/*"))
    before = tree_of(place.root)
    with (place.root / "d/a").open("r+") as still_open, (place.root / "d/b").open("r+") as changed:
        changed.write("B")
        changed.flush()
        told = premises.restore("one", fresh=True)
        still_open.write("LATE")
        changed.write("LATE")
    after = tree_of(place.root)
    assert (told["restored"], told["failed"]) == (["/d/b"], [])
    assert {name: kept for name, kept in after.items() if name} == {name: kept for name, kept in before.items() if name}


def test_a_fresh_rollback_that_was_cut_off_goes_on_as_fresh(place: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    make(place.root, {"a": "a"})
    backups = saved(place, "/a")
    inode = (place.root / "a").stat().st_ino

    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("host.backups.store.apply_plan", crash)
        with pytest.raises(KeyboardInterrupt):
            backups.restore("one", fresh=True)
    with (place.root / "a").open() as held:  # so that the number is not used again
        assert backups.finish_interrupted()[0].failed == []
        assert os.fstat(held.fileno()).st_ino == inode != (place.root / "a").stat().st_ino
