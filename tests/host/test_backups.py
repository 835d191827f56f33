"""Backups: what is remembered, that it is durable and complete, and what happens where that is not possible."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host.backups import Backups, capture
from host.backups.backup_folder import BackupFolder
from host.workspace import Workspace
from tests.host.trees import as_somebody_else, file, make, tree_of, workspace
from tests.support.patience import PATIENCE_S
from world.errors import RefusedError
from world.klis.resources.resource_reading import canonical_resource
from world.model.canonical_json import canonical_bytes, read_json

pytestmark = pytest.mark.requirement("KO-7")

ROOT = Path(__file__).resolve().parents[2]
DISK = Path(__file__).with_name("backup_disk.py")
MOUNT = 'mount -t tmpfs -o size=4m tmpfs "$1"'


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workspace]:
    with workspace(tmp_path) as found:
        yield found


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def objects_of(place: Workspace) -> list[Path]:
    return sorted((place.private / "backups/objects").glob("*/*"))


def told_of(place: Workspace, backup_id: str = "one") -> dict[str, Any]:
    told: dict[str, Any] = json.loads((place.private / f"backups/sets/{backup_id}.json").read_bytes())
    return told


def let_time_pass(place: Workspace) -> None:
    """Return when the file system's time is later than that of all that was done."""
    with BackupFolder(place, make=True) as area:
        begun = area.now_ns()
        while area.now_ns() <= begun:
            continue


def test_a_backup_remembers_files_directories_links_and_what_is_missing(place: Workspace) -> None:
    make(place.root, {"d/a": "text", "b": "x"})
    (place.root / "d/l").symlink_to("../b")
    (place.root / "d").chmod(0o750)
    info = Backups(place).take("one", [file("/d/*"), file("/b"), file("/new")], at=1_234, note={"session": "s"})
    assert (info.entries, info.size_bytes, info.state, info.at, info.note) == (5, 5, "open", 1_234, {"session": "s"})
    entries = {entry["name"]: entry for entry in told_of(place)["entries"]}
    assert {name: entry["kind"] for name, entry in entries.items()} == {
        "/b": "file",
        "/d": "dir",
        "/d/a": "file",
        "/d/l": "link",
        "/new": "missing",
    }
    seen = os.stat(place.root / "d/a")
    assert entries["/d/a"]["sha256"] == hashlib.sha256(b"text").hexdigest()
    assert (entries["/d/a"]["mode"], entries["/d/a"]["mtimeNs"]) == (seen.st_mode, str(seen.st_mtime_ns))
    assert stat.S_IMODE(entries["/d"]["mode"]) == 0o750
    assert entries["/d/l"]["target"] == "../b"


@given(
    names=st.lists(st.binary(min_size=1, max_size=8), unique=True, max_size=5),
    note=st.dictionaries(TEXTS, TEXTS),
)
def test_a_set_is_canonical_json_whatever_the_names(
    names: list[bytes], note: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with workspace(tmp_path_factory.mktemp("set")) as place:
        (place.root / "d").mkdir()
        for name in names:
            if name not in {b".", b".."} and not set(name) & {0, 47}:
                (place.root / "d" / os.fsdecode(name)).symlink_to(os.fsdecode(name))
        Backups(place).take("one", [file("/*")], at=1, note=note)
        text = (place.private / "backups/sets/one.json").read_bytes()
        assert canonical_bytes(read_json(text)) == text
        assert Backups(place).get("one").note == note


def test_equal_contents_are_kept_once_and_named_by_their_hash(place: Workspace) -> None:
    make(place.root, {"a": "same", "b": "same", "c": "other"})
    Backups(place).take("one", [file("/*")], at=1, note={})
    Backups(place).take("two", [file("/*")], at=2, note={})
    assert [path.name for path in objects_of(place)] == sorted(
        hashlib.sha256(text).hexdigest() for text in (b"same", b"other")
    )
    assert all(path.parent.name == path.name[:2] for path in objects_of(place))


def test_an_object_of_the_wrong_size_is_written_anew(place: Workspace) -> None:
    make(place.root, {"a": "content"})
    Backups(place).take("one", [file("/a")], at=1, note={})
    os.truncate(objects_of(place)[0], 3)
    Backups(place).take("two", [file("/a")], at=1, note={})
    assert objects_of(place)[0].read_text() == "content"


def test_after_preparing_nothing_is_read_again(place: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    make(place.root, {f"d/{number}": f"{number}" for number in range(50)})
    let_time_pass(place)
    told: list[tuple[int, int]] = []
    backups = Backups(place)
    backups.prepare([file("/d/*")], progress=lambda looked, copied: told.append((looked, copied)))
    assert told[-1] == (51, 90)
    opened: list[bytes] = []
    real = capture._open

    def watched(handle: int, name: bytes) -> int:
        opened.append(name)
        return real(handle, name)

    monkeypatch.setattr(capture, "_open", watched)
    backups.take("one", [file("/d/*")], at=1, note={})
    assert opened == []
    Backups(place).take("two", [file("/d/*")], at=1, note={})
    assert opened == []
    (place.root / "d/7").write_text("8")
    backups.take("three", [file("/d/*")], at=1, note={})
    assert opened == [b"7"]


def test_what_changes_between_preparing_and_taking_is_saved_as_it_is_then(place: Workspace) -> None:
    make(place.root, {"a": "old", "gone": "x"})
    let_time_pass(place)
    backups, seen = Backups(place), os.stat(place.root / "a")
    backups.prepare([file("/*")])
    (place.root / "a").write_text("new")
    os.utime(place.root / "a", ns=(seen.st_atime_ns, seen.st_mtime_ns))
    (place.root / "gone").unlink()
    make(place.root, {"more": "y"})
    backups.take("one", [file("/*")], at=1, note={})
    before = tree_of(place.root)
    for name in ("a", "more"):
        (place.root / name).unlink()
    backups.restore("one")
    assert tree_of(place.root) == before


def test_what_was_prepared_and_pruned_meanwhile_is_copied_again(place: Workspace) -> None:
    make(place.root, {"a": "content"})
    let_time_pass(place)
    backups = Backups(place)
    backups.prepare([file("/a")])
    assert backups.prune(now_ms=1, max_age_ms=None, max_bytes=None).objects == 1
    backups.take("one", [file("/a")], at=1, note={})
    assert objects_of(place)[0].read_text() == "content"


@pytest.mark.parametrize("damage", [b"", b"klock-known-1\n", b"nonsense" * 20])
def test_a_damaged_memory_of_known_contents_says_nothing(place: Workspace, damage: bytes) -> None:
    make(place.root, {"a": "content"})
    let_time_pass(place)
    Backups(place).prepare([file("/a")])
    known = place.private / "backups/known"
    data = bytearray(known.read_bytes())
    data[-40] ^= 1
    known.write_bytes(damage or bytes(data))
    Backups(place).take("one", [file("/a")], at=1, note={})
    assert told_of(place)["entries"][0]["sha256"] == hashlib.sha256(b"content").hexdigest()


# what is done to files meanwhile


@contextmanager
def meanwhile(act: Callable[[int], None]) -> Iterator[None]:
    """Do something again and again in another thread."""
    stop = threading.Event()

    def go_on() -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            act(turn)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.slow
def test_files_that_vanish_while_they_are_saved_are_no_hindrance(place: Workspace) -> None:
    make(place.root, {f"d/{number}/x": "x" for number in range(30)})

    def vanish(turn: int) -> None:
        folder = place.root / f"d/{turn % 30}"
        shutil.rmtree(folder, ignore_errors=True)
        make(place.root, {f"d/{turn % 30}/x": f"{turn}"})

    backups = Backups(place)
    with meanwhile(vanish):
        for turn in range(20):
            backups.take(f"turn-{turn}", [file("/d/*"), file("/d/3/x")], at=turn, note={})
    for info in backups.list():
        assert backups.restore(info.backup_id).failed == []


def test_a_file_that_never_holds_still_cannot_be_saved(place: Workspace) -> None:
    (place.root / "log").write_bytes(bytes(8 << 20))
    writing = meanwhile(lambda turn: os.utime(place.root / "log", ns=(turn, turn)))
    with writing, pytest.raises(RefusedError, match="/log keeps changing") as refused:
        Backups(place).take("one", [file("/log")], at=1, note={})
    assert refused.value.code == "BACKUP_FAILED"
    assert Backups(place).list() == []


def test_a_file_that_is_written_now_and_then_is_saved_as_it_was_at_one_moment(place: Workspace) -> None:
    half = 2 << 20
    path = place.root / "f"
    path.write_bytes(b"0" * half)

    def rewrite(turn: int) -> None:
        if turn % 2_000 == 0:
            path.write_bytes(b"%d" % (turn // 2_000 % 10) * half)

    backups = Backups(place)
    with meanwhile(rewrite):
        for turn in range(10):
            backups.take(f"turn-{turn}", [file("/f")], at=1, note={})
    for content in objects_of(place):
        assert hashlib.sha256(content.read_bytes()).hexdigest() == content.name


def test_several_threads_take_and_restore_at_once(place: Workspace) -> None:
    make(place.root, {f"{name}/x": name for name in "abcd"})
    backups, failures = Backups(place), []

    def use(name: str) -> None:
        try:
            for turn in range(8):
                backups.prepare([file(f"/{name}/*")])
                backups.take(f"{name}{turn}", [file(f"/{name}/*")], at=turn, note={})
                (place.root / name / "x").write_text("changed")
                backups.restore(f"{name}{turn}")
                backups.close(f"{name}{turn}")
                backups.prune(now_ms=turn, max_age_ms=3, max_bytes=None)
                assert (place.root / name / "x").read_text() == name
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=use, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# sizes


def test_a_large_file_is_never_whole_in_memory_and_holes_stay_holes(place: Workspace) -> None:
    size = 48 << 20
    with open(place.root / "large", "wb") as large:
        large.write(os.urandom(3 << 20))
        large.truncate(size)
        large.seek(40 << 20)
        large.write(b"tail")
    want = hashlib.sha256((place.root / "large").read_bytes()).hexdigest()
    tracemalloc.start()
    try:
        backups = Backups(place)
        backups.take("one", [file("/large")], at=1, note={})
        os.truncate(place.root / "large", 5)
        backups.restore("one")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20
    assert hashlib.sha256((place.root / "large").read_bytes()).hexdigest() == want
    for copy in (objects_of(place)[0], place.root / "large"):
        assert copy.stat().st_size == size
        assert copy.stat().st_blocks * 512 < size // 2


# what is refused


def test_a_file_with_names_outside_of_the_manifest_is_refused_unless_they_are_allowed(place: Workspace) -> None:
    make(place.root, {"d/a": "a", "d/whole": "w"})
    os.link(place.root / "d/a", place.root / "elsewhere")
    os.link(place.root / "d/whole", place.root / "d/both")
    with pytest.raises(RefusedError, match="/d/a has 1 further name") as refused:
        Backups(place).take("one", [file("/d/*")], at=1, note={})
    assert (refused.value.code, refused.value.details["name"]) == ("HARD_LINK_OUTSIDE", "/d/a")
    assert Backups(place).list() == []
    Backups(place).take("all", [file("/d/*"), file("/elsewhere")], at=1, note={})
    backups = Backups(place, hard_links="allow")
    backups.take("one", [file("/d/*")], at=1, note={})
    (place.root / "d/a").write_text("changed")
    backups.restore("one")
    assert ((place.root / "d/a").read_text(), (place.root / "elsewhere").read_text()) == ("a", "changed")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("FILE:/out/x", "LINK_OUT_OF_WORKSPACE"),
        ("FILE:/.klock/backups", "PRIVATE_PATH"),
        ("SYMBOL:x", "NOT_A_FILE_RESOURCE"),
    ],
)
def test_what_is_no_place_in_the_workspace_is_refused(place: Workspace, tmp_path: Path, name: str, code: str) -> None:
    (place.root / "out").symlink_to(tmp_path)
    with pytest.raises(RefusedError) as refused:
        Backups(place).take("one", [canonical_resource(name)], at=1, note={})
    assert refused.value.code == code


def test_a_resource_below_a_link_inside_is_saved_where_it_is(place: Workspace) -> None:
    make(place.root, {"d/a": "a"})
    (place.root / "l").symlink_to("d")
    backups = Backups(place)
    backups.take("one", [file("/l/a")], at=1, note={})
    (place.root / "d/a").write_text("changed")
    (place.root / "l").unlink()
    backups.restore("one")
    assert (place.root / "d/a").read_text() == "a"


@pytest.mark.parametrize("backup_id", ["", "a/b", "..", ".hidden", "x" * 129, "a\n", 7])
def test_an_id_that_cannot_be_a_file_is_refused(place: Workspace, backup_id: Any) -> None:
    with pytest.raises(RefusedError) as refused:
        Backups(place).take(backup_id, [], at=1, note={})
    assert refused.value.code == "INVALID_BACKUP_ID"


def test_an_id_is_given_once_and_a_note_is_json(place: Workspace) -> None:
    backups = Backups(place)
    backups.take("one", [], at=1, note={})
    with pytest.raises(RefusedError) as refused:
        backups.take("one", [], at=1, note={})
    assert refused.value.code == "BACKUP_EXISTS"
    with pytest.raises(RefusedError) as refused:
        backups.take("two", [], at=1, note={"x": float("nan")})
    assert refused.value.code == "NOT_CANONICAL"
    assert [info.backup_id for info in backups.list()] == ["one"]


def test_looking_makes_nothing(place: Workspace) -> None:
    backups = Backups(place)
    assert (backups.list(), backups.finish_interrupted()) == ([], [])
    with pytest.raises(RefusedError, match="worldctl backups list") as refused:
        backups.get("one")
    assert refused.value.code == "NO_SUCH_BACKUP"
    assert os.listdir(place.root) == []


@pytest.mark.parametrize("obstacle", ["a file", "a link"])
def test_a_folder_of_backups_that_is_none_is_refused_and_nothing_is_written(
    place: Workspace, tmp_path: Path, obstacle: str
) -> None:
    (tmp_path / "outside").mkdir()
    if obstacle == "a file":
        place.private.write_text("")
    else:
        place.private.symlink_to(tmp_path / "outside")
    make(place.root, {"a": "a"})
    for act in (Backups(place).prepare, lambda wanted: Backups(place).take("one", wanted, at=1, note={})):
        with pytest.raises(RefusedError, match="in the place of a folder") as refused:
            act([file("/a")])
        assert refused.value.code == "BACKUP_FAILED"
    assert os.listdir(tmp_path / "outside") == []


@pytest.mark.slow
def test_without_the_right_to_write_or_read_the_refusal_says_what_to_do() -> None:
    assert as_somebody_else(_back_up_without_rights) == (
        "BACKUP_FAILED True /secret could not be saved: permission is denied; give this user the right to it. []"
    )


def _back_up_without_rights(folder: Path) -> str:
    with workspace(folder) as place:
        make(place.root, {"a": "a", "secret": "s"})
        place.root.chmod(0o500)
        said = []
        try:
            Backups(place).take("one", [file("/a")], at=1, note={})
        except RefusedError as refused:
            said += [refused.code, str("permission is denied" in refused.message)]
        place.root.chmod(0o700)
        (place.root / "secret").chmod(0)
        try:
            Backups(place).take("one", [file("/*")], at=1, note={})
        except RefusedError as refused:
            said.append(refused.message)
        return f"{' '.join(said)} {Backups(place).list()}"


@cache
def can_mount() -> bool:
    """Tell whether this machine lets a process mount a small file system in a namespace of its own."""
    if shutil.which("unshare") is None:
        return False
    tried = ["unshare", "-rm", "sh", "-c", MOUNT, "sh", "/mnt"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("kind", ["a small file system", "a limit on the size of files"])
def test_a_disk_without_room_is_said_nothing_is_granted_and_a_rollback_still_works(tmp_path: Path, kind: str) -> None:
    """Where no file system may be mounted, both cases use the limit on the size of files."""
    mounted = kind == "a small file system" and can_mount()
    command = [sys.executable, str(DISK), str(tmp_path), "mounted" if mounted else "limit"]
    if mounted:
        command = ["unshare", "-rm", "sh", "-c", f'{MOUNT} && shift && exec "$@"', "sh", str(tmp_path), *command]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["code"] == "BACKUP_FAILED"
    assert ("the disk is full; make room" if mounted else "raise the limit") in told["message"]
    assert told["backups"] == ["one"]
    assert told["temporary"] == []
    assert told["failed"] == []
    assert told["content"] == "small"
    assert told["left"] == [".klock", "large", "small"]


@pytest.mark.parametrize("copies", [1, 3])
def test_content_and_lists_are_on_the_disk_before_they_get_their_names(
    place: Workspace, monkeypatch: pytest.MonkeyPatch, copies: int
) -> None:
    """Every file that a backup names was synced while it had no name yet, and its folder afterwards."""
    done: list[tuple[str, int]] = []
    sync, rename = os.fsync, os.rename

    def synced(handle: int) -> None:
        sync(handle)
        done.append(("synced", os.fstat(handle).st_ino))

    def renamed(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        file = os.stat(source, dir_fd=src_dir_fd, follow_symlinks=False).st_ino
        rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        done.append(("named", file))

    for number in range(copies):
        (place.root / f"f{number}").write_text(f"content {number}")
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    Backups(place).take("one", [file(f"/f{number}") for number in range(copies)], at=1, note={})
    lasting = [*objects_of(place), place.private / "backups/sets/one.json"]
    assert len(lasting) == copies + 1
    for path in lasting:
        inode, folder = path.stat().st_ino, path.parent.stat().st_ino
        at = done.index(("named", inode))
        assert ("synced", inode) in done[:at]
        assert ("synced", folder) in done[at:]
