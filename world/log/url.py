"""Addresses of logs: a SQLAlchemy URL, or the path of a SQLite file, with an optional ``#name``.

Examples: ``world.db``, ``sqlite:///data/world.db#audit``, ``sqlite:///:memory:``,
``postgresql://user@host/db#main``. The name is what follows the last ``#``; without one it is ``main``.

An address may hold a password, in the authority or in an option. ``world.masking`` hides it; everything that shows an
address to people uses it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from world.errors import RefusedError
from world.masking import URL_START, masked

DEFAULT_NAME: Final = "main"
MEMORY: Final = ":memory:"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SQLITE = ("sqlite", "sqlite+pysqlite")
_POSTGRES = ("postgresql", "postgres", "postgresql+psycopg")

Backend = Literal["sqlite", "postgresql"]


@dataclass(frozen=True, slots=True, repr=False)
class LogAddress:
    """Where a log is kept.

    Args:
        backend: the kind of database.
        name: the log's name in its store.
        path: the SQLite file, or ``:memory:``; empty for a server.
        url: the server's URL; None for SQLite.
    """

    backend: Backend
    name: str
    path: str = ""
    url: URL | None = None

    def store(self) -> str:
        """Return the store's address for people, without a password."""
        return self.path if self.url is None else masked(self.url.render_as_string(hide_password=True))

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"

    def __str__(self) -> str:
        return f"{self.store()}#{self.name}"


def parse_address(text: str) -> LogAddress:
    """Read a log's address.

    Raises:
        RefusedError: ``INVALID_ADDRESS`` for malformed text, an unknown kind of database, or an invalid name.
    """
    base, mark, name = text.rpartition("#")
    if not mark:
        base, name = text, DEFAULT_NAME
    if not _NAME.fullmatch(name):
        told = "after the last '#'" if URL_START.match(base) else repr(name)  # part of a password with a '#' in it
        rule = "must be letters, digits, '.', '_' or '-'; in a password, write %23 for #"
        raise _invalid(text, f"the log's name {told} {rule}")
    if "://" not in base:
        if URL_START.match(base):
            raise _invalid(text, "a server is written postgresql://...")
        if not base or "\x00" in base:
            raise _invalid(text, "it names no file")
        return LogAddress("sqlite", name, path=base)
    try:
        url = make_url(base)
    except (ArgumentError, ValueError):
        raise _invalid(text, "it is no database URL") from None
    return _from_url(url, name, text)


def _from_url(url: URL, name: str, text: str) -> LogAddress:
    if url.drivername in _SQLITE:
        if url.host or url.query:
            raise _invalid(text, "a SQLite URL is sqlite:///path, with neither host nor options")
        return LogAddress("sqlite", name, path=url.database or MEMORY)
    if url.drivername in _POSTGRES:
        if "@" in (url.host or ""):
            raise _invalid(text, "its server's name has an '@' in it; write %40 for an @ in a password")
        if re.search("[;=]", url.database or ""):
            raise _invalid(text, "its database's name has a ';' or '=' in it; options follow a '?'")
        return LogAddress("postgresql", name, url=url.set(drivername="postgresql+psycopg"))
    raise _invalid(text, f"logs are kept in SQLite (sqlite) or PostgreSQL (postgresql), not {url.drivername}")


def _invalid(text: str, reason: str) -> RefusedError:
    return RefusedError("INVALID_ADDRESS", f"{masked(text)!r} is no address of a log: {reason}.")
