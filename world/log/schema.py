"""Whether the tables of a store are those that this program makes: every column, constraint, index, trigger and view.

What is stored is compared with what ``world.log.tables.creation`` says, so that nothing has to be kept in step. Tables
and views of others in the same database are no concern of ours; what others put on tables of ours is. Nothing is
changed here: ``FAULTS`` of a view's own tables are put right when the view is rebuilt (``world.log.views``).
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

from sqlalchemy import CheckConstraint, MetaData, PrimaryKeyConstraint, Table, UniqueConstraint
from sqlalchemy.schema import CreateIndex, CreateTable

from world.log.sql.statement import SqlStatement, dialect
from world.log.store import Row
from world.log.tables import EARLIER, LATER, METADATA, creation, readable_view
from world.log.url import Backend

__all__ = ["READABLE", "LogSchemaFault", "schema_faults"]

READABLE: Final = "world_events"
"""The view that people read."""

Query = Callable[[SqlStatement], Sequence[Row]]

_REBUILD: Final = "`worldctl doctor --rebuild` makes it anew"
_TRANSFER: Final = "`worldctl export` the log and `worldctl import` it into a new store"
_REMOVE: Final = "this program did not make it; remove it with `{sql}`"


@dataclass(frozen=True, slots=True)
class LogSchemaFault:
    """Something in the schema that is not as this program makes it.

    Args:
        name: of the table, index, trigger or view.
        message: what is wrong, as a clause.
        advice: how to put it right, as a clause.
        view: the stored view whose tables are meant; empty for those of the log itself.
        is_mendable: whether rebuilding puts it right.
    """

    name: str
    message: str
    advice: str
    view: str = ""
    is_mendable: bool = False


def schema_faults(query: Query, backend: Backend, views: Mapping[str, MetaData]) -> list[LogSchemaFault]:
    """Compare the tables of a store with those that this program makes.

    Args:
        query: runs a reading statement in the store.
        backend: the kind of database.
        views: by name, the tables of the stored views that the store should have.

    Returns:
        What differs, in order of names.

    Raises:
        DamagedLogError: the database cannot read its own schema.
    """
    owners = dict.fromkeys(METADATA.tables, "")
    owners |= {name: view for view, metadata in views.items() for name in metadata.tables}
    look = _sqlite_faults if backend == "sqlite" else _postgres_faults
    tables = [*METADATA.sorted_tables, *(table for metadata in views.values() for table in metadata.sorted_tables)]
    return sorted(look(query, owners, tables), key=lambda fault: fault.name)


def _fault(name: str, message: str, view: str) -> LogSchemaFault:
    """Return a fault of a table of ours, or of what belongs to it."""
    if view or name == READABLE:
        return LogSchemaFault(name, message, _REBUILD, view, is_mendable=True)
    return LogSchemaFault(name, message, _TRANSFER)


def _foreign(kind: str, name: Any, on: Any, owners: Mapping[str, str], removal: str) -> LogSchemaFault:
    """Return a fault of something that others put on a table."""
    shown, table, sql = (str(one).encode("utf-8", "backslashreplace").decode() for one in (name, on, removal))
    article = "an" if kind == "index" else "a"
    return LogSchemaFault(
        shown, f"there is {article} {kind} {shown} on {table}", _REMOVE.format(sql=sql), owners.get(on, "")
    )


# SQLite: the text with which everything was made is kept, and compared


def _sqlite_faults(query: Query, owners: Mapping[str, str], tables: Sequence[Table]) -> Iterator[LogSchemaFault]:
    made = _sqlite_schema(tuple(table.metadata for table in tables))
    rows = query(SqlStatement("SELECT type, name, tbl_name, sql FROM sqlite_schema", (), {}))
    found = {(kind, name): (on, sql) for kind, name, on, sql in rows}
    later = {str(index.name) for table in tables for index in table.indexes if index.info.get(LATER)}
    for (kind, name), (on, sql) in made.items():
        view = owners.get(on, "")
        if (kind, name) not in found:
            if name in later:
                continue
            yield _fault(name, f"the {kind} {name} is lost" + ("" if on == name else f", which belongs to {on}"), view)
        elif found[kind, name][0] != on or not _is_made_so(name, found[kind, name][1], sql):
            yield _fault(name, f"the {kind} {name} {_sqlite_difference(query, kind, name, sql)}", view)
    for (kind, name), (on, sql) in found.items():
        if kind == "trigger" or (kind == "index" and sql is not None and on in owners and (kind, name) not in made):
            yield _foreign(kind, name, on, owners, f"DROP {kind.upper()} {_quoted(name)}")


def _is_made_so(name: str, found: str | None, sql: str | None) -> bool:
    """Return whether this program made a table, or an earlier release whose tables it reads too."""
    earlier = [_plain(one) for one in creation(EARLIER, "sqlite", only=frozenset({name}))]
    return _plain(found) == _plain(sql) or _plain(found) in [str(one).replace("IF NOT EXISTS ", "") for one in earlier]


@cache
def _sqlite_schema(all_metadata: tuple[MetaData, ...]) -> dict[tuple[str, str], tuple[str, str | None]]:
    """Return what SQLite keeps of the tables, by making them in memory."""
    with closing(sqlite3.connect(":memory:")) as scratch:
        for metadata in dict.fromkeys(all_metadata):
            for sql in creation(metadata, "sqlite"):
                scratch.execute(sql)
        scratch.execute(readable_view("sqlite"))
        rows = scratch.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall()
    return {(kind, name): (on, sql) for kind, name, on, sql in rows}


def _sqlite_difference(query: Query, kind: str, name: str, made: str | None) -> str:
    """Say in what a table differs, as far as that is a column."""
    if kind != "table" or name.startswith("sqlite_"):
        return "is another than this program makes"
    columns = "SELECT name, type, \"notnull\", dflt_value, pk, hidden FROM pragma_table_xinfo('{}')"
    now = {row[0]: tuple(row[1:]) for row in query(SqlStatement(columns.format(name), (), {}))}
    with closing(sqlite3.connect(":memory:")) as scratch:
        scratch.execute(str(made))
        wanted = {row[0]: tuple(row[1:]) for row in scratch.execute(columns.format(name))}
    return _column_difference(now, wanted)


# PostgreSQL: the catalog is read, and compared with the definitions, spelled alike

_OURS: Final = "n.nspname = current_schema() AND c.relname = ANY(%s::text[])"
_PG_TABLES: Final = f"""
SELECT c.relname::text, c.relkind::text, c.relpersistence::text, c.relrowsecurity OR c.relforcerowsecurity,
  EXISTS (SELECT FROM pg_inherits i WHERE c.oid IN (i.inhrelid, i.inhparent)),
  CASE WHEN c.relkind = 'v' THEN pg_get_viewdef(c.oid) END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE {_OURS}"""
_PG_COLUMNS: Final = f"""
SELECT c.relname::text, a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull, l.collname::text,
  pg_get_expr(d.adbin, d.adrelid), a.attgenerated::text || a.attidentity::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
LEFT JOIN pg_collation l ON l.oid = a.attcollation WHERE {_OURS} AND c.relkind <> 'v'"""
_PG_CONSTRAINTS: Final = f"""
SELECT c.relname::text, k.conname::text, pg_get_constraintdef(k.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_constraint k ON k.conrelid = c.oid
WHERE {_OURS} AND k.contype NOT IN ('n', 't')"""  # n: not null, which is in pg_attribute; t: a trigger
_PG_INDEXES: Final = f"""
SELECT c.relname::text, x.relname::text, pg_get_indexdef(i.indexrelid), i.indisvalid AND i.indisready,
  EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = i.indexrelid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_index i ON i.indrelid = c.oid JOIN pg_class x ON x.oid = i.indexrelid WHERE {_OURS}"""
_PG_OTHERS: Final = f"""
SELECT c.relname::text, t.tgname::text, 'trigger'
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_trigger t ON t.tgrelid = c.oid
WHERE {_OURS} AND NOT t.tgisinternal
UNION ALL SELECT c.relname::text, r.rulename::text, 'rule'
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_rewrite r ON r.ev_class = c.oid
WHERE {_OURS} AND r.rulename <> '_RETURN'"""  # that is what makes a view a view
_PG_TYPES: Final = {"SERIAL": "integer", "INTEGER": "integer", "BIGINT": "bigint", "TEXT": "text", "BYTEA": "bytea"}


def _postgres_faults(query: Query, owners: Mapping[str, str], tables: Sequence[Table]) -> Iterator[LogSchemaFault]:
    names = [*owners, READABLE]

    def ask(sql: str) -> dict[str, list[Row]]:
        by_table: dict[str, list[Row]] = {name: [] for name in names}
        asked = tuple(f"names{number}" for number in range(sql.count("%s")))
        for row in query(SqlStatement(sql, asked, dict.fromkeys(asked, names))):
            by_table[row[0]].append(tuple(row[1:]))
        return by_table

    kinds, columns, constraints = ask(_PG_TABLES), ask(_PG_COLUMNS), ask(_PG_CONSTRAINTS)
    indexes, others = ask(_PG_INDEXES), ask(_PG_OTHERS)
    for table in tables:
        view = owners[table.name]
        if not kinds[table.name]:
            yield _fault(table.name, f"the table {table.name} is lost", view)
            continue
        for difference in _postgres_table(table, kinds[table.name][0], columns[table.name], constraints[table.name]):
            yield _fault(table.name, f"the table {table.name} {difference}", view)
        yield from _postgres_indexes(table, indexes[table.name], owners)
    shown = kinds[READABLE]
    if not shown:
        yield _fault(READABLE, f"the view {READABLE} is lost", "")
    elif _spelled(shown[0][-1] or "") != _spelled(readable_view("postgresql").partition(" AS ")[2]):
        yield _fault(READABLE, f"the view {READABLE} is another than this program makes", "")
    for on, found in others.items():
        for name, kind in found:
            yield _foreign(kind, name, on, owners, f"DROP {kind.upper()} {_quoted(name)} ON {on}")


def _postgres_table(table: Table, kind: Row, columns: Sequence[Row], constraints: Sequence[Row]) -> Iterator[str]:
    relation, persistence, has_security, is_inherited, _ = kind
    if relation != "r":
        yield "is no table any more"
        return
    if persistence != "p":
        yield "is not logged, so that a crash would empty it"
    if has_security:
        yield "shows only some of its rows to some (row level security)"
    if is_inherited:
        yield "is a part of another table, or has parts"
    now = {row[0]: tuple(row[1:]) for row in columns}
    wanted = _postgres_columns(table)
    earlier = EARLIER.tables.get(table.name)
    if now != wanted and (earlier is None or now != _postgres_columns(earlier)):
        yield _column_difference(now, wanted)
    promised = _postgres_constraints(table)
    found = {_spelled(definition): name for name, definition in constraints}
    for text, name in promised.items():
        if text not in found or name not in (None, found[text]):
            yield f"has lost the constraint {name or text}"
    for text, name in found.items():
        if text not in promised:
            yield f"has another constraint {name}"


def _postgres_columns(table: Table) -> dict[str, tuple[Any, ...]]:
    """Return the columns as the catalog lists them: type, whether NULL is refused, collation, default, generation."""
    spoken = dialect("postgresql")
    compiler = spoken.ddl_compiler(spoken, CreateTable(table))
    columns = {}
    for column in table.columns:
        words = compiler.get_column_specification(column).split()
        kind = _PG_TYPES[words[1]]
        collation = words[words.index("COLLATE") + 1].strip('"') if "COLLATE" in words else "default"
        default = f"nextval('{table.name}_{column.name}_seq'::regclass)" if words[1] == "SERIAL" else None
        columns[column.name] = kind, "NULL" in words, collation if kind == "text" else None, default, ""
    return columns


def _postgres_constraints(table: Table) -> dict[str, str | None]:
    made: dict[str, str | None] = {}
    for one in table.constraints:
        name = None if one.name is None else str(one.name)
        if isinstance(one, CheckConstraint):
            made[_spelled(f"CHECK {one.sqltext}")] = name
        elif isinstance(one, (PrimaryKeyConstraint, UniqueConstraint)):
            kind = "UNIQUE" if isinstance(one, UniqueConstraint) else "PRIMARY KEY"
            made[_spelled(kind + ", ".join(column.name for column in one.columns))] = name
    return made


def _postgres_indexes(table: Table, indexes: Sequence[Row], owners: Mapping[str, str]) -> Iterator[LogSchemaFault]:
    view = owners[table.name]
    spoken = dialect("postgresql")
    made = {str(one.name): str(CreateIndex(one).compile(dialect=spoken)) for one in table.indexes}
    found = {name: (definition, is_valid) for name, definition, is_valid, of_constraint in indexes if not of_constraint}
    later = {str(one.name) for one in table.indexes if one.info.get(LATER)}
    for name, sql in made.items():
        if name not in found:
            if name in later:
                continue
            yield _fault(name, f"the index {name} is lost, which belongs to {table.name}", view)
        elif _spelled(found[name][0]) != _spelled(sql) or not found[name][1]:
            yield _fault(name, f"the index {name} is another than this program makes", view)
    for name in found.keys() - made.keys():
        yield _foreign("index", name, table.name, owners, f"DROP INDEX {_quoted(name)}")
    for name, _, is_valid, of_constraint in indexes:
        if of_constraint and not is_valid:
            yield _fault(name, f"the index {name} is not valid", view)


# Both


def _column_difference(now: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Say in what the columns of a table differ; where they do not, the rest does."""
    differences = []
    for name in sorted(map(str, now.keys() | wanted.keys())):
        if name not in wanted:
            differences.append(f"has a column {name} more")
        elif name not in now:
            differences.append(f"has lost its column {name}")
        elif now[name] != wanted[name]:
            differences.append(f"has another column {name} than this program makes")
    return " and ".join(differences) or "is another than this program makes, in its constraints or options"


@lru_cache(maxsize=512)
def _plain(sql: str | None) -> str | None:
    """Return SQL without the white space that means nothing."""
    return None if sql is None else re.sub(r"\s*([(),=])\s*", r"\1", " ".join(str(sql).split()))


def _spelled(sql: str) -> str:
    """Return a definition without what PostgreSQL writes in its own way: names of schemas, quotes, brackets, casts."""
    sql = re.sub(r"::\w+|\bUSING btree\b|(?<=\bON )(?:\"[^\"]+\"|\w+)\.(?=wp_)", "", sql)
    return re.sub(r"[\s()\"';]", "", sql)


def _quoted(name: Any) -> str:
    return '"{}"'.format(str(name).replace('"', '""'))
