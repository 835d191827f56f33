"""Parquet files of the tables of a log, one a table, written in bounded memory.

The metadata of each file (``worldProtocol``) names the log and the tree head of the events in the tables. The table of
events can be read and verified as a log (``world.log.backends.parquet``); the others prove nothing by themselves.
Requires pyarrow (extra ``sql``). Source: Apache Parquet 2.6, as pyarrow writes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.extras import missing_extra
from world.log import EventLog, LoggedEvent, TreeHead
from world.log.backends.exported_tables import METADATA, ExportedTable
from world.private_files import open_private
from world.read_models.decoding import log_id_of
from world.read_models.live.sealed_snapshot import kept_events, open_snapshot
from worldprotocol.export.jsonl_lines import Progress, damaged_head
from worldprotocol.export.tables.columns import TABLES, Column, ColumnKind
from worldprotocol.export.tables.rows import Row, TableRows

if TYPE_CHECKING:
    import pyarrow

__all__ = ["check_packages", "export_tables", "file_of", "has_packages"]

PACKAGES: Final = ("pyarrow", "duckdb")

GROUP_ROWS: Final = 20_000
"""Most rows of a row group."""

GROUP_BYTES: Final = 16_000_000
"""Characters in the texts of a row group after which it is written, whatever its rows."""


def file_of(folder: Path, table: str) -> Path:
    """Return the file of a table in a folder of tables."""
    return folder / f"{table}.parquet"


def export_tables(
    log: EventLog,
    folder: Path,
    *,
    after: int = 0,
    upto: int | None = None,
    tables: Collection[str] = tuple(TABLES),
    force: bool = False,
    progress: Progress | None = None,
) -> TreeHead:
    """Write the tables of a log into a folder; the files are put in place together, after the last event.

    Args:
        log: the log.
        folder: the folder; it is created.
        after: position of an event; only the rows that events after it complete are written.
        upto: position of the last event; None is the end of the log, as it is at the start.
        tables: those that get rows; the files of the others are empty, and only what rows are made of is read.
        force: replace the files of an earlier export.
        progress: called with the number of events that were read, and their total.

    Returns:
        The tree head of the events in the tables, computed from their leaf hashes where the table of events has rows.

    Raises:
        RefusedError: ``INVALID_TARGET`` for files that are there, and for a folder that cannot be written;
            ``NOT_LOADED`` without pyarrow; ``EVENT_ARCHIVED`` for rows of events before the cut of a log; from the
            position of the cut on (``archived_upto``) they can be written.
        DamagedLogError: the first event that is not as it was recorded, or a tree head of another root.
    """
    check_packages()
    targets = {table: file_of(folder, table) for table in TABLES}
    for target in targets.values():
        if target.exists() and not force:
            raise RefusedError(
                ErrorCode.INVALID_TARGET, f"{target} is there already; --force replaces it.", path=str(target)
            )
    parts = {table: target.with_name(target.name + ".part") for table, target in targets.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        rows = TableRows(tables)
        head = _write(log, parts, (after, log.head().size if upto is None else upto), rows, progress)
        for table, part in parts.items():
            part.replace(targets[table])
    except OSError as error:
        raise RefusedError(
            ErrorCode.INVALID_TARGET, f"{folder} cannot be written: {error.strerror}.", path=str(folder)
        ) from None
    finally:
        for part in parts.values():
            with suppress(OSError):  # it was not written
                part.unlink()
    return head


def has_packages() -> bool:
    """Return whether the packages of the extra ``sql`` are installed."""
    return all(find_spec(package) is not None for package in PACKAGES)


def check_packages() -> None:
    """Refuse to go on without the packages of the extra ``sql``.

    Raises:
        RefusedError: ``NOT_LOADED``, with how to install them.
    """
    for package in PACKAGES:
        if find_spec(package) is None:
            raise missing_extra("Tables of the log", package, "sql")


def _write(
    log: EventLog, parts: Mapping[str, Path], span: tuple[int, int], rows: TableRows, progress: Progress | None
) -> TreeHead:
    last, is_whole = log.head(), rows.topics is None
    after, size = span
    snapshot = open_snapshot(log)
    start = snapshot.upto if snapshot is not None and snapshot.upto <= after else 0
    if size < start:
        raise RefusedError(
            ErrorCode.EVENT_ARCHIVED,
            f"The contents of events 1 to {start} were removed from this log, so there are no tables of the log as it "
            f"was at event {size}. Import the archives into another log with `worldctl import` and ask there, or give "
            "the contents back with `worldctl cut ARCHIVE... --undo`.",
            position=size,
        )
    frontier = log.frontier(start if is_whole else 0)
    if snapshot is not None and start:
        for logged in kept_events(log, snapshot):
            deque(rows.of_event(logged), maxlen=0)
    with ExitStack() as stack:
        writers = {table: stack.enter_context(_writer(part, table)) for table, part in parts.items()}
        for batch in log.read_rows(start, size, topics=rows.topics):
            made = chain.from_iterable(rows.of_event(LoggedEvent(*one)) for one in batch)
            for table, row in _with_heads(log, batch, made) if is_whole else made:
                if row.get("log_position", size) > after and row.get("ended_position", size) > after:
                    writers[table].add(row)
            if is_whole:
                frontier = frontier.extended(one[6] for one in batch)
            if progress is not None:
                progress(batch[-1][0], size)
        head = TreeHead(size, frontier.root()) if is_whole else log.root_at(size)
        if size == last.size and head.root != last.root:
            raise damaged_head(last)
        for table, row in rows.of_open():
            writers[table].add(row)
        for table, writer in writers.items():
            writer.describe(_metadata(log, after, head, table))
    return head


def _with_heads(log: EventLog, batch: Sequence[tuple[Any, ...]], rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows of a batch of events, those of events with the tree head that was stored after each."""
    roots = {one.size: one.root_hex for one in log.heads(batch[0][0] - 1, batch[-1][0])}
    for table, row in rows:
        yield table, {**row, "tree_head": roots.get(row["log_position"])} if table == "events" else row


def _metadata(log: EventLog, after: int, head: TreeHead, table: str) -> str:
    log_id = log_id_of(log) if head.size else None
    return msgspec.json.encode(ExportedTable(log_id, log.name, after, head.size, head.root_hex, table)).decode()


@contextmanager
def _writer(part: Path, table: str) -> Iterator[_TableWriter]:
    import pyarrow.parquet

    schema = _schema(TABLES[table])
    with (
        open_private(part, replaces=part.with_suffix("")) as file,
        pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as out,
    ):
        writer = _TableWriter(TABLES[table], schema, out)
        yield writer
        writer.flush()


class _TableWriter:
    """Collects the rows of one table and writes them as row groups."""

    def __init__(self, columns: tuple[Column, ...], schema: pyarrow.Schema, out: Any) -> None:
        self._columns, self._schema, self._out = columns, schema, out
        self._texts = [one.name for one in columns if one.kind in ("text", "json")]
        self._rows: list[Mapping[str, Any]] = []
        self._size = 0

    def add(self, row: Mapping[str, Any]) -> None:
        self._rows.append(row)
        self._size += sum(len(row.get(name) or "") for name in self._texts)
        if len(self._rows) >= GROUP_ROWS or self._size >= GROUP_BYTES:
            self.flush()

    def describe(self, metadata: str) -> None:
        self._out.add_key_value_metadata({METADATA: metadata})

    def flush(self) -> None:
        if not self._rows:
            return
        import pyarrow

        arrays = [
            pyarrow.array([row.get(one.name) for row in self._rows], type=field.type)
            for one, field in zip(self._columns, self._schema, strict=True)
        ]
        self._out.write_table(pyarrow.Table.from_arrays(arrays, schema=self._schema))
        self._rows, self._size = [], 0


def _schema(columns: tuple[Column, ...]) -> pyarrow.Schema:
    import pyarrow

    types: Mapping[ColumnKind, Any] = {
        "text": pyarrow.string(),
        "json": pyarrow.string(),
        "integer": pyarrow.int64(),
        "time": pyarrow.timestamp("ms", tz="UTC"),
        "flag": pyarrow.bool_(),
        "texts": pyarrow.list_(pyarrow.string()),
    }
    return pyarrow.schema([pyarrow.field(one.name, types[one.kind]) for one in columns])
