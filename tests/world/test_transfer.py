"""A log goes from store to store with its events byte by byte and its tree heads; a damaged file leaves nothing."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.realms import BenchRealm
from tests.golden.garden import FOLDER, record
from world.audit.verify import verify
from world.errors import DamagedLogError, RefusedError
from world.log import open_log
from worldprotocol.api.realm import Realm
from worldprotocol.export.jsonl import export_log, import_log, read_heads
from worldprotocol.export.jsonl_lines import HEAD_EVERY

GOLDEN = (FOLDER / "garden.jsonl").read_bytes()
LINES = GOLDEN.splitlines(keepends=True)


def exported(address: str) -> bytes:
    out = io.BytesIO()
    with open_log(address, read_only=True) as log:
        export_log(log, out)
    return out.getvalue()


def refusal(content: bytes, address: str) -> RefusedError:
    with pytest.raises(RefusedError) as refused:
        import_log(io.BytesIO(content), address)
    return refused.value


@pytest.mark.requirement("CARD-log", "CARD-audit")
def test_an_import_has_the_same_events_and_the_same_head(shared_log_url: str, tmp_path: Path) -> None:
    with record(str(tmp_path / "first.db")) as world:
        events, head = list(world.log.read()), world.log.head()
        out = io.BytesIO()
        assert export_log(world.log, out) == head
    done = import_log(io.BytesIO(out.getvalue()), shared_log_url)
    assert (done.added, done.head, done.name) == (len(events), head, "main")
    with Realm.open_read_only(shared_log_url) as world:
        assert list(world.log.read()) == events
        assert world.log.head() == head
        assert verify(world.log, against=read_heads(io.BytesIO(out.getvalue()))).ok
    assert exported(shared_log_url).partition(b"\n")[2] == out.getvalue().partition(b"\n")[2]


@pytest.mark.slow
def test_tree_heads_stand_in_long_files_and_are_kept(tmp_path: Path) -> None:
    realm = BenchRealm(str(tmp_path / "long.db"), durability="normal")
    realm.grow(3 * HEAD_EVERY)
    realm.close()
    content = exported(str(tmp_path / "long.db"))
    heads = read_heads(io.BytesIO(content))
    assert len(heads) >= 2
    import_log(io.BytesIO(content), str(tmp_path / "copy.db"))
    with open_log(str(tmp_path / "copy.db"), read_only=True) as log:
        assert list(log.heads()) == heads


@pytest.mark.slow
def test_an_import_goes_on_where_the_log_is_a_beginning_of_the_file(tmp_path: Path) -> None:
    address = str(tmp_path / "world.db")
    realm = BenchRealm(address)
    realm.grow(100)
    first = exported(address)
    realm.grow(5_000)
    realm.close()
    second = exported(address)
    copy = str(tmp_path / "copy.db")
    import_log(io.BytesIO(first), copy)
    done = import_log(io.BytesIO(second), copy)
    assert 0 < done.added < done.head.size
    assert import_log(io.BytesIO(second), copy).added == 0
    assert exported(copy) == second
    assert refusal(first, copy).code == "LOG_NOT_EMPTY"
    assert refusal(GOLDEN, copy).code == "LOG_NOT_EMPTY"
    assert exported(copy) == second


def test_other_events_in_the_target_are_refused_and_left_alone(tmp_path: Path) -> None:
    address = str(tmp_path / "world.db")
    realm = BenchRealm(address)
    realm.close()
    before = exported(address)
    assert refusal(GOLDEN, address).code == "LOG_NOT_EMPTY"
    assert exported(address) == before


DAMAGED: dict[str, tuple[bytes, int | None]] = {
    "nothing": (b"", None),
    "no export": (b'{"hello":"world"}\n', 1),
    "no JSON": (LINES[0] + b"{\n", 2),
    "cut in a line": (GOLDEN[:-20], len(LINES)),
    "cut between lines": (b"".join(LINES[:-1]), None),
    "a changed state": (GOLDEN.replace(b'"what":"beans"', b'"what":"peas!"', 1), 15),
    "a changed leaf": (GOLDEN.replace(b'{"leaf":"', b'{"leaf":"0', 1), 2),
    "a line removed": (b"".join(LINES[:20] + LINES[21:]), 21),
    "lines swapped": (b"".join([*LINES[:20], LINES[21], LINES[20], *LINES[22:]]), 21),
    "a line twice": (b"".join([*LINES[:20], LINES[19], *LINES[20:]]), 21),
    "a changed head": (b"".join([*LINES[:-1], LINES[-1].replace(b'"root":"', b'"root":"0', 1)]), len(LINES)),
    "another head": (GOLDEN.replace(b'"size":141', b'"size":140'), len(LINES)),
    "more fields": (GOLDEN.replace(b'"version":1}\n', b'"version":1,"x":1}\n', 1), 2),
    "no text": (LINES[0] + b"\xff\xfe\n", 2),
}


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_file_is_refused_with_its_line_and_leaves_nothing_behind(tmp_path: Path, what: str) -> None:
    content, line = DAMAGED[what]
    refused = refusal(content, str(tmp_path / "world.db"))
    assert refused.code == "BAD_EXPORT"
    assert refused.details.get("line") == line, refused
    assert list(tmp_path.iterdir()) == []


def test_a_later_format_is_refused_as_such(tmp_path: Path) -> None:
    content = GOLDEN.replace(b'"format":1', b'"format":2', 1)
    assert refusal(content, str(tmp_path / "world.db")).code == "LOG_FORMAT"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.integers(0, len(GOLDEN) - 1), st.integers(1, 255))
def test_no_changed_byte_is_imported(tmp_path: Path, at: int, flip: int) -> None:
    content = bytearray(GOLDEN)
    content[at] ^= flip
    try:
        done = import_log(io.BytesIO(bytes(content)), str(tmp_path / "world.db"))
    except RefusedError as refused:
        why = refused
    else:  # the log's name is a remark, and JSON may be spaced in another way
        assert done.head == read_heads(LINES[-1:])[0]
        for path in tmp_path.iterdir():
            path.unlink()
        return
    assert why.code in ("BAD_EXPORT", "LOG_FORMAT")
    assert list(tmp_path.iterdir()) == []


def test_what_can_be_read_only_once_is_imported(tmp_path: Path) -> None:
    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self._rest = io.BytesIO(GOLDEN)

        def readable(self) -> bool:
            return True

        def seekable(self) -> bool:
            return False

        def readinto(self, buffer: Any) -> int:
            return self._rest.readinto(buffer)

    source: Any = Pipe()
    assert import_log(source, str(tmp_path / "world.db")).added == 141


def test_a_damaged_log_is_not_exported_as_sound(tmp_path: Path) -> None:
    import sqlite3

    address = str(tmp_path / "world.db")
    import_log(io.BytesIO(GOLDEN), address)
    database = sqlite3.connect(address)
    with database:
        database.execute("UPDATE wp_event SET topic = 'branch.created' WHERE version = 2 AND stream = 'realm'")
    database.close()
    with pytest.raises(DamagedLogError) as damaged:
        exported(address)
    assert damaged.value.details["position"] == 2


def test_heads_are_read_from_lines_of_either_form() -> None:
    head = read_heads(LINES[-1:])[0]
    assert read_heads([f"{head}\n".encode(), b"\n"]) == [head]
    assert read_heads(LINES) == [head]
    with pytest.raises(RefusedError):
        read_heads([b"something else\n"])
