"""Logs in exported Parquet files, for reading only.

The statements of a log run on a private SQLite database, which SQLite keeps in a temporary file without a name and
which ends with the process. It has the tables of every store. Its rows of events come from the exported file, one row
group after the other as far as a statement needs them, and have no states: the temporary view ``wp_event``, which hides
the table, reads the state of an event from the file. Tree heads are those of the file; chunks of the tree follow from
the leaf hashes. The index is made in the same database when it is needed (``EventLog.derive_view``).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError, WorldProtocolError
from world.log.backends.parquet_files import EventsFile
from world.log.backends.sqlite import SqliteStore
from world.log.merkle import Chunk, Frontier
from world.log.migration import find_log
from world.log.sql.queries import HIGH, LOW, events_query
from world.log.sql.statement import POSITION_MASK, SqlStatement
from world.log.store import LockedQuery, Opening, Row, key_range
from world.log.url import MEMORY

_VIEW: Final = (
    "CREATE TEMP VIEW wp_event AS SELECT id, log_id, stream, version, topic, schema_version, leaf, "
    "exported_state(id) AS state FROM main.wp_event"
)
_EXPORTED: Final = ("wp_event", "wp_head", "wp_chunk")
"""Tables with rows from the file."""

_INSERT: Final = (
    "INSERT INTO main.wp_event (id, log_id, stream, version, topic, schema_version, leaf, state) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, '')"
)


class ParquetStore(SqliteStore):
    """A folder of exported tables with one log, open for reading.

    Args:
        folder: the folder; see ``EventsFile``, also for errors.
    """

    derives_views = True

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._events = EventsFile(Path(folder))
        self._failure: WorldProtocolError | None = None
        self._loaded = 0  # row groups
        self._tree = Frontier()
        self._head = 0  # size of the last tree head
        try:
            super().__init__(MEMORY, read_only=False, create=True, durability="normal", busy_timeout_ms=0)
            self._log_id = find_log(self, self._events.exported.name, create=True)
            self._own().execute(_VIEW)
        except BaseException:
            self._events.close()
            raise
        exported = self._events.exported
        self._dense = {events_query(self.backend).sql, self.sql.audit.sql}
        self._last: list[Row] = [(exported.size or None, bytes.fromhex(exported.root), exported.size or None)]
        self.read_only = True

    def _connect_once(self) -> sqlite3.Connection:
        connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        connection.create_function("exported_state", 1, self._state, deterministic=True)
        return connection

    def describe(self) -> str:
        """Return the folder."""
        return self._folder

    def select(self, statement: SqlStatement, **values: Any) -> list[Row]:
        """See ``Store.select``; the rows that a statement can reach are read from the file first."""
        self._load(self._reach(statement, values))
        return super().select(statement, **values)

    def newest_head(self, log_id: int) -> list[Row]:
        """See ``Store.newest_head``; the metadata of the file have it."""
        return self._last

    def begin(
        self, log_id: int, known: int, questions: Sequence[LockedQuery] = (), *, is_unit: bool = False
    ) -> Opening:
        """See ``Store.begin``; what is written is the index of this process."""
        self._load(self._events.exported.size)
        return super().begin(log_id, known, questions, is_unit=is_unit)

    def translate(self, error: Exception) -> Exception:
        """See ``Store.translate``; SQLite does not say why a state could not be read."""
        failure, self._failure = self._failure, None
        return super().translate(error) if failure is None else failure

    def probe(self, log_id: int, timeout_s: float) -> NoReturn:
        """See ``Store.probe``.

        Raises:
            RefusedError: ``LOG_READ_ONLY``.
        """
        raise RefusedError(ErrorCode.LOG_READ_ONLY, f"The tables in {self._folder} are never changed.")

    def problems(self, most: int) -> list[str]:
        """See ``Store.problems``; the private database is not the log."""
        return []

    def close(self) -> None:
        """See ``Store.close``."""
        super().close()
        self._events.close()

    def _reach(self, statement: SqlStatement, values: dict[str, Any]) -> int:
        """Return the position of the last event that a statement can need."""
        size = self._events.exported.size
        if not any(table in statement.sql for table in _EXPORTED):
            return 0
        if "key0" in values:
            return min(
                size, max(int(values[name]) & POSITION_MASK for name in statement.names if name.startswith("key"))
            )
        if HIGH not in values or "stream" in values or "wp_chunk" in statement.sql:
            return size
        last = int(values[HIGH]) & POSITION_MASK
        if statement.sql in self._dense:
            last = min(last, (int(values[LOW]) & POSITION_MASK) + int(values["count"]))
        return min(size, last)

    def _load(self, upto: int) -> None:
        """Read the row groups with the events up to a position, unless that was done."""
        with self._mutex:
            while (self._events.ends[self._loaded - 1] if self._loaded else 0) < upto:
                self._load_group(self._loaded)
                self._loaded += 1

    def _load_group(self, number: int) -> None:
        base, log_id = key_range(self._log_id)["base"], self._log_id
        events, leaves, heads = [], [], []
        head = self._head
        for position, *fields, leaf, root in self._events.rows(number):
            events.append((base + position, log_id, *fields, leaf))
            leaves.append(leaf)
            if root is not None:
                heads.append((base + position, root, head))
                head = position
        chunks: list[Chunk] = []
        tree = self._tree.extended(leaves, chunks)
        stored = [(base + one.index, one.root, one.frontier.to_bytes()) for one in chunks]
        writer = self._own()
        try:
            writer.execute("BEGIN")
            writer.executemany(_INSERT, events)
            writer.executemany(self.head_statement.sql, heads)
            writer.executemany(self.sql.insert_chunk.sql, stored)
            writer.execute("COMMIT")
        except (sqlite3.IntegrityError, OverflowError, UnicodeEncodeError) as error:
            raise DamagedLogError(
                ErrorCode.LOG_DAMAGED,
                f"{self._events.path} is damaged: two of its events have one place in a stream, or a value that no "
                "event has. Restore it from a copy, or export the log again.",
                path=str(self._events.path),
                reason=str(error),
            ) from None
        finally:
            self._abandon()
        self._tree, self._head = tree, head

    def _state(self, key: int) -> str:
        """Return the state of an event to SQLite."""
        try:
            return self._events.state(key & POSITION_MASK)
        except WorldProtocolError as error:
            self._failure = error
            raise
