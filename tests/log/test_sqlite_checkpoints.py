"""Checkpoints under a SQLite with the WAL-reset fault: no other connection writes meanwhile."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.log.test_audit import fill
from tests.support.tables import for_each
from world.log import open_log
from world.log.backends import sqlite, sqlite_checkpoints
from world.log.backends.sqlite_checkpoints import has_wal_reset_fault


@for_each(
    ("version", "expected"),
    [
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 44, 7), False),
        ((3, 45, 0), True),
        ((3, 49, 9), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 0), True),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 53, 0), False),
        ((4, 0, 0), False),
    ],
)
def test_versions_with_the_fault_are_known_by_their_release_lines(
    version: tuple[int, int, int], expected: bool
) -> None:
    assert has_wal_reset_fault(version) is expected


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of a log whose SQLite has the fault, and whose WAL is soon due."""
    monkeypatch.setattr(sqlite, "has_wal_reset_fault", lambda: True)
    monkeypatch.setattr(sqlite_checkpoints, "WAL_BYTES", 100_000)
    monkeypatch.setattr(sqlite_checkpoints, "COMMITS", 5)
    found = tmp_path / "w.db"
    with open_log(str(found), create=True):
        pass
    return found


def traced(log: object, path: Path) -> list[tuple[str, bool]]:
    """Return the checkpoints that are made from now on, each with whether another connection can write meanwhile."""
    writer: sqlite3.Connection = log._store._writer  # type: ignore[attr-defined]
    found: list[tuple[str, bool]] = []

    def trace(statement: str) -> None:
        if "wal_checkpoint" in statement:
            with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
                try:
                    other.execute("BEGIN IMMEDIATE")
                    found.append((statement, True))
                except sqlite3.OperationalError:
                    found.append((statement, False))

    writer.set_trace_callback(trace)
    return found


def test_no_other_connection_can_write_during_a_checkpoint(path: Path) -> None:
    with open_log(str(path)) as log:
        assert log._store._writer.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)  # type: ignore[attr-defined]
        found = traced(log, path)
        fill(log, 100)
        assert 5 < len(found) < 20
        assert set(found) == {("PRAGMA wal_checkpoint(PASSIVE)", False)}
        assert path.with_name("w.db-wal").stat().st_size < 400_000  # it is begun anew
    with open_log(str(path), read_only=True) as log:
        assert log.stored_head().size == 300
        assert log.audit_storage(1) == []


def test_no_checkpoint_is_made_while_another_connection_has_the_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_log(str(path)) as log, closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
        checkpoints = log._store._checkpoints  # type: ignore[attr-defined]
        fill(log, 20)
        found = traced(log, path)
        other.execute("BEGIN IMMEDIATE")
        for _ in range(20):
            checkpoints.follow_commit(log._store._writer, lambda: None)  # type: ignore[attr-defined]
        assert found == []
        other.execute("ROLLBACK")
        checkpoints.follow_commit(log._store._writer, lambda: None)  # type: ignore[attr-defined]
        assert found == [("PRAGMA wal_checkpoint(PASSIVE)", False)]


def test_a_fixed_sqlite_makes_its_own_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "has_wal_reset_fault", lambda: False)
    with open_log(str(tmp_path / "w.db"), create=True) as log:
        assert log._store._writer.execute("PRAGMA wal_autocheckpoint").fetchone() == (1_000,)  # type: ignore[attr-defined]
