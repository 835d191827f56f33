"""Units of work on PostgreSQL that hold the log's lock for too long: which ones waiters end, and what follows."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

import psycopg
import pytest

from tests.pipeline.shop import open_shop, shop
from tests.support.patience import PATIENCE_S
from world.errors import LogBusyError, UnitEndedError, WorldProtocolError
from world.log import EventLog, NewEvent, open_log
from world.log.audit import verify_tree
from world.log.backends import postgres, postgres_errors, postgres_lock
from world.log.backends.postgres import PostgresStore
from worldprotocol import Realm
from worldprotocol.api.bootstrap import rebuild_index
from worldprotocol.export.jsonl import export_log, import_log

HOLD_MS = 300
"""How long a unit may hold the lock in these tests."""

NAMES = "SELECT application_name FROM pg_stat_activity WHERE application_name LIKE 'worldprotocol unit %'"


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (postgres, postgres_errors, postgres_lock):
        monkeypatch.setattr(module, "MAX_HOLD_MS", HOLD_MS)
    monkeypatch.setattr(postgres, "_LOOK_S", 0.05)
    monkeypatch.setattr(postgres, "_LOOK_AGAIN_S", 0.05)


def append(log: EventLog, **options: Any) -> None:
    with log.write(**options) as transaction:
        transaction.append([NewEvent("s", "t", 1, b"{}")])


def holding(log: EventLog, inside: Any = lambda: None, **options: Any) -> None:
    """Append while another thread waits, and do something under the lock when it has given up or succeeded."""
    with log.write(**options) as transaction:
        transaction.append([NewEvent("held", "t", 1, b"{}")])
        inside()


def busy(url: str) -> int:
    """Wait for the lock in vain, for several times as long as a unit may hold it; return how many units were ended."""
    with open_log(url, busy_timeout_ms=HOLD_MS * 5) as other:
        with pytest.raises(LogBusyError):
            append(other)
        return other.units_ended


def test_a_waiter_ends_a_unit_after_its_time_says_so_and_goes_on(
    postgres_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    with open_log(postgres_database, create=True) as log, open_log(postgres_database) as other:
        with pytest.raises(UnitEndedError) as ended, caplog.at_level(logging.WARNING, logger="worldprotocol"):
            holding(log, lambda: append(other), is_unit=True)
        assert ended.value.code == "LOG_UNAVAILABLE"
        assert "nothing of it was recorded" in ended.value.message
        assert (other.units_ended, log.units_ended) == (1, 0)
        [record] = caplog.records
        assert "Ended the unit of work of backend" in record.getMessage()
        append(log, is_unit=True)
        assert [event.stream for event in log.read()] == ["s", "s"]
        assert verify_tree(log) == []


def test_a_unit_is_named_while_it_has_the_lock_and_not_longer(postgres_database: str) -> None:
    with open_log(postgres_database, create=True) as log, psycopg.connect(postgres_database, autocommit=True) as looks:
        named: list[str] = []
        holding(log, lambda: named.extend(name for (name,) in looks.execute(NAMES)), is_unit=True)
        assert [name.rpartition(" ")[0] for name in named] == [f"worldprotocol unit {log.log_id}"]
        assert looks.execute(NAMES).fetchall() == []
        holding(log, lambda: named.extend(name for (name,) in looks.execute(NAMES)))
        assert len(named) == 1


def test_what_is_no_unit_is_never_ended(postgres_database: str) -> None:
    ended: list[int] = []
    with open_log(postgres_database, create=True) as log:
        holding(log, lambda: ended.append(busy(postgres_database)))
        assert (ended, log.head().size) == ([0], 1)


def test_rebuilding_cutting_and_importing_are_no_units(postgres_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[bool] = []
    begin = PostgresStore.begin

    def noted(self: PostgresStore, *given: Any, **options: Any) -> Any:
        begun.append(options.get("is_unit", False))
        return begin(self, *given, **options)

    monkeypatch.setattr(PostgresStore, "begin", noted)
    with open_shop(f"{postgres_database}#shop") as realm:
        realm.act("ann", "sell", {"item": "tea"})
        assert begun.count(True) > 0
        begun.clear()
        exported = BytesIO()
        export_log(realm.log, exported)
        realm.log.store_snapshot(1, "{}")
        realm.log.drop_snapshots(2)
        realm.log.set_contents([])
    rebuild_index(f"{postgres_database}#shop")
    exported.seek(0)
    import_log(exported, f"{postgres_database}#copy")
    assert begun
    assert not any(begun)
    with Realm.open(f"{postgres_database}#copy", domain=shop) as realm:
        assert realm.data()["sold"] == 1


def test_the_unit_of_another_role_is_not_ended(postgres_database: str) -> None:
    open_log(postgres_database, create=True).close()
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        role = f"holder_{connection.info.dbname}"
        connection.execute(f"CREATE ROLE {role} LOGIN".encode())
        connection.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}".encode())
        ended: list[int] = []
        try:
            with open_log(postgres_database.replace("//postgres:@", f"//{role}@")) as log:
                holding(log, lambda: ended.append(busy(postgres_database)), is_unit=True)
                assert (ended, log.head().size) == ([0], 1)
        finally:
            connection.execute(f"DROP OWNED BY {role}".encode())
            connection.execute(f"DROP ROLE {role}".encode())


def test_a_unit_whose_server_works_is_not_ended(postgres_database: str) -> None:
    """So is one that waits for standbys, whose commit would be seen before they have it."""
    with (
        open_log(postgres_database, create=True) as log,
        psycopg.connect(postgres_database, autocommit=True) as keeper,
        held(keeper) as release,
    ):
        ended: list[int] = []

        def wait() -> None:
            ended.append(busy(postgres_database))
            release()

        def work() -> None:
            cursor = log._store.cursor()
            cursor.execute("SELECT pg_advisory_xact_lock_shared(7)")
            waiter = threading.Thread(target=wait)
            waiter.start()
            cursor.fetchall()
            waiter.join(PATIENCE_S)

        holding(log, work, is_unit=True)
        assert (ended, log.head().size) == ([0], 1)


@contextmanager
def held(connection: psycopg.Connection[Any]) -> Iterator[Any]:
    """Hold a lock on the server for which a statement waits, until it is released."""
    connection.execute("SELECT pg_advisory_lock(7)")
    yield lambda: connection.execute("SELECT pg_advisory_unlock(7)")


def end_writer(log: EventLog, url: str) -> None:
    """End the backend of a log's connection for writing, as a waiter would, and wait until it is gone."""
    writer = log._store._writer  # type: ignore[attr-defined]
    with psycopg.connect(url, autocommit=True) as connection:
        end = "SELECT pg_terminate_backend(%s, 60000)"
        assert connection.execute(end, (writer.info.backend_pid,)).fetchone() == (True,)


def test_a_commit_whose_unit_was_ended_before_it_is_known_not_to_be_stored(postgres_database: str) -> None:
    with open_log(postgres_database, create=True) as log, open_log(postgres_database) as other:
        append(log)

        def replaced() -> None:
            end_writer(log, postgres_database)
            append(other)  # at the position that the commit wanted

        with pytest.raises(UnitEndedError):
            holding(log, replaced, is_unit=True)
        assert [event.stream for event in log.read()] == ["s", "s"]
        append(log)
        assert verify_tree(log) == []


@pytest.mark.parametrize("is_unit", [False, True])
def test_a_commit_whose_acknowledgement_was_lost_is_looked_up(
    postgres_database: str, is_unit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = PostgresStore._send

    def send_and_lose(self: PostgresStore, *given: Any) -> None:
        send(self, *given)
        assert self._pipeline is not None
        self._pipeline.sync()
        end_writer(log, postgres_database)

    with open_log(postgres_database, create=True) as log, open_log(postgres_database) as other:
        append(log)
        monkeypatch.setattr(PostgresStore, "_send", send_and_lose)
        append(log, is_unit=is_unit)
        monkeypatch.setattr(PostgresStore, "_send", send)
        assert log.head().size == 2
        append(other)
        append(log)
        assert [event.version for event in log.read()] == [1, 2, 3, 4]
        assert verify_tree(log) == []


def test_a_commit_that_cannot_be_looked_up_is_unknown(postgres_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_log(postgres_database, create=True) as log:

        def refuse(*_given: Any, **_options: Any) -> Any:
            raise WorldProtocolError("LOG_UNAVAILABLE", "No server.")

        def lose() -> None:
            end_writer(log, postgres_database)
            monkeypatch.setattr(PostgresStore, "_connect", refuse)

        with pytest.raises(WorldProtocolError) as unknown:
            holding(log, lose, is_unit=True)
        assert unknown.value.code == "COMMIT_UNKNOWN"
        monkeypatch.undo()
        assert log.head().size == 0
