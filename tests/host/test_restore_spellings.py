"""Rollback where a file system finds an entry under another spelling of its name; its answers are simulated."""

from __future__ import annotations

import os
import shutil
import unicodedata
from collections.abc import Collection
from pathlib import Path

import pytest

from host.backups import Backups
from host.workspace import Workspace
from host.workspace.comparison import listed_as
from tests.host.trees import file, make, workspace
from world.klis.resources.names import NameComparison

pytestmark = pytest.mark.requirement("KO-3.3")

COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"


def folded(name: bytes) -> str:
    return unicodedata.normalize("NFC", os.fsdecode(name).casefold())


def folding(name: bytes, folder: int, listed: Collection[bytes]) -> bytes | None:
    """Answer as a file system does that ignores case and normalisation."""
    return next((other for other in sorted(listed) if folded(other) == folded(name)), None)


def saved(place: Workspace, *names: str) -> Backups:
    backups = Backups(place, listed_as=folding)
    backups.take("one", [file(name) for name in names], at=1, note={})
    return backups


def contents(root: Path) -> dict[str, str]:
    found = {str(path.relative_to(root)): path for path in root.rglob("*")}
    return {name: path.read_text() for name, path in found.items() if path.is_file() and not name.startswith(".klock")}


def test_an_unchanged_file_under_another_spelling_is_the_saved_one_and_stays(tmp_path: Path) -> None:
    with workspace(tmp_path) as place:
        make(place.root, {f"d/{COMPOSED}": "1", "d/other": "2"})
        backups = saved(place, "/d/*")
        os.rename(place.root / "d" / COMPOSED, place.root / "d" / DECOMPOSED)
        make(place.root, {"d/new": "3"})
        done = backups.restore("one")
        assert (done.removed, done.failed) == (["/d/new"], [])
        assert contents(place.root) == {f"d/{DECOMPOSED}": "1", "d/other": "2"}
        assert backups.restore("one").removed == []


def test_a_changed_tree_under_other_spellings_gets_its_contents_back(tmp_path: Path) -> None:
    with workspace(tmp_path) as place:
        make(place.root, {f"{COMPOSED}/Sub/{COMPOSED}": "1", f"{COMPOSED}/gone": "2", "one": "3"})
        os.link(place.root / COMPOSED / "gone", place.root / COMPOSED / "hard")
        os.symlink("gone", place.root / COMPOSED / "link")
        backups = saved(place, f"/{COMPOSED}/*", "/one")
        os.rename(place.root / COMPOSED, place.root / DECOMPOSED.upper())
        tree = place.root / DECOMPOSED.upper()
        os.rename(tree / "Sub", tree / "SUB")
        (tree / "SUB" / COMPOSED).unlink()
        make(tree, {f"SUB/{DECOMPOSED}": "changed", "SUB/new": "new"})
        for name in ("gone", "hard", "link"):
            (tree / name).unlink()
        make(tree, {"GONE": "changed", "Link": "no link any more"})
        os.rename(place.root / "one", place.root / "ONE")
        (place.root / "ONE").write_text("changed")
        done = backups.restore("one", also_remove=[COMPOSED.encode(), b"one", DECOMPOSED.upper().encode() + b"/SUB"])
        assert done.failed == []
        assert contents(place.root) == {
            f"{tree.name}/SUB/{DECOMPOSED}": "1",
            f"{tree.name}/GONE": "2",
            f"{tree.name}/hard": "2",
            "ONE": "3",
        }
        assert os.path.samefile(tree / "GONE", tree / "hard")
        assert os.readlink(tree / "Link") == "gone"
        assert backups.restore("one").removed == []


def test_a_folder_that_goes_away_while_its_names_are_looked_for_is_restored(tmp_path: Path) -> None:
    def leaving(name: bytes, folder: int, listed: Collection[bytes]) -> bytes | None:
        shutil.rmtree(tmp_path / "ws" / "d", ignore_errors=True)  # before the other saved name below it is looked for
        return folding(name, folder, listed)

    with workspace(tmp_path) as place:
        make(place.root, {f"d/{name}": "1" for name in "ab"})
        backups = Backups(place, listed_as=leaving)
        backups.take("one", [file("/d/*")], at=1, note={})
        for name in "ab":
            os.rename(place.root / "d" / name, place.root / "d" / f"other {name}")
        assert backups.restore("one").failed == []
        assert contents(place.root) == {"d/a": "1", "d/b": "1"}


def test_a_part_is_restored_under_its_saved_and_under_its_present_spelling(tmp_path: Path) -> None:
    for only in (COMPOSED, DECOMPOSED):
        (tmp_path / only).mkdir()
        with workspace(tmp_path / only) as place:
            make(place.root, {f"d/{COMPOSED}": "1", "d/other": "2"})
            backups = saved(place, "/d/*")
            os.rename(place.root / "d" / COMPOSED, place.root / "d" / DECOMPOSED)
            make(place.root, {f"d/{DECOMPOSED}": "changed", "d/other": "changed"})
            backups.restore("one", only=[file(f"/d/{only}")])
            assert contents(place.root) == {f"d/{DECOMPOSED}": "1", "d/other": "changed"}


def test_where_the_file_system_tells_names_apart_the_other_spelling_is_removed_and_the_saved_one_made(
    tmp_path: Path,
) -> None:
    for names in (NameComparison(), NameComparison(True, True)):
        (tmp_path / str(names.ignores_case)).mkdir()
        with workspace(tmp_path / str(names.ignores_case), names=names) as place:
            make(place.root, {f"d/{COMPOSED}": "1"})
            backups = Backups(place)
            backups.take("one", [file("/d/*")], at=1, note={})
            os.rename(place.root / "d" / COMPOSED, place.root / "d" / DECOMPOSED)
            assert backups.restore("one").removed == [f"/d/{DECOMPOSED}"]
            assert contents(place.root) == {f"d/{COMPOSED}": "1"}


def test_the_operating_system_says_under_which_name_it_found_a_file(tmp_path: Path) -> None:
    make(tmp_path, {"a": "1", "b": "2"})
    os.link(tmp_path / "a", tmp_path / "A")
    folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert listed_as(b"a", folder, [b"a", b"b"]) == b"a"
        assert listed_as(b"c", folder, [b"a", b"b"]) is None
        # Not listed, though it is found: what a file system answers that ignores case.
        assert listed_as(b"a", folder, [b"b", b"A"]) == b"A"
    finally:
        os.close(folder)
