"""Writing the rows of the index: on SQLite one statement for each table, on a server one statement for all of them.

On a server the rows of each table come as one JSON value, which the server expands; a shape, that is which tables get
rows, has one text, so that the server prepares it once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import orjson
from sqlalchemy import Table

from world.log import ViewCursor
from world.log.sql.statement import dialect
from world.read_models.index_sql.queries import statement
from world.read_models.index_tables import BRANCHES, LANDMARK_ROWS, PROPOSALS, RUNS, VERDICTS, WORLDS

__all__ = ["write_rows"]

Row = Mapping[str, Any]

_LARGE: Final = ("insert_checkpoint", "clear_wp_ledger", "insert_ledger")
"""Statements for large values, which are rare and are sent by themselves."""

_INSERTED: Final[Mapping[str, Table]] = {
    "insert_proposal": PROPOSALS,
    "insert_world": WORLDS,
    "insert_branch": BRANCHES,
    "insert_landmark": LANDMARK_ROWS,
    "insert_verdict": VERDICTS,
    "insert_run": RUNS,
}
_UPDATED: Final[Mapping[str, tuple[Table, Mapping[str, str], Mapping[str, str], bool]]] = {
    "update_proposal": (
        PROPOSALS,
        {"proposal_id": "of_proposal"},
        {"status": "new_status", "decision": "new_decision", "decided_pos": "new_decided", "ended_pos": "new_ended"},
        True,
    ),
    "update_branch": (BRANCHES, {"name": "of_branch"}, {"head": "new_head", "tip": "new_tip"}, True),
    "close_run": (RUNS, {"run_id": "of_run"}, {"closed_pos": "new_closed"}, False),
}
"""Of each update: the table, its keys and its changed columns with the members that hold them, and whether an absent
value leaves the column as it is."""


def write_rows(cursor: ViewCursor, changes: Sequence[tuple[str, Sequence[Row]]]) -> None:
    """Write rows to the tables of the index.

    Args:
        cursor: of the log, in a transaction.
        changes: names of statements (``world.read_models.index_statements``) with the values of their rows, without
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
        cursor.execute(
            _at_once(tuple(name for name, _ in small)),
            [one for _, rows in small for one in (orjson.dumps(rows).decode(), cursor.log_id)],
        )


def _write_each(cursor: ViewCursor, name: str, rows: Sequence[Row]) -> None:
    query, log_id = statement(name, cursor.backend), cursor.log_id
    bound = [query.bind(log_id=log_id, of_log=log_id, **row) for row in rows]
    if len(bound) == 1:
        cursor.execute(query.sql, bound[0])
    else:
        cursor.executemany(query.sql, bound)


@cache
def _at_once(names: tuple[str, ...]) -> str:
    """Return one statement for several changes; the parameters of each are its rows as JSON, and the log."""
    parts = [_insertion(_INSERTED[name]) if name in _INSERTED else _update(*_UPDATED[name]) for name in names]
    before = ", ".join(f"change{number} AS ({part})" for number, part in enumerate(parts[:-1]))
    return f"WITH {before} {parts[-1]}" if before else parts[-1]


def _insertion(table: Table) -> str:
    columns = [column.name for column in table.columns if column.name != "log_id"]
    names = ", ".join(columns)
    given = _given(table, {name: name for name in columns})
    return f"INSERT INTO {table.name} ({names}, log_id) SELECT {names}, known.log_id FROM {given}, {_LOG}"


def _update(table: Table, keys: Mapping[str, str], changed: Mapping[str, str], keeps: bool) -> str:
    def value(column: str, member: str) -> str:
        return f"coalesce(given.{member}, {table.name}.{column})" if keeps else f"given.{member}"

    sets = ", ".join(f"{column} = {value(column, member)}" for column, member in changed.items())
    same = " AND ".join(f"{table.name}.{column} = given.{member}" for column, member in keys.items())
    given = _given(table, {**keys, **changed})
    return f"UPDATE {table.name} SET {sets} FROM {given}, {_LOG} WHERE {table.name}.log_id = known.log_id AND {same}"


_LOG: Final = "(SELECT %s::INTEGER AS log_id) AS known"


def _given(table: Table, members: Mapping[str, str]) -> str:
    """Return the rows of a JSON parameter, with the types of the columns that its members are for."""
    spoken = dialect("postgresql")
    types = (f"{member} {table.c[column].type.compile(dialect=spoken)}" for column, member in members.items())
    return f"json_to_recordset(%s::json) AS given ({', '.join(types)})"
