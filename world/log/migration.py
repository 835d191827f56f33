"""Finding a log in its store, and making store and log where they are asked for.

Tables are made once, by this module alone, in one transaction under the store's migration lock: programs that
open a new store at the same moment do not race.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.log.sql.statement import CLOCK_TABLE, FORMAT, FORMAT_VERSION, LOG_SHIFT, STORE_TABLE
from world.log.store import Cursor, Store, check_format, key_range, lost_tables, newest, not_a_log, not_found
from world.log.url import hidden_name


def log_names(store: Store) -> dict[str, int]:
    """Return the ids of the logs in a store by their names, in order of name.

    Raises:
        RefusedError: ``NOT_A_LOG`` or ``LOG_FORMAT``.
        DamagedLogError: ``LOG_DAMAGED`` when some of the tables are lost; all are made together.
    """
    present = _tables(store)
    if STORE_TABLE not in present:
        from world.log.tables import METADATA

        if present & METADATA.tables.keys():
            raise lost_tables(store.describe(), f"its table {STORE_TABLE} is lost")
        what = "it holds none of a log's tables; create the log, or give another address"
        raise not_a_log(store.describe(), what, is_empty=store.shared or not present)
    check_format(store.select(store.sql.read_format), store.describe())
    return {name: number for number, name in store.select(store.sql.read_logs)}


def find_log(store: Store, name: str, *, create: bool) -> int:
    """Return the id of a log in a store.

    Args:
        store: the open store.
        name: the log's name.
        create: make the tables and the log where they are missing.

    Raises:
        RefusedError: ``NOT_A_LOG``, ``LOG_FORMAT`` or ``LOG_NOT_FOUND``.
    """
    if create and not store.read_only:
        _create_store(store)
    names = log_names(store)
    if name not in names and create and not store.read_only:
        names = _create_log(store, name)
    if name not in names:
        raise not_found(store.describe(), name, list(names))
    if not store.read_only:
        _add_what_is_newer(store)
    store.settle()
    return names[name]


def rename_log(store: Store, log_id: int, name: str) -> None:
    """Give a log another name; a log of that name without events gets one that no address can have.

    Args:
        store: the open store.
        log_id: the log.
        name: its name afterwards.

    Raises:
        RefusedError: ``LOG_NOT_EMPTY`` where another log of that name has events.
    """
    rename = store.sql.rename_log
    with store.migrating() as cursor:
        other = _read_names(store, cursor).get(name, log_id)
        if other != log_id:
            cursor.execute(store.sql.last_head.sql, store.sql.last_head.bind(**key_range(other)))
            size, _, last = newest(cursor.fetchall())
            if size or last:
                raise RefusedError(
                    ErrorCode.LOG_NOT_EMPTY,
                    f"The log {name!r} of {store.describe()} has events meanwhile. Drop it, or name another place.",
                    events=max(size, last),
                )
            cursor.execute(rename.sql, rename.bind(of_log=other, new_name=hidden_name(name, str(other))))
        cursor.execute(rename.sql, rename.bind(of_log=log_id, new_name=name))


def make_derived_tables(store: Store) -> None:
    """Create the tables of the store that follow from the events, ``wp_chunk`` and ``wp_view``, where they are lost."""
    from world.log.tables import CHUNKS, METADATA, VIEWS, creation

    lost = frozenset({CHUNKS.name, VIEWS.name}) - _tables(store)
    if not lost:
        return
    with store.migrating() as cursor:
        for sql in creation(METADATA, store.backend, only=lost):
            cursor.execute(sql)


def _add_what_is_newer(store: Store) -> None:
    """Add to a store that an earlier release made what this one keeps in it beside the events.

    A role that may write the tables and not change them continues without it, as does one that finds the store locked.
    """
    lacks_clocks = store.keeps_clocks and CLOCK_TABLE not in _tables(store)
    store.links_heads = store.has_linked_heads()
    if store.links_heads and not lacks_clocks:
        return
    from world.log.tables import BESIDE, creation

    with suppress(RefusedError):
        with store.migrating() as cursor:
            if lacks_clocks:
                for sql in creation(BESIDE, store.backend):
                    cursor.execute(sql)
            cursor.execute(store.head_columns_sql)
            if not any(row[0] == "before" for row in cursor.fetchall()):
                cursor.execute(store.sql.link_heads.sql)
        store.links_heads = True


def _tables(store: Store) -> set[str]:
    return {row[0] for row in store.query(store.tables_sql, ())}


def _create_store(store: Store) -> None:
    if STORE_TABLE in _tables(store):
        return
    from world.log.tables import METADATA, creation, readable_view

    with store.migrating() as cursor:
        cursor.execute(store.tables_sql)
        present = {row[0] for row in cursor.fetchall()}
        if STORE_TABLE in present:
            return
        if present and not store.shared:
            raise not_a_log(store.describe(), "the database holds other tables; give a file of its own")
        for sql in (*creation(METADATA, store.backend), readable_view(store.backend)):
            cursor.execute(sql)
        cursor.execute(store.sql.write_format.sql, (FORMAT, FORMAT_VERSION))


def _create_log(store: Store, name: str) -> dict[str, int]:
    with store.migrating() as cursor:
        names = _read_names(store, cursor)
        if name not in names:
            _check_unlisted(store, cursor, names.values())
            cursor.execute(store.sql.insert_log.sql, (name,))
            names = _read_names(store, cursor)
    return names


def _check_unlisted(store: Store, cursor: Cursor, listed: Iterable[int]) -> None:
    """Check that a store has no events of a log that it does not list: another log would be founded beside them.

    Raises:
        DamagedLogError: ``EVENT_STRAY``.
    """
    for after, upto in unlisted_keys(listed):
        cursor.execute(store.sql.audit.sql, store.sql.audit.bind(base=0, low=after, high=upto, count=1))
        for key, *_ in cursor.fetchall():
            raise DamagedLogError(
                ErrorCode.EVENT_STRAY,
                f"{store.describe()} holds events of a log number {key >> LOG_SHIFT}, and has no such log: its row in "
                "the table of logs is lost. Restore the store from a backup, or name another store for the new log.",
                number=key >> LOG_SHIFT,
            )


def unlisted_keys(listed: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of keys of events that belong to no listed log, without their lower and with their upper end.

    Args:
        listed: the numbers of the logs.
    """
    after = -(1 << 63)
    for number in [*sorted(listed), 1 << (63 - LOG_SHIFT)]:
        upto = min(number << LOG_SHIFT, 1 << 63) - 1
        if after < upto:
            yield after, upto
        after = upto + (1 << LOG_SHIFT)


def _read_names(store: Store, cursor: Cursor) -> dict[str, int]:
    cursor.execute(store.sql.read_logs.sql, ())
    return {name: number for number, name in cursor.fetchall()}
