"""What is asked of a replicated server: commits that wait for standbys, and what happens where they do not."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from tests.cli.realm import CliRealm
from tests.failover.cluster import Cluster, running_cluster
from tests.failover.writing import bank
from tests.support.patience import PATIENCE_S, until
from world.errors import RefusedError, WorldProtocolError
from world.log import EventLog, NewEvent, open_log
from worldprotocol import Realm

pytestmark = pytest.mark.slow

WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A primary and one standby that its commits wait for."""
    with running_cluster(("a", "b")) as running:
        yield running


def append(log: EventLog) -> None:
    with log.write() as transaction:
        transaction.append([NewEvent("s", "t", 1, b"{}")])


def code_of(call: Any) -> str:
    """Return the code of the error that a call raises."""
    with pytest.raises(WorldProtocolError) as caught:
        call()
    return caught.value.code


def appended_in_vain(cluster: Cluster, log: EventLog, statement: str) -> str:
    """Append while no standby receives anything, end the wait by a statement, and return the code of the error."""
    codes: list[str] = []
    with cluster["b"].receiving_nothing():
        writer = threading.Thread(target=lambda: codes.append(code_of(lambda: append(log))))
        writer.start()
        pid = until(lambda: cluster.primary.ask(WAITING))
        cluster.primary.ask(statement.format(pid=pid))
        writer.join(PATIENCE_S)
    return codes[0]


@pytest.mark.parametrize("end", ["pg_cancel_backend({pid})", "pg_terminate_backend({pid})"])
def test_a_commit_whose_wait_for_standbys_is_ended_is_not_acknowledged(cluster: Cluster, end: str) -> None:
    with open_log(cluster.url(cluster.database(), "a"), create=True) as log:
        append(log)
        assert appended_in_vain(cluster, log, f"SELECT {end}") == "COMMIT_UNKNOWN"
        append(log)
        assert log.head().size == 3  # PostgreSQL had committed it on the primary


def test_what_the_primary_alone_has_is_confirmed_before_it_is_built_upon(cluster: Cluster) -> None:
    """A repeated command that finds its first attempt writes nothing; it is acknowledged when a standby has that."""
    address = cluster.url(cluster.database(), "a")
    with open_log(address, create=True) as log, open_log(address, busy_timeout_ms=300) as other:
        append(log)
        with cluster["b"].receiving_nothing():
            assert code_of(lambda: append(other)) == "COMMIT_UNKNOWN"  # it gave up; the server still waits
            pid = until(lambda: cluster.primary.ask(WAITING))
            cluster.primary.ask(f"SELECT pg_cancel_backend({pid})")
            until(lambda: log.head().size == 2)
            with open_log(address, busy_timeout_ms=300) as third:
                assert code_of(lambda: _look(third)) == "COMMIT_UNKNOWN"
        _look(log)
        assert log.head().size == 2


def _look(log: EventLog) -> None:
    """Write nothing."""
    with log.write() as transaction:
        assert transaction.head.size == 2


def test_asynchronous_standbys_are_refused_unless_the_address_accepts_them(cluster: Cluster) -> None:
    database = cluster.database()
    address = cluster.url(database, "a")
    open_log(address, create=True).close()
    assert code_of(lambda: open_log(address, durability="normal")) == "REPLICATION_ASYNCHRONOUS"
    with open_log(address) as log:
        append(log)
        cluster.primary.change("synchronous_standby_names", "")
        try:
            assert code_of(lambda: append(log)) == "REPLICATION_ASYNCHRONOUS"  # also where it was opened before
            assert code_of(lambda: open_log(address)) == "REPLICATION_ASYNCHRONOUS"
            assert code_of(lambda: open_log(cluster.url(database))) == "REPLICATION_ASYNCHRONOUS"
            open_log(address, read_only=True).close()
            with open_log(f"{address}&standbys=asynchronous") as accepting:
                append(accepting)
            with Plain(cluster, database) as plain:
                assert code_of(lambda: open_log(plain.address)) == "REPLICATION_ASYNCHRONOUS"
        finally:
            cluster.primary.change("synchronous_standby_names", "ANY 1 (a, b)")
        append(log)


class Plain:
    """A role that may not see what standbys do.

    Args:
        cluster: where it is made.
        database: what it may write to.
    """

    def __init__(self, cluster: Cluster, database: str) -> None:
        self._cluster, self._database = cluster, database
        self.address = cluster.url(database, "a", user="plain")

    def __enter__(self) -> Plain:
        with suppress(psycopg.errors.DuplicateObject):
            self._run("CREATE ROLE plain LOGIN")
        self._run("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO plain")
        return self

    def __exit__(self, *_: object) -> None:
        self._run("DROP OWNED BY plain")

    def _run(self, statement: str) -> None:
        host = str(self._cluster.primary.socket)
        with psycopg.connect(host=host, user="postgres", dbname=self._database, autocommit=True) as connection:
            connection.execute(statement.encode())


@pytest.mark.parametrize("user", ["postgres", "plain"])
def test_a_base_backup_is_no_standby(tmp_path: Path, user: str) -> None:
    with running_cluster(("a",), quorum="") as single:
        server, database = single.primary, single.database()
        address = single.url(database, "a")
        open_log(address, create=True).close()
        program = server.programs / "pg_basebackup"
        copying: list[str | Path] = [
            program,
            "-D",
            single.root / "copy",
            "-h",
            server.socket,
            "-U",
            "postgres",
            "-c",
            "fast",
        ]
        backup = subprocess.Popen(
            [*copying, "--max-rate=100k"],
            user=server.user,
            cwd="/",
            stderr=subprocess.DEVNULL,
        )
        try:
            until(lambda: server.ask("SELECT count(*) FROM pg_stat_replication WHERE state <> 'startup'") == 2)
            with Plain(single, database):
                open_log(single.url(database, "a", user=user)).close()
        finally:
            for one in psutil.Process(backup.pid).children():
                one.kill()
            backup.kill()
            backup.wait(PATIENCE_S)


def test_doctor_says_which_replication_it_is(cluster: Cluster, tmp_path: Path) -> None:
    database = cluster.database()
    address = cluster.url(database)
    with Realm.create(address, domain=bank):
        pass

    def checks(log: str) -> dict[str, Any]:
        found = CliRealm(tmp_path)("--log", log, "--json", "doctor", code=1).json["checks"]
        return {one["check"]: one for one in found}

    found = checks(address)
    assert found["replication"]["ok"]
    assert found["replication"]["found"] == "synchronous, ANY 1 (a, b); standbys b (quorum, 0 bytes behind)"
    first, second = (found[f"host {cluster[name].socket}"]["found"] for name in "ab")
    assert first.startswith("primary, timeline 1, at 0/")
    assert second.startswith("standby, timeline 1, at 0/")
    assert found["writer"]["found"].startswith("epoch 0, timeline 1 of the database system ")
    cluster.primary.change("synchronous_standby_names", "ANY 2 (a, b)")
    waiting = checks(address)["replication"]
    assert not waiting["ok"]
    assert "every commit waits: it needs 2 of these standbys, 1 are connected" in waiting["found"]
    cluster.primary.change("synchronous_standby_names", "")
    try:
        found = checks(address)["replication"]
        assert (found["ok"], found["found"][:49]) == (False, "asynchronous: the log is not opened for writing; ")
        assert "synchronous_standby_names" in found["advice"]
        accepted = checks(f"{address}&standbys=asynchronous")["replication"]
        assert accepted["ok"]
        assert accepted["found"].startswith("asynchronous, as the address accepts")
    finally:
        cluster.primary.change("synchronous_standby_names", "ANY 1 (a, b)")


def test_doctor_says_that_a_server_has_no_standbys(postgres_database: str, tmp_path: Path) -> None:
    with Realm.create(postgres_database, domain=bank):
        pass
    found = CliRealm(tmp_path)("--log", postgres_database, "--json", "doctor", code=1).json["checks"]
    assert {"check": "replication", "ok": True, "found": "a single server without standbys"} in found


def test_a_standby_alone_is_read_and_not_written(cluster: Cluster) -> None:
    database = cluster.database()
    with open_log(cluster.url(database, "a"), create=True) as log:
        append(log)
        cluster.primary.ask("SELECT pg_switch_wal()")
        address = cluster.url(database, "b")
        written = cluster.primary.ask("SELECT pg_current_wal_lsn() - '0/0'")
        until(lambda: cluster["b"].ask("SELECT pg_last_wal_replay_lsn() - '0/0'") >= written)
        assert code_of(lambda: open_log(address)) == "LOG_UNAVAILABLE"
    with open_log(address, read_only=True) as reading:
        until(lambda: reading.head().size == 1)
        with pytest.raises(RefusedError):
            append(reading)
