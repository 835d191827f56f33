"""The exported table of events as a file: its metadata, its columns, and its row groups, each read when it is needed.

The file may come from anybody. What the footer says is compared with what this program writes before anything else is
read, and each row group must have the events that follow those of the group before. Whether they are the recorded ones
is left to the leaf hashes and tree heads, as for every log.
Requires pyarrow (extra ``sql``). Source: docs/sql.md; Apache Parquet 2.6, as pyarrow reads it.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow
import pyarrow.parquet

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.log.backends.exported_tables import METADATA, ExportedTable
from world.log.sql.statement import POSITION_MASK
from world.log.store import not_a_log
from world.log.url import is_log_name

__all__ = ["EVENTS_FILE", "TABLES_FOLDER", "EventsFile", "GroupRow"]

EVENTS_FILE: Final = "events.parquet"
TABLES_FOLDER: Final = "tables"
"""Folder with the tables in an archive."""

MAX_GROUP_BYTES: Final = 1 << 30
"""Most bytes of a row group before compression; the export ends a group after 16 million characters of text."""

_KEPT_GROUPS: Final = 2
_STATE: Final = "state"
_INTEGERS: Final = ("log_position", "version", "schema_version")
_TEXTS: Final = ("stream", "topic", "leaf", "tree_head", _STATE)
_BESIDE_STATE: Final = ("log_position", "stream", "version", "topic", "schema_version", "leaf", "tree_head")
_EXPORT_AGAIN: Final = "export the log again with this one (`worldctl export --format parquet`)"

GroupRow = tuple[int, str, int, str, int, bytes, bytes | None]
"""Position, stream, version, topic, schema version, leaf hash, and the root of the tree head stored after the event."""


class EventsFile:
    """The table of events in a folder; not safe to use from several threads at once.

    Args:
        folder: a folder of tables, or an archive with such a folder.

    Raises:
        RefusedError: ``LOG_NOT_FOUND`` without the folder, ``NOT_A_LOG`` for a folder without the table or with another
            file in its place, ``BAD_EXPORT`` for tables from which no log can be read.
        DamagedLogError: ``LOG_DAMAGED`` where the number of rows is not that of the events.
    """

    def __init__(self, folder: Path) -> None:
        self.path = _find(folder)
        self._file = _open_regular(self.path)
        try:
            with self._reading("its footer", is_footer=True):
                self._parquet = pyarrow.parquet.ParquetFile(self._file)
                self._groups = [self._parquet.metadata.row_group(n) for n in range(self._parquet.num_row_groups)]
            self.exported = self._metadata()
            self._check_footer()
        except BaseException:
            self._file.close()
            raise
        self._states: OrderedDict[int, list[str | None]] = OrderedDict()
        self._ends: list[int] = []
        for group in self._groups:
            self._ends.append((self._ends[-1] if self._ends else 0) + group.num_rows)

    @property
    def ends(self) -> Sequence[int]:
        """Position of the last event of each row group."""
        return self._ends

    def rows(self, group: int) -> Iterator[GroupRow]:
        """Yield the rows of a row group, without their states.

        Raises:
            DamagedLogError: ``LOG_GAP`` where they are not the events that follow; ``LOG_DAMAGED`` for what cannot be
                read.
        """
        columns = self._columns(group, _BESIDE_STATE)
        expected = self._ends[group - 1] if group else 0
        for position, stream, version, topic, schema_version, leaf, root in zip(*columns, strict=True):
            expected += 1
            if position != expected:
                raise DamagedLogError(
                    ErrorCode.LOG_GAP,
                    f"{self.path} has event {position} in the place of event {expected}: rows are missing, doubled or "
                    "in another order. Restore it from a copy, or export the log again.",
                    position=expected,
                )
            if None in (stream, version, topic, schema_version):
                raise self._damaged(f"event {position} has no stream, topic or version")
            yield position, stream, version, topic, schema_version, _hash(leaf), self._root(position, root)

    def state(self, position: int) -> str:
        """Return the state of an event; empty where it has none.

        Raises:
            DamagedLogError: ``LOG_DAMAGED``.
        """
        group = self._group_of(position)
        states = self._states.get(group)
        if states is None:
            while len(self._states) >= _KEPT_GROUPS:
                self._states.popitem(last=False)
            [states] = self._columns(group, (_STATE,))
            self._states[group] = states
        self._states.move_to_end(group)
        return states[position - 1 - (self._ends[group - 1] if group else 0)] or ""

    def close(self) -> None:
        """Close the file."""
        self._states.clear()
        self._file.close()

    def _root(self, position: int, root: str | None) -> bytes | None:
        """Return the root of a tree head; the metadata have the last one, since an archive may end within a commit."""
        if position < self.exported.size:
            return None if root is None else _hash(root)
        if root not in (None, self.exported.root):
            raise self._damaged(f"the tree head after event {position} is not that of its metadata")
        return bytes.fromhex(self.exported.root)

    def _group_of(self, position: int) -> int:
        return bisect_left(self._ends, position)

    def _columns(self, group: int, names: Sequence[str]) -> list[list[Any]]:
        if self._groups[group].total_byte_size > MAX_GROUP_BYTES:
            raise self._damaged(f"its row group {group} has more than {MAX_GROUP_BYTES} bytes")
        with self._reading(f"its row group {group}"):
            table = self._parquet.read_row_group(group, columns=list(names))
            columns = [table.column(name).to_pylist() for name in names]
        if any(len(column) != self._groups[group].num_rows for column in columns):
            raise self._damaged(f"its row group {group} has not the number of rows that its footer names")
        return columns

    def _metadata(self) -> ExportedTable:
        found: Mapping[bytes, bytes] = self._parquet.metadata.metadata or {}
        if METADATA.encode() not in found:
            raise self._unfit("its metadata do not name a log: it is no export of one")
        try:
            exported = msgspec.json.decode(found[METADATA.encode()], type=ExportedTable)
            is_root = len(bytes.fromhex(exported.root)) == 32
        except (msgspec.MsgspecError, ValueError):
            raise self._unfit(f"it is of an earlier release, or its metadata were changed; {_EXPORT_AGAIN}") from None
        is_span = 0 <= exported.after <= exported.size <= POSITION_MASK
        if exported.table != "events" or not is_root or not is_span or not is_log_name(exported.name):
            raise self._unfit("its metadata are not those of a table of events")
        return exported

    def _check_footer(self) -> None:
        types = {field.name: field.type for field in self._parquet.schema_arrow}
        for names, kind in ((_INTEGERS, pyarrow.int64()), (_TEXTS, pyarrow.string())):
            for name in names:
                if name not in types:
                    raise self._unfit(f"it has no column {name}, as exports of earlier releases; {_EXPORT_AGAIN}")
                if types[name] != kind:
                    raise self._unfit(f"its column {name} is of the type {types[name]}, not {kind}")
        exported = self.exported
        if exported.after:
            raise self._unfit(
                f"it begins after event {exported.after}, and a log is read from its first event on: import the "
                "archives and what follows them with `worldctl import`"
            )
        rows = sum(group.num_rows for group in self._groups)
        if rows != exported.size:
            raise self._damaged(f"it has {rows} rows, and its metadata name {exported.size} events")

    @contextmanager
    def _reading(self, what: str, *, is_footer: bool = False) -> Iterator[None]:
        """Raise the error of this program for whatever pyarrow says about a file."""
        try:
            yield
        except (pyarrow.ArrowException, OSError, ValueError, OverflowError, KeyError) as error:
            reason = " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
            if is_footer:
                raise not_a_log(str(self.path), f"it cannot be read as Parquet ({reason})") from None
            raise self._damaged(f"{what} cannot be read ({reason})") from None

    def _unfit(self, clause: str) -> RefusedError:
        return RefusedError(
            ErrorCode.BAD_EXPORT, f"{self.path} cannot be read as a log: {clause}.", path=str(self.path)
        )

    def _damaged(self, clause: str) -> DamagedLogError:
        return DamagedLogError(
            ErrorCode.LOG_DAMAGED,
            f"{self.path} is damaged: {clause}. Restore it from a copy, or export the log again.",
            path=str(self.path),
        )


def _hash(text: str | None) -> bytes:
    """Return a hash in hex as bytes; what is none equals no hash."""
    try:
        return bytes.fromhex(text or "")
    except ValueError:
        return b""


def _find(folder: Path) -> Path:
    """Return the file of events in a folder of tables, or in the tables of an archive."""
    try:
        is_folder = stat.S_ISDIR(os.stat(folder).st_mode)
        inner = folder / TABLES_FOLDER / EVENTS_FILE
        if is_folder and not (folder / EVENTS_FILE).exists() and inner.exists():
            return inner
    except FileNotFoundError:
        raise RefusedError(
            ErrorCode.LOG_NOT_FOUND,
            f"There is no folder {folder}. Check the path; `worldctl export --format parquet` writes the tables.",
            is_only_read=True,
        ) from None
    except OSError as error:
        raise RefusedError(ErrorCode.LOG_UNAVAILABLE, f"{folder} cannot be reached: {error.strerror}.") from None
    if not is_folder:
        raise not_a_log(str(folder), f"it is no folder; give the one with {EVENTS_FILE}")
    return folder / EVENTS_FILE


def _open_regular(path: Path) -> Any:
    """Open a file for reading; what is no regular file is refused and not waited for."""
    try:
        file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    except FileNotFoundError:
        reason = f"it has no {EVENTS_FILE}; `worldctl export --format parquet` writes the tables"
        raise not_a_log(str(path.parent), reason) from None
    except IsADirectoryError:
        raise not_a_log(str(path), "it is no regular file") from None
    except OSError as error:
        raise RefusedError(ErrorCode.LOG_UNAVAILABLE, f"{path} cannot be opened: {error.strerror}.") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise not_a_log(str(path), "it is no regular file")
    return file
