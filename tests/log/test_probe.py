"""Whether a log can be written now, found out without an event: in each database, with real processes in the way."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.log.test_sqlite_lock_holder import holding, is_stopped
from tests.support.patience import until
from world.errors import LogBusyError, RefusedError, WorldProtocolError
from world.log import EventLog, NewEvent, open_log
from world.log.backends import sqlite_probe
from world.log.backends.postgres_hosts import FlushingConnection
from world.log.backends.sqlite_locks import LockHolder
from world.log.backends.sqlite_probe import ROOM_BYTES

pytestmark = pytest.mark.requirement("LIVE-probe")

SOON_S = 0.05
"""How long the probes of these tests wait for a lock."""


def append(log: EventLog) -> None:
    with log.write() as transaction:
        transaction.append([NewEvent("s", "t", 1, b"{}")])


def obstacle(log: EventLog) -> WorldProtocolError:
    with pytest.raises(WorldProtocolError) as caught:
        log.probe(SOON_S)
    return caught.value


def test_a_log_that_can_be_written_is_left_as_it_is(log_url: str) -> None:
    with open_log(log_url, create=True) as log:
        append(log)
        before = log.head()
        for _ in range(3):
            log.probe(SOON_S)
        assert log.head() == before
        append(log)
        assert [event.position for event in log.read()] == [1, 2]


def test_a_probe_grows_the_file_once_and_is_no_commit_for_other_connections(tmp_path: Path) -> None:
    place = str(tmp_path / "world.db")
    with open_log(place, create=True) as log, open_log(place) as other:
        append(log)
        append(other)
        log.probe(SOON_S)
        size, noted = os.stat(f"{place}-wal").st_size, other._store._commits_of_others  # type: ignore[attr-defined]
        assert size > ROOM_BYTES  # it was written, although nothing was committed
        for _ in range(10):
            log.probe(SOON_S)
        assert os.stat(f"{place}-wal").st_size == size
        with other.write():
            assert other._store._commits_of_others == noted  # type: ignore[attr-defined]


def files(folder: Path) -> dict[str, bytes]:
    """Return the files of a log, without the shared memory, which has the marks of readers."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")}


def test_a_reader_changes_no_byte(tmp_path: Path) -> None:
    place = str(tmp_path / "world.db")
    with open_log(place, create=True) as log:
        append(log)
    before = files(tmp_path)
    with open_log(place, read_only=True) as log:
        log.probe(SOON_S)
    assert files(tmp_path) == before
    with open_log(place) as log:
        append(log)
        before = files(tmp_path)
        with open_log(place, read_only=True) as reading:
            reading.probe(SOON_S)
        assert files(tmp_path) == before


@pytest.mark.parametrize("read_only", [False, True])
def test_a_stopped_process_that_holds_the_lock_of_a_file_is_named(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "world.db"
    with open_log(str(path), create=True) as log:
        append(log)
    with open_log(str(path), read_only=read_only) as log:
        log.probe(SOON_S)
        with holding(path) as process:
            process.send_signal(signal.SIGSTOP)
            until(lambda: is_stopped(path))
            busy = obstacle(log)
            assert isinstance(busy, LogBusyError)
            assert (busy.details["pid"], busy.details["is_stopped"]) == (process.pid, True)
        log.probe(SOON_S)


def test_a_reader_takes_a_log_that_others_write_for_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may find the same process at each look; what was committed meanwhile shows that it releases the lock."""
    path = tmp_path / "world.db"
    with open_log(str(path), create=True) as log, open_log(str(path), read_only=True) as reading:
        append(log)
        holder = LockHolder(os.getpid(), "python", False)

        def committing(_path: str) -> Any:
            append(log)
            return holder

        monkeypatch.setattr(sqlite_probe, "lock_holder", committing)
        reading.probe(60.0)
        monkeypatch.setattr(sqlite_probe, "lock_holder", lambda _path: holder)
        assert obstacle(reading).code == "LOG_BUSY"


def test_a_file_that_was_moved_is_named(tmp_path: Path) -> None:
    path = tmp_path / "world.db"
    with open_log(str(path), create=True) as log:
        append(log)
        path.rename(tmp_path / "elsewhere.db")
        assert obstacle(log).code == "LOG_MOVED"
        assert not path.exists()  # a probe makes none
        (tmp_path / "elsewhere.db").rename(path)
        assert obstacle(log).code == "LOG_MOVED"  # as of a write: this process has to open it again
    with open_log(str(path)) as log:
        log.probe(SOON_S)


def test_a_backend_that_holds_the_lock_is_named(postgres_database: str) -> None:
    with open_log(postgres_database, create=True) as log, open_log(postgres_database) as other:
        append(log)
        log.probe(SOON_S)
        with other.write():
            busy = obstacle(log)
            assert isinstance(busy, LogBusyError)
            with psycopg.connect(postgres_database, autocommit=True) as connection:
                held = connection.execute(
                    "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objid = %s", (log.log_id,)
                ).fetchall()
            assert (busy.details["pid"],) in held
            assert f"Backend {busy.details['pid']} (client " in busy.message
            with open_log(postgres_database, read_only=True) as reading:
                assert obstacle(reading).details["pid"] == busy.details["pid"]
        log.probe(SOON_S)


def test_a_server_that_refuses_changes_is_named(postgres_database: str) -> None:
    with open_log(postgres_database, create=True) as log:
        append(log)
        reader = f"reader_{os.getpid()}"
        with psycopg.connect(postgres_database, autocommit=True) as connection:
            try:
                connection.execute(f"CREATE ROLE {reader} LOGIN".encode())
                connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {reader}".encode())
                address = postgres_database.replace("//postgres:@", f"//{reader}:@")
                with open_log(address) as poor:
                    refused = obstacle(poor)
                    assert isinstance(refused, RefusedError)
                    assert refused.code == "LOG_READ_ONLY"
                with open_log(address, read_only=True) as reading:
                    reading.probe(SOON_S)
            finally:
                connection.execute(f"DROP OWNED BY {reader}".encode())
                connection.execute(f"DROP ROLE {reader}".encode())


def test_a_closed_log_is_named(shared_log_url: str) -> None:
    log = open_log(shared_log_url, create=True)
    append(log)
    log.close()
    assert obstacle(log).code == "LOG_CLOSED"


def test_a_process_that_is_stopped_in_a_probe_holds_no_lock(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    execute = FlushingConnection.execute

    def watched(self: FlushingConnection, *given: Any, **options: Any) -> Any:
        answer = execute(self, *given, **options)
        rows = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = %s"
        held.append(watching.execute(rows, (self.info.backend_pid,)).fetchone()[0])  # type: ignore[index]
        return answer

    with (
        open_log(postgres_database, create=True) as log,
        psycopg.connect(postgres_database, autocommit=True) as watching,
    ):
        append(log)
        monkeypatch.setattr(FlushingConnection, "execute", watched)
        log.probe(SOON_S)
    assert held
    assert not any(held)
