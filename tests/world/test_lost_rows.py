"""A log whose index has lost rows is not taken for one in which less happened: it is read right or its damage named.

Founding, branches, epochs and what was submitted are decided by the events, on both databases.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cli.counter import counter, house
from tests.world.test_rebuilt_index import OPENED, begin
from world.errors import DamagedLogError, RefusedError
from world.events.run_events import RunOpened
from world.read_models.index_tables import METADATA
from worldprotocol import Realm
from worldprotocol.api.bootstrap import rebuild_index

COUNTED = ("wp_world", "wp_branch", "wp_landmark")
"""Tables of which the loss of any single row is found when a realm is opened."""

NEEDED = (*COUNTED, "wp_proposal", "wp_run")
"""Tables without whose rows a realm cannot be opened; without those of the others its state is the same."""

OPENERS: dict[str, Callable[..., Realm]] = {
    "open": partial(Realm.open, domain=counter, policies=[house]),
    "open_or_create": partial(Realm.open_or_create, domain=counter, policies=[house]),
    "create": partial(Realm.create, domain=counter, policies=[house]),
    "open_read_only": Realm.open_read_only,
}


class Store:
    """A log with a bit of everything, whose tables are changed behind the program's back."""

    def __init__(self, address: str) -> None:
        self.address = address
        with Realm.create(address, domain=counter, policies=[house]) as world:
            self.log_id = world.log.log_id
            world.register("bot", "agent", binding={"kind": "auto_approve"})
            world.register("ann", "agent", binding={"kind": "hitl", "ask": ["bot"]})
            for count in (1, 2, 3):
                world.act("bot", "sell", {"item": "tea", "count": count})
            world.create_branch("other")
            world.switch_branch("other")
            world.act("ann", "sell", {"item": "tea"})
            for name in ("r1", "r2", "r3"):
                begin(world, RunOpened(at=5, run_id=name, **OPENED))

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Run SQL in which ``LOG`` is the id of the log in the tables; return its rows."""
        sql = statement.replace("LOG", str(self.log_id))
        if self.address.startswith("sqlite"):
            with closing(sqlite3.connect(self.address.removeprefix("sqlite:///"))) as database, database:
                return database.execute(sql).fetchall()
        import psycopg

        with psycopg.connect(self.address.partition("#")[0]) as connection:
            found = connection.execute(sql.encode())
            return found.fetchall() if found.description else []

    def foundings(self) -> int:
        """Return how many events of the log found it."""
        return len(self.run("SELECT 1 FROM wp_event WHERE log_id = LOG AND topic = 'log.founded'"))

    def outcome(self, opener: str) -> tuple[str, Any]:
        """Return what opening the realm ends with: an error code, or the state."""
        try:
            with OPENERS[opener](self.address) as world:
                realm = world.archive.realm()
                heads = {name: (one.head, one.tip) for name, one in realm.branches.items()}
                return "", (heads, realm.active, realm.epoch, set(realm.proposals), set(realm.runs), set(realm.actors))
        except (RefusedError, DamagedLogError) as error:
            return error.code if "`worldctl doctor --rebuild`" in error.message else f"only {error.code}", None


@pytest.fixture
def store(shared_log_url: str) -> Store:
    return Store(shared_log_url)


@pytest.mark.requirement("CARD-log", "WP-founding")
def test_no_log_is_founded_beside_the_events_of_one_that_is_not_listed(store: Store) -> None:
    [(log_id, name)] = store.run("SELECT id, name FROM wp_log WHERE id = LOG")
    store.run("DELETE FROM wp_log WHERE id = LOG")
    try:
        for opener in ("create", "open_or_create"):
            assert store.outcome(opener) == ("only EVENT_STRAY", None)
    finally:
        store.run(f"INSERT INTO wp_log (id, name) VALUES ({log_id}, '{name}')")
    assert store.outcome("open")[0] == ""
    assert store.foundings() == 1


@pytest.mark.requirement("CARD-log", "WP-founding")
@pytest.mark.slow
def test_a_log_whose_index_lost_all_rows_of_a_table_is_not_founded_again(store: Store) -> None:
    whole = store.outcome("open_read_only")
    for table in (*sorted(METADATA.tables), "wp_view"):
        kept = store.run(f"SELECT * FROM {table} WHERE log_id = LOG")
        store.run(f"DELETE FROM {table} WHERE log_id = LOG")
        for opener in OPENERS:
            code, state = store.outcome(opener)
            if table in NEEDED:
                assert (table, opener, code) == (table, opener, "INDEX_DAMAGED")
            elif opener == "create":
                assert (table, code) == (table, "only ALREADY_FOUNDED")
            else:
                assert (table, opener, code, state) == (table, opener, *whole)
        assert store.foundings() == 1
        rebuild_index(store.address)
        assert store.outcome("open") == whole
        assert kept or table == "wp_ledger"


@pytest.mark.requirement("CARD-log", "WP-founding")
@pytest.mark.parametrize("table", COUNTED)
def test_the_loss_of_any_world_branch_or_landmark_is_named_when_a_realm_is_opened(store: Store, table: str) -> None:
    key = {"wp_world": "world_id", "wp_branch": "name", "wp_landmark": "position"}[table]
    for (value,) in store.run(f"SELECT {key} FROM {table} WHERE log_id = LOG"):
        store.run(f"DELETE FROM {table} WHERE log_id = LOG AND {key} = '{value}'")
        assert (value, store.outcome("open")[0]) == (value, "INDEX_DAMAGED")
        rebuild_index(store.address)
    assert store.outcome("open")[0] == ""


@pytest.mark.requirement("CARD-log")
@pytest.mark.parametrize(
    ("table", "key", "found"),
    [
        ("wp_proposal", "proposal_id", "it has 3 proposals after event 0, and the log 4"),
        ("wp_run", "run_id", "it has 2 runs after event 0, and the log 3"),
    ],
)
def test_the_loss_of_a_proposal_or_a_run_between_others_is_named_by_doctor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], table: str, key: str, found: str
) -> None:
    from worldprotocol.cli.program import run

    store = Store(f"sqlite:///{tmp_path / 'world.db'}")
    store.run(f"DELETE FROM {table} WHERE {key} = (SELECT {key} FROM {table} ORDER BY 1 LIMIT 1, 1)")
    assert store.outcome("open")[0] == "INDEX_DAMAGED"
    assert run(["--log", str(tmp_path / "world.db"), "doctor"]) == 3
    assert found in " ".join(capsys.readouterr().out.split())
