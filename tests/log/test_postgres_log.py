from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from tests.support.patience import PATIENCE_S
from world.errors import DamagedLogError, LogBusyError, RefusedError, WorldProtocolError
from world.log import EventLog, NewEvent, list_logs, open_log
from world.log.audit import verify_tree
from world.log.sql.statement import SqlStatement

HELD = SqlStatement("SELECT pg_backend_pid(), pg_advisory_xact_lock_shared(7)", (), {})
"""A query that takes as long as another connection holds a lock."""


def append(log: EventLog, count: int = 1, state: bytes = b"{}") -> None:
    with log.write() as transaction:
        transaction.append([NewEvent("s", "t", 1, state) for _ in range(count)])


def end_connections(url: str, *, of: str = "%") -> int:
    """End the server's other connections to a database, as a restart would."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE %s",
            (of,),
        )
        return len(found.fetchall())


def test_a_database_without_logs_is_no_log(postgres_database: str) -> None:
    for options in ({}, {"read_only": True}):
        with pytest.raises(RefusedError) as caught:
            open_log(postgres_database, **options)  # type: ignore[arg-type]
        assert caught.value.code == "NOT_A_LOG"


def test_tables_of_others_stay_beside_ours(postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE customers (id INT)")
        open_log(postgres_database, create=True).close()
        assert connection.execute("SELECT count(*) FROM customers").fetchone() == (0,)


def test_a_later_format_is_refused(postgres_database: str) -> None:
    open_log(postgres_database, create=True).close()
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("UPDATE wp_store SET version = 99")
    with pytest.raises(RefusedError) as caught:
        open_log(postgres_database)
    assert caught.value.code == "LOG_FORMAT"


def test_threads_that_open_a_new_database_together_do_not_race(postgres_database: str) -> None:
    errors: list[BaseException] = []
    barrier = threading.Barrier(6)

    def work() -> None:
        try:
            barrier.wait(PATIENCE_S)
            with open_log(postgres_database, create=True) as log:
                append(log)
        except BaseException as error:  # noqa: BLE001  # the test reports it
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with open_log(postgres_database, read_only=True) as log:
        assert log.head().size == 6
        assert verify_tree(log) == []


def test_people_read_the_log_with_their_own_tools(postgres_database: str) -> None:
    with open_log(postgres_database, create=True) as log:
        append(log, 2, b'{"n":1}')
        leaf = log.event_at(2).leaf.hex()
    with psycopg.connect(postgres_database) as connection:
        row = connection.execute(
            "SELECT log, position, version, state::json ->> 'n', leaf FROM world_events WHERE position = 2"
        ).fetchone()
    assert row == ("main", 2, 2, "1", leaf)


def test_a_server_that_cannot_be_reached_is_reported(tmp_path: Path) -> None:
    with pytest.raises(WorldProtocolError) as caught:
        open_log(f"postgresql://nobody:secret@/none?host={tmp_path}")
    assert caught.value.code == "LOG_UNAVAILABLE"
    assert "secret" not in str(caught.value)


def test_a_database_without_an_encoding_is_refused_with_its_cause(postgres_url: str) -> None:
    name = f"bytes_{os.getpid()}"
    address = postgres_url.replace("/postgres?", f"/{name}?", 1)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(
            f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0".encode()
        )
        try:
            for options in ({"create": True}, {}, {"read_only": True}):
                with pytest.raises(RefusedError) as caught:
                    open_log(address, **options)  # type: ignore[arg-type]
                assert caught.value.code == "DATABASE_ENCODING"
                assert "has the encoding SQL_ASCII" in caught.value.message
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def test_reading_and_writing_go_on_after_connections_were_lost(postgres_database: str) -> None:
    with open_log(postgres_database, create=True) as log:
        append(log)
        log.head()
        assert end_connections(postgres_database) >= 2
        append(log)
        assert log.head().size == 2
        end_connections(postgres_database)
        assert log.head().size == 2
        assert verify_tree(log) == []


def test_a_connection_lost_during_a_write_is_reported_and_the_next_write_works(
    postgres_database: str,
) -> None:
    with open_log(postgres_database, create=True) as log:
        append(log)

        def lose_the_connection() -> None:
            with log.write() as transaction:
                transaction.append([NewEvent("s", "t", 1, b"{}")])
                assert end_connections(postgres_database) >= 1

        with pytest.raises(WorldProtocolError) as caught:
            lose_the_connection()
        assert caught.value.code in ("COMMIT_UNKNOWN", "LOG_UNAVAILABLE")
        assert log.head().size == 1
        append(log)
        assert [event.version for event in log.read()] == [1, 2]


def test_another_writer_who_keeps_the_lock_is_reported(postgres_database: str) -> None:
    with open_log(postgres_database, create=True) as log:
        append(log)
        with (
            open_log(postgres_database, busy_timeout_ms=50) as other,
            log.write(),
            pytest.raises(LogBusyError),
        ):
            append(other)
        append(log)


def test_logs_of_one_database_do_not_wait_for_each_other(postgres_database: str) -> None:
    with (
        open_log(postgres_database + "#one", create=True) as one,
        open_log(postgres_database + "#two", create=True, busy_timeout_ms=2000) as two,
        one.write(),
    ):
        append(two)
    assert list_logs(postgres_database) == ["one", "two"]


@pytest.mark.parametrize("size", [100, 100_000, 3_000_000])
@pytest.mark.parametrize("count", [1, 9])
def test_a_commit_of_any_size_reaches_the_server(postgres_url: str, size: int, count: int) -> None:
    with open_log(f"{postgres_url}#size-{size}-{count}", create=True) as log:
        append(log, count, b'"%s"' % (b"x" * size))
        append(log)
        assert log.head().size == count + 1
        assert sum(len(event.state) for event in log.read()) == count * (size + 2) + 2


def test_writers_in_threads_and_a_following_reader_miss_nothing(postgres_database: str) -> None:
    each, writers = 25, 8
    open_log(postgres_database, create=True).close()

    def work() -> None:
        with open_log(postgres_database) as log:
            for _ in range(each):
                append(log)

    threads = [threading.Thread(target=work) for _ in range(writers)]
    with open_log(postgres_database, read_only=True) as log, log.follow(poll_ms=1) as follower:
        for thread in threads:
            thread.start()
        positions: list[Any] = [next(follower).position for _ in range(each * writers)]
        for thread in threads:
            thread.join()
    assert positions == list(range(1, each * writers + 1))


def test_many_readers_wait_for_a_few_connections(postgres_database: str) -> None:
    with (
        open_log(postgres_database, create=True) as log,
        psycopg.connect(postgres_database, autocommit=True) as other,
        ThreadPoolExecutor(32) as pool,
    ):
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted"
        other.execute("SELECT pg_advisory_lock(7)")
        reads = [pool.submit(log.query, HELD) for _ in range(32)]
        deadline = time.monotonic() + PATIENCE_S
        while (other.execute(waiting).fetchone() or (0,))[0] < 8:
            assert time.monotonic() < deadline
        other.execute("SELECT pg_advisory_unlock(7)")
        assert len({read.result(PATIENCE_S)[0][0] for read in reads}) == 8  # processes of the server


def test_a_server_with_stricter_isolation_by_default_serves_writers_in_turns(postgres_database: str) -> None:
    """A snapshot taken before the lock was had would not show what the holder before committed."""
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'".encode())
    errors: list[BaseException] = []
    open_log(postgres_database, create=True).close()
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        try:
            with open_log(postgres_database) as log:
                barrier.wait(PATIENCE_S)
                for _ in range(10):
                    with log.write() as transaction:
                        transaction.append([NewEvent(f"s{number}", "t", 1, b"{}")])
        except WorldProtocolError as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert errors == []
    with open_log(postgres_database, read_only=True) as log:
        assert log.head().size == 40
        assert verify_tree(log) == []


def test_events_without_a_tree_head_are_damage(postgres_database: str) -> None:
    with open_log(postgres_database, create=True) as log:
        append(log, 2)
        append(log, 3)
        with psycopg.connect(postgres_database, autocommit=True) as connection:
            connection.execute("DELETE FROM wp_head WHERE id = (SELECT max(id) FROM wp_head)")
        for ask in (log.head, lambda: list(log.read())):
            with pytest.raises(DamagedLogError) as caught:
                ask()
            assert caught.value.code == "EVENT_UNSEALED"
            assert (caught.value.details["events"], caught.value.details["head"]) == (5, 2)
    with open_log(postgres_database) as log, pytest.raises(DamagedLogError):
        append(log)


def test_several_hosts_of_a_service_file_are_refused_for_writing_and_those_of_the_environment_are_asked(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Libpq would take the first one that answers, which may be the primary of before."""
    host = str(make_url(postgres_url).query["host"])
    services = tmp_path / "services.conf"
    services.write_text(f"[one]\nhost={host}\n[several]\nhost={host},{host}\n", encoding="utf-8")
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    monkeypatch.setenv("PGUSER", "postgres")
    monkeypatch.setenv("PGDATABASE", "postgres")
    open_log("postgresql:///?service=one#hosts", create=True).close()
    with pytest.raises(RefusedError) as refused:
        open_log("postgresql:///?service=several#hosts")
    assert refused.value.code == "INVALID_ADDRESS"
    open_log("postgresql:///?service=several#hosts", read_only=True).close()
    monkeypatch.setenv("PGHOST", f"{host},{tmp_path}")
    with open_log("postgresql:///?standbys=asynchronous#hosts") as log:
        assert [one.error is None for one in log.hosts()] == [True, False]
    monkeypatch.setenv("PGHOST", f"{host},{host}")
    with open_log("postgresql:///#hosts") as log:
        assert len(log.hosts()) == 1
