"""Logs read from exported Parquet files: all that the SQLite log has, and a clear answer for whatever is wrong."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from tests.golden.generate import FORGED
from world.audit.replay import replay
from world.audit.verify import VerificationReport, verify
from world.errors import DamagedLogError, RefusedError, WorldProtocolError
from world.log import EventLog, LoggedEvent, NewEvent, event_leaf, list_logs, open_log
from world.read_models.archive import Archive
from world.read_models.index import WorldIndex
from worldprotocol.export.jsonl import import_log
from worldprotocol.export.tables import parquet
from worldprotocol.export.tables.parquet import export_tables

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
LOGS = sorted(path.stem for path in GOLDEN.glob("*.jsonl") if path.stem != FORGED)
GROUP = 16
"""Rows of a row group in these tests, so that a small log has many."""


def address(folder: Path) -> str:
    """Return the address of a log in a folder of tables."""
    return f"parquet:///{folder}"


def opened(folder: Path) -> EventLog:
    """Open the log in a folder of tables, as the commands do."""
    return open_log(address(folder), read_only=True, view=WorldIndex())


def make(folder: Path, name: str = "garden", log_name: str = "main") -> Path:
    """Store a golden log in a SQLite file, in many commits, export its tables, and return their folder."""
    with (GOLDEN / f"{name}.jsonl").open("rb") as lines:
        import_log(lines, str(folder / "golden.db"))
    with (
        open_log(str(folder / "golden.db"), read_only=True) as golden,
        open_log(f"{folder / 'w.db'}#{log_name}", create=True, view=WorldIndex()) as log,
    ):
        for events in golden.read_rows(batch=7):
            log.insert_events(
                [
                    NewEvent(stream, topic, schema, state, version)
                    for _, stream, version, topic, schema, state, _ in events
                ]
            )
        assert log.head() == golden.head()
        export_tables(log, folder / "tables")
    return folder / "tables"


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tables of a golden log, in many row groups."""
    monkeypatch.setattr(parquet, "GROUP_ROWS", GROUP)
    return make(tmp_path)


def content(log: EventLog) -> tuple[Any, ...]:
    """Return what an audit reads of a log: events, heads, chunks of the tree, order of streams."""
    return (
        list(log.read()),
        list(log.heads()),
        log.audit_chunks(-1, 1000),
        log.audit_rows(0, 1 << 20),
        log.audit_streams(100),
        log.audit_heads(100),
        log.head(),
    )


def wire(report: VerificationReport) -> dict[str, Any]:
    """Return a report without what it says about a stored index, of which Parquet files have none."""
    return {name: value for name, value in report.to_wire().items() if name != "index"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == "garden" else pytest.mark.slow) for n in LOGS])
@pytest.mark.requirement("CARD-log", "CARD-audit")
def test_the_tables_have_all_that_the_log_has(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", GROUP)
    tables = make(tmp_path, name)
    with open_log(str(tmp_path / "w.db"), read_only=True, view=WorldIndex()) as stored, opened(tables) as log:
        size = log.head().size
        for position in (size, 1, size // 2):
            assert log.event_at(position) == stored.event_at(position)
        assert content(log) == content(stored)
        assert list(log.read(topics=["world.sealed", "decision.made"])) == list(
            stored.read(topics=["world.sealed", "decision.made"])
        )
        for stream in {event.stream for event in stored.read()}:
            assert log.stream(stream) == stored.stream(stream)
            assert log.stream(stream, limit=2, descending=True) == stored.stream(stream, limit=2, descending=True)
        assert list(log.events_at([1, 2, size])) == list(stored.events_at([1, 2, size]))
        assert replay(log) == replay(stored)
        assert wire(verify(log)) == wire(verify(stored))
        assert log.prove_inclusion(size // 2) == stored.prove_inclusion(size // 2)
        assert log.prove_consistency(size // 2) == stored.prove_consistency(size // 2)
        here, there = Archive(log), Archive(stored)
        for rows in ("worlds_upto", "branches", "open_proposals", "landmarks", "ended_counts", "settings"):
            values = {
                "worlds_upto": {"upto": size, "most": 1000},
                "ended_counts": {"upto": size},
            }.get(rows)
            assert here.rows(rows, values) == there.rows(rows, values)
        here.check_complete()
        assert verify(log).index == "whole"  # made by this process
        assert verify(log).ok


def test_opening_and_reading_one_event_read_no_more_than_its_row_group(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    original = pyarrow.parquet.ParquetFile.read_row_group

    def noted(file: Any, group: int, **options: Any) -> Any:
        read.append(group)
        return original(file, group, **options)

    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "read_row_group", noted)
    with open_log(address(tables), read_only=True) as log:
        assert log.head().size > 4 * GROUP
        assert read == []
        log.event_at(GROUP + 1)
        assert set(read) == {0, 1}
        read.clear()
        assert len(list(log.read(GROUP, 2 * GROUP))) == GROUP
        assert read == []  # they are kept
        read.clear()
        list(log.read())
        assert len(read) == 2 * (-(-log.head().size // GROUP) - 2) + 1  # the states of the first group again


def test_the_name_of_the_log_is_that_of_the_export(tmp_path: Path) -> None:
    tables = make(tmp_path, log_name="audit")
    assert list_logs(address(tables)) == ["audit"]
    with pytest.raises(RefusedError, match=r"holds no log named 'main' \(it holds: audit\)"):
        opened(tables)
    with open_log(f"{address(tables)}#audit", read_only=True) as log:
        assert log.name == "audit"
        assert str(log.address) == f"{address(tables)}#audit"


@pytest.mark.parametrize("options", [{}, {"create": True}])
def test_writing_is_refused(tables: Path, options: dict[str, Any]) -> None:
    with pytest.raises(RefusedError, match="are only read; nothing can be appended") as caught:
        open_log(address(tables), **options)
    assert caught.value.code == "LOG_READ_ONLY"
    with opened(tables) as log, pytest.raises(RefusedError, match="read only"), log.write():
        pytest.fail("it was written")
    before = {path: path.read_bytes() for path in tables.iterdir()}
    with opened(tables) as log:
        Archive(log).rows("branches")
        with pytest.raises(RefusedError, match="read only"):
            log.set_contents([(1, "")])
    assert {path: path.read_bytes() for path in tables.iterdir()} == before


@pytest.mark.parametrize("text", ["parquet:///", "parquet://host/x", "parquet+x:///x", "parquet:///x?y=1"])
def test_another_form_of_the_address_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match="parquet:///path") as caught:
        open_log(text, read_only=True)
    assert caught.value.code == "INVALID_ADDRESS"


def test_an_archive_is_read_from_its_tables(tables: Path) -> None:
    with opened(tables) as log, opened(tables.parent) as other:  # as an archive, it has them in the folder `tables`
        assert content(log) == content(other)


def test_tables_that_end_within_a_commit_end_with_the_head_of_their_metadata(tmp_path: Path) -> None:
    make(tmp_path)
    with open_log(str(tmp_path / "w.db"), read_only=True) as stored:
        sizes = {head.size for head in stored.heads()}
        upto = next(size for size in range(60, 100) if size not in sizes)
        head = export_tables(stored, tmp_path / "first", upto=upto)
        assert head == stored.root_at(upto)
        with opened(tmp_path / "first") as log:
            assert log.head() == head
            assert wire(verify(log))["findings"] == []
            assert list(log.read()) == list(stored.read(upto=upto))


def test_tables_that_begin_later_are_refused(tmp_path: Path) -> None:
    make(tmp_path)
    with open_log(str(tmp_path / "w.db"), read_only=True) as stored:
        export_tables(stored, tmp_path / "second", after=50)
    with pytest.raises(
        RefusedError, match="begins after event 50, and a log is read from its first event on"
    ) as caught:
        opened(tmp_path / "second")
    assert caught.value.code == "BAD_EXPORT"


# Damage


@dataclass(frozen=True)
class Rewritten:
    """The file of events, to be written again with a change and otherwise as it was."""

    folder: Path

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / "events.parquet"

    def __call__(self, change: Callable[[pyarrow.Table], pyarrow.Table] = lambda table: table, **metadata: Any) -> None:
        table = pyarrow.parquet.read_table(self.path)
        known = json.loads(pyarrow.parquet.read_metadata(self.path).metadata[b"worldProtocol"])
        changed = {name: value for name, value in (known | metadata).items() if value is not Ellipsis}
        made = change(table).replace_schema_metadata({"worldProtocol": json.dumps(changed)})
        pyarrow.parquet.write_table(made, self.path, row_group_size=GROUP)

    def set(self, column: str, position: int, value: Any) -> None:
        """Change one cell."""
        self(lambda table: with_cell(table, column, position, value))


def with_cell(table: pyarrow.Table, column: str, position: int, value: Any) -> pyarrow.Table:
    """Return a table with another value in one cell."""
    values = table.column(column).to_pylist()
    values[position - 1] = value
    at = table.schema.get_field_index(column)
    return table.set_column(at, table.schema.field(at), pyarrow.array(values, type=table.schema.field(at).type))


@pytest.fixture
def rewrite(tables: Path) -> Rewritten:
    """The file of events in the tables."""
    return Rewritten(tables)


def codes(folder: Path) -> list[tuple[str, int]]:
    """Return code and position of what a verification finds."""
    with opened(folder) as log:
        return [(one.code, one.position) for one in verify(log).findings]


@pytest.mark.requirement("CARD-audit")
def test_a_change_of_any_recorded_column_is_found_at_its_event(rewrite: Rewritten) -> None:
    rewrite()
    assert codes(rewrite.folder) == []
    with opened(rewrite.folder) as log:
        event = log.event_at(40)
    original = rewrite.path.read_bytes()
    for column, value in (
        ("state", event.state.decode().replace('"at":', '"At":')),
        ("state", None),
        ("state", "nothing"),
        ("stream", "another"),
        ("version", 77),
        ("topic", "world.sealed"),
        ("schema_version", 2),
        ("schema_version", 1 << 62),
        ("leaf", "00" * 32),
        ("leaf", None),
        ("leaf", "no hash"),
    ):
        rewrite.set(column, 40, value)
        assert ("EVENT_CHANGED", 40) in codes(rewrite.folder), column
        rewrite.path.write_bytes(original)


def test_an_event_that_was_changed_with_its_leaf_is_found_by_the_tree_heads(rewrite: Rewritten) -> None:
    with opened(rewrite.folder) as log:
        event = log.event_at(40)
        last = log.head().size
        first = max(head.size for head in log.heads() if head.size < 40) + 1
    state = event.state.replace(b'"at":1', b'"at":2')
    assert state != event.state
    rewrite.set("state", 40, state.decode())
    leaf = event_leaf(event.stream, event.version, event.topic, event.schema_version, state)
    rewrite.set("leaf", 40, leaf.hex())
    assert ("TREE_MISMATCH", first) in codes(rewrite.folder)
    rewrite.set("tree_head", last, None)  # the metadata have it
    assert ("TREE_MISMATCH", first) in codes(rewrite.folder)


def test_a_changed_tree_head_is_found(rewrite: Rewritten) -> None:
    with opened(rewrite.folder) as log:
        sizes = [head.size for head in log.heads()]
    rewrite.set("tree_head", sizes[5], "00" * 32)
    assert codes(rewrite.folder) == [("HEAD_CHANGED", sizes[5])]
    rewrite.set("tree_head", sizes[5], "none")
    assert codes(rewrite.folder) == [("HEAD_CHANGED", sizes[5])]
    rewrite.set("tree_head", sizes[-1], "00" * 32)
    with pytest.raises(DamagedLogError, match="is not that of its metadata"):
        codes(rewrite.folder)
    rewrite(lambda table: with_cell(table, "tree_head", sizes[-1], "00" * 32), root="00" * 32)
    assert "TREE_MISMATCH" in {code for code, _ in codes(rewrite.folder)}


def order(*groups: range) -> Callable[[pyarrow.Table], pyarrow.Table]:
    """Return the change that leaves these rows in this order."""
    return lambda table: table.take([row for group in groups for row in group])


@pytest.mark.parametrize("is_counted", [True, False])
@pytest.mark.parametrize(
    ("rows", "position"),
    [
        ([range(39), range(40, 141)], 40),
        ([range(40), range(39, 141)], 41),
        ([range(GROUP), range(2 * GROUP, 3 * GROUP), range(GROUP, 2 * GROUP), range(3 * GROUP, 141)], GROUP + 1),
        ([range(1, 141)], 1),
    ],
)
def test_missing_doubled_and_moved_rows_are_refused(
    rewrite: Rewritten, rows: list[range], position: int, is_counted: bool
) -> None:
    count = sum(map(len, rows))
    rewrite(order(*rows), **({"size": count} if is_counted else {}))
    with pytest.raises(DamagedLogError) as caught:
        codes(rewrite.folder)
    if is_counted or count == 141:
        assert (caught.value.code, caught.value.details["position"]) == ("LOG_GAP", position)
    else:
        assert f"has {count} rows, and its metadata name 141 events" in caught.value.message


def test_two_events_at_one_place_of_a_stream_are_refused(rewrite: Rewritten) -> None:
    with opened(rewrite.folder) as log:
        one = next(event for event in log.read() if event.version == 2)
    rewrite.set("version", one.position, 1)
    with pytest.raises(DamagedLogError, match="two of its events have one place in a stream"):
        codes(rewrite.folder)


@pytest.mark.parametrize(("column", "value"), [("stream", None), ("topic", None), ("version", None)])
def test_an_event_without_its_place_is_refused(rewrite: Rewritten, column: str, value: Any) -> None:
    rewrite.set(column, 40, value)
    with pytest.raises(DamagedLogError, match="event 40 has no stream, topic or version"):
        codes(rewrite.folder)


@pytest.mark.parametrize("column", ["log_position", "stream", "version", "topic", "schema_version", "leaf", "state"])
def test_a_column_of_another_type_is_refused(rewrite: Rewritten, column: str) -> None:
    def change(table: pyarrow.Table) -> pyarrow.Table:
        at = table.schema.get_field_index(column)
        other = pyarrow.binary() if table.schema.field(at).type == pyarrow.string() else pyarrow.string()
        return table.set_column(at, pyarrow.field(column, other), table.column(column).cast(other))

    rewrite(change)
    with pytest.raises(RefusedError, match=f"its column {column} is of the type") as caught:
        opened(rewrite.folder)
    assert caught.value.code == "BAD_EXPORT"


@pytest.mark.parametrize(
    ("drop", "metadata", "reason"),
    [
        (["tree_head"], {}, "it has no column tree_head, as exports of earlier releases; export the log again"),
        (["tree_head"], {"name": ..., "after": ...}, "it is of an earlier release, or its metadata were changed"),
        ([], {"size": "x"}, "it is of an earlier release, or its metadata were changed"),
        ([], {"root": "x"}, "it is of an earlier release, or its metadata were changed"),
        ([], {"root": "00"}, "its metadata are not those of a table of events"),
        ([], {"table": "worlds"}, "its metadata are not those of a table of events"),
        ([], {"after": 500}, "its metadata are not those of a table of events"),
        ([], {"name": "../x y"}, "its metadata are not those of a table of events"),
    ],
)
def test_another_export_is_refused(rewrite: Rewritten, drop: list[str], metadata: dict[str, Any], reason: str) -> None:
    rewrite(lambda table: table.drop_columns(drop), **metadata)
    with pytest.raises(RefusedError, match=reason) as caught:
        opened(rewrite.folder)
    assert caught.value.code == "BAD_EXPORT"


def test_a_file_without_our_metadata_is_refused(rewrite: Rewritten) -> None:
    table = pyarrow.parquet.read_table(rewrite.path)
    pyarrow.parquet.write_table(table.replace_schema_metadata(None), rewrite.path)
    with pytest.raises(RefusedError, match="its metadata do not name a log"):
        opened(rewrite.folder)


def test_what_is_no_folder_of_tables_is_refused(tables: Path, tmp_path: Path) -> None:
    file, empty = tables / "events.parquet", tmp_path / "empty"
    empty.mkdir()
    refusals: list[tuple[Path, str, str]] = [
        (tmp_path / "none", "LOG_NOT_FOUND", "There is no folder"),
        (empty, "NOT_A_LOG", "it has no events.parquet"),
        (file, "NOT_A_LOG", "it is no folder"),
    ]
    data = file.read_bytes()
    for name, made in (("cut", data[: len(data) // 2]), ("nothing", b""), ("text", b"{}"), ("end", data[:-1])):
        (tmp_path / name).mkdir()
        (tmp_path / name / file.name).write_bytes(made)
        refusals.append((tmp_path / name, "NOT_A_LOG", "it cannot be read as Parquet"))
    for name, place in (("fifo", os.mkfifo), ("folder", os.mkdir)):
        (tmp_path / name).mkdir()
        place(tmp_path / name / file.name)
        refusals.append((tmp_path / name, "NOT_A_LOG", "it is no regular file"))
    for folder, code, reason in refusals:
        with pytest.raises(RefusedError, match=reason) as caught:
            opened(folder)
        assert caught.value.code == code


def altered(data: bytes, seed: int) -> bytes:
    """Return bytes of which one is another."""
    drawn = random.Random(seed)
    at = drawn.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << drawn.randrange(8))]) + data[at + 1 :]


@pytest.mark.requirement("CARD-audit")
def test_any_changed_byte_is_refused_or_found_or_concerns_no_event(rewrite: Rewritten) -> None:
    original = rewrite.path.read_bytes()
    with opened(rewrite.folder) as log:
        events, head = list(log.read()), log.head()
    sound, seeds = 0, 150
    for seed in range(seeds):
        rewrite.path.write_bytes(altered(original, seed))
        try:
            with opened(rewrite.folder) as log:
                report = verify(log)
                found: list[LoggedEvent] = list(log.read()) if report.ok else []
        except WorldProtocolError as error:
            assert error.message  # noqa: PT017
            continue
        assert report.findings or (found, report.head) == (events, head), seed
        sound += report.ok
    assert 0 < sound < seeds
