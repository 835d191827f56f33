"""The statements of the log, written in SQLAlchemy Core and compiled once for each backend."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Insert,
    LargeBinary,
    Select,
    bindparam,
    func,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy import cast as sql_cast
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from world.log.sql.queries import AT_ONCE, BASE, CHUNKS_AT_ONCE, HIGH, LOW
from world.log.sql.statement import SqlStatement, compiled
from world.log.tables import CHUNKS, CLOCKS, EVENTS, HEADS, LOGS, SNAPSHOTS, STORE, UNLINKED_HEADS, VIEWS
from world.log.url import Backend


class Statements:
    """Every statement the log executes, as SQL for one backend's driver."""

    def __init__(self, backend: Backend) -> None:
        """Compile for ``backend``."""

        def sql(statement: Any) -> SqlStatement:
            return compiled(statement, backend)

        mine = EVENTS.c.log_id == bindparam("log_id")
        self.read_format = sql(select(STORE.c.format, STORE.c.version))
        self.write_format = sql(insert(STORE))
        self.read_logs = sql(select(LOGS.c.id, LOGS.c.name).order_by(LOGS.c.name))
        self.insert_log = sql(insert(LOGS).values(name=bindparam("name")))
        self.rename_log = sql(update(LOGS).where(LOGS.c.id == bindparam("of_log")).values(name=bindparam("new_name")))
        self.insert_event = sql(insert(EVENTS))
        self.insert_head = sql(insert(HEADS))
        self.insert_unlinked_head = sql(insert(UNLINKED_HEADS))
        self.link_heads = SqlStatement(f'ALTER TABLE {HEADS.name} ADD COLUMN "before" {_key_type(backend)}', (), {})
        self.broken_links = sql(_broken_links())
        self.insert_chunk = sql(_keep_chunk(backend))
        self.clear_chunks = sql(CHUNKS.delete().where(CHUNKS.c.id > bindparam(LOW), CHUNKS.c.id <= bindparam(HIGH)))
        self.last_head = sql(_newest())
        self.opening = sql(_opening(backend))
        self.keep_clock = sql(_keep_clock(backend))
        self.newest_link = sql(select(HEADS.c.before).where(HEADS.c.id == bindparam(HIGH)))
        self.heads = sql(_between(HEADS.c.id, HEADS.c.root).limit(bindparam("count")))
        self.last_chunk = sql(_last(CHUNKS.c.id, CHUNKS.c.root, CHUNKS.c.frontier))
        self.chunks = sql(_between(CHUNKS.c.id, CHUNKS.c.root, CHUNKS.c.frontier).limit(bindparam("count")))
        named: list[Any] = [bindparam(f"key{n}") for n in range(CHUNKS_AT_ONCE)]
        self.chunks_at = sql(
            select(CHUNKS.c.id - bindparam(BASE), CHUNKS.c.root, CHUNKS.c.frontier).where(CHUNKS.c.id.in_(named))
        )
        self.leaves = sql(_between(EVENTS.c.id, EVENTS.c.leaf))
        self.audit = sql(
            _between(EVENTS.c.id, *_content(backend), EVENTS.c.leaf, EVENTS.c.log_id).limit(bindparam("count"))
        )
        self.read_snapshot = sql(
            select(SNAPSHOTS.c.state).where(
                SNAPSHOTS.c.log_id == bindparam("log_id"), SNAPSHOTS.c.upto == bindparam("upto")
            )
        )
        self.last_snapshot = sql(select(func.max(SNAPSHOTS.c.upto)).where(SNAPSHOTS.c.log_id == bindparam("log_id")))
        self.drop_snapshots = sql(
            SNAPSHOTS.delete().where(
                SNAPSHOTS.c.log_id == bindparam("of_log"),
                SNAPSHOTS.c.upto >= bindparam("least"),
                SNAPSHOTS.c.upto <= bindparam("most"),
            )
        )
        self.insert_snapshot = sql(insert(SNAPSHOTS))
        self.set_state = sql(update(EVENTS).values(state=bindparam("content")).where(EVENTS.c.id == bindparam("key")))
        self.removed = sql(select(EVENTS.c.id).where(EVENTS.c.state == "").limit(1))
        self.version = sql(select(func.max(EVENTS.c.version)).where(mine, EVENTS.c.stream == bindparam("stream")))
        self.disorder = sql(_disorder(mine))
        self.read_views = sql(select(VIEWS.c.name, VIEWS.c.version, VIEWS.c.position).where(_viewed()))
        self.insert_view = sql(insert(VIEWS))
        self.set_view = sql(
            update(VIEWS)
            .values(version=bindparam("new_version"), position=bindparam("new_position"))
            .where(_viewed(), VIEWS.c.name == bindparam("view_name"))
        )
        self.drop_view = sql(VIEWS.delete().where(VIEWS.c.name == bindparam("view_name")))
        self.stop_view = sql(
            update(VIEWS)
            .values(position=bindparam("new_position"))
            .where(_viewed(), VIEWS.c.name == bindparam("view_name"))
        )

    @classmethod
    @cache
    def of(cls, backend: Backend) -> Statements:
        """Return the statements of a backend, compiled at the first call."""
        return cls(backend)


def compiled_events_query(
    backend: Backend, *, topics: int = 0, stream: bool = False, descending: bool = False
) -> SqlStatement:
    """Compile ``world.log.sql.queries.events_query``.

    Args:
        backend: the kind of database.
        topics: how many topics to select (parameters ``topic0``...); 0 selects all.
        stream: select one stream (parameter ``stream``), with versions in (``gt``, ``lte``], in order of
            version.
        descending: last one first.
    """
    position: ColumnElement[int] = EVENTS.c.id - bindparam(BASE)
    content = _content(backend)
    query = select(position, *content, EVENTS.c.leaf)
    if stream:
        query = query.where(
            EVENTS.c.log_id == bindparam("log_id"),
            EVENTS.c.stream == bindparam("stream"),
            EVENTS.c.version > bindparam("gt"),
            EVENTS.c.version <= bindparam("lte"),
        )
    query = query.where(EVENTS.c.id > bindparam(LOW), EVENTS.c.id <= bindparam(HIGH))
    if topics:
        query = query.where(EVENTS.c.topic.in_([bindparam(f"topic{n}") for n in range(topics)]))
    order = EVENTS.c.version if stream else EVENTS.c.id
    query = query.order_by(order.desc() if descending else order).limit(bindparam("count"))
    return compiled(query, backend)


def compiled_events_at_query(backend: Backend) -> SqlStatement:
    """Compile ``world.log.sql.queries.events_at_query``."""
    keys: list[Any] = [bindparam(f"key{n}") for n in range(AT_ONCE)]
    query = select(EVENTS.c.id - bindparam(BASE), *_content(backend), EVENTS.c.leaf)
    return compiled(query.where(EVENTS.c.id.in_(keys)).order_by(EVENTS.c.id), backend)


def _content(backend: Backend) -> tuple[ColumnElement[Any], ...]:
    """Select what a leaf covers, the state as bytes of UTF-8."""
    if backend == "sqlite":
        state: ColumnElement[Any] = sql_cast(EVENTS.c.state, LargeBinary)
    else:
        state = func.convert_to(EVENTS.c.state, literal_column("'UTF8'"))
    return EVENTS.c.stream, EVENTS.c.version, EVENTS.c.topic, EVENTS.c.schema_version, state


def _between(key: ColumnElement[int], *columns: ColumnElement[Any]) -> Select[Any]:
    keys = key > bindparam(LOW), key <= bindparam(HIGH)
    return select(key - bindparam(BASE), *columns).where(*keys).order_by(key)


def _last(key: ColumnElement[int], *columns: ColumnElement[Any]) -> Select[Any]:
    keys = key > bindparam(LOW), key <= bindparam(HIGH)
    return select(key - bindparam(BASE), *columns).where(*keys).order_by(key.desc()).limit(1)


def _keep_chunk(backend: Backend) -> Insert:
    """Return the statement that stores a chunk; a stray one in its place gives way, for it can be computed."""
    make = sqlite_insert if backend == "sqlite" else postgresql_insert
    chunk = make(CHUNKS)
    values = {"root": chunk.excluded.root, "frontier": chunk.excluded.frontier}
    return chunk.on_conflict_do_update(index_elements=[CHUNKS.c.id], set_=values)


def _key_type(backend: Backend) -> str:
    return "INTEGER" if backend == "sqlite" else "BIGINT"


def _broken_links() -> Select[Any]:
    """Find tree heads that name another one as the head before them than the one that is stored before them."""
    base: ColumnElement[int] = bindparam(BASE)
    placed = HEADS.c.id > bindparam(LOW), HEADS.c.id <= bindparam(HIGH)
    previous = func.lag(HEADS.c.id, 1, base).over(order_by=HEADS.c.id).label("previous")
    inner = select(HEADS.c.id, HEADS.c.before, previous).where(*placed).subquery()
    wrong = inner.c.before.is_not(None) & (inner.c.before != inner.c.previous - base)
    columns = inner.c.id - base, inner.c.before, inner.c.previous - base
    return select(*columns).where(wrong).order_by(inner.c.id).limit(bindparam("count"))


def _keep_clock(backend: Backend) -> Insert:
    """Return the statement that stores the clocks of a log's last commit in place of those of the one before."""
    make = sqlite_insert if backend == "sqlite" else postgresql_insert
    row = make(CLOCKS)
    others = {column.name: row.excluded[column.name] for column in CLOCKS.columns if not column.primary_key}
    return row.on_conflict_do_update(index_elements=[CLOCKS.c.log_id], set_=others)


def _opening(backend: Backend) -> Select[Any]:
    """Find the newest tree head, the last event, the clocks and the views of a log; one row for each view, or one.

    The columns are those of ``_newest``; the row of ``wp_clock`` on SQLite (NULL where it has none) and the clocks of
    the greatest time, the time of the server elsewhere; name, version and position of a view.
    """
    newest, viewed = _newest(), VIEWS.c.log_id == bindparam("log_id")
    alone = select(literal_column("1").label("alone")).subquery("alone")
    views = VIEWS.c.name, VIEWS.c.version, VIEWS.c.position
    if backend == "sqlite":
        clock = CLOCKS.c.size, CLOCKS.c.boot_id, CLOCKS.c.boot_ms, CLOCKS.c.recorded_ms
        at_greatest = CLOCKS.alias("greatest")
        greatest = at_greatest.c.boot_id, at_greatest.c.boot_ms, at_greatest.c.recorded_ms
        joined = alone.outerjoin(CLOCKS, CLOCKS.c.log_id == bindparam("log_id"))
        joined = joined.outerjoin(at_greatest, at_greatest.c.log_id == -bindparam("log_id")).outerjoin(VIEWS, viewed)
        return newest.add_columns(*clock, *greatest, *views).select_from(joined)
    now: ColumnElement[Any] = literal_column("(extract(epoch FROM clock_timestamp()) * 1000)::BIGINT")
    return newest.add_columns(now, *views).select_from(alone.outerjoin(VIEWS, viewed))


def _newest() -> Select[Any]:
    """Find the newest tree head and the last event together, so that no commit can come between the two."""

    def last(key: Column[int], wanted: ColumnElement[Any]) -> ColumnElement[Any]:
        keys = key > bindparam(LOW), key <= bindparam(HIGH)
        return select(wanted).where(*keys).order_by(key.desc()).limit(1).scalar_subquery()

    base: ColumnElement[int] = bindparam(BASE)
    size, root = last(HEADS.c.id, HEADS.c.id - base), last(HEADS.c.id, HEADS.c.root)
    return select(size, root, last(EVENTS.c.id, EVENTS.c.id - base))


def _viewed() -> ColumnElement[bool]:
    return VIEWS.c.log_id == bindparam("view_log")


def _disorder(mine: ColumnElement[bool]) -> Select[Any]:
    """Find events whose stream version is not one more than that of the event before them in their stream.

    Rows whose key is no position of the log are left out: they have no place in it, and are strays.
    """

    def before(column: Column[int]) -> ColumnElement[int]:
        return func.lag(column, 1, 0).over(partition_by=EVENTS.c.stream, order_by=EVENTS.c.version)

    placed = EVENTS.c.id > bindparam(LOW), EVENTS.c.id <= bindparam(HIGH)
    others = before(EVENTS.c.version).label("before"), before(EVENTS.c.id).label("key_before")
    inner = select(EVENTS.c.id, EVENTS.c.stream, EVENTS.c.version, *others).where(mine, *placed).subquery()
    wrong = (inner.c.version != inner.c.before + 1) | (inner.c.id < inner.c.key_before)
    columns = inner.c.id - bindparam(BASE), inner.c.stream, inner.c.version, inner.c.before
    return select(*columns).where(wrong).order_by(inner.c.id).limit(bindparam("count"))
