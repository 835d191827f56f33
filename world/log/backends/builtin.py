"""The storage back ends of this distribution: SQLite files, PostgreSQL servers, and exported Parquet files.

This module imports no driver; a store's module is imported when a log is opened.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.extras import missing_extra, needs_extra
from world.log.backends.registry import StoreOptions
from world.log.sql.statement import dialect
from world.log.store import Store
from world.log.url import MEMORY, LogAddress

if TYPE_CHECKING:
    from sqlalchemy import URL

_POSTGRES: Final = ("postgresql", "postgres", "postgresql+psycopg")

STANDBYS: Final = "standbys"
"""Option of an address by which the operator accepts that standbys lack commits (``standbys=asynchronous``)."""


class SqliteBackend:
    """Logs in a SQLite file, or in memory."""

    def parse(self, url: URL, name: str) -> LogAddress:
        """See ``StorageBackend.parse``."""
        if url.drivername not in ("sqlite", "sqlite+pysqlite"):
            raise ValueError(f"SQLite is opened by pysqlite (sqlite), not {url.drivername}")
        if url.host or url.query:
            raise ValueError("a SQLite URL is sqlite:///path, with neither host nor options")
        return LogAddress("sqlite", name, path=url.database or MEMORY)

    def open(self, address: LogAddress, options: StoreOptions) -> Store:
        """See ``StorageBackend.open``."""
        from world.log.backends.sqlite import SqliteStore

        return SqliteStore(
            address.path,
            read_only=options.read_only,
            create=options.create,
            durability=options.durability,
            busy_timeout_ms=options.busy_timeout_ms,
        )


class PostgresBackend:
    """Logs on a PostgreSQL server, reached by psycopg."""

    def parse(self, url: URL, name: str) -> LogAddress:
        """See ``StorageBackend.parse``."""
        if url.drivername not in _POSTGRES:
            raise ValueError(f"PostgreSQL is reached by psycopg (postgresql), not {url.drivername}")
        if "@" in (url.host or ""):
            raise ValueError("its server's name has an '@' in it; write %40 for an @ in a password")
        if re.search("[;=]", url.database or ""):
            raise ValueError("its database's name has a ';' or '=' in it; options follow a '?'")
        if url.query.get(STANDBYS, "asynchronous") != "asynchronous":
            raise ValueError(f"its option {STANDBYS} has one value, asynchronous")
        from sqlalchemy.exc import ArgumentError

        try:
            dialect("postgresql").create_connect_args(url)
        except ArgumentError as error:
            raise ValueError(str(error)) from None
        return LogAddress("postgresql", name, url=url.set(drivername="postgresql+psycopg"))

    def open(self, address: LogAddress, options: StoreOptions) -> Store:
        """See ``StorageBackend.open``.

        Raises:
            RefusedError: ``MISSING_EXTRA`` where psycopg is not installed, and what ``PostgresStore`` raises.
        """
        try:
            from world.log.backends.postgres import PostgresStore
        except ImportError:
            raise missing_extra("Logs on PostgreSQL", "psycopg", "postgres") from None

        assert address.url is not None
        return PostgresStore(
            address.url,
            read_only=options.read_only,
            durability=options.durability,
            busy_timeout_ms=options.busy_timeout_ms,
        )


class ParquetBackend:
    """A log in a folder of exported tables, for reading only."""

    def parse(self, url: URL, name: str) -> LogAddress:
        """See ``StorageBackend.parse``."""
        if url.drivername != "parquet" or url.host or url.query or not url.database:
            raise ValueError("a folder of Parquet files is parquet:///path, with neither host nor options")
        return LogAddress("parquet", name, path=url.database, url=url)

    def open(self, address: LogAddress, options: StoreOptions) -> Store:
        """See ``StorageBackend.open``.

        Raises:
            RefusedError: ``LOG_READ_ONLY`` for writing, ``NOT_LOADED`` where pyarrow is not installed, and what
                ``ParquetStore`` raises.
        """
        if not options.read_only:
            raise RefusedError(
                ErrorCode.LOG_READ_ONLY,
                f"The Parquet files in {address.path} are only read; nothing can be appended to their log. Import an "
                "export of it as JSON lines with `worldctl import`, and write there.",
                path=address.path,
            )
        with needs_extra("Logs in Parquet files", "sql"):
            from world.log.backends.parquet import ParquetStore

        return ParquetStore(address.path)


SQLITE: Final = SqliteBackend()
POSTGRESQL: Final = PostgresBackend()
PARQUET: Final = ParquetBackend()
