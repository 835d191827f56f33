"""Writing rows to the tables of the index.

On SQLite the rows of each table are one statement. On a server the rows of all tables are one: those of each table come
as one JSON value, which the server expands. A shape, that is which tables get rows, has one text, so that the server
prepares it once; only these texts need SQLAlchemy, which takes long to import.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from world.log import ViewCursor
from world.read_models.index_sql.queries import statement

__all__ = ["Row", "write_rows"]

Row = Mapping[str, Any]
"""Values of one row by the names of the parameters of a statement."""

_LARGE: Final = ("insert_checkpoint", "clear_wp_ledger", "insert_ledger")
"""Statements for large values, which are rare and are sent by themselves."""


def write_rows(cursor: ViewCursor, changes: Sequence[tuple[str, Sequence[Row]]]) -> None:
    """Write rows to the tables of the index.

    Args:
        cursor: of the log, in a transaction.
        changes: names of statements with the values of their rows, without
            the log. No row is both inserted and updated.
    """
    present = [(name, rows) for name, rows in changes if rows]
    if cursor.backend == "sqlite":
        for name, rows in present:
            _write_each(cursor, name, rows)
        return
    for name, rows in present:
        if name in _LARGE:
            _write_each(cursor, name, rows)
    small = [(name, rows) for name, rows in present if name not in _LARGE]
    if small:
        from world.read_models.index_sql.index_statements import written_at_once

        cursor.execute(
            written_at_once(tuple(name for name, _ in small)),
            [one for _, rows in small for one in (orjson.dumps(rows).decode(), cursor.log_id)],
        )


def _write_each(cursor: ViewCursor, name: str, rows: Sequence[Row]) -> None:
    query, log_id = statement(name, cursor.backend), cursor.log_id
    bound = [query.bind(log_id=log_id, of_log=log_id, **row) for row in rows]
    if len(bound) == 1:
        cursor.execute(query.sql, bound[0])
    else:
        cursor.executemany(query.sql, bound)
