from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text, bindparam, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from world.errors import RefusedError
from world.log import (
    EventLog,
    LoggedEvent,
    NewEvent,
    PersistedView,
    ViewCursor,
    ViewState,
    compiled,
    open_log,
    rebuild_view,
)
from world.log.url import Backend


class Counts:
    """Counts the events of every stream."""

    version = 1

    def __init__(self, name: str, version: int = 1) -> None:
        self.name = name
        self.version = version
        self.metadata = MetaData()
        self.table = Table(
            f"count_{name}",
            self.metadata,
            Column("log_id", Integer, primary_key=True, autoincrement=False),
            Column("stream", Text, primary_key=True),
            Column("events", Integer, nullable=False, index=True),
        )
        self.applied: list[int] = []
        self.cleared = 0

    def clear(self, cursor: ViewCursor) -> None:
        self.cleared += 1
        mine = self.table.c.log_id == bindparam("log_id")
        cursor.run(compiled(delete(self.table).where(mine), cursor.backend), log_id=cursor.log_id)

    def apply(self, cursor: ViewCursor, events: Sequence[LoggedEvent]) -> None:
        insert: Any = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[cursor.backend](self.table)
        upsert = insert.on_conflict_do_update(
            index_elements=["log_id", "stream"], set_={"events": self.table.c.events + 1}
        )
        statement = compiled(upsert, cursor.backend)
        rows = [statement.bind(log_id=cursor.log_id, stream=event.stream, events=1) for event in events]
        cursor.executemany(statement.sql, rows)
        self.applied += [event.position for event in events]

    def read(self, log: EventLog) -> dict[str, int]:
        mine = self.table.c.log_id == bindparam("log_id")
        query = select(self.table.c.stream, self.table.c.events).where(mine)
        return dict(log.query(compiled(query, log.backend), log_id=log.log_id))


names = iter(range(1_000_000))


@pytest.fixture
def name() -> str:
    return f"v{next(names)}"


def append(log: EventLog, view: PersistedView | None, *streams: str) -> None:
    with log.write() as transaction:
        events = transaction.append(NewEvent(stream, "t", 1, b"{}") for stream in streams)
        if view is not None:
            view.apply(transaction.cursor(), events)


def test_a_view_changes_in_the_commit_of_the_events(log_url: str, name: str) -> None:
    view = Counts(name)
    with open_log(log_url, create=True, view=view) as log:
        append(log, view, "a", "b", "a")
        assert view.read(log) == {"a": 2, "b": 1}
        assert log.view_state(name) == ViewState(1, None)

        def change_and_fail() -> None:
            with log.write() as transaction:
                view.apply(transaction.cursor(), transaction.append([NewEvent("a", "t", 1, b"{}")]))
                raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            change_and_fail()
        assert view.read(log) == {"a": 2, "b": 1}


def test_a_live_view_is_not_built_again_when_the_log_is_opened(shared_log_url: str, name: str) -> None:
    with open_log(shared_log_url, create=True, view=Counts(name)) as log:
        append(log, Counts(name), "a", "b")
    again = Counts(name)
    with open_log(shared_log_url, view=again) as log:
        assert again.read(log) == {"a": 1, "b": 1}
    assert (again.applied, again.cleared) == ([], 0)


def test_a_view_opened_later_is_built_in_batches(
    shared_log_url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("world.log.log.REBUILD_BATCH", 4)
    view = Counts(name)
    steps: list[tuple[int, int]] = []
    with open_log(shared_log_url, create=True) as log:
        append(log, None, *"abcabcabca")
    with open_log(shared_log_url, view=view, progress=lambda done, of: steps.append((done, of))) as log:
        assert view.read(log) == {"a": 4, "b": 3, "c": 3}
    assert view.applied == list(range(1, 11))
    assert steps == [(4, 10), (8, 10), (10, 10)]


def test_a_build_that_was_broken_off_goes_on_where_it_was(
    shared_log_url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("world.log.log.REBUILD_BATCH", 4)
    with open_log(shared_log_url, create=True) as log:
        append(log, None, *"abcabcabca")

    def stop(done: int, _: int) -> None:
        if done == 8:
            raise KeyboardInterrupt

    first, second = Counts(name), Counts(name)
    with pytest.raises(KeyboardInterrupt):
        open_log(shared_log_url, view=first, progress=stop)
    with open_log(shared_log_url, view=second) as log:
        assert second.read(log) == {"a": 4, "b": 3, "c": 3}
    assert second.applied == list(range(5, 11))


def test_a_writer_without_the_view_stops_it_and_the_next_one_catches_up(shared_log_url: str, name: str) -> None:
    view = Counts(name)
    with open_log(shared_log_url, create=True, view=view) as log:
        append(log, view, "a", "b")
        with open_log(shared_log_url) as plain:
            append(plain, None, "a", "c")
            assert plain.view_state(name) == ViewState(1, 2)
            append(plain, None, "c")
            assert plain.view_state(name) == ViewState(1, 2)
        append(log, view, "b")
        assert log.view_state(name) == ViewState(1, None)
        assert view.read(log) == {"a": 2, "b": 2, "c": 2}
    assert view.applied == [1, 2, 3, 4, 5, 6]


def test_a_new_version_drops_the_tables_and_builds_the_view_again(shared_log_url: str, name: str) -> None:
    old, new = Counts(name, 1), Counts(name, 2)
    with open_log(shared_log_url, create=True, view=old) as log:
        append(log, old, "a", "b")
        with open_log(shared_log_url, view=new) as newer:
            assert new.read(newer) == {"a": 1, "b": 1}
            append(newer, new, "a")
        with pytest.raises(RefusedError) as caught:
            append(log, old, "b")
        assert caught.value.code == "VIEW_CHANGED"
        assert log.head().size == 3
    with pytest.raises(RefusedError) as caught:
        open_log(shared_log_url, view=old)
    assert caught.value.code == "VIEW_NEWER"


def test_a_view_can_be_built_again_on_demand(log_url: str, name: str) -> None:
    view = Counts(name)
    with open_log(log_url, create=True, view=view) as log:
        append(log, view, "a", "b")
        log.rebuild_view()
        assert view.read(log) == {"a": 1, "b": 1}
        assert view.cleared == 2
        assert log.view_state(name) == ViewState(1, None)
        append(log, view, "a")
        assert view.read(log) == {"a": 2, "b": 1}


def test_a_view_whose_table_was_dropped_is_built_again_for_this_log_and_later_for_the_others(
    shared_log_url: str, name: str
) -> None:
    view, other = Counts(name), shared_log_url.partition("#")[0] + f"#other-{name}"
    for address in (shared_log_url, other):
        with open_log(address, create=True, view=view) as log:
            append(log, view, "a", "b")
    with open_log(shared_log_url) as log, log.write() as transaction:
        transaction.cursor().execute(f"DROP TABLE {view.table.name}")
    steps: list[tuple[int, int]] = []
    assert rebuild_view(shared_log_url, view, progress=lambda *step: steps.append(step)) == 2
    assert steps[-1] == (2, 2)
    with open_log(shared_log_url, read_only=True) as log:
        assert view.read(log) == {"a": 1, "b": 1}
        assert log.view_state(name) == ViewState(1, None)
    with open_log(other, read_only=True) as log:
        assert log.view_state(name) is None
    with open_log(other, view=view) as log:
        assert view.read(log) == {"a": 1, "b": 1}


def test_logs_of_one_store_share_the_tables_of_a_view(shared_log_url: str, name: str) -> None:
    view = Counts(name)
    other_url = shared_log_url.partition("#")[0] + f"#other-{name}"
    with open_log(shared_log_url, create=True, view=view) as log:
        append(log, view, "a")
        with open_log(other_url, create=True, view=view) as other:
            append(other, view, "z")
            assert view.read(other) == {"z": 1}
        assert view.read(log) == {"a": 1}
        log.rebuild_view()
        assert view.read(log) == {"a": 1}


def test_a_reader_sees_how_far_a_view_is_and_changes_nothing(shared_log_url: str, name: str) -> None:
    view = Counts(name)
    with open_log(shared_log_url, create=True, view=view) as log:
        append(log, view, "a")
    with open_log(shared_log_url) as plain:
        append(plain, None, "b")
    with open_log(shared_log_url, read_only=True, view=view) as reader:
        assert reader.view_state(name) == ViewState(1, 1)
        assert reader.view_state("another") is None
        assert view.read(reader) == {"a": 1}


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_compiled_statement_binds_by_name(backend: Backend) -> None:
    table = Counts("c").table
    query = select(table.c.stream).where(table.c.events > bindparam("least"), table.c.log_id == 7)
    statement = compiled(query, backend)
    assert set(statement.bind(least=3)) == {3, 7}
    with pytest.raises(KeyError):
        statement.bind()
