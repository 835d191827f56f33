"""What one governed proposal costs the database: statements, round trips and bytes, counted and not timed."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bench.bench_writing import bytes_each
from bench.written import governed, propose, reopened, states_of_one
from tests.log.test_group_commit import in_threads
from tests.support.engines import engine_of
from tests.support.patience import PATIENCE_S
from world.engine import preparation
from world.engine.preparation import IN_VAIN
from world.log import GroupCommit, Pending
from world.log.backends import postgres
from world.log.backends.postgres import PostgresStore
from world.log.backends.postgres_hosts import FlushingConnection
from worldprotocol import Realm

PROPOSALS = 2_000
BYTES_BESIDE_TEXT = 2_400
"""What a proposal takes in a log file beside the canonical text of its events."""

_READ = 1  # psycopg waits for an answer, and not for room to send


def writer_of(world: Realm) -> Any:
    """Return the connection by which a realm writes."""
    return world.log._store._writer  # type: ignore[attr-defined]


def statements(traced: list[str]) -> list[str]:
    """Return what each statement does to which table, with all rows that are inserted into one table as one."""
    short = [" ".join(re.sub(r" (IMMEDIATE|INTO)\b", "", " ".join(one.split())).split()[:2]) for one in traced]
    merged = [(name, list(same)) for name, same in itertools.groupby(short)]
    return [one for name, same in merged for one in (same[:1] if name.startswith("INSERT") else same)]


def test_a_proposal_takes_these_statements_on_sqlite(tmp_path: Path) -> None:
    with governed(str(tmp_path / "world.db")) as world:
        for number in range(3):
            propose(world, number)
        traced: list[str] = []
        writer_of(world).set_trace_callback(traced.append)
        propose(world, 3)
        writer_of(world).set_trace_callback(None)
    assert statements(traced) == [
        "PRAGMA data_version",  # the look for commits of others when the intent is issued; it is prepared on that state
        "BEGIN",
        "PRAGMA data_version",  # whether others have written to the file, to any of its logs
        "SELECT (SELECT",  # head, last event, clocks and views
        "SELECT (SELECT",  # whether the intent is known, and its attempts
        "INSERT wp_proposal",
        "INSERT wp_world",
        "UPDATE wp_branch",
        "INSERT wp_verdict",
        "INSERT wp_event",
        "INSERT wp_head",
        "INSERT wp_clock",
        "COMMIT",
    ]


class Counted:
    """Waits for the server and statements of connections, and queries of reading connections under the lock."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.waits: list[Any] = []
        self.statements: list[tuple[Any, str]] = []
        self.under_lock: list[str] = []
        wait, execute = FlushingConnection.wait, psycopg.Cursor.execute
        begin, end, query = PostgresStore.begin, PostgresStore.end, PostgresStore.query
        held: list[int] = []

        def waiting(connection: Any, gen: Generator[Any, Any, Any], *args: Any, **named: Any) -> Any:
            return wait(connection, self._noted(connection, gen), *args, **named)

        def executing(cursor: Any, sql: Any, *args: Any, **named: Any) -> Any:
            self.statements.append((cursor.connection, str(sql)))
            return execute(cursor, sql, *args, **named)

        def beginning(store: PostgresStore, *args: Any, **named: Any) -> Any:
            held.append(threading.get_ident())
            return begin(store, *args, **named)

        def ending(store: PostgresStore) -> None:
            held.clear()
            end(store)

        def asking(store: PostgresStore, sql: str, parameters: Any) -> Any:
            if threading.get_ident() in held:
                self.under_lock.append(sql)
            return query(store, sql, parameters)

        patch.setattr(FlushingConnection, "wait", waiting)
        patch.setattr(psycopg.Cursor, "execute", executing)
        patch.setattr(PostgresStore, "begin", beginning)
        patch.setattr(PostgresStore, "end", ending)
        patch.setattr(PostgresStore, "query", asking)

    def _noted(self, connection: Any, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        waited = False
        try:
            wanted = next(gen)
            while True:
                waited |= wanted == _READ
                wanted = gen.send((yield wanted))
        except StopIteration as done:
            if waited:
                self.waits.append(connection)
            return done.value

    def of(self, world: Realm, work: Callable[[], object]) -> tuple[int, list[str]]:
        """Return how often the writing connection of a realm waits in a work, and the statements it executes."""
        for found in (self.waits, self.statements, self.under_lock):
            found.clear()
        work()
        writer = writer_of(world)
        return self.waits.count(writer), [sql for connection, sql in self.statements if connection is writer]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Count on a machine of any speed: others' events are expected, and no preparation counts as slow."""
    monkeypatch.setattr(postgres, "_EXPECT_S", 10**9)
    monkeypatch.setattr(preparation, "FAST_MS", 10**9)
    return Counted(monkeypatch)


def test_a_proposal_takes_two_round_trips_on_postgresql(postgres_database: str, counted: Counted) -> None:
    with governed(postgres_database) as world:
        for number in range(5):
            propose(world, number)
        waits, executed = counted.of(world, lambda: propose(world, 5))
    assert waits <= 2, executed  # the opening under the lock, and the commit; an answer may be there already
    assert len(executed) == 7, executed  # BEGIN, lock, opening, intent, index, events with tree head, COMMIT
    assert len(counted.statements) == 7 + 1  # one look for commits of others
    assert counted.under_lock == []


def test_proposals_of_others_are_taken_in_within_the_same_round_trips(postgres_database: str, counted: Counted) -> None:
    with governed(postgres_database) as world, reopened(postgres_database) as other:
        for number in range(4):
            propose(world, number)
            propose(other, number)
        for number in range(5):
            propose(other, number)
        waits, executed = counted.of(world, lambda: propose(world, 5))
        assert world.data() == other.data()
    assert waits <= 2, executed
    assert len(executed) == 8, executed  # with the events of others
    assert counted.under_lock == []  # the state of their worlds follows from their patches


@pytest.mark.parametrize("others", [1, 7])
def test_worlds_that_others_seal_while_the_lock_is_awaited_take_no_query_under_it(
    postgres_database: str, counted: Counted, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    with governed(postgres_database) as world, reopened(postgres_database) as other:
        for number in range(4):
            propose(world, number)
            propose(other, number)
        group = engine_of(world)._group
        submit = group.submit

        def later(command: Any) -> Any:
            for number in range(others):
                propose(other, number)
            return submit(command)

        monkeypatch.setattr(group, "submit", later)
        for _ in range(IN_VAIN):
            waits, executed = counted.of(world, lambda: propose(world, 5))
            assert waits <= 2, executed
            assert len(executed) == 8, executed
            assert counted.under_lock == []  # neither a checkpoint nor a row of the index for each of them
        counted.of(world, lambda: propose(world, 6))
        own = [writer_of(world), *world.log._store._readers._idle]  # type: ignore[attr-defined]
        assert len([sql for connection, sql in counted.statements if connection in own]) == 8 + 1  # not prepared
        assert world.data() == other.data()


def test_commands_that_arrive_while_the_lock_is_awaited_share_the_commit() -> None:
    batches: list[list[int]] = []
    waiting, locked = threading.Event(), threading.Event()

    def run(batch: list[Pending[int, int]]) -> None:
        waiting.set()
        assert locked.wait(PATIENCE_S)
        mine = list(batch)
        mine += group.join()
        batches.append([item.command for item in mine])
        for item in mine:
            item.succeed(item.command * 10)

    group: GroupCommit[int, int] = GroupCommit(run, max_batch=4)
    results: dict[int, int] = {}

    def submit(number: int) -> None:
        results[number] = group.submit(number)

    first = in_threads(1, submit)
    assert waiting.wait(PATIENCE_S)
    others = in_threads(6, lambda number: submit(number + 1))
    while len(group._queue) < 6:
        threading.Event().wait(0.001)
    locked.set()
    for thread in first + others:
        thread.join(PATIENCE_S)
    assert [len(batch) for batch in batches] == [4, 3]
    assert results == {number: number * 10 for number in range(7)}
    assert group.join() == []  # this thread runs no batch


@pytest.mark.slow
def test_the_bytes_of_a_proposal_are_bounded(tmp_path: Path) -> None:
    file = tmp_path / "world.db"
    with governed(str(file), durability="normal") as world:
        for number in range(PROPOSALS):
            propose(world, number)
    each, tables = bytes_each(file, PROPOSALS)
    text = sum(map(len, states_of_one(str(file))))
    assert each - text <= BYTES_BESIDE_TEXT, tables
