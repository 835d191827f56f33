"""The tables of a store, in SQLAlchemy Core.

Events, heads and chunks have one 64-bit key, ``log_id << 40 | position`` (the size, the chunk's index): one
B-tree per table on SQLite, where the key is the row id, and one index on PostgreSQL. The view
``world_events`` shows everything with plain positions and hashes in hex to people and their tools. See
docs/reference/log-format.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects.postgresql import TEXT as PG_TEXT
from sqlalchemy.schema import CreateIndex, CreateTable, DropTable

from world.log.sql.statement import CLOCK_TABLE, LOG_SHIFT, POSITION_MASK, SNAPSHOT_TABLE, STORE_TABLE, dialect
from world.log.url import Backend

METADATA: Final = MetaData()

_Key = BigInteger().with_variant(Integer(), "sqlite")
_Name = Text().with_variant(PG_TEXT(collation="C"), "postgresql")

STORE: Final = Table(
    STORE_TABLE,
    METADATA,
    Column("format", Text, primary_key=True),
    Column("version", Integer, nullable=False),
    sqlite_strict=True,
)
LOGS: Final = Table(
    "wp_log",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("name", _Name, nullable=False, unique=True),
    sqlite_autoincrement=True,
    sqlite_strict=True,
)
EVENTS: Final = Table(
    "wp_event",
    METADATA,
    Column("id", _Key, primary_key=True, autoincrement=False),
    Column("log_id", Integer, nullable=False),
    Column("stream", _Name, nullable=False),
    Column("version", Integer, nullable=False),
    Column("topic", _Name, nullable=False),
    Column("schema_version", Integer, nullable=False),
    Column("leaf", LargeBinary, nullable=False),
    Column("state", Text, nullable=False),
    CheckConstraint(f"id >> {LOG_SHIFT} = log_id", name="wp_event_key"),
    UniqueConstraint("log_id", "stream", "version", name="wp_event_stream"),
    sqlite_strict=True,
)
HEADS: Final = Table(
    "wp_head",
    METADATA,
    Column("id", _Key, primary_key=True, autoincrement=False),
    Column("root", LargeBinary, nullable=False),
    Column("before", _Key),  # size of the head before, 0 for the first; NULL in heads of earlier releases
    sqlite_strict=True,
)
CHUNKS: Final = Table(
    "wp_chunk",
    METADATA,
    Column("id", _Key, primary_key=True, autoincrement=False),
    Column("root", LargeBinary, nullable=False),
    Column("frontier", LargeBinary, nullable=False),
    sqlite_strict=True,
)
VIEWS: Final = Table(
    "wp_view",
    METADATA,
    Column("log_id", Integer, primary_key=True, autoincrement=False),
    Column("name", _Name, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("position", _Key),  # NULL: kept up to date with every commit
    sqlite_strict=True,
)

BESIDE: Final = MetaData()
"""Tables beside the logs that are no part of them: what they hold is not proven, exported or restored."""

CLOCKS: Final = Table(
    CLOCK_TABLE,
    BESIDE,
    Column("log_id", Integer, primary_key=True, autoincrement=False),
    Column("size", _Key, nullable=False),
    Column("boot_id", Text, nullable=False),
    Column("boot_ms", _Key, nullable=False),
    Column("recorded_ms", _Key, nullable=False),
    sqlite_strict=True,
)
"""On SQLite: the clocks at the last commit of each log, and how many events the log had then.

A commit without clocks, as of an import, has a row with an empty boot id, so that a missing row was deleted. Where a
commit recorded an earlier time than the one before it, the row of the negative log id has the clocks of the commit with
the greatest time; it counts as long as that time is later than the last one.
"""

SEALED: Final = MetaData()
"""Tables that only a store with a cut log has."""

SNAPSHOTS: Final = Table(
    SNAPSHOT_TABLE,
    SEALED,
    Column("log_id", Integer, primary_key=True, autoincrement=False),
    Column("upto", _Key, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False),
    sqlite_strict=True,
)
"""The state after an event, from which a cut log is folded; ``log.archived`` has the hash of its text."""

EARLIER: Final = MetaData()
"""Tables as an earlier release made them, where this one reads them too."""

UNLINKED_HEADS: Final = Table(
    HEADS.name,
    EARLIER,
    Column("id", _Key, primary_key=True, autoincrement=False),
    Column("root", LargeBinary, nullable=False),
    sqlite_strict=True,
)

LATER: Final = "later"
"""In ``info`` of an index: whether tables of earlier releases lack it, which is no fault."""

_READABLE: Final = (
    "CREATE VIEW world_events AS SELECT l.name AS log, e.id & {mask} AS position, e.stream, e.version, "
    "e.topic, e.schema_version, e.state, {leaf} AS leaf FROM wp_event e JOIN wp_log l ON l.id = e.log_id"
)


@cache
def creation(metadata: MetaData, backend: Backend, *, only: frozenset[str] | None = None) -> Sequence[str]:
    """Return the SQL that makes the tables and indexes of a metadata object, in order of dependence.

    Args:
        metadata: the tables.
        backend: whose SQL.
        only: names of the tables to make; None is all.
    """
    spoken = dialect(backend)
    statements: list[str] = []
    for table in metadata.sorted_tables:
        if only is not None and table.name not in only:
            continue
        statements.append(str(CreateTable(table, if_not_exists=True).compile(dialect=spoken)))
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        statements += [str(CreateIndex(i, if_not_exists=True).compile(dialect=spoken)) for i in indexes]
    return tuple(statements)


def removal(metadata: MetaData, backend: Backend) -> list[str]:
    """Return the SQL that drops the tables of a metadata object, in reverse order of dependence."""
    spoken = dialect(backend)
    tables = reversed(metadata.sorted_tables)
    return [str(DropTable(table, if_exists=True).compile(dialect=spoken)) for table in tables]


def readable_view(backend: Backend) -> str:
    """Return the SQL of the view that people read."""
    leaf = "lower(hex(e.leaf))" if backend == "sqlite" else "encode(e.leaf, 'hex')"
    return _READABLE.format(mask=POSITION_MASK, leaf=leaf)
