"""Sparse files, deep folders and many entries: what it takes to compare and undo them is bounded."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from host.backups import Backups
from host.backups.backup_fs import remove_tree
from host.backups.copying import copy_hashed, has_hash
from host.workspace import Workspace, bounds, take
from host.workspace.bounds import MAX_DEPTH
from host.workspace.sparse import SPARSE_BYTES
from host.workspace.stamps import hash_content
from host.workspace.tree_walk import FolderChain
from tests.host.folders import refused
from tests.host.trees import file, make, workspace

TERABYTE = 1 << 40


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workspace]:
    with workspace(tmp_path) as found:
        yield found


def sparse(path: Path, data: dict[int, bytes], size: int = TERABYTE) -> Path:
    with path.open("wb") as made:
        for at, content in data.items():
            made.seek(at)
            made.write(content)
        made.truncate(size)
    return path


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return what tells how many bytes were read of files; too many are refused at once."""
    count = 0
    pread, readv, plain = os.pread, os.readv, os.read

    def counted(size: int) -> None:
        nonlocal count
        count += size
        assert count < 100_000_000, "holes are read"

    def counted_pread(fd: int, size: int, at: int) -> bytes:
        found = pread(fd, size, at)
        counted(len(found))
        return found

    def counted_readv(fd: int, buffers: list[bytearray]) -> int:
        found = readv(fd, buffers)
        counted(found)
        return found

    def counted_read(fd: int, size: int) -> bytes:
        found = plain(fd, size)
        counted(len(found))
        return found

    monkeypatch.setattr(os, "pread", counted_pread)
    monkeypatch.setattr(os, "readv", counted_readv)
    monkeypatch.setattr(os, "read", counted_read)
    return lambda: count


def test_a_sparse_file_is_compared_saved_and_restored_without_its_holes(
    place: Workspace, read: Callable[[], int]
) -> None:
    root = place.root
    large = sparse(root / "large", {0: b"begin", TERABYTE // 2 - 2: b"middle", TERABYTE - 3: b"end"})
    before = take(place, cache=None)
    backups = Backups(place)
    backups.take("one", [file("/large")], at=1, note={})
    with large.open("r+b") as changed:
        changed.seek(TERABYTE // 4)
        changed.write(b"changed")
    assert take(place, cache=None)[b"large"].content != before[b"large"].content
    assert backups.restore("one").restored
    assert take(place, cache=None)[b"large"].content == before[b"large"].content
    assert large.stat().st_blocks * 512 < 1 << 20
    with large.open("rb") as restored:
        restored.seek(TERABYTE // 2 - 2)
        assert restored.read(6) == b"middle"
    assert 0 < read() < 1_000_000


def test_the_hash_of_a_sparse_file_does_not_depend_on_which_zeros_are_holes(tmp_path: Path) -> None:
    size = SPARSE_BYTES + 5
    data = {4_095: b"ab", 9_000_000: b"c", size - 1: b"d"}
    holes = sparse(tmp_path / "holes", data, size)
    filled = sparse(tmp_path / "filled", {0: bytes(5_000_000), **data}, size)
    with holes.open("rb") as one, filled.open("rb") as two, (tmp_path / "copy").open("w+b") as copy:
        sha256, copied = copy_hashed(one.fileno(), copy.fileno())
        assert copied == size
        assert copy.read() == holes.read_bytes() == filled.read_bytes()
        assert {hash_content(each.fileno())[1].hex() for each in (one, two, copy)} == {sha256}
        for each in (one, two, copy):
            assert has_hash(each.fileno(), sha256, size)
            assert has_hash(each.fileno(), hashlib.sha256(holes.read_bytes()).hexdigest(), size)
            assert not has_hash(each.fileno(), sha256, size - 1)
    for at in (0, 4_095, 4_096, 60_000_000, size - 1):
        other = sparse(tmp_path / "other", {**data, at: b"x"}, size)
        with other.open("rb") as changed:
            assert not has_hash(changed.fileno(), sha256, size)


def nested(folder: Path, levels: int) -> Path:
    """Make folders below each other, and return the first one."""
    first = folder / "d"
    handle = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=handle)
        below = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = below
    os.close(handle)
    return first


def test_a_workspace_that_is_too_deep_is_neither_compared_nor_saved(place: Workspace) -> None:
    root = place.root
    nested(root, MAX_DEPTH)
    assert len(take(place, cache=None)) == MAX_DEPTH + 1
    Backups(place).take("one", [file("/d/*")], at=1, note={})
    deeper = root
    for _ in range(MAX_DEPTH):
        deeper /= "d"
    (deeper / "e").mkdir()
    with refused("WORKSPACE_TOO_LARGE"):
        take(place, cache=None)
    with refused("WORKSPACE_TOO_LARGE"):
        Backups(place).take("two", [file("/d/*")], at=1, note={})


def test_a_workspace_with_too_many_entries_is_neither_compared_nor_saved(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(place.root, {f"src/{number}": "" for number in range(12)})
    take(place, cache=None)
    monkeypatch.setattr(bounds, "MAX_ENTRIES", 10)
    with refused("WORKSPACE_TOO_LARGE"):
        take(place, cache=None)
    with refused("WORKSPACE_TOO_LARGE"):
        Backups(place).take("one", [file("/*")], at=1, note={})


def test_folders_that_were_made_are_removed_in_time_that_grows_with_their_number(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, levels, opened = place.root, 3_000, 0
    make(root, {"src/kept": "kept"})
    backups = Backups(place)
    backups.take("one", [file("/src/*")], at=1, note={})
    nested(root / "src", levels)
    plain = os.open

    def counted(*arguments: object, **named: object) -> int:
        nonlocal opened
        opened += 1
        return plain(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", counted)
    backups.restore("one")
    assert [one.name for one in (root / "src").iterdir()] == ["kept"]
    assert opened < 6 * levels


def test_a_closed_folder_is_removed_and_no_link_is_followed(tmp_path: Path) -> None:
    make(tmp_path, {"outside/kept": "kept", "tree/a/b/file": "", "tree/other": ""})
    (tmp_path / "tree/a/link").symlink_to(tmp_path / "outside")
    (tmp_path / "tree/a/b").chmod(0o000)
    (tmp_path / "tree/a").chmod(0o500)
    handle = os.open(tmp_path, os.O_RDONLY)
    remove_tree(handle, b"tree")
    remove_tree(handle, b"tree")  # nothing is left
    os.close(handle)
    assert [one.name for one in tmp_path.iterdir()] == ["outside"]
    assert (tmp_path / "outside/kept").read_text() == "kept"


def test_a_walk_does_not_return_to_a_folder_that_was_moved_away(tmp_path: Path) -> None:
    nested(tmp_path, 40)
    handle = os.open(tmp_path, os.O_RDONLY)
    with FolderChain(handle) as chain:
        for _ in range(40):
            chain.push(b"d")
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "d/d").rename(tmp_path / "elsewhere/d")
        for _ in range(38):
            chain.pop()
        chain.end()  # the moved folder itself
        chain.pop()  # the folder above it is `elsewhere` now
        assert os.path.samestat(os.fstat(chain.end()), os.stat(tmp_path / "d"))
        with pytest.raises(FileNotFoundError):
            chain.push(b"d")
    os.close(handle)
