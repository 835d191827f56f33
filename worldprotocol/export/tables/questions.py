"""Questions in SQL over the exported tables, answered by DuckDB.

A query reads the tables of one folder and nothing else: other files, the network and extensions are closed to it. It
cannot change that, nor the tables. Requires duckdb and pyarrow (extra ``sql``). Source: docs/sql.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.export.tables.columns import TABLES
from worldprotocol.export.tables.parquet import check_packages, file_of

if TYPE_CHECKING:
    import duckdb

__all__ = ["SqlAnswer", "ask", "tables_of"]


@dataclass(frozen=True, slots=True)
class SqlAnswer:
    """The answer to a query; its rows are read while they are iterated.

    Args:
        columns: names of the columns, in their order.
        rows: the rows, with the values of Arrow in Python: times are datetimes in UTC, JSON is text.
    """

    columns: tuple[str, ...]
    rows: Iterator[tuple[Any, ...]]


def tables_of(query: str) -> list[str]:
    """Return the tables that a query reads.

    Args:
        query: SQL of DuckDB.

    Raises:
        RefusedError: ``INVALID_SQL`` for a query that is not one statement of SQL; ``NOT_LOADED`` without the packages.
    """
    check_packages()
    import duckdb

    with duckdb.connect(":memory:") as connection:
        try:
            named = {name.lower() for name in connection.get_table_names(query)}
        except duckdb.BinderException:  # it joins by columns (USING), which no table has yet
            named = set(re.findall(r"\w+", query.lower()))
        except duckdb.Error as error:
            raise _refused(error) from None
    return [table for table in TABLES if table in named]


def _refused(error: Exception) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_SQL, f"DuckDB refuses the query: {error}")


@contextmanager
def ask(folder: Path, query: str) -> Iterator[SqlAnswer]:
    """Answer a query; the answer is read before the context ends.

    Args:
        folder: a folder of tables, as ``export_tables`` writes it.
        query: SQL of DuckDB, over the views ``events``, ``proposals``, ``decisions`` and ``worlds``.

    Raises:
        RefusedError: ``BAD_EXPORT`` for a folder without the tables, ``INVALID_SQL`` for a query that cannot be
            answered, with the words of DuckDB; ``NOT_LOADED`` without the packages.
    """
    check_packages()
    import duckdb

    with duckdb.connect(":memory:") as connection:
        _open_tables(connection, folder)
        try:
            relation = connection.sql(query)
            if relation is None:
                raise RefusedError(ErrorCode.INVALID_SQL, "The query answers nothing; begin it with SELECT.")
            reader = relation.to_arrow_reader()
            yield SqlAnswer(tuple(reader.schema.names), _rows(reader))
        except duckdb.Error as error:
            raise _refused(error) from None


def _open_tables(connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
    import pyarrow
    from pyarrow.dataset import dataset

    connection.execute("SET enable_external_access = false")
    for table, columns in TABLES.items():
        path = file_of(folder, table)
        if not path.is_file():
            raise RefusedError(
                ErrorCode.BAD_EXPORT,
                f"{folder} has no {path.name}; `worldctl export --format parquet {folder}` writes the tables.",
                path=str(path),
            )
        try:
            source = dataset(path, format="parquet")
            missing = [one.name for one in columns if one.name not in source.schema.names]
        except (pyarrow.ArrowException, OSError) as error:
            raise RefusedError(ErrorCode.BAD_EXPORT, f"{path} is not readable: {error}", path=str(path)) from None
        if missing:
            raise RefusedError(
                ErrorCode.BAD_EXPORT,
                f"{path} has no column {missing[0]}; write the tables again with this version.",
                path=str(path),
            )
        cells = ", ".join(f"{one.name}::JSON AS {one.name}" if one.kind == "json" else one.name for one in columns)
        connection.register(f"{table}_file", source)
        connection.execute(f"CREATE VIEW {table} AS SELECT {cells} FROM {table}_file")
    connection.execute("SET lock_configuration = true")


def _rows(reader: Any) -> Iterator[tuple[Any, ...]]:
    for batch in reader:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
