"""Archives: written from SQLite and PostgreSQL, read by others, continued, imported again; each damage is named."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet
import pytest
from msgspec import structs, to_builtins
from tlog_scales.reader import TilesReader

from bench.realms import BenchRealm
from tests.cli.realm import environment
from tests.support.patience import PATIENCE_S
from tests.support.tlog_client import leaf, open_checkpoint
from world.audit.verify import verify
from world.errors import RefusedError
from world.events.proposal_events import ProposalSubmitted
from world.log import EventLog, NewEvent, TreeHead, open_log
from world.log.merkle import CHUNK_LEAVES
from world.model.canonical_json import canonical_bytes
from world.read_models.archive import Archive
from worldprotocol.export.archive.checking import check_archive, check_row, checkpoint_in
from worldprotocol.export.archive.manifest import (
    EVENTS,
    MANIFEST,
    ArchivedFile,
    ArchiveFolder,
    ArchiveManifest,
    hash_of,
    open_archive,
)
from worldprotocol.export.archive.writing import end_of_archive, plan_archive, write_archive
from worldprotocol.export.jsonl import import_log
from worldprotocol.export.proofs.checkpoint import Trusted, checkpoint_of
from worldprotocol.export.proofs.note import SigningKey

pytestmark = pytest.mark.slow

ORIGIN = "example.com/archived"
KEY = SigningKey(ORIGIN, bytes(32))


def grown(address: str, events: int) -> None:
    realm = BenchRealm(address, durability="normal")
    realm.grow(events)
    realm.close()


def written(
    log: EventLog, folder: Path, upto: int, *previous: ArchiveFolder, has_tables: bool = False
) -> ArchiveFolder:
    plan = plan_archive(log, previous, upto, has_tables=has_tables)
    return write_archive(log, folder, plan, checkpoint_of(log.root_at(plan.upto), ORIGIN, [KEY]))


@pytest.fixture(scope="module")
def grown_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("grown") / "log.db"
    grown(str(path), 1_500)
    return path


@pytest.fixture(scope="module")
def pair(grown_log: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two archives in a row, of events 1 to 512 and 513 to 1,280."""
    folder = tmp_path_factory.mktemp("pair")
    with open_log(str(grown_log), read_only=True) as log:
        first = written(log, folder / "first", 512, has_tables=True)
        written(log, folder / "second", 1_280, first, has_tables=True)
    return folder / "first", folder / "second"


@pytest.fixture
def copies(pair: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    for one in pair:
        shutil.copytree(one, tmp_path / one.name)
    return tmp_path / "first", tmp_path / "second"


@pytest.mark.requirement("CARD-audit")
def test_the_events_of_archives_and_of_the_rest_are_the_log_again(shared_log_url: str, tmp_path: Path) -> None:
    grown(shared_log_url, 1_000)
    with open_log(shared_log_url, read_only=True) as log:
        first = written(log, tmp_path / "a", 256)
        second = written(log, tmp_path / "b", 768, first)
        check_row([first, second], log)
        head, events = log.root_at(768), list(log.read(upto=768))
    again = str(tmp_path / "again.db")
    for archive in (first, second):
        with (archive.folder / EVENTS).open("rb") as lines:
            done = import_log(lines, again)
    assert (done.added, done.head) == (512, head)
    with open_log(again, read_only=True) as log:
        assert list(log.read()) == events
        assert verify(log, against=head).ok
        assert [log.root_at(one.manifest.size) for one in (first, second)] == [first.manifest.head, head]


def test_an_import_that_lacks_the_events_before_is_refused(pair: tuple[Path, Path], tmp_path: Path) -> None:
    with (pair[1] / EVENTS).open("rb") as lines, pytest.raises(RefusedError, match="begins after event 512") as refused:
        import_log(lines, str(tmp_path / "log.db"))
    assert refused.value.code == "LOG_NOT_EMPTY"
    grown(other := str(tmp_path / "other.db"), 512)
    with open_log(other, create=True) as log:
        size = log.head().size
    with (pair[1] / EVENTS).open("rb") as lines, pytest.raises(RefusedError) as refused:
        import_log(lines, other)
    assert refused.value.code == "LOG_NOT_EMPTY"
    with open_log(other, read_only=True) as log:
        assert log.head().size == size


class Files:
    """The static files of archives, copied over one another, as a server of tiles would give them."""

    def __init__(self, *folders: Path) -> None:
        self.folders = folders

    def get(self, *path: str) -> bytes | None:
        found = [file for folder in self.folders if (file := Path(folder, "tlog", *path)).is_file()]
        return found[-1].read_bytes() if found else None


@pytest.mark.requirement("CARD-audit")
def test_an_independent_client_reads_the_tiles_and_the_checkpoint(pair: tuple[Path, Path], grown_log: Path) -> None:
    with open_log(str(grown_log), read_only=True) as log:
        head, leaves = log.root_at(1_280), [event.leaf for event in log.read(upto=1_280)]
    signed = (pair[1] / "tlog" / "checkpoint").read_bytes()
    assert open_checkpoint(signed, KEY.verifier.to_text()) == (ORIGIN, head.size, head.root)
    reader = TilesReader(Files(*pair))
    reader.set_size(head.size)
    assert reader.calculate_root_hash() == head.root
    assert [leaf(reader.get_entry(index)) for index in range(head.size)] == leaves


def test_tables_have_the_rows_of_their_stretch(pair: tuple[Path, Path], grown_log: Path) -> None:
    with open_log(str(grown_log), read_only=True) as log:
        submitted = [event.position for event in log.read(topics=[ProposalSubmitted.TOPIC], upto=1_280)]
    rows = [pyarrow.parquet.read_table(one / "tables" / "events.parquet").to_pylist() for one in pair]
    assert [row["log_position"] for row in rows[0]] == list(range(1, 513))
    assert [row["log_position"] for row in rows[1]] == list(range(513, 1_281))
    proposals = [
        row for one in pair for row in pyarrow.parquet.read_table(one / "tables" / "proposals.parquet").to_pylist()
    ]
    ended = [row["submitted_position"] for row in proposals if row["ended_position"] is not None]
    assert len(ended) == len(set(ended))
    assert {row["submitted_position"] for row in proposals} == set(submitted)


@pytest.mark.parametrize(("keep", "upto"), [(None, None), (None, 700), (100, None), (100, 300), (10**6, None)])
def test_an_archive_ends_with_a_whole_chunk_before_what_is_kept(
    grown_log: Path, keep: int | None, upto: int | None
) -> None:
    with open_log(str(grown_log), read_only=True) as log:
        submitted = [event.position for event in log.read(topics=[ProposalSubmitted.TOPIC])]
        most = log.head().size if upto is None else upto
        if keep is not None:
            most = 0 if keep > len(submitted) else min(most, submitted[-keep] - 1)
        end = end_of_archive(Archive(log), keep, upto)
        assert (end % CHUNK_LEAVES, most - end in range(CHUNK_LEAVES)) == (0, True)


def test_what_is_archived_already_is_not_archived_again(pair: tuple[Path, Path], grown_log: Path) -> None:
    archives = tuple(map(open_archive, pair))
    with open_log(str(grown_log), read_only=True) as log:
        with pytest.raises(RefusedError) as refused:
            plan_archive(log, archives, 1_280, has_tables=False)
        assert refused.value.code == "NOTHING_TO_ARCHIVE"
        with pytest.raises(RefusedError) as refused:
            plan_archive(log, archives[1:], 1_280, has_tables=False)
        assert refused.value.code == "BAD_ARCHIVE"


# Damage


def rewritten(folder: Path, change: Callable[[ArchiveManifest], ArchiveManifest]) -> None:
    """Change a manifest, and bring sizes and hashes in it into agreement with the files."""
    manifest = change(open_archive(folder).manifest)
    files = [described(folder, one.path) for one in manifest.files if (folder / one.path).is_file()]
    changed = structs.replace(manifest, files=files)
    (folder / MANIFEST).write_bytes(canonical_bytes(to_builtins(changed)) + b"\n")


def described(folder: Path, path: str) -> ArchivedFile:
    return ArchivedFile(path, *hash_of(folder / path))


def fault(folder: Path) -> str:
    with pytest.raises(RefusedError) as refused:
        check_archive(open_archive(folder))
    assert refused.value.code == "BAD_ARCHIVE"
    return refused.value.message


def files_of(folder: Path) -> list[str]:
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())


@pytest.mark.requirement("CARD-audit")
def test_each_changed_or_missing_file_is_named(copies: tuple[Path, Path]) -> None:
    for path in files_of(copies[1]):
        if path == MANIFEST:
            continue
        file = copies[1] / path
        data = file.read_bytes()
        for damaged in (data[:-1], data[:-1] + bytes([data[-1] ^ 1]), data + b"\n"):
            file.write_bytes(damaged)
            assert path in fault(copies[1])
        file.unlink()
        assert path in fault(copies[1])
        file.write_bytes(data)
    check_archive(open_archive(copies[1]))


@pytest.mark.requirement("CARD-audit")
def test_damage_under_a_manifest_that_agrees_with_it_is_found(copies: tuple[Path, Path]) -> None:
    folder = copies[1]
    whole = {path: (folder / path).read_bytes() for path in files_of(folder)}
    lines = whole[EVENTS].splitlines(keepends=True)
    changes = [
        (EVENTS, b"".join(lines[:5] + lines[6:]), "in the place of event 517"),
        (EVENTS, b"".join(lines[:-1]), "does not end with the tree head"),
        (
            EVENTS,
            lines[0] + b"".join(lines[1:]).replace(b'"by":3', b'"by":4', 1),
            "its content and its leaf hash disagree",
        ),
        ("tlog/tile/0/003", whole["tlog/tile/0/003"][::-1], "tlog/tile/0/003"),
        ("tlog/tile/entries/004", whole["tlog/tile/entries/003"], "tlog/tile/entries/004"),
        ("tlog/tile/1/000.p/5", whole["tlog/tile/1/000.p/5"][:-1] + b"\0", "tlog/tile/1/000.p/5"),
    ]
    for path, data, words in changes:
        assert data != whole[path]
        (folder / path).write_bytes(data)
        rewritten(folder, lambda manifest: manifest)
        assert words in fault(folder)
        for name, before in whole.items():
            (folder / name).write_bytes(before)
    (folder / "tlog/tile/entries/004").unlink()
    rewritten(folder, lambda manifest: manifest)
    assert "004" in fault(folder)


def test_a_checkpoint_of_another_head_and_one_without_the_key_are_found(copies: tuple[Path, Path]) -> None:
    archive = open_archive(copies[0])
    assert checkpoint_in(archive, Trusted((KEY.verifier,))) is not None
    with pytest.raises(RefusedError) as refused:
        checkpoint_in(archive, Trusted((SigningKey("example.com/other", bytes(32)).verifier,)))
    assert refused.value.code in ("WRONG_ORIGIN", "NOT_SIGNED")
    other = checkpoint_of(TreeHead(512, bytes(32)), ORIGIN, [KEY])
    (copies[0] / "tlog" / "checkpoint").write_text(other.to_text())
    rewritten(copies[0], lambda manifest: manifest)
    assert "checkpoint" in fault(copies[0])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[1]\n",
        b'{"format":1,"worldProtocol":"archive"}\n',
        b"\xff\n",
        b'{"worldProtocol": "archive"}\n',
    ],
)
def test_a_folder_with_another_manifest_is_no_archive(tmp_path: Path, data: bytes) -> None:
    (tmp_path / MANIFEST).write_bytes(data)
    with pytest.raises(RefusedError) as refused:
        open_archive(tmp_path)
    assert refused.value.code == "BAD_ARCHIVE"


def test_a_manifest_names_files_below_its_folder_only(copies: tuple[Path, Path]) -> None:
    manifest = open_archive(copies[0]).manifest
    for path in ("../outside", "/etc/passwd", "a/../../b", "", "a//b"):
        files = [structs.replace(manifest.files[0], path=path), *manifest.files[1:]]
        forged = to_builtins(structs.replace(manifest, files=files))
        (copies[0] / MANIFEST).write_bytes(canonical_bytes(forged) + b"\n")
        with pytest.raises(RefusedError) as refused:
            open_archive(copies[0])
        assert refused.value.code == "BAD_ARCHIVE"


def test_archives_of_another_log_are_not_of_this_one(pair: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = map(open_archive, pair)
    with pytest.raises(RefusedError, match="does not follow"):
        check_row([second])
    with pytest.raises(RefusedError, match="does not follow"):
        check_row([second, first])
    with pytest.raises(RefusedError, match="does not follow"):
        check_row([replace(first, digest="0" * 64), second])
    with open_log(str(tmp_path / "other.db"), create=True) as log:
        log.insert_events([NewEvent("s", "test.event", 1, b"{}") for _ in range(600)])
        with pytest.raises(RefusedError, match="not those of this log"):
            check_row([first, second], log)


def test_an_archive_never_replaces_anything(grown_log: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "new.part").mkdir()
    (tmp_path / "new.part" / "diary.txt").write_text("mine")
    with open_log(str(grown_log), read_only=True) as log:
        for name in ("there", "new"):
            with pytest.raises(RefusedError) as refused:
                written(log, tmp_path / name, 256)
            assert refused.value.code == "INVALID_TARGET"
    assert (tmp_path / "new.part" / "diary.txt").read_text() == "mine"


@pytest.mark.requirement("CARD-audit")
def test_an_archive_whose_writer_is_killed_is_there_whole_or_not_at_all(grown_log: Path, tmp_path: Path) -> None:
    """The writer reports each file that it opens for writing, and is killed after so many; the next run writes it."""
    program = Path(__file__).with_name("archive_child.py")
    target = tmp_path / "archive"
    killed = 0
    for most in (1, 2, 5, 9, 20, 45):
        child = subprocess.Popen(
            [sys.executable, str(program), str(grown_log), str(target)],
            stdout=subprocess.PIPE,
            env=environment(),
        )
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(most)]
        os.kill(child.pid, signal.SIGKILL)
        child.communicate(timeout=PATIENCE_S)
        killed += lines[-1] != b""
        if target.exists():
            check_archive(open_archive(target))
            shutil.rmtree(target)
    assert killed
    with open_log(str(grown_log), read_only=True) as log:
        made = written(log, target, 1_280)
        assert check_archive(made) == log.root_at(1_280)
    assert not list(tmp_path.glob("*.part"))
