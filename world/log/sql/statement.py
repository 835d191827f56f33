"""SQL as text for a driver, and where it comes from: the statements of this program are compiled beforehand.

The statements are written in SQLAlchemy Core (``world.log.statements`` and ``index_statements`` of the index). Their
texts for SQLite are in ``sqlite_statements.json`` beside this module, so that a process that only reads a log does not
import SQLAlchemy, which takes longer than everything else such a process does. A statement that is not in the file is
compiled when it is first used. ``python -m tests.documents`` writes the file; a test compares it with the statements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from sqlalchemy import Dialect
    from sqlalchemy.sql.elements import ClauseElement

    from world.log.url import Backend

__all__ = [
    "CLOCK_TABLE",
    "FORMAT",
    "FORMAT_VERSION",
    "LOG_SHIFT",
    "POSITION_MASK",
    "SNAPSHOT_TABLE",
    "STATEMENTS_FILE",
    "STORE_TABLE",
    "SqlStatement",
    "compiled",
    "dialect",
    "prepared",
]

FORMAT: Final = "world-protocol-log"
FORMAT_VERSION: Final = 1
"""Version of the tables (``world.log.tables``); a store of a later version is refused."""

LOG_SHIFT: Final = 40
POSITION_MASK: Final = (1 << LOG_SHIFT) - 1
"""Positions in one log are below 2^40; logs in one store below 2^23."""

STORE_TABLE: Final = "wp_store"
"""Name of the table with the format of a store."""

SNAPSHOT_TABLE: Final = "wp_snapshot"
CLOCK_TABLE: Final = "wp_clock"

STATEMENTS_FILE: Final = Path(__file__).with_name("sqlite_statements.json")
"""Texts, parameter names and constants of the statements for SQLite, by name."""


@dataclass(frozen=True, slots=True)
class SqlStatement:
    """SQL for the driver.

    Args:
        sql: the text, with the driver's positional parameters.
        names: the parameters' names, in the order in which the driver wants their values.
        constants: values of the parameters that the statement itself brings along.
    """

    sql: str
    names: tuple[str, ...]
    constants: Mapping[str, Any]

    def bind(self, **values: Any) -> tuple[Any, ...]:
        """Return the parameters in the driver's order; KeyError when one is missing."""
        constants = self.constants
        return tuple([values[name] if name in values else constants[name] for name in self.names])


def prepared(name: str, backend: Backend, compile_it: Callable[[], SqlStatement]) -> SqlStatement:
    """Return a statement from the file of compiled statements, or compile it where the file does not have it.

    Args:
        name: name of the statement in the file.
        backend: the kind of database; the file is for SQLite.
        compile_it: compiles the statement; called only if necessary.
    """
    found = _compiled_statements().get(name) if backend == "sqlite" else None
    return compile_it() if found is None else found


@cache
def _compiled_statements() -> Mapping[str, SqlStatement]:
    """Return the statements of the file; empty without the file, for example while it is written for the first time."""
    try:
        read = orjson.loads(STATEMENTS_FILE.read_bytes())
    except FileNotFoundError:
        return {}
    return {name: SqlStatement(sql, tuple(names), constants) for name, (sql, names, constants) in read.items()}


def compiled(statement: ClauseElement, backend: Backend) -> SqlStatement:
    """Compile a Core statement once, so that it can be executed on the driver's own cursor.

    Args:
        statement: any Core statement; an insert without values takes all columns of its table.
        backend: ``sqlite`` (parameters ``?``) or ``postgresql`` (parameters ``%s``).
    """
    from sqlalchemy.sql.compiler import SQLCompiler

    result = statement.compile(dialect=dialect(backend))
    assert isinstance(result, SQLCompiler)
    names = tuple(result.positiontup or ())
    constants = {name: bind.value for name, bind in result.binds.items() if name in names and not bind.required}
    return SqlStatement(str(result), names, constants)


@cache
def dialect(backend: Backend) -> Dialect:
    """Return the SQLAlchemy dialect of a backend, with positional parameters."""
    if backend == "sqlite":
        from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

        return SQLiteDialect_pysqlite(paramstyle="qmark")
    from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

    make: Callable[..., Dialect] = PGDialect_psycopg
    return make(paramstyle="format")
