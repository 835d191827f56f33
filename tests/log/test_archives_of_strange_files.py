"""Archives whose files are no regular files, lack all events, or would be readable by others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec import structs, to_builtins

from bench.realms import BenchRealm
from world.errors import RefusedError
from world.log import open_log
from world.model.canonical_json import canonical_bytes
from worldprotocol.export.archive.checking import CHECKPOINT, check_archive
from worldprotocol.export.archive.manifest import EVENTS, MANIFEST, ArchivedFile, ArchiveFolder, hash_of, open_archive
from worldprotocol.export.archive.writing import plan_archive, write_archive
from worldprotocol.export.proofs.checkpoint import checkpoint_of

pytestmark = pytest.mark.slow


@pytest.fixture
def archive(tmp_path: Path) -> ArchiveFolder:
    address = str(tmp_path / "realm.db")
    realm = BenchRealm(address, durability="normal")
    realm.grow(300)
    realm.close()
    with open_log(address, read_only=True) as log:
        plan = plan_archive(log, (), 256, has_tables=True)
        return write_archive(log, tmp_path / "new" / "a", plan, checkpoint_of(log.root_at(256), "example.com/a"))


@pytest.mark.parametrize("path", [EVENTS, CHECKPOINT, "tlog/tile/0/000", MANIFEST])
@pytest.mark.parametrize("kind", ["fifo", "device", "folder"])
def test_a_file_that_is_no_regular_file_is_refused_and_not_waited_for(
    archive: ArchiveFolder, path: str, kind: str
) -> None:
    file = archive.folder / path
    file.unlink()
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "device":
        file.symlink_to("/dev/zero")
    else:
        file.mkdir()
    with pytest.raises(RefusedError) as refused:
        check_archive(open_archive(archive.folder))
    assert refused.value.code == "BAD_ARCHIVE"
    assert path in refused.value.message


def test_a_linked_file_of_an_archive_is_read(archive: ArchiveFolder, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere.jsonl"
    (archive.folder / EVENTS).rename(moved)
    (archive.folder / EVENTS).symlink_to(moved)
    assert check_archive(open_archive(archive.folder)) == archive.manifest.head


def test_an_archive_with_a_tree_head_and_no_events_is_refused(archive: ArchiveFolder) -> None:
    lines = (archive.folder / EVENTS).read_bytes().splitlines(keepends=True)
    empty = b'{"head":{"root":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","size":0}}\n'
    (archive.folder / EVENTS).write_bytes(lines[0] + empty)
    files = [
        ArchivedFile(EVENTS, *hash_of(archive.folder / EVENTS)) if one.path == EVENTS else one
        for one in archive.manifest.files
    ]
    changed = structs.replace(archive.manifest, files=files)
    (archive.folder / MANIFEST).write_bytes(canonical_bytes(to_builtins(changed)) + b"\n")
    with pytest.raises(RefusedError) as refused:
        check_archive(open_archive(archive.folder))
    assert refused.value.code == "BAD_ARCHIVE"
    assert "does not end with the tree head" in refused.value.message


def test_all_folders_and_files_of_an_archive_are_private(archive: ArchiveFolder) -> None:
    modes = {one.stat().st_mode & 0o077 for one in (archive.folder, *archive.folder.rglob("*"))}
    assert modes == {0}
