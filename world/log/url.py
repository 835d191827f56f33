"""Addresses of logs: a SQLAlchemy URL, or the path of a SQLite file, with an optional ``#name``.

The scheme of the URL names the storage back end (``world.log.backends.registry``), which reads the rest of it.

Examples: ``world.db``, ``sqlite:///data/world.db#audit``, ``sqlite:///:memory:``,
``postgresql://user@host/db#main``. The name is what follows the last ``#``; without one it is ``main``. A replicated
server has several hosts, as libpq writes them (``postgresql://user@a:5432,b:5432/db``) or as SQLAlchemy does
(``postgresql://user@/db?host=a:5432&host=b:5432``).

An address may hold a password, in the authority or in an option. ``world.masking`` hides it; everything that shows an
address to people uses it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.log.backends.registry import storage_backend
from world.masking import URL_START, masked

if TYPE_CHECKING:
    from sqlalchemy import URL

DEFAULT_NAME: Final = "main"
MEMORY: Final = ":memory:"

_SEVERAL = re.compile(
    r"(?P<scheme>[^/?#]*://)(?P<user>[^/?]*@)?(?P<hosts>[^/?@]*,[^/?@]*)(?P<path>/[^?]*)?\??(?P<options>.*)"
)
_HOST = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]*)(?::(?P<port>\d*))?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

Backend = Literal["sqlite", "postgresql"]
"""Dialects of SQL that stores understand."""


@dataclass(frozen=True, slots=True, repr=False)
class LogAddress:
    """Where a log is kept.

    Args:
        scheme: the storage back end, as it is registered.
        name: the log's name in its store.
        path: the file of the store, or ``:memory:``; empty for a server.
        url: the store's URL; None for SQLite, whose path says it all.
    """

    scheme: str
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


def is_log_name(text: str) -> bool:
    """Return whether a log may have this name."""
    return _NAME.fullmatch(text) is not None


def hidden_name(name: str, of: str) -> str:
    """Return the name of a log that no address can have: of a copy until it is complete.

    Args:
        name: the name that the log will have.
        of: what is copied.
    """
    return f"{name}:{of}"


def parse_address(text: str) -> LogAddress:
    """Read a log's address.

    Raises:
        RefusedError: ``INVALID_ADDRESS`` for malformed text, a scheme without a storage back end, or an invalid name;
            ``NOT_LOADED`` when the back end cannot be loaded.
    """
    base, mark, name = text.rpartition("#")
    if not mark:
        base, name = text, DEFAULT_NAME
    if not is_log_name(name):
        place = "after the last '#'" if URL_START.match(base) else repr(name)  # part of a password with a '#' in it
        rule = "must be letters, digits, '.', '_' or '-'; in a password, write %23 for #"
        raise _invalid(text, f"the log's name {place} {rule}")
    if "://" not in base:
        if URL_START.match(base):
            raise _invalid(text, "a server is written postgresql://...")
        if not base or "\x00" in base:
            raise _invalid(text, "it names no file")
        return LogAddress("sqlite", name, path=base)
    from sqlalchemy import make_url  # the path of a file needs no SQLAlchemy, which takes long to import
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(_with_host_options(base))
    except (ArgumentError, ValueError):
        raise _invalid(text, "it is no database URL") from None
    if url.password is not None and base.partition("://")[2].partition("?")[0].count("@") > 1:
        raise _invalid(text, "it has more than one '@'; write %40 for an @ and %2F for a / in a password")
    try:
        return storage_backend(url.get_backend_name()).parse(url, name)
    except (LookupError, ValueError) as error:
        raise _invalid(text, str(error)) from None


def _with_host_options(base: str) -> str:
    """Return a URL whose authority lists several hosts with the hosts in its options, as SQLAlchemy reads them.

    Raises:
        ValueError: a host is malformed.
    """
    several = _SEVERAL.fullmatch(base)
    if several is None:
        return base
    each = [_HOST.fullmatch(one) for one in several["hosts"].split(",")]
    if not all(one and one["host"] for one in each):
        raise ValueError(several["hosts"])
    hosts = ",".join(one["host"].strip("[]") for one in each if one)
    ports = ",".join(one["port"] or "" for one in each if one)
    options = f"host={hosts}" + (f"&port={ports}" if ports.strip(",") else "")
    rest = f"&{several['options']}" if several["options"] else ""
    return f"{several['scheme']}{several['user'] or ''}{several['path'] or '/'}?{options}{rest}"


def _invalid(text: str, reason: str) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_ADDRESS, f"{masked(text)!r} is no address of a log: {reason}.")
