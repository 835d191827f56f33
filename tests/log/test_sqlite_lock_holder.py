"""Which process holds the lock of writers of a SQLite file: real processes, stopped and killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S, until
from world.errors import LogBusyError
from world.log import NewEvent, open_log
from world.log.backends.sqlite_locks import lock_holder

HOLDER = """
import sys
from world.log import NewEvent, open_log
with open_log(sys.argv[1]) as log, log.write() as transaction:
    transaction.append([NewEvent("held", "t", 1, b"{}")])
    print("held", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def holding(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that holds the lock until it reads a line."""
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            yield process
        finally:
            process.kill()


def is_stopped(path: Path) -> bool:
    holder = lock_holder(str(path))
    return holder is not None and holder.is_stopped


def test_the_process_that_holds_the_lock_is_named_until_it_releases_it(tmp_path: Path) -> None:
    path = tmp_path / "world.db"
    open_log(str(path), create=True).close()
    assert lock_holder(str(path)) is None
    with holding(path) as process:
        holder = lock_holder(str(path))
        assert holder is not None
        assert (holder.pid, holder.is_stopped) == (process.pid, False)
        assert str(holder) == f"process {process.pid} ({holder.name})"
        assert holder.name.startswith("python")
        process.send_signal(signal.SIGSTOP)
        until(lambda: is_stopped(path))
        assert str(lock_holder(str(path))) == f"process {process.pid} ({holder.name}), which is stopped"
        process.send_signal(signal.SIGCONT)
        process.communicate(b"go on\n", timeout=PATIENCE_S)
        assert lock_holder(str(path)) is None
    with open_log(str(path)) as log:
        assert log.head().size == 1


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "world.db"
    open_log(str(path), create=True).close()
    with holding(path) as process:
        process.kill()
        process.wait(PATIENCE_S)
        assert lock_holder(str(path)) is None


def test_a_link_names_the_holder_of_the_file_behind_it_and_looking_releases_nothing(tmp_path: Path) -> None:
    path, link = tmp_path / "world.db", tmp_path / "link.db"
    with open_log(str(path), create=True) as log, log.write() as transaction:
        link.symlink_to(path)
        transaction.append([NewEvent("s", "t", 1, b"{}")])
        for name in (path, link):
            holder = lock_holder(str(name))
            assert holder is not None
            assert holder.pid == os.getpid()
        with pytest.raises(sqlite3.OperationalError), sqlite3.connect(path, timeout=0) as other:
            other.execute("BEGIN IMMEDIATE")
        other.close()


def test_the_holder_of_a_file_that_is_not_in_wal_mode_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("CREATE TABLE t (a)")
    assert lock_holder(str(path)) is None
    connection.execute("BEGIN IMMEDIATE")
    holder = lock_holder(str(path))
    assert holder is not None
    assert holder.pid == os.getpid()
    connection.close()
    assert lock_holder(str(path)) is None
    assert lock_holder(str(tmp_path / "missing.db")) is None


def test_a_writer_that_waits_in_vain_says_for_whom(tmp_path: Path) -> None:
    path = tmp_path / "world.db"
    open_log(str(path), create=True).close()
    with open_log(str(path), busy_timeout_ms=50) as log, holding(path) as process:
        process.send_signal(signal.SIGSTOP)
        until(lambda: is_stopped(path))
        with pytest.raises(LogBusyError) as busy, log.write():
            pass
        assert busy.value.details["pid"] == process.pid
        assert f"process {process.pid} (" in busy.value.message
        assert "which is stopped" in busy.value.message
