from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from world.errors import DamagedLogError, LogBusyError, RefusedError, StorageFullError, WorldProtocolError
from world.log import EventLog, NewEvent, list_logs, open_log
from world.log.backends import sqlite_reading


def append(log: EventLog, count: int = 1, size: int = 10) -> None:
    with log.write() as transaction:
        transaction.append([NewEvent("s", "t", 1, b'"%s"' % (b"x" * size)) for _ in range(count)])


def refusal(*args: Any, **kwargs: Any) -> WorldProtocolError:
    with pytest.raises(WorldProtocolError) as caught:
        open_log(*args, **kwargs)
    return caught.value


def contents(directory: Path) -> dict[str, tuple[str, int]]:
    files = sorted(directory.iterdir())
    return {f.name: (sha256(f.read_bytes()).hexdigest(), f.stat().st_mtime_ns) for f in files}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "world.db"


def crash_after_append(path: Path) -> None:
    """Append one event in a process that ends without closing anything."""
    code = (
        "import os, sys; from world.log import NewEvent, open_log; log = open_log(sys.argv[1], create=True)\n"
        "with log.write() as t: t.append([NewEvent('s', 't', 1, b'{}')])\n"
        "os._exit(9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], env={**os.environ, "PYTHONPATH": os.getcwd()}, check=False
    )
    assert done.returncode == 9


def test_a_file_that_does_not_exist_is_not_made_by_looking(path: Path) -> None:
    for options in ({}, {"read_only": True}, {"read_only": True, "create": True}):
        assert refusal(str(path), **options).code == "LOG_NOT_FOUND"
    assert not path.exists()


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    assert refusal(str(tmp_path / "no" / "world.db"), create=True).code == "LOG_NOT_FOUND"


def test_a_directory_is_no_log(tmp_path: Path) -> None:
    for create in (False, True):
        assert refusal(str(tmp_path), create=create).code == "NOT_A_LOG"


def test_an_empty_file_is_no_log_until_one_is_created_in_it(path: Path) -> None:
    path.touch()
    assert refusal(str(path)).code == "NOT_A_LOG"
    assert refusal(str(path), read_only=True).code == "NOT_A_LOG"
    assert path.stat().st_size == 0
    with open_log(str(path), create=True) as log:
        append(log)


def test_a_file_of_another_kind_is_no_log_and_stays_as_it_is(path: Path) -> None:
    path.write_bytes(b"%PDF-1.7 this is something else\n" * 400)
    before = contents(path.parent)
    for options in ({}, {"create": True}, {"read_only": True}):
        assert refusal(str(path), **options).code == "NOT_A_LOG"
    assert contents(path.parent) == before


def test_a_database_of_another_program_is_no_log_and_stays_as_it_is(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE customers (id INTEGER)")
    other.close()
    before = contents(path.parent)
    for options in ({}, {"create": True}, {"read_only": True}):
        assert refusal(str(path), **options).code == "NOT_A_LOG"
    assert contents(path.parent) == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("UPDATE wp_store SET version = version + 1", "update this program"),
        ("UPDATE wp_store SET version = 0", "migrate"),
        ("UPDATE wp_store SET format = 'something'", "does not know"),
    ],
)
def test_another_format_is_refused_with_advice(path: Path, change: str, words: str) -> None:
    open_log(str(path), create=True).close()
    with sqlite3.connect(path) as database:
        database.execute(change)
    database.close()
    for options in ({}, {"create": True}, {"read_only": True}):
        error = refusal(str(path), **options)
        assert error.code == "LOG_FORMAT"
        assert words in error.message


@pytest.mark.parametrize("change", ["DELETE FROM wp_store", "DROP TABLE wp_store", "DROP TABLE wp_event"])
def test_a_store_that_lost_a_part_of_itself_is_damaged_and_no_foreign_file(path: Path, change: str) -> None:
    with open_log(str(path), create=True) as log:
        append(log)
    with sqlite3.connect(path) as database:
        database.execute("DROP VIEW world_events")
        database.execute(change)
    database.close()
    with pytest.raises(DamagedLogError) as caught, open_log(str(path), read_only=True) as log:
        log.head()
    assert caught.value.code == "LOG_DAMAGED"


def test_a_file_whose_first_bytes_were_changed_is_a_damaged_log(path: Path) -> None:
    with open_log(str(path), create=True) as log:
        append(log)
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)
    assert refusal(str(path), read_only=True).code == "LOG_DAMAGED"


@pytest.mark.requirement("CARD-log")
def test_a_file_is_durable_by_default(path: Path) -> None:
    with open_log(str(path), create=True) as log:
        writer = log._store._writer  # type: ignore[attr-defined]
        assert writer.execute("PRAGMA synchronous").fetchone() == (2,)
        assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    with open_log(str(path), durability="normal") as log:
        assert log._store._writer.execute("PRAGMA synchronous").fetchone() == (1,)  # type: ignore[attr-defined]


def test_a_closed_log_is_one_file_that_people_can_read(path: Path) -> None:
    with open_log(str(path), create=True) as log:
        append(log, 2)
        leaf = log.event_at(2).leaf.hex()
    assert [f.name for f in path.parent.iterdir()] == ["world.db"]
    database = sqlite3.connect(path)
    columns = "log, position, stream, version, topic, schema_version, state, leaf"
    rows = database.execute(f"SELECT {columns} FROM world_events WHERE position = 2").fetchall()
    database.close()
    assert rows == [("main", 2, "s", 2, "t", 1, '"xxxxxxxxxx"', leaf)]


def test_reading_a_closed_log_changes_no_byte(path: Path) -> None:
    with open_log(str(path), create=True) as log:
        append(log, 5)
    before = contents(path.parent)
    with open_log(str(path), read_only=True) as reader:
        assert len(list(reader.read())) == 5
        assert list_logs(str(path)) == ["main"]
        assert contents(path.parent) == before
    assert contents(path.parent) == before


def test_reading_after_a_crash_changes_no_byte_and_misses_nothing(path: Path) -> None:
    crash_after_append(path)
    before = contents(path.parent)
    assert set(before) == {"world.db", "world.db-wal", "world.db-shm"}
    with open_log(str(path), read_only=True) as reader:
        assert len(list(reader.read())) == 1
    assert contents(path.parent) == before


def test_reading_a_copy_without_its_index_changes_no_byte_and_misses_nothing(path: Path, tmp_path: Path) -> None:
    crash_after_append(path)
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("world.db", "world.db-wal"):
        shutil.copyfile(tmp_path / name, copy / name)
    before = contents(copy)
    with open_log(str(copy / "world.db"), read_only=True) as reader:
        assert len(list(reader.read())) == 1
    assert contents(copy) == before


def test_reading_beside_a_writer_changes_no_byte_of_the_log(path: Path) -> None:
    with open_log(str(path), create=True) as log:
        append(log, 3)
        before = contents(path.parent)
        with open_log(str(path), read_only=True) as reader:
            assert len(list(reader.read())) == 3
        after = contents(path.parent)
        assert set(after) == set(before)
        for name in ("world.db", "world.db-wal"):
            assert after[name] == before[name]


def test_a_reader_that_came_first_sees_a_writer_that_comes_later(path: Path) -> None:
    with open_log(str(path), create=True) as log:
        append(log)
    with open_log(str(path), read_only=True) as reader:
        assert reader.head().size == 1
        for size in range(2, 6):
            with open_log(str(path)) as log:
                append(log)
                assert reader.head() == log.head()
            assert reader.head().size == size
            assert len(list(reader.read())) == size


def test_a_reader_that_came_while_the_last_writer_left_sees_what_that_wrote(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index of the write-ahead log is there when the reader opens it, and gone when it reads."""
    with open_log(str(path), create=True) as log:
        append(log)
    connect = sqlite_reading.connect
    with open_log(str(path)) as log:
        append(log)

        def opened(uri: str) -> Any:
            connection = connect(uri)
            if "readonly_shm" in uri:
                log.close()
            return connection

        monkeypatch.setattr(sqlite_reading, "connect", opened)
        with open_log(str(path), read_only=True) as reader:
            assert "world.db-shm" not in contents(path.parent)
            assert reader.head().size == 2


def test_a_file_without_permission_to_write_can_be_read(path: Path) -> None:
    with open_log(str(path), create=True) as log:
        append(log)
    path.chmod(0o444)
    with open_log(str(path), read_only=True) as reader:
        assert reader.head().size == 1


def test_another_writer_who_keeps_the_lock_is_reported(path: Path) -> None:
    with open_log(str(path), create=True, busy_timeout_ms=20) as log:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LogBusyError) as caught:
            append(log)
        assert caught.value.code == "LOG_BUSY"
        other.execute("ROLLBACK")
        other.close()
        append(log)
        assert log.head().size == 1


def test_a_full_disk_loses_nothing_and_the_log_goes_on_afterwards(path: Path) -> None:
    with open_log(str(path), create=True) as log:
        append(log, 3)
        head = log.head()
        writer = log._store._writer  # type: ignore[attr-defined]
        pages = writer.execute("PRAGMA page_count").fetchone()[0]
        writer.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(StorageFullError) as caught:
            append(log, 1, size=100_000)
        assert caught.value.code == "STORAGE_FULL"
        assert log.head() == head
        assert len(list(log.read())) == 3
        writer.execute("PRAGMA max_page_count = 1000000")
        append(log, 1, size=100_000)
        assert log.head().size == 4
    with open_log(str(path)) as log:
        assert len(list(log.read())) == 4


def test_damaged_bytes_are_reported_as_damage(path: Path) -> None:
    with open_log(str(path), create=True) as log:
        append(log, 200, size=500)
    data = bytearray(path.read_bytes())
    for page in range(8, len(data) // 4096):
        data[page * 4096 : page * 4096 + 512] = b"\xa5" * 512
    path.write_bytes(data)
    with pytest.raises(DamagedLogError) as caught, open_log(str(path), read_only=True) as log:
        list(log.read())
    assert caught.value.code == "LOG_DAMAGED"


@pytest.mark.parametrize("keep", [1, 100, 4096, 10_000])
def test_a_file_cut_short_is_reported(path: Path, keep: int) -> None:
    with open_log(str(path), create=True) as log:
        append(log, 200, size=500)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises((DamagedLogError, RefusedError)) as caught, open_log(str(path), read_only=True) as log:
        list(log.read())
    assert caught.value.code in ("LOG_DAMAGED", "NOT_A_LOG", "LOG_GAP")


def test_a_log_replaced_by_an_older_copy_is_noticed_before_anything_is_appended(path: Path) -> None:
    with open_log(str(path), create=True) as log:
        append(log, 5)
        with sqlite3.connect(path) as database:
            database.execute("DELETE FROM wp_event WHERE id & 255 > 3")
            database.execute("DELETE FROM wp_head")
        database.close()
        with pytest.raises(DamagedLogError) as caught:
            append(log)
        assert caught.value.code == "LOG_SHRUNK"


def test_a_changed_tree_is_noticed_before_anything_is_appended(path: Path) -> None:
    with open_log(str(path), create=True) as log:
        append(log, 5)
        with sqlite3.connect(path) as database:
            database.execute("UPDATE wp_head SET root = zeroblob(32)")
        database.close()
        with pytest.raises(DamagedLogError) as caught:
            append(log)
        assert caught.value.code == "TREE_DAMAGED"
    with open_log(str(path)) as log, pytest.raises(DamagedLogError) as caught:
        append(log)
    assert caught.value.code == "TREE_DAMAGED"
