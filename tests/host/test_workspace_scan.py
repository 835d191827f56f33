"""Content before and after: whatever is done to a tree is found, whoever did it and however it was hidden."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host.workspace import EntryDifference, Scan, Workspace, differences, take
from tests.host.folders import without_privileges
from world.klis.resources.names import NameComparison

PAST = 1_500_000_000_000_000_000  # ns since 1970


@pytest.fixture
def ws(tmp_path):
    (tmp_path / "ws").mkdir()
    with Workspace(tmp_path / "ws") as workspace:
        yield workspace


def cache_of(ws: Workspace) -> Path:
    return ws.private / "scan-cache"


def told(found: list[EntryDifference]) -> list[tuple[str, bytes]]:
    return [(each.kind, each.relative) for each in found]


def changes(ws: Workspace, before: Scan) -> list[tuple[str, bytes]]:
    """Return what a look with the cache finds, once a look without it has found the same."""
    cached, uncached = take(ws, cache=cache_of(ws)), take(ws, cache=None)
    assert dict(cached) == dict(uncached)
    return told(differences(before, cached))


def let_the_clock_tick(ws: Workspace) -> None:
    """Come to a later time of the file system than everything before."""
    first = ws.private / "tick"
    first.parent.mkdir(exist_ok=True)
    first.touch()
    begin = first.stat().st_mtime_ns
    while first.stat().st_mtime_ns <= begin:
        first.touch()
    first.unlink()


# A model that reads everything


def read_everything(root: Path) -> dict[bytes, tuple[object, object, tuple[int, ...]]]:
    """Return (content, permissions and owner, times and inode) of everything, by paths and with the plainest calls."""
    found: dict[bytes, tuple[object, object, tuple[int, ...]]] = {}
    top = os.fsencode(root)
    for folder, folders, files in os.walk(top):
        if folder == top:
            folders[:] = [name for name in folders if name != b".klock"]
        for name in folders + files:
            path = os.path.join(folder, name)
            seen = os.lstat(path)
            if stat.S_ISLNK(seen.st_mode):
                content: object = ("link", os.readlink(path))
            elif stat.S_ISREG(seen.st_mode):
                with open(path, "rb") as file:
                    content = ("file", file.read())
            else:
                content = stat.S_IFMT(seen.st_mode)
            permissions = (stat.S_IMODE(seen.st_mode), seen.st_uid, seen.st_gid)
            found[os.path.relpath(path, top)] = (
                content,
                permissions,
                (seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino),
            )
    return found


def expected(before, after) -> list[tuple[str, bytes]]:
    found = dict.fromkeys(before.keys() - after.keys(), "deleted")
    found |= dict.fromkeys(after.keys() - before.keys(), "created")
    moved = set(found)
    for path in before.keys() & after.keys():
        (old_content, old_permissions, old_rest), (content, permissions, rest) = before[path], after[path]
        if old_rest[3] != rest[3]:
            moved.add(path)
        if old_content != content:
            found[path] = "changed"
        elif old_permissions != permissions:
            found[path] = "mode"
        elif old_rest != rest:
            found[path] = "touched"
    for path in [path for path, kind in found.items() if kind == "touched" and after[path][0] == stat.S_IFDIR]:
        if any(os.path.dirname(other) == path for other in moved):
            del found[path]
    return sorted(((kind, path) for path, kind in found.items()), key=lambda each: each[1])


NAMES = st.sampled_from([b"a", b"b", b"c\n", b"\xff"])
PLACES = st.lists(NAMES, min_size=1, max_size=2).map(b"/".join)
WORKS = st.one_of(
    st.tuples(st.just("write"), PLACES, st.sampled_from([b"", b"11", b"22", b"333"])),
    st.tuples(st.just("write secretly"), PLACES, st.sampled_from([b"11", b"22"])),
    st.tuples(st.just("replace"), PLACES, st.sampled_from([b"11", b"22"])),
    st.tuples(st.just("mkdir"), PLACES),
    st.tuples(st.just("unlink"), PLACES),
    st.tuples(st.just("rmdir"), PLACES),
    st.tuples(st.just("chmod"), PLACES, st.sampled_from([0o700, 0o755])),
    st.tuples(st.just("rename"), PLACES, PLACES),
    st.tuples(st.just("symlink"), PLACES, st.sampled_from([b"a", b"../..", b"nowhere"])),
    st.tuples(st.just("link"), PLACES, PLACES),
    st.tuples(st.just("touch"), PLACES, st.sampled_from([PAST, PAST + 1])),
    st.tuples(st.just("mkfifo"), PLACES),
)


def do(root: bytes, work: tuple) -> None:
    """Do one thing to a tree, unless the tree is not such that it can be done."""
    what, place, *more = work
    path = os.path.join(root, place)
    with contextlib.suppress(OSError):
        if what in {"write", "write secretly"}:
            source = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK)
            before = os.fstat(source)
            os.write(source, more[0])
            os.close(source)
            if what == "write secretly":
                os.utime(path, ns=(before.st_mtime_ns, before.st_mtime_ns))
        elif what == "replace":
            Path(os.fsdecode(path) + "~").write_bytes(more[0])
            os.rename(path + b"~", path)
        elif what == "rename":
            os.rename(path, os.path.join(root, more[0]))
        elif what == "symlink":
            os.symlink(more[0], path)
        elif what == "link":
            os.link(path, os.path.join(root, more[0]), follow_symlinks=False)
        elif what == "touch":
            os.utime(path, ns=(more[0], more[0]), follow_symlinks=False)
        else:
            getattr(os, what)(path, *more)


@given(first=st.lists(WORKS, max_size=12), then=st.lists(WORKS, max_size=8), late=st.booleans())
@pytest.mark.requirement("KO-5.2")
def test_whatever_is_done_to_a_tree_is_found_and_nothing_else(first, then, late):
    with tempfile.TemporaryDirectory() as folder, Workspace(folder) as ws:
        for work in first:
            do(ws.root_bytes, work)
        if late:
            let_the_clock_tick(ws)  # now the cache is trusted
        before = take(ws, cache=cache_of(ws))
        modelled = read_everything(ws.root)
        assert before.keys() - {b""} == modelled.keys()
        for work in then:
            do(ws.root_bytes, work)
        found = changes(ws, before)
        assert [each for each in found if each[1]] == expected(modelled, read_everything(ws.root))


# Hiding


@pytest.mark.requirement("KO-5.2")
def test_what_a_child_process_does_and_hides_is_found(ws):
    ws.write(b"a", b"old")
    ws.write(b"b", b"old")
    let_the_clock_tick(ws)
    before = take(ws, cache=cache_of(ws))
    code = """
import os
seen = os.stat("a")
with open("a", "r+") as file:
    file.write("new")
os.utime("a", ns=(seen.st_atime_ns, seen.st_mtime_ns))
os.rename("b", "c")
os.mkdir("d")
"""
    subprocess.run([sys.executable, "-c", code], cwd=ws.root, check=True)
    after = take(ws, cache=cache_of(ws))
    assert after.hashed == 2
    assert after[b"a"].mtime_ns == before[b"a"].mtime_ns
    assert told(differences(before, after)) == [
        ("changed", b"a"),
        ("deleted", b"b"),
        ("created", b"c"),
        ("created", b"d"),
    ]


def test_a_write_within_the_tick_of_the_last_look_is_found(ws):
    target = os.open(ws.root / "a", os.O_RDWR | os.O_CREAT)
    try:
        for number in range(300):
            os.pwrite(target, b"%05d" % number, 0)
            before = take(ws, cache=cache_of(ws))
            os.pwrite(target, b"%05d" % (number + 1_000), 0)
            found = differences(before, take(ws, cache=cache_of(ws)))
            assert told(found) == [("changed", b"a")]
    finally:
        os.close(target)


# The cache


def test_a_file_that_is_as_it_was_is_not_read_again(ws):
    for number in range(20):
        ws.write(b"%d" % number, b"%d" % number)
    let_the_clock_tick(ws)
    first = take(ws, cache=cache_of(ws))
    second = take(ws, cache=cache_of(ws))
    ws.write(b"3", b"x")
    third = take(ws, cache=cache_of(ws))
    assert (first.hashed, second.hashed, third.hashed) == (20, 0, 1)
    assert dict(first) == dict(second)


def test_a_file_younger_than_the_last_look_is_read_again(ws):
    let_the_clock_tick(ws)
    ws.write(b"a", b"1")
    os.utime(ws.root / "a", ns=(2**62, 2**62))
    take(ws, cache=cache_of(ws))
    assert take(ws, cache=cache_of(ws)).hashed == 1


@pytest.mark.parametrize("damage", ["cut", "turned", "empty", "other", "folder", "unreadable"])
def test_a_cache_that_is_not_sound_counts_for_nothing(ws, damage):
    ws.write(b"a", b"1")
    let_the_clock_tick(ws)
    before = take(ws, cache=cache_of(ws))
    data = cache_of(ws).read_bytes()
    if damage == "folder":
        cache_of(ws).unlink()
        cache_of(ws).mkdir()
    else:
        cache_of(ws).write_bytes(
            {
                "cut": data[:-1],
                "turned": data[:-1] + bytes([data[-1] ^ 1]),
                "empty": b"",
                "other": b"something else",
                "unreadable": data[:28],
            }[damage]
        )
    after = take(ws, cache=cache_of(ws))
    assert after.hashed == 1
    assert differences(before, after) == []


def test_a_look_is_taken_where_no_cache_can_be_written(ws, tmp_path):
    ws.write(b"a", b"1")
    (tmp_path / "file").write_text("")
    assert take(ws, cache=tmp_path / "file" / "cache")[b"a"].content is not None


def test_looks_leave_nothing_behind_but_the_cache(ws):
    ws.write(b"a", b"1")
    for _ in range(3):
        take(ws, cache=cache_of(ws))
    assert [path.name for path in ws.private.iterdir()] == ["scan-cache"]
    assert [entry.name for entry in ws.list()] == [b"a"]


# What a look holds


def test_a_look_tells_what_stands_there(ws):
    ws.mkdir(b"dir")
    ws.write(b"dir/file", b"abc", mode=0o640)
    os.symlink("../../etc", ws.root / "link")
    os.mkfifo(ws.root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(ws.root, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{here}/socket")
        os.close(here)
    seen = take(ws, cache=None)
    assert {path: each.kind for path, each in seen.items()} == {
        b"": "dir",
        b"dir": "dir",
        b"dir/file": "file",
        b"link": "link",
        b"pipe": "other",
        b"socket": "other",
    }
    file = seen[b"dir/file"]
    assert (file.mode, file.size) == (0o640, 3)
    assert file.sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert seen[b"link"].content == b"../../etc"
    assert seen[b"link"].sha256 is None
    assert len(seen) == 6


def test_one_kind_of_entry_in_place_of_another_is_a_change(ws):
    os.mkfifo(ws.root / "a")
    before = take(ws, cache=None)
    (ws.root / "a").unlink()
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(ws.root, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{here}/a")
        os.close(here)
    assert changes(ws, before) == [("changed", b"a")]
    before = take(ws, cache=None)
    (ws.root / "a").unlink()
    (ws.root / "a").mkdir()
    assert changes(ws, before) == [("changed", b"a")]


def test_a_large_file_is_hashed_in_pieces(ws):
    ws.write(b"large", (bytes([number]) * 1_000_000 for number in range(20)))
    before = take(ws, cache=None)
    with open(ws.root / "large", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    assert changes(ws, before) == [("changed", b"large")]


def test_what_is_to_be_ignored_is_left_out_with_all_below_it(ws):
    ws.mkdir(b"node_modules/x", parents=True)
    ws.write(b"node_modules/x/y", b"")
    ws.mkdir(b"a/node_modules", parents=True)
    seen = take(ws, ignore=lambda path: path.endswith(b"node_modules"), cache=cache_of(ws))
    assert list(seen) == [b"", b"a"]


def test_progress_is_told(ws):
    ws.mkdir(b"a")
    ws.write(b"a/b", b"")
    counts: list[int] = []
    take(ws, cache=None, progress=counts.append)
    assert counts == [2, 3]


def test_permissions_of_the_root_count_and_its_times_do_not(ws):
    before = take(ws, cache=None)
    os.utime(ws.root)
    assert changes(ws, before) == []
    os.chmod(ws.root, 0o700 if before[b""].mode != 0o700 else 0o755)
    assert changes(ws, before) == [("mode", b"")]


def test_a_folder_in_which_something_came_and_went_was_touched(ws):
    ws.mkdir(b"a")
    let_the_clock_tick(ws)
    before = take(ws, cache=None)
    ws.write(b"a/b", b"")
    assert changes(ws, before) == [("created", b"a/b")]
    ws.remove(b"a/b")
    assert changes(ws, before) == [("touched", b"a")]


def test_what_may_not_be_read_is_named_and_compared_as_far_as_it_can_be(ws):
    ws.mkdir(b"closed")
    ws.write(b"closed/inside", b"1")
    ws.write(b"secret", b"1", mode=0)
    os.chmod(ws.root / "closed", 0)
    os.chmod(ws.root, 0o755)
    with without_privileges():
        before = take(ws, cache=None)
    assert set(before.unreadable) == {b"closed", b"secret"}
    assert set(before) == {b"", b"closed", b"secret"}
    assert before[b"secret"].content is None
    let_the_clock_tick(ws)
    os.chmod(ws.root / "secret", 0o600)
    (ws.root / "secret").write_bytes(b"2")
    os.chmod(ws.root / "secret", 0)
    with without_privileges():
        after = take(ws, cache=None)
    assert told(differences(before, after)) == [("changed", b"secret")]
    os.chmod(ws.root / "closed", 0o700)


def test_a_file_of_holes_is_looked_at_by_its_data_alone(tmp_path: Path) -> None:
    root = tmp_path / "w"
    root.mkdir()
    place = root / "big"
    with place.open("wb") as file:
        file.truncate(300 << 30)
    with Workspace(root) as workspace:
        before = take(workspace, cache=None)
        with place.open("r+b") as file:
            file.seek(200 << 30)
            file.write(b"data")
        after = take(workspace, cache=None)
        assert [one.kind for one in differences(before, after)] == ["changed"]
        os.utime(place, ns=(1, 1))
        assert [one.kind for one in differences(after, take(workspace, cache=None))] == ["touched"]


@pytest.mark.requirement("KM-4.2b")
def test_an_entry_under_another_spelling_is_the_same_changed_one_where_the_difference_is_ignored(ws):
    for path in (b"D/a", b"D/\xc3\xa9", b"x", b"X", b"gone"):
        with contextlib.suppress(FileExistsError):
            ws.mkdir(b"D")
        ws.write(path, path)
    before = take(ws, cache=None)
    ws.rename(b"D", b"d", replace=False)
    ws.rename(b"d/\xc3\xa9", b"d/e\xcc\x81", replace=False)
    ws.remove(b"gone")
    ws.remove(b"x")
    after = take(ws, cache=None)

    def kinds(names: NameComparison) -> dict[bytes, str]:
        return {each.relative: each.kind for each in differences(before, after, names) if each.kind != "touched"}

    came = dict.fromkeys((b"d", b"d/a", b"d/e\xcc\x81"), "created")
    went = dict.fromkeys((b"D", b"D/a", b"D/\xc3\xa9", b"gone", b"x"), "deleted")
    assert kinds(NameComparison()) == came | went
    assert kinds(NameComparison(True, True)) == {
        b"d": "changed",
        b"d/e\xcc\x81": "changed",
        b"gone": "deleted",
        b"x": "deleted",
    }
    assert kinds(NameComparison(True, False)) == {
        b"d": "changed",
        b"D/\xc3\xa9": "deleted",
        b"d/e\xcc\x81": "created",
        b"gone": "deleted",
        b"x": "deleted",
    }
