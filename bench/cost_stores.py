"""The stores whose costs ``bench_cost`` measures: SQLite files, and a PostgreSQL server of the benchmark's own.

A store makes addresses of new realms, and measures what they take: CPU time of the processes of the database, bytes of
tables with their indexes, bytes written, and commits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol

import psutil
import psycopg
from sqlalchemy import make_url

from bench.http_load import cpu_of

GROUPS: Final = {"wp_event": "events", "wp_head": "tree", "wp_chunk": "tree"}
"""Groups of tables; all others are the index, with the stored copies."""

_FILE_SIZES: Final = (
    "SELECT s.tbl_name, sum(d.pgsize) FROM dbstat d JOIN sqlite_schema s ON s.name = d.name GROUP BY s.tbl_name"
)
_SERVER_SIZES: Final = (
    "SELECT relname, pg_total_relation_size(oid) FROM pg_class WHERE relkind = 'r' AND relname LIKE 'wp\\_%'"
)
_COMMITS: Final = "SELECT count(*) FROM wp_head"
"""Each commit of a log stores one tree head."""


class MeasuredStore(Protocol):
    """A store whose costs are measured."""

    name: str

    def address(self, realm: str) -> str:
        """Return the address of a realm with this name, and make room for it."""
        ...

    def cpu(self) -> float:
        """Return the CPU seconds that processes of the database have used."""
        ...

    def written(self) -> int:
        """Return how many bytes have been written: to the WAL of a server, to all files by this process."""
        ...

    def commits(self, realm: str) -> int:
        """Return how many commits a realm has had."""
        ...

    def sizes(self, realm: str) -> dict[str, int]:
        """Return the bytes of a realm's tables and indexes by group."""
        ...

    def analyze(self, realm: str) -> None:
        """Give the planner statistics, which a server otherwise collects after a minute or more."""
        ...


def grouped(tables: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return bytes by group."""
    found = {"events": 0, "tree": 0, "index": 0}
    for name, size in tables:
        found[GROUPS.get(name, "index")] += size
    return found


class FileStore:
    """SQLite files in a folder."""

    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _file(self, realm: str) -> Path:
        return self._folder / f"{realm}.db"

    def address(self, realm: str) -> str:
        """Return the path of a file."""
        return str(self._file(realm))

    def cpu(self) -> float:
        """Return 0: SQLite runs in the process of the engine."""
        return 0.0

    def written(self) -> int:
        """Return the bytes that this process has written to any file: SQLite's WAL, and its checkpoints."""
        return int(psutil.Process().io_counters().write_chars)

    def commits(self, realm: str) -> int:
        """Return how many commits a realm has had."""
        database = sqlite3.connect(self._file(realm))
        (row,) = database.execute(_COMMITS).fetchall()
        database.close()
        return int(row[0])

    def analyze(self, realm: str) -> None:
        """Do nothing: no statement of a log on SQLite needs statistics."""

    def sizes(self, realm: str) -> dict[str, int]:
        """Return the bytes of the pages of tables and their indexes."""
        database = sqlite3.connect(self._file(realm))
        found = database.execute(_FILE_SIZES).fetchall()
        database.close()
        return grouped(found)


class ServerStore:
    """Databases of a PostgreSQL server on this machine, one for each realm.

    Args:
        url: of any database of the server, for a role that may create databases.
    """

    name = "postgresql"

    def __init__(self, url: str) -> None:
        self._url = make_url(url)
        self._connection = psycopg.connect(url, autocommit=True)
        folder = str(self._value("SHOW data_directory"))
        first = Path(folder, "postmaster.pid").read_text(encoding="utf-8").split()[0]
        self._postmaster = psutil.Process(int(first))
        self.version = str(self._value("SHOW server_version"))

    def _value(self, sql: str, database: str | None = None) -> object:
        if database is None:
            row = self._connection.execute(sql).fetchone()
        else:
            with psycopg.connect(self._of(database)) as connection:
                row = connection.execute(sql).fetchone()
        assert row is not None
        return row[0]

    def _of(self, realm: str) -> str:
        return self._url.set(database=realm).render_as_string(hide_password=False)

    def address(self, realm: str) -> str:
        """Return the URL of a database, which is created."""
        if self._value(f"SELECT count(*) FROM pg_database WHERE datname = '{realm}'") == 0:
            self._connection.execute(f"CREATE DATABASE {realm}")
        return self._of(realm)

    def cpu(self) -> float:
        """Return the CPU seconds of all processes of the server, with those that have ended."""
        times = self._postmaster.cpu_times()
        found = times.children_user + times.children_system + cpu_of(self._postmaster)
        for child in self._postmaster.children():
            try:
                found += cpu_of(child)
            except psutil.NoSuchProcess:  # ended meanwhile; the next call finds its time with the postmaster's
                continue
        return float(found)

    def written(self) -> int:
        """Return the bytes of the WAL, full images of pages among them."""
        return int(str(self._value("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")))

    def commits(self, realm: str) -> int:
        """Return how many commits a realm has had."""
        return int(str(self._value(_COMMITS, realm)))

    def analyze(self, realm: str) -> None:
        """Collect statistics of the tables."""
        with psycopg.connect(self._of(realm), autocommit=True) as connection:
            connection.execute("ANALYZE")

    def sizes(self, realm: str) -> dict[str, int]:
        """Return the bytes of tables with their indexes and long values."""
        with psycopg.connect(self._of(realm)) as connection:
            return grouped(connection.execute(_SERVER_SIZES).fetchall())

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
