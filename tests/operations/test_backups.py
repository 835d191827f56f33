"""Backups of a log in use are restored as they were: sound, and as the checkpoint of then says."""

from __future__ import annotations

import sqlite3
import subprocess
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.pipeline.shop import house, open_shop, shop
from world.audit.verify import verify
from world.clock import SystemClock, SystemIds
from world.log import TreeHead
from worldprotocol import Realm

pytestmark = pytest.mark.slow

Copy = Callable[[str], str]


def backed_up_while_used(address: str, copy: Copy) -> tuple[str, TreeHead]:
    """Return a copy that was made while a realm was written to, and the tree head before it."""
    with open_shop(address, clock=SystemClock(), ids=SystemIds()) as realm:
        realm.act("ann", "sell", {"item": "tea"})
        head = realm.log.head()
        is_over = threading.Event()

        def write() -> None:
            while not is_over.is_set():
                realm.act("ann", "sell", {"item": "nothing"})

        writing = threading.Thread(target=write)
        writing.start()
        try:
            return copy(address), head
        finally:
            is_over.set()
            writing.join()


def check_restored(address: str, head: TreeHead) -> None:
    """Check that a restored log is sound, continues the head of the checkpoint, and can be acted on."""
    with Realm.open_read_only(address) as restored:
        assert verify(restored.log, against=head).findings == ()
    with Realm.open(address, domain=shop, policies=[house]) as realm:
        assert realm.act("ann", "sell", {"item": "tea"}).status == "completed"


def test_the_online_backup_of_sqlite_is_restored(tmp_path: Path) -> None:
    def copy(_: str) -> str:
        with (
            closing(sqlite3.connect(tmp_path / "shop.db")) as log,
            closing(sqlite3.connect(tmp_path / "copy.db")) as to,
        ):
            log.backup(to, pages=16)
        return str(tmp_path / "copy.db")

    check_restored(*backed_up_while_used(str(tmp_path / "shop.db"), copy))


def test_a_dump_of_postgresql_is_restored(postgres_server: Any, postgres_database: str, tmp_path: Path) -> None:
    folder = Path(postgres_server.bin_path)
    assert (folder / "pg_dump").exists()
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        origin = connection.info.dbname
        name = f"{origin}_restored"
        connection.execute(f"CREATE DATABASE {name}".encode())
    target = postgres_database.replace(f"/{origin}?", f"/{name}?")
    try:

        def copy(address: str) -> str:
            dump = tmp_path / "realms.dump"
            subprocess.run([folder / "pg_dump", "--format", "custom", "--file", dump, address], check=True)
            subprocess.run([folder / "pg_restore", "--dbname", target, "--exit-on-error", dump], check=True)
            return target

        check_restored(*backed_up_while_used(postgres_database, copy))
    finally:
        with psycopg.connect(postgres_database, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def test_an_older_backup_does_not_pass_for_the_newest_state(tmp_path: Path) -> None:
    with open_shop(str(tmp_path / "shop.db")) as realm:
        with closing(sqlite3.connect(tmp_path / "shop.db")) as log, closing(sqlite3.connect(tmp_path / "old.db")) as to:
            log.backup(to)
        realm.act("ann", "sell", {"item": "tea"})
        head = realm.log.head()
    with Realm.open_read_only(str(tmp_path / "old.db")) as restored:
        assert verify(restored.log).findings == ()
        assert [one.code for one in verify(restored.log, against=head).findings] == ["LOG_TRUNCATED"]
