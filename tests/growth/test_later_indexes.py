"""Logs of earlier releases get the indexes that they lack when they are opened for writing; a reader does without."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.counter import counter
from world.audit.index_checks import table_faults
from world.log import open_log
from world.read_models.index import VIEW_NAME, WorldIndex
from world.read_models.index_sql.queries import LATER_INDEXES
from world.read_models.index_tables import METADATA
from worldprotocol import Realm


def indexes(address: str) -> set[str]:
    """Return the names of the indexes in the database of a log."""
    with open_log(address, read_only=True) as log:
        return {str(row[0]) for row in log._store.query(log._store.indexes_sql, ())}


@pytest.fixture
def earlier(shared_log_url: str) -> str:
    """Return the address of a realm as an earlier release has left it: without these indexes."""
    with Realm.create(shared_log_url, domain=counter) as realm:
        realm.register("bot", "agent", binding={"kind": "auto_approve"})
        realm.act("bot", "sell", {"item": "tea", "count": 1})
    with open_log(shared_log_url) as log, log._store.migrating() as cursor:
        for name in sorted(LATER_INDEXES):
            cursor.execute(f"DROP INDEX IF EXISTS {name}")
    return shared_log_url


@pytest.mark.requirement("CARD-log")
def test_an_earlier_log_is_read_without_the_indexes_and_has_no_fault(earlier: str) -> None:
    with Realm.open_read_only(earlier) as realm:
        [newest, _] = realm.worlds(2)
        assert newest.world_id == realm.branch().head
        assert table_faults(realm.log) == []
    assert not LATER_INDEXES & indexes(earlier)


@pytest.mark.requirement("CARD-log")
def test_opening_an_earlier_log_for_writing_adds_the_indexes_and_keeps_its_rows(earlier: str) -> None:
    def rows() -> Any:
        with Realm.open_read_only(earlier) as realm:
            return list(realm.worlds(5)), realm.log.view_state(VIEW_NAME)

    before = rows()
    Realm.open(earlier, domain=counter).close()
    assert indexes(earlier) >= LATER_INDEXES
    assert rows() == before
    with open_log(earlier, read_only=True) as log:
        assert table_faults(log) == []


def test_the_later_indexes_are_indexes_of_the_tables() -> None:
    made = {str(index.name) for table in METADATA.tables.values() for index in table.indexes}
    assert made >= LATER_INDEXES == WorldIndex().later_indexes
