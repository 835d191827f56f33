"""Every stored tree head names the one before it, so that a deleted one is missed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.pipeline.shop import shop
from world.errors import RefusedError
from world.log import EventLog, NewEvent, open_log
from world.log.audit import verify_tree
from world.log.schema import schema_faults
from world.log.sql.statement import LOG_SHIFT, POSITION_MASK
from worldprotocol import Realm
from worldprotocol.export.salvage.salvage import salvage

Change = Callable[[str], list[Any]]


@pytest.fixture
def change(shared_log_url: str) -> Change:
    """Return what changes the database behind the log's back."""

    def run(statement: str) -> list[Any]:
        if shared_log_url.startswith("sqlite"):
            with closing(sqlite3.connect(shared_log_url.removeprefix("sqlite:///"))) as database:
                rows = database.execute(statement).fetchall()
                database.commit()
                return rows
        with psycopg.connect(shared_log_url.partition("#")[0], autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    return run


def grow(log: EventLog, commits: int) -> None:
    """Append commits of two events each."""
    for _ in range(commits):
        with log.write() as transaction:
            transaction.append([NewEvent("s", "t", 1, b"{}"), NewEvent("s", "t", 1, b"{}")])


def codes(address: str) -> list[tuple[str, int]]:
    with open_log(address, read_only=True) as log:
        return [(one.code, one.position) for one in verify_tree(log)]


def ours(log: EventLog, *sizes: int) -> str:
    return ", ".join(str((log.log_id << LOG_SHIFT) + size) for size in sizes)


def test_a_deleted_earlier_head_is_missed_and_the_newest_one_as_before(shared_log_url: str, change: Change) -> None:
    with open_log(shared_log_url, create=True) as log:
        grow(log, 5)
        assert verify_tree(log) == []
        change(f"DELETE FROM wp_head WHERE id = {ours(log, 4)}")
        assert codes(shared_log_url) == [("HEAD_MISSING", 4)]
        change(f"DELETE FROM wp_head WHERE id IN ({ours(log, 2, 6)})")
        assert codes(shared_log_url) == [("HEAD_MISSING", 6)]
        change(f"DELETE FROM wp_head WHERE id = {ours(log, 10)}")
        assert ("EVENT_UNSEALED", 9) in codes(shared_log_url)


def test_the_first_head_is_missed_too(shared_log_url: str, change: Change) -> None:
    with open_log(shared_log_url, create=True) as log:
        grow(log, 2)
        change(f"DELETE FROM wp_head WHERE id = {ours(log, 2)}")
    assert codes(shared_log_url) == [("HEAD_MISSING", 2)]


def test_a_head_that_no_commit_stored_is_named(shared_log_url: str, change: Change) -> None:
    with open_log(shared_log_url, create=True) as log:
        grow(log, 3)
        root = log.root_at(3).root.hex()
        key = (log.log_id << LOG_SHIFT) + 3
        literal = f"X'{root}'" if log.backend == "sqlite" else f"'\\x{root}'::bytea"
        change(f"INSERT INTO wp_head (id, root) VALUES ({key}, {literal})")
    assert codes(shared_log_url) == [("HEAD_CHANGED", 3)]


def test_a_store_of_an_earlier_release_is_read_as_it_is_and_linked_when_it_is_written(
    shared_log_url: str, change: Change
) -> None:
    with open_log(shared_log_url, create=True) as log:
        grow(log, 3)
    change('ALTER TABLE wp_head DROP COLUMN "before"')
    with open_log(shared_log_url, read_only=True) as log:
        assert verify_tree(log) == []
        assert schema_faults(lambda statement: log.query(statement), log.backend, {}) == []
        assert [head.size for head in log.heads()] == [2, 4, 6]
    with open_log(shared_log_url) as log:
        grow(log, 2)
        assert [tuple(row) for row in change('SELECT "before" FROM wp_head ORDER BY id')][-5:] == [
            (None,),
            (None,),
            (None,),
            (6,),
            (8,),
        ]
        assert schema_faults(lambda statement: log.query(statement), log.backend, {}) == []
        assert verify_tree(log) == []
        change(f"DELETE FROM wp_head WHERE id = {ours(log, 2)}")
        assert codes(shared_log_url) == []  # nothing names it
        change(f"DELETE FROM wp_head WHERE id = {ours(log, 6)}")
        assert codes(shared_log_url) == [("HEAD_MISSING", 6)]


def test_opening_a_store_of_an_earlier_release_for_reading_changes_no_byte(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    with open_log(str(path), create=True) as log:
        grow(log, 3)
    with closing(sqlite3.connect(path)) as database:
        database.execute('ALTER TABLE wp_head DROP COLUMN "before"')
        database.execute("DROP TABLE wp_clock")
        database.commit()
    before = path.read_bytes()
    with open_log(str(path), read_only=True) as log:
        assert verify_tree(log) == []
    assert path.read_bytes() == before


def test_a_role_that_may_not_change_the_tables_goes_on_without_links(
    postgres_database: str, request: pytest.FixtureRequest
) -> None:
    with open_log(postgres_database, create=True) as log:
        grow(log, 1)
    role = f"writer_{abs(hash(request.node.nodeid)) % 10**9}"
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute('ALTER TABLE wp_head DROP COLUMN "before"')
        connection.execute(f"CREATE ROLE {role} LOGIN".encode())
        connection.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}".encode())
    address = postgres_database.replace("postgres:", f"{role}:", 1).replace("postgresql", "postgresql", 1)
    try:
        with open_log(address) as log:
            grow(log, 2)
            assert verify_tree(log) == []
            assert [head.size for head in log.heads()] == [2, 4, 6]
    except RefusedError as refused:  # pragma: no cover - the message says what is missing
        raise AssertionError(refused.message) from refused
    finally:
        with psycopg.connect(postgres_database, autocommit=True) as connection:
            connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


def test_linked_and_unlinked_heads_vouch_alike_when_a_file_is_salvaged(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    with Realm.create(path, domain=shop) as world:
        world.register("ann", "agent")
        unlinked = world.log.head().size
    with closing(sqlite3.connect(path)) as database:
        database.execute('ALTER TABLE wp_head DROP COLUMN "before"')
        database.commit()
    with Realm.open(path, domain=shop) as world:
        world.register("bob", "agent")
        linked = world.log.head().size
    for size in (unlinked, linked):
        damaged = tmp_path / f"{size}.db"
        damaged.write_bytes(path.read_bytes())
        with closing(sqlite3.connect(damaged)) as database:
            database.execute("PRAGMA secure_delete=ON")
            database.execute("DROP TABLE wp_store")
            database.execute(f"DELETE FROM wp_head WHERE id & {POSITION_MASK} != {size}")
            database.commit()
        done = salvage(str(damaged), tmp_path / f"{size}.jsonl", tmp_path / f"{size}-rest.jsonl")
        assert (done.head.size, done.vouched) == (size, "stored")
