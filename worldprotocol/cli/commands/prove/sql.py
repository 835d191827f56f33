"""``worldctl sql``: questions in SQL over the tables of the log."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.listing import tell_table
from worldprotocol.cli.support.point_in_time import at_option, moment

if TYPE_CHECKING:
    from worldprotocol.export.tables.questions import SqlAnswer

__all__ = ["sql"]


@command("sql")
@click.argument("query", required=False, metavar="[QUERY]")
@click.option("--tables", metavar="FOLDER", help="Ask an export of the log (export --format parquet), not the log.")
@at_option("The tables as they were at this point in the past: events up to there, and the status of proposals then.")
def sql(desk: CommandContext, query: str | None, tables: str | None, at: str | None) -> int:
    """Answer QUERY, or the query on stdin if it is `-`; without one, list the tables and their columns.

    The tables are events, proposals, decisions and worlds; the SQL is DuckDB's. The query reads nothing else. For each
    question, the tables that it names are made from the log; of a large one, export the tables once and ask them with
    --tables. With --json, each row is one line. Of a cut log, the tables have what is after the cut, and the proposals
    that were open there.
    """
    if query is None:
        return _list_columns(desk)
    if tables is not None and at is not None:
        raise click.UsageError("--at reads the log, and --tables an export of it; name one of them.")
    from worldprotocol.export.tables.questions import ask

    text = sys.stdin.read() if query == "-" else query
    with _folder(desk, tables, at, text) as folder, ask(folder, text) as answer:
        _print(desk, answer)
    return 0


def _list_columns(desk: CommandContext) -> int:
    from worldprotocol.export.tables.columns import TABLES

    listed = [(table, one) for table, columns in TABLES.items() for one in columns]
    heads = ("table", "column", "kind", "is")
    rows = [(table, one.name, one.kind, one.text) for table, one in listed]
    tell_table(desk, [dict(zip(heads, row, strict=True)) for row in rows], heads, rows)
    return 0


@contextmanager
def _folder(desk: CommandContext, tables: str | None, at: str | None, query: str) -> Iterator[Path]:
    """Return a folder of tables: the one that was named, or one with those of the query, as long as it lasts."""
    if tables is not None:
        yield Path(tables)
        return
    from worldprotocol.export.tables.parquet import export_tables
    from worldprotocol.export.tables.questions import tables_of

    wanted = tables_of(query)
    with tempfile.TemporaryDirectory(prefix="worldctl-sql-") as name:
        folder = Path(name)
        with desk.look() as world, desk.progress("Reading") as progress:
            upto = None if at is None else moment(world, at).position
            after = desk.archived_upto(world.log)
            export_tables(world.log, folder, after=after, upto=upto, tables=wanted, progress=progress)
        yield folder


def _print(desk: CommandContext, answer: SqlAnswer) -> None:
    if desk.out.terminal and not desk.json:
        cells = [[_cell(value) for value in row] for row in answer.rows]
        desk.out.table(answer.columns, cells, empty="No rows.")
        return
    if not desk.json:
        desk.out.row(answer.columns)
    for row in answer.rows:
        if desk.json:
            desk.out.line(dict(zip(answer.columns, map(_json_value, row), strict=True)))
        else:
            desk.out.row(str(_cell(value)) for value in row)


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return _moment(value)
    if isinstance(value, list):
        return [_json_value(one) for one in value]
    return value


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return _moment(value)
    if isinstance(value, list):
        return ", ".join(str(_cell(one)) for one in value)
    return value


def _moment(value: datetime) -> str:
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
