"""Source of a salvage on a server: the tables block by block in physical order, without their indexes.

What the server cannot read, such as a page whose checksum does not fit or a long value of which a part is lost, is left
out, and only that: around it, rows are asked for one by one. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from world.errors import DamagedLogError
from world.log import parse_address
from world.log.log import open_store
from world.log.merkle import HASH_BYTES
from world.log.migration import log_names
from world.log.sql.statement import LOG_SHIFT, POSITION_MASK
from world.log.store import BUSY_TIMEOUT_MS, Row, Store, not_found
from world.log.values import TreeHead
from worldprotocol.export.salvage.scratch import ScratchStore, event_of

__all__ = ["read_server"]

_BLOCKS: Final = 64
"""Blocks of a table that are read at once."""

_MOST_ROWS: Final = 300
"""More rows than fit into a block of 8 KiB."""

_TEXT: Final = "convert_to({}, 'UTF8')"
_EVENT: Final = ", ".join(
    ("id", _TEXT.format("stream"), "version", _TEXT.format("topic"), "schema_version", _TEXT.format("state"), "leaf")
)


def read_server(address: str, scratch: ScratchStore) -> int | None:
    """Take in every row that a server still gives of a log.

    Returns:
        The number of the log; None where the server cannot say which it is, so that all of its logs were read.

    Raises:
        WorldProtocolError: the server cannot be reached, or has no such log.
    """
    where = parse_address(address)
    store = open_store(where, read_only=True, create=False, durability="full", busy_timeout_ms=BUSY_TIMEOUT_MS)
    try:
        log = _number(store, where.name)
        for key, *columns, leaf in _stored(store, "wp_event", _EVENT, log):
            position = key & POSITION_MASK
            scratch.add_event(key >> LOG_SHIFT, position, event_of(position, *columns), leaf)
        for key, root in _stored(store, "wp_head", "id, root", log):
            if len(root) == HASH_BYTES:
                scratch.add_head(key >> LOG_SHIFT, TreeHead(key & POSITION_MASK, root))
        for key, root in _stored(store, "wp_chunk", "id, root", log):
            if len(root) == HASH_BYTES:
                scratch.add_chunk(key >> LOG_SHIFT, key & POSITION_MASK, root)
        return log
    finally:
        store.close()


def _number(store: Store, name: str) -> int | None:
    try:
        names = log_names(store)
    except DamagedLogError:
        return None
    if name not in names:
        raise not_found(store.describe(), name, list(names))
    return names[name]


def _stored(store: Store, table: str, columns: str, log: int | None) -> Iterator[Row]:
    """Yield the rows of a table that can be read, those of one log where its number is known."""
    mine = "" if log is None else f" AND id >> {LOG_SHIFT} = {log}"

    def read(first: str, last: str, what: str = columns) -> list[Row]:
        sql = f"SELECT {what} FROM {table} WHERE ctid >= '{first}'::tid AND ctid < '{last}'::tid{mine}"
        return [row for row in store.query(sql, ()) if None not in row]

    todo = [(0, _blocks(store, table))]
    while todo:
        first, last = todo.pop()
        if last - first > _BLOCKS:
            todo += [(first + _BLOCKS, last), (first, first + _BLOCKS)]
            continue
        try:
            yield from read(f"({first},0)", f"({last},0)")
        except DamagedLogError:
            if last - first > 1:
                middle = (first + last) // 2
                todo += [(middle, last), (first, middle)]
            elif _is_whole(read, first):
                yield from _one_by_one(read, first)


def _is_whole(read: Any, block: int) -> bool:
    """Return whether a block can be read at all, and only something in a row cannot."""
    try:
        read(f"({block},0)", f"({block + 1},0)", "1")
    except DamagedLogError:
        return False
    return True


def _one_by_one(read: Any, block: int) -> Iterator[Row]:
    for number in range(1, _MOST_ROWS):
        try:
            yield from read(f"({block},{number})", f"({block},{number + 1})")
        except DamagedLogError:
            continue


def _blocks(store: Store, table: str) -> int:
    """Return how many blocks a table has; none where it is lost."""
    size = f"pg_relation_size(to_regclass('{table}')) / current_setting('block_size')::int"
    try:
        [(blocks,)] = store.query(f"SELECT {size}", ())
    except DamagedLogError:
        return 0
    return int(blocks or 0)
